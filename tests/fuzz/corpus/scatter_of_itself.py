# seed 1049: what eager refuses on overlapping tensors was done
import torch

from tests.fuzz.support import tensor


def fn(x, y):
    y.scatter_add_(0, torch.zeros_like(x, dtype=torch.int64), x)


def arguments():
    x = tensor([2, 2, 2], "float32", 0)
    return x, x


STEPS = [(arguments, "", None), (arguments, "", None)]
OPTIONS = dict()
