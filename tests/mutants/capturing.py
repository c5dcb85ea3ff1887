"""Capture: what is recorded is not what the program does."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "permutation_for_its_inverse",
        "capture/tensors/functionalize.py",
        "(node, [dims.index(i) for i in range(len(dims))])",
        "(node, dims)",
        "a write through `x.permute(1, 2, 0)` lands in the wrong dimensions",
    ),
    Mutant(
        "sign_of_a_recorded_zero",
        "capture/recording/call_cache.py",
        "            return a.hex()",
        "            return (cls, a)",
        "`x + 0.0` is recorded, and then `x + -0.0` is said to be the same call",
    ),
    Mutant(
        "gradient_mode_of_a_recorded_call",
        "capture/recording/call_cache.py",
        "self.key = (fn, *tokens, torch.is_grad_enabled())",
        "self.key = (fn, *tokens)",
        "a call without gradient mode is written down like the same one with it",
    ),
    Mutant(
        "locals_of_handlers",
        "capture/bytecode/liveness.py",
        "            if instr.handler is not None:\n                names |= live[instr.handler.target.index]\n",
        "",
        "a variable that only an `except` reads is lost at a break inside the `try`",
    ),
    Mutant(
        "moved_keys",
        "capture/values/containers/dictionary.py",
        "elif index in self.moved or not is_unchanged(",
        "elif not is_unchanged(",
        "a key that is deleted and set again to the same value is gone, or at its old place",
    ),
    Mutant(
        "whole_slice_of_a_list",
        "capture/values/containers/container.py",
        "return self if is_whole and self.is_shared else",
        "return self if is_whole else",
        "`items[:]` is the list itself, not a copy",
    ),
]
