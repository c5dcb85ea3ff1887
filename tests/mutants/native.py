"""The native plan and the C of guards on sizes."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "offset_of_an_input",
        "runtime/sizes.cpp",
        "for (int size : {view.offset_size, buffer.offset_size})",
        "for (int size : {view.offset_size})",
        "a library call gets a view at the offset of the call before, where the offset of an input varies",
    ),
    Mutant(
        "division_towards_zero",
        "capture/guard_sizes.c",
        "    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {",
        "    if (*remainder > 0 && b < 0) {",
        "a guard on `(n - m) // 2` with n below m divides as C does",
    ),
]
