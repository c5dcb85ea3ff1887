# seed 601014: a backward pass whose gradients could not be recorded behind it
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor

def fn(x, y, z, n, f, flag, items, parts, box, table):
    t1 = x
    t4 = t1.requires_grad_()
    l5 = t4 * 2
    l5.sum().backward()

def arguments_1():
    x = tensor([5, 0], 'float64', 10, 'expanded')
    y = 1
    z = 1
    return (x, y, z, 3, 3.0, False, 1, 1, 1, {})
STEPS = [(arguments_1, '', None)]
OPTIONS = dict()
