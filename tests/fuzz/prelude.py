"""What every program may use: functions, classes with state, a network with an optimizer, custom derivatives."""

from __future__ import annotations

HEAD = """\
import collections
import contextlib
import functools
import itertools
import math
import warnings
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
import frameloom
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor
"""

BODY = """\
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)
SCALE = 1.5
DATA = near(torch.linspace(-1, 1, 12)).view(4, 3)
counter = [0]
log = []
names = set()
tally = collections.defaultdict(int)
recent = collections.deque(maxlen=2)
ticks = itertools.count(1)

class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("buf", torch.zeros(3))
        self.count, self.scale, self.seen, self.last = 0, 1.5, [], None

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
        self.weight = torch.nn.Parameter(near(torch.linspace(-1, 1, 9).exp() - 1).view(3, 3))
        self.bias = torch.nn.Parameter(near(torch.ones(3) / 4))
        self.register_buffer("buf", torch.zeros(3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.training:
            self.buf += 1
        return LAYER(x @ self.weight + self.bias)

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g

class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.scale = x.dim()
        return y + 1, x * ctx.scale

    @staticmethod
    def backward(ctx, g, h):
        return h * ctx.scale, g

class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g

@contextlib.contextmanager
def scope(n):
    log.append(("in", n))
    try:
        yield n
    finally:
        log.append(("out", n))

def helper(x, n=2, *, m=1):
    return x[:n] * m if x.shape[0] > n else x + m

def scaled(x):
    return (x * SCALE).tanh()

def compose(x, n):
    for g in (scaled, lambda y: y + n):
        x = g(x)
    return x

def twice(g, x, *args, **kwargs):
    return g(g(x, *args, **kwargs), *args, **kwargs)

def recursive(x, n):
    return x if n <= 0 else recursive(x + n, n - 1) * 2

@functools.lru_cache(None)
def factor(n):
    return n * 3

def memo(x, n):
    return x * factor(n)

def clip(n, low=0, high=5):
    return low if n < low else high if n > high else n

def change_scale(n):
    global SCALE
    SCALE = n

def warn(n):
    warnings.warn(f"told {n}")

def data():
    return DATA.clone()

def state():
    return [counter, log, names, tally, recent, SCALE, vars(holder), holder.buf, vars(net), list(net.state_dict().values()), [p.grad for p in net.parameters()]]

holder = Holder()
net = Net()
"""
LAYERS = ("torch.relu", "torch.tanh", "(lambda x: x)", "F.silu", "(lambda x: F.layer_norm(x, (3,)))", "(lambda x: F.dropout(x, 0.3, net.training))", "torch.nn.Linear(3, 3)", "torch.nn.LayerNorm(3)")  # fmt: skip
OPTIMIZERS = (
    "torch.optim.SGD(net.parameters(), lr=0.1)", "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)",
    "torch.optim.Adam(net.parameters(), lr=0.01)", "torch.optim.AdamW(net.parameters(), lr=0.01, amsgrad=True)", "torch.optim.RMSprop(net.parameters(), lr=0.01, centered=True)",
    "torch.optim.Adagrad(net.parameters())", "torch.optim.Adam(net.parameters(), capturable=False, foreach=False)", "torch.optim.Adadelta(net.parameters())", "torch.optim.NAdam(net.parameters())",
)  # fmt: skip
TRAINED = """\
optimizer = {optimizer}
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
"""
# What calls the jitted function, where it is not called as it is.
DRIVES = (
    *[""] * 8,
    "def drive(fn, *args):\n    return fn(*args), fn(*args)\n",
    "def drive(fn, x, *args):\n    made = fn(x, *args)\n    x.add_(1)\n    return made\n",
    "def drive(fn, *args):\n    made = fn(*args)\n    if isinstance(made, tuple):\n        with torch.no_grad():\n            made[0].add_(1)\n    return made\n",
    "def drive(fn, x, *args):\n    hooks = [x.register_hook(lambda g: g * 2)] if x.requires_grad else []\n    return fn(x, *args), len(hooks)\n",
    """\
def drive(fn, *args):
    for _ in range(2):
        made = fn(*args)
        for t in made if isinstance(made, tuple) else ():
            if isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point():
                t.float().sum().backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
    return made
""",
)
ARGUMENTS = "x, y, z, n, f, flag, items, parts, box, table"
# What is done before a call.
CHANGES = (
    "change_scale({n})", "net.eval()", "net.train()", "holder.scale = {n}", "holder.count = {i}", "counter[0] = {i}", "net.weight.data.mul_(0.5)", "holder.extra = {i}",
    "net.requires_grad_(False)", "net.requires_grad_(True)", "net.double()", "net.float()", "holder.seen.clear()", "holder.buf = torch.ones({i} % 3 + 1)", "log.clear()",
    "globals().update(scaled=lambda x: x + {n})", "Holder.bump = lambda self, by=2: by", "setattr(net, 'forward', lambda x: x * 2)", "net.zero_grad()",
    "net.load_state_dict({{k: v * 0.5 for k, v in net.state_dict().items()}})",
)  # fmt: skip
