"""Keys of what is kept on disk."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "kernels_without_their_flags",
        "runtime/build/cpp_compiler.py",
        'return digest(code, *FLAGS, *self._flags, "", *source.flags, "", *self._identity())',
        'return digest(code, *FLAGS, *self._flags, "", *self._identity())',
        "a kernel for one instruction set is taken for another",
    ),
]
