# seed 604411: a guard of a size that data decides
import contextlib
import math
import torch
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor
if DEVICE != 'cpu':
    torch.set_default_device(DEVICE)
counter = [0]
log = []

class Net(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(near(torch.linspace(-1, 1, 9)).view(3, 3))
        self.bias = torch.nn.Parameter(near(torch.ones(3) / 4))
        self.register_buffer('buf', torch.zeros(3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.training:
            self.buf += 1
        return LAYER(x @ self.weight + self.bias)

@contextlib.contextmanager
def scope(n):
    log.append(('in', n))
    try:
        yield n
    finally:
        log.append(('out', n))

def clip(n, low=0, high=5):
    return low if n < low else high if n > high else n
net = Net()
LAYER = torch.relu

def fn(x, y, z, n, f, flag, items, parts, box, table):
    t1 = y
    i2 = n
    t3 = t1
    torch.cat([t3, t1], out=z)
    t1 = z
    t4 = torch.cat([t1[t1 > 0], t3[t3 <= 0]])
    t3 = t1.reshape(n, -1)
    t1.chunk(2)[0].mul_(3)
    t3 = t4
    with scope(n >> 1):
        t5 = y
    t5.T.mul_(math.sqrt(abs(i2)))
    t4.bernoulli_(0.5)
    t3.zero_()
    t3 = torch.where(t5 > 0)[0]
    t1 = y
    t5 = y
    t4.sub_(y.mean())
    t5.set_(z)
    if n ** 2 != 5:
        l9 = list(t1.unbind(0))
        t10 = t5[t3.argmax() % y.shape[0]]
    else:
        t4[1:] = t3[:-1].clone()
    t11 = t1
    t1.as_strided((2,), (1,)).add_(counter[0])
    t3.bernoulli_(0.5)
    t11.flip(0).add_(1)
    t12 = t5
    l13 = list(y.unbind(0))
    t14 = t5.squeeze(0)
    i15 = len([k for k in items if k < n])
    torch.mul(t5, z, out=t11)
    i16 = -t12.element_size()
    t4.sub_(t14.mean())
    t18 = t12
    for k in range(clip(sorted([math.gcd(i15, len(y)), t12.shape[-1], 3])[1], 0, 4)):
        t11 = t14.masked_select(t18 > 0)
    v19 = {'a': t3}
    v19['a'] = v19['a'] + 1
    i22 = len([k for k in items if k < len(y)])
    t5.as_strided((2,), (1,)).add_(i15 + (box.x is y))
    i23 = int(t11.numel() / 2) or t14.numel()

def arguments_1():
    x = tensor([2, 3], 'float32', 10)
    y = x.t()
    z = tensor([2, 1], 'float32', 12)
    return (x, y, z, 3, 3.0, True, [], [tensor([2, 1], 'float32', 51)], Box(tensor([2, 1], 'float32', 71), 0), {'a': tensor([2, 1], 'float32', 81), 'b': 2})

def change_1():
    net.float()
STEPS = [(arguments_1, '', change_1)]
OPTIONS = dict(dynamic=None)
