"""The program's objects as the interpreter has them: what is known of each, how Python's operations on it go, where it came from.

In: objects of the program and results of operations.  Out: values, which `resume` makes objects of again.
`base` has what all values do; numbers that vary are in `numbers/`, containers in `containers/`; functions and methods on them in `library`.
"""
