# seed 601452: writes of an op on lists were not counted
import torch
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor

def fn(x, y, z, n, f, flag, items, parts, box, table):
    t1 = x
    t3 = t1.norm()
    torch._foreach_add_([t3], 1)
    return t3

def arguments_0():
    x = tensor([], 'float64', 0, grad='leaf')
    y = 1
    z = 1
    return (x, y, z, 3, 1.25, True, 1, 1, 1, {})
STEPS = [(arguments_0, '', None)]
OPTIONS = dict()
