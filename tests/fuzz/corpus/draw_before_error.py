# seed 400359: a draw before an exception that starts the call anew
import torch


def fn(x, y, z, n, f, flag, items, parts, box, table):
    t12 = torch.rand(3, 3)
    t12[torch.tensor([])]


def arguments_0():
    x = 1
    y = 1
    z = 1
    return (x, y, z, 3, 0.5, True, 1, 1, 1, {})


STEPS = [(arguments_0, "", None)]
OPTIONS = dict()
