"""What library functions and methods come to, a file per subject; importing it registers them in `builtins.FUNCTIONS`."""

from frameloom.capture.library import (
    dictionaries,
    functions,
    iteration,
    sequences,
    sets,
    stand_ins,
    torch_functions,
)

__all__ = [
    "dictionaries",
    "functions",
    "iteration",
    "sequences",
    "sets",
    "stand_ins",
    "torch_functions",
]
