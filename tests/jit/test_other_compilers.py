"""What PyTorch's own compiler was asked to compile, or to leave alone, is left to it."""

import torch

import frameloom
from tests.helpers import check

compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
SEEN = []


def helper(x):
    SEEN.append((torch.compiler.is_compiling(), frameloom.is_compiling()))
    return x + 1


@torch.compiler.disable
def disabled(x):
    return helper(x) * 2


def test_a_function_compiled_by_pytorch():
    check(lambda x: compiled(x * 2) + 1, torch.ones(3), breaks=1, calls=3)


def test_nothing_beneath_a_disabled_function_is_compiled():
    SEEN.clear()
    check(lambda x: disabled(x * 2) + 1, torch.ones(3), calls=3)
    assert set(SEEN) == {(False, False)}
