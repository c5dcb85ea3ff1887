# seed 604058: a detached tensor that is written to with a history
import torch
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor

class Swap(torch.autograd.Function):

    def forward(ctx, x, y):
        return y

def fn(x, y, z, n, f, flag, items, parts, box, table):
    t1 = z.detach()
    x = t1
    t4 = Swap.apply(y, x)
    x[0] = t4[1]

def arguments_2():
    x = 1
    y = tensor([], 'complex64', 21, 'stepped', grad='leaf')
    z = tensor([4], 'complex64', 22)
    return (x, y, z, 5, 0.5, True, 1, 1, 1, {})
STEPS = [(arguments_2, '', None)]
OPTIONS = dict()
