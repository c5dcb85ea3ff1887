"""The native plan and the C of guards on sizes."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "offset_of_a_view",
        "runtime/executor/sizes.cpp",
        "        place(&view.offset, view.offset_size);\n",
        "",
        "a library call gets a part of a tensor at the offset that it had in the first call",
    ),
    Mutant(
        "division_towards_zero",
        "capture/native/guard_sizes.c",
        "    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {",
        "    if (*remainder > 0 && b < 0) {",
        "a guard on `(n - m) // 2` with n below m divides as C does",
    ),
]
