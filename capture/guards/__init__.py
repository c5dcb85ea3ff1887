"""The conditions under which a captured call is valid again, and the sources of a call's values.

In: checks that the interpreter notes, as (source, kind, value). Out: the program that the native guards run.
"""
