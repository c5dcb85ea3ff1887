"""Rules for library functions and methods, one file per subject.

Importing this package registers them in `builtins.FUNCTIONS`.
"""

from frameloom.capture.library import exceptions, functions, objects, signatures, stand_ins, text
from frameloom.capture.library.containers import (
    combinatorics,
    deques,
    dictionaries,
    heaps,
    iteration,
    itertools,
    sequences,
    sets,
)
from frameloom.capture.library.torch_api import (
    autograd,
    autograd_functions,
    checkpoints,
    control,
    data,
    distributions,
    draws,
    hooks,
    optimizers,
    torch_functions,
    wrappers,
)

__all__ = [
    "autograd",
    "autograd_functions",
    "checkpoints",
    "combinatorics",
    "control",
    "data",
    "deques",
    "dictionaries",
    "distributions",
    "draws",
    "exceptions",
    "functions",
    "heaps",
    "hooks",
    "iteration",
    "itertools",
    "objects",
    "optimizers",
    "sequences",
    "sets",
    "signatures",
    "stand_ins",
    "text",
    "torch_functions",
    "wrappers",
]
