"""Rules for library functions and methods, one file per subject.

The files register their rules in `call_rules.FUNCTIONS`; importing `all_rules` imports them all.
"""
