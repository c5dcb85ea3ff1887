# seed 15: writing through .data counted as a write

from tests.fuzz.support import tensor


def fn(x):
    t = x
    t.data.mul_(2)


def arguments():
    return (tensor([3], "float32", 0),)


STEPS = [(arguments, "", None), (arguments, "", None)]
OPTIONS = dict()
