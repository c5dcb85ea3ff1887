# seed 400452: a view that autograd refuses to look at
import torch
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor

def fn(x, y, z, n, f, flag, items, parts, box, table):
    t4 = y
    t13 = t4
    with torch.no_grad():
        t17 = t13.broadcast_to(2, 1)
    x = t13
    x.abs_()
    box.x = t17

def arguments_0():
    x = 1
    y = tensor([], 'float32', 1, grad='made')
    z = 1
    return (x, y, z, 5, 1.25, True, 1, 1, tensor([], 'float32', 70), {})
STEPS = [(arguments_0, '', None)]
OPTIONS = dict()
