# seed 4200201: with freezing, a frame compiled by itself could not forget entries whose weights were written to

import collections
import math
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor
DATA = near(torch.linspace(-1, 1, 12)).view(4, 3)

class Holder(torch.nn.Module):
    pass

class Net(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(near(torch.linspace(-1, 1, 9).exp() - 1).view(3, 3))
        self.bias = torch.nn.Parameter(near(torch.ones(3) / 4))
        self.register_buffer('buf', torch.zeros(3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return LAYER(x @ self.weight + self.bias)

def data():
    return DATA.clone()
holder = Holder()
net = Net()
LAYER = torch.nn.LayerNorm(3)
optimizer = torch.optim.Adam(net.parameters())

def fn(x, y, z, n, f, flag, items, parts, box, table):
    t3 = F.kl_div(net(data()).log_softmax(-1), data().softmax(-1))
    if (t6 := z).dim() > 1:
        pass
    pass
    try:
        checkpoint(net, data(), use_reentrant=False).sum().backward()
    except ERRORS as error:
        pass
    finally:
        pass
    optimizer.step()
    t14 = F.nll_loss(net(data()).log_softmax(-1), torch.tensor([0, 1, 2, 0]))
    net.train(t6.requires_grad)

    def gen(q):
        v15 = collections.deque([items[0], t14], maxlen=3)

def arguments_0():
    x = tensor([2], 'float32', 0, 'transposed')
    y = x.detach()
    z = tensor([2], 'float32', 2, 'stepped')
    return (x, y, z, 3, 3.0, False, [1, 2, 0], [tensor([2], 'float32', 50, 'stepped')], Box(tensor([2], 'float32', 70, 'stepped'), 1), {'a': tensor([2], 'float32', 80, 'column'), 'b': 2})

def arguments_1():
    x = tensor([1], 'float32', 10, 'column')
    y = tensor([1], 'float32', 11, 'inner')
    z = tensor([2], 'float32', 12, 'inner')
    return (x, y, z, -1, -1.25, False, [0, 0, 0], [tensor([1], 'float32', 51, 'expanded')], Box(tensor([1], 'float32', 71, 'transposed'), 2), {'a': tensor([1], 'float32', 81, 'expanded'), 'b': 2})

def change_1():
    pass

def arguments_3():
    x = tensor([1], 'float32', 30, 'column')
    y = tensor([1], 'float32', 31, 'stepped')
    z = tensor([1], 'float32', 32, 'stepped')
    return (x, y, z, 3, 3.0, False, [3, 1], [tensor([1], 'float32', 53, 'stepped'), tensor([1], 'float32', 54, 'transposed')], Box(tensor([1], 'float32', 73, 'stepped'), 0), {'a': tensor([1], 'float32', 83), 'b': x})

def change_3():
    pass
STEPS = [(arguments_0, '', None), (arguments_1, 'no_grad', change_1), (arguments_3, '', change_3)]
OPTIONS = dict(options={'freezing': True})
