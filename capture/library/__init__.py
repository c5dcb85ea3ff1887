"""What library functions and methods come to, a file per subject; importing it registers them in `builtins.FUNCTIONS`."""

from frameloom.capture.library import (
    deques,
    dictionaries,
    draws,
    exceptions,
    functions,
    heaps,
    hooks,
    iteration,
    itertools,
    objects,
    sequences,
    sets,
    signatures,
    stand_ins,
    text,
    torch_functions,
)

__all__ = [
    "deques",
    "dictionaries",
    "draws",
    "exceptions",
    "functions",
    "heaps",
    "hooks",
    "iteration",
    "itertools",
    "objects",
    "sequences",
    "sets",
    "signatures",
    "stand_ins",
    "text",
    "torch_functions",
]
