# seed 2164: a number that only an autograd Function without result reads
import torch

from tests.fuzz.support import tensor


class StraightThrough(torch.autograd.Function):
    def forward(ctx, x):
        return x.round()

    def backward(ctx, g):
        return g


def fn(y, n, table):
    StraightThrough.apply(y[..., : max(n, n)][0])
    table["missing"]


def arguments():
    return tensor([3, 3], "float32", 1, grad="made"), 8589934592, {}


def arguments_1():
    return tensor([3, 3], "float32", 11, grad="made"), 2, {}


STEPS = [(arguments, "", None), (arguments_1, "float64", None)]
OPTIONS = dict(dynamic=True)
