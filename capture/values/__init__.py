"""Values of the program's objects: known properties, what operations on them do, and their sources.

In: objects of the program and results of operations. Out: values, which `resume` turns back into objects.
`base` has what all values share; dynamic numbers are in `numbers/`, containers in `containers/`; functions
and methods on them are in `library`.
"""
