# seed 604176: histories of views whose base was written to
import collections
import torch
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor
counter = 1
tally = collections

class Holder(torch.nn.Module):
    pass

class Net(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(near(torch.linspace(-1, 1, 9)).view(3, 3))
holder = 1
net = Net()

def fn(x, y, z, n, f, flag, items, parts, box, table):
    t6 = net.weight.sum()
    t6.backward()
    y = t6.view(-1)
    t9 = y
    t6.masked_fill_(t6 > 1, f)
    t11 = t6
    return (y, t11, t11.dtype)

def arguments_1():
    x = 1
    y = x
    z = 1
    return (x, y, z, 2, 3.0, True, [], [], Box(tensor([], 'float32', 71), 1), {})

def change_1():
    pass
STEPS = [(arguments_1, '', change_1)]
OPTIONS = dict()

def drive(fn, *args):
    made = fn(*args)
    for t in made if isinstance(made, tuple) else ():
        t.float().sum().backward()
