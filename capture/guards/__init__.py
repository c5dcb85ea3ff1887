"""What must hold for a captured call to be valid again, and where a call's values come from.

In: checks that the interpreter notes, as (source, kind, value).  Out: the program that the native guards run."""
