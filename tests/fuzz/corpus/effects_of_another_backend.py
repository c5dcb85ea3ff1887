# seed 603375: effects in front of a number that raises in another backend's graph
import collections
import functools
import torch
import frameloom
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor
if DEVICE != 'cpu':
    torch.set_default_device(DEVICE)
SCALE = 1.5
counter = [0]
log = []
recent = collections.deque(maxlen=2)

class Holder(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.register_buffer('buf', torch.zeros(3))
        self.count, self.scale, self.seen, self.last = (0, 1.5, [], None)

    def bump(self, by=1):
        self.count += by
        return self.count

    def step(self, x):
        self.count += 1
        self.last = x
        return x * self.scale

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

def clip(n, low=0, high=5):
    return low if n < low else high if n > high else n

def change_scale(n):
    global SCALE
    SCALE = n
holder = Holder()
net = Net()
LAYER = torch.relu

def fn(x, y, z, n, f, flag, items, parts, box, table):
    items.sort()
    table.update(r=x)
    table |= {'k': n}
    recent.append(x)
    parts[-1].mul_(2)
    setattr(holder, 'late', n)
    setattr(holder, 'late', n)
    t1 = y
    holder.scale *= 0.5
    print(x.sum())
    i2 = n
    net.buf.add_(1)
    t3 = y
    table |= {'k': i2 + sum(x.shape)}
    globals().__setitem__('SCALE', round(items[0] / 3, 2))
    counter[0] += 1
    net.buf.copy_(torch.ones(3) * i2)
    t4 = (holder.step(z) ** 2).double()
    parts.insert(0, t4)
    parts.reverse()
    box.x = t4
    box.x = z
    frameloom.graph_break()
    holder.last = t1
    setattr(holder, 'late', i2)
    items.insert(0, n)
    net.buf.copy_(torch.ones(3) * n)
    holder.scale *= 0.5
    items.reverse()
    v5 = parts
    log.append(min(i2, z.shape[-1] // 2, 0))
    box.n += y.stride(-1)
    items.sort()
    t4 = t3
    table['a'] = t1
    v6 = Pair(counter[0], y)
    table['a'] = t1
    box.x = box.x + 1
    v7 = [y, t3]
    x = torch.zeros_like(t3)
    y = torch.ones(t1.shape) * t3.shape[-1]
    t8 = t1
    t9 = parts[0]
    recent.append(t9)
    t9 = y
    table['a'] = t9
    items[0] = functools.reduce(lambda a, b: a * b, x.shape, 1)
    parts.insert(0, t3)
    change_scale(f * t1.stride(1))
    globals().__setitem__('SCALE', items[0] / 2)
    items.append(n)
    frameloom.graph_break()
    log.append(n)
    box.later = t8
    table.update(r=t9)
    items.append((3 + 1) % i2 // 2)
    counter[0] += 1
    table.setdefault('q', []).append(box.n)
    t10 = y
    holder.buf.add_(1)
    return (x, t4, (clip(i2), isinstance(t9, torch.Tensor)))

def arguments_0():
    x = tensor([4, 4], 'int8', 0, 'column')
    y = tensor([4, 3], 'int8', 1, 'transposed')
    z = tensor([4, 4], 'int8', 2)
    return (x, y, z, -2, 0.0, True, [3, 0, 0], [tensor([4, 4], 'int8', 50), tensor([4, 4], 'int8', 51, 'inner')], Box(tensor([4, 4], 'float32', 70), 2), {'a': tensor([4, 4], 'int8', 80, 'inner'), 'b': y})

def arguments_1():
    x = tensor([2, 3], 'int8', 10)
    y = tensor([2, 3], 'int8', 11, 'expanded')
    z = tensor([2, 3], 'int8', 12, 'column')
    return (x, y, z, 2, 0.0, False, [2, 0], [tensor([2, 3], 'int8', 51, 'column'), tensor([2, 3], 'int8', 52)], Box(tensor([2, 3], 'float32', 71, 'column'), 1), {'a': tensor([2, 3], 'int8', 81, 'column'), 'b': 2})

def arguments_4():
    x = tensor([2, 3], 'int8', 40)
    y = x.detach()
    z = tensor([2, 3], 'int8', 42, 'inner')
    return (x, y, z, 0, 3.0, True, [2, 0], [tensor([2, 3], 'int8', 54, 'transposed')], Box(tensor([2, 3], 'float32', 74, 'stepped'), 2), {'a': tensor([2, 3], 'int8', 84, 'transposed'), 'b': 2})

def change_4():
    net.load_state_dict({k: v * 0.5 for k, v in net.state_dict().items()})
STEPS = [(arguments_0, '', None), (arguments_1, '', None), (arguments_4, '', change_4)]
OPTIONS = dict(dynamic=None, backend='eager')
