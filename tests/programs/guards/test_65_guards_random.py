"""Random changes to a world with state of all kinds: the jitted answer is the plain one after each.

A seed decides everything; FRAMELOOM_CHANGES=n makes n changes for each seed (60 otherwise).  A failure names the seed and the changes.
"""

# ruff: noqa: B008
import collections
import dataclasses
import enum
import functools
import os
import random

import pytest
import torch
from torch import nn

from frameloom.capture import _capture
from tests.capture.capturing import GraphRunner

CHANGES = int(os.environ.get("FRAMELOOM_CHANGES", "60"))
FULL = 12  # entries, then they are dropped
GLOBAL = {"scale": 1.0}
FACTOR = 1.0
X = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) / 7


class Mode(enum.Enum):
    ADD = 1
    SUB = 2


class Loud(enum.IntEnum):
    LOW = 1
    HIGH = 5


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Options:
    gain: float = 1.0
    names: list = dataclasses.field(default_factory=lambda: ["a"])
    inner: object = None


class Space:
    def __init__(self, deep):
        self.deep = deep


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Config:
    width = 3.0  # also as an attribute of the class

    def __init__(self, rng):
        self.rate = rng.random()
        self.kind = "plain"
        self.table = {"a": 1.0, "b": [2.0, 3.0]}
        self.options = Options(inner=Space(deep=1.0))

    @property
    def half(self):
        return self.width / 2

    def __getattr__(self, name):
        if name == "absent":
            return 0.25
        raise AttributeError(name)


TOLD = {"base": 1.0}


@functools.lru_cache(maxsize=4)
def remembered(word, *, k=1.0):
    return TOLD["base"] * len(word) * k


@functools.cache
def looked_up(kind):
    return TOLD["base"] + len(kind)


def make_shift(amount):
    def shift(x, k=0.5, *, m=0.25):
        return x * k + amount + m

    return shift


class Block(nn.Module):
    bias_of_class = 0.125

    def __init__(self, rng, depth):
        super().__init__()
        self.layer = nn.Linear(3, 3, dtype=torch.float64)
        self.register_parameter("extra", None)
        self.register_buffer("offset", torch.full((3,), rng.random(), dtype=torch.float64))
        self.config = Config(rng)
        self.number, self.flag, self.word, self.nothing = rng.random(), True, "add", None
        self.items, self.pair, self.mode, self.loud = (
            [1.0, (2.0, 3.0)],
            Pair(1.0, [2.0]),
            Mode.ADD,
            Loud.LOW,
        )
        self.table = collections.OrderedDict(a=1.0, b=2.0)
        self.slotted, self.queue = Slotted(1.0), [Slotted(2.0)]
        self.shift, self.bound = (
            make_shift(rng.random()),
            functools.partial(make_shift(0.5), k=0.75),
        )
        self.device, self.wide = torch.device("cpu"), torch.float64
        self.parts = nn.ModuleList(Block(rng, depth - 1) for _ in range(2 if depth else 0))
        self.named = nn.ModuleDict({"t": nn.LeakyReLU(0.5), "s": nn.Identity()})

    @staticmethod
    def twist(x):
        return x * 1.03125

    def method(self, x):
        return x + self.bias_of_class

    def forward(self, x):
        x = self.layer(x) + self.offset
        if self.extra is not None:
            x = x * self.extra
        x = x + 0.11 * self.number + (0.13 if self.flag else 0.17)
        x = x * {"add": 1.01, "sub": 0.99}.get(self.word, 1.07)
        if self.nothing is None:
            x = x - 0.19
        x = x + self.items[0] * 0.23 + self.items[1][1] * 0.29 + len(self.items) * 0.31
        x = x * (self.pair.a + self.pair.b[0] * 0.37)
        x = x + 0.41 if self.mode is Mode.ADD else x - 0.43
        x = x * (1 + 0.01 * self.loud)
        for n, (key, value) in enumerate(self.table.items()):
            x = x + 0.47 * n * value + 0.053 * len(key)
        x = x + self.slotted.value * 0.59 + self.queue[0].value * 0.61
        x = self.bound(self.shift(x))
        config = self.config
        x = x * (1 + config.rate) + config.half * 0.067 + config.absent + len(config.kind) * 0.071
        x = x + config.table["b"][1] * 0.073 + sum(config.table["b"]) * 0.079
        x = x + config.options.gain * 0.083 + config.options.inner.deep * 0.089
        x = x + len(config.options.names) * 0.097
        x = x + remembered(self.word, k=0.5) * 0.101 + looked_up(config.kind) * 0.103
        if hasattr(self, "surprise"):
            x = x * self.surprise
        x = self.method(self.twist(x)) * GLOBAL["scale"] * FACTOR
        for part in self.parts:
            x = x + part(x) * 0.5
        for key, part in self.named.items():
            x = part(x) + len(key)
        return x.to(self.device, self.wide)


class World:
    def __init__(self, rng):
        self.rng = rng
        torch.manual_seed(rng.randrange(1 << 30))
        # Classes of its own, so that changing them is undone with the world.
        self.block_class = type("Block", (Block,), {})
        self.config_class = type("Config", (Config,), {})
        self.net = Block(rng, 1).requires_grad_(False)
        for block in self.blocks():
            block.__class__ = self.block_class
            block.config.__class__ = self.config_class
        net = self.net

        def program(x):
            return net(x) * factor

        factor = 1.0

        def set_factor(value):
            nonlocal factor
            factor = value

        self.program, self.set_factor = program, set_factor

    def blocks(self):
        return [module for module in self.net.modules() if isinstance(module, Block)]

    def block(self):
        return self.rng.choice(self.blocks())

    def number(self):
        return self.rng.choice([0.5, 1.5, self.rng.random()])


def settings(w):
    """Each change: a name and a function that makes it."""
    b, r, number = w.block(), w.rng, w.number
    c = b.config
    linear = lambda: nn.Linear(3, 3, dtype=torch.float64).requires_grad_(False)
    leaf = b.layer if isinstance(b.layer, nn.Linear) else b.layer[0]
    put = setattr
    return {
        "number": lambda: put(b, "number", number()),
        "number of another type": lambda: put(b, "number", r.choice([1, 1.0, True])),
        "flag": lambda: put(b, "flag", not b.flag),
        "word": lambda: put(b, "word", r.choice(["add", "sub", "other"])),
        "nothing": lambda: put(b, "nothing", r.choice([None, 0, ""])),
        "item": lambda: b.items.__setitem__(0, number()),
        "tuple in a list": lambda: b.items.__setitem__(1, (2.0, number())),
        "append": lambda: b.items.append(1),
        "clear": lambda: put(b, "items", [1.0, (2.0, 3.0)]),
        "namedtuple": lambda: put(b, "pair", Pair(number(), b.pair.b)),
        "list in a namedtuple": lambda: b.pair.b.__setitem__(0, number()),
        "enum": lambda: put(b, "mode", r.choice(list(Mode))),
        "int enum": lambda: put(b, "loud", r.choice([*Loud, 1])),
        "order": lambda: b.table.move_to_end(r.choice(list(b.table))),
        "key": lambda: b.table.update({r.choice("abcd"): number()}),
        "pop": lambda: len(b.table) > 1 and b.table.popitem(),
        "slot": lambda: put(b.slotted, "value", number()),
        "slot in a list": lambda: put(b.queue[0], "value", number()),
        "object in a list": lambda: b.queue.__setitem__(0, Slotted(number())),
        "function": lambda: put(b, "shift", make_shift(number())),
        "cell": lambda: put(b.shift.__closure__[0], "cell_contents", number()),
        "defaults": lambda: put(b.shift, "__defaults__", (number(),)),
        "kwdefaults": lambda: b.shift.__kwdefaults__.update(m=number()),
        "code": lambda: put(b.shift, "__code__", make_shift(1.0).__code__.replace(co_name=f"f{r.random()}")),
        "partial": lambda: b.bound.keywords.update(k=number()),
        "rate": lambda: put(c, "rate", number()),
        "kind": lambda: put(c, "kind", "x" * r.randrange(4)),
        "config table": lambda: c.table.update(b=[number(), number()]),
        "config list": lambda: c.table["b"].__setitem__(r.randrange(2), number()),
        "dataclass": lambda: put(c.options, "gain", number()),
        "dataclass list": lambda: c.options.names.append("n"),
        "namespace": lambda: put(c.options.inner, "deep", number()),
        "other namespace": lambda: put(c.options, "inner", Space(deep=number())),
        "shadow the class": lambda: put(c, "width", number()),
        "do not shadow": lambda: c.__dict__.pop("width", None),
        "class of configs": lambda: put(w.config_class, "width", number()),
        "property": lambda: put(w.config_class, "half", property(lambda self, k=number(): k)),
        "getattr": lambda: put(w.config_class, "__getattr__", lambda self, name, k=number(): k),
        "no longer absent": lambda: put(c, "absent", number()),
        "absent again": lambda: c.__dict__.pop("absent", None),
        "config": lambda: put(b, "config", type(c)(r)),
        "dictionary of the config": lambda: put(c, "__dict__", {**c.__dict__, "rate": number()}),
        "class of modules": lambda: put(w.block_class, "bias_of_class", number()),
        "method": lambda: put(w.block_class, "method", lambda self, x, k=number(): x * k),
        "static method": lambda: put(w.block_class, "twist", staticmethod(lambda x, k=number(): x * k)),
        "method of one module": lambda: b.__dict__.update(method=lambda x, k=number(): x - k),
        "method of all modules": lambda: b.__dict__.pop("method", None),
        "surprise": lambda: put(b, "surprise", number()),
        "surprise in the class": lambda: put(w.block_class, "surprise", number()),
        "no surprise": lambda: b.__dict__.pop("surprise", None),
        "class of a module": lambda: put(b, "__class__", r.choice([Block, w.block_class])),
        "parameter": lambda: put(leaf, "weight", nn.Parameter(torch.randn(3, 3).double(), False)),
        "data": lambda: put(leaf.weight, "data", torch.randn(3, 3).double().t()),
        "no bias": lambda: put(leaf, "bias", None),
        "bias": lambda: put(leaf, "bias", nn.Parameter(torch.randn(3).double(), False)),
        "extra": lambda: put(b, "extra", nn.Parameter(torch.randn(3).double(), False)),
        "no extra": lambda: put(b, "extra", None),
        "in place": lambda: leaf.weight.mul_(1.25),
        "buffer": lambda: put(b, "offset", torch.randn(r.choice([1, 3])).double()),
        "tied": lambda: put(leaf, "weight", w.net.layer.weight if isinstance(w.net.layer, nn.Linear) else leaf.weight),
        "layer": lambda: put(b, "layer", linear()),
        "two layers": lambda: put(b, "layer", nn.Sequential(leaf, linear())),
        "activation": lambda: b.named.update({r.choice("tsu"): nn.LeakyReLU(r.choice([0.25, 0.75]))}),
        "fewer activations": lambda: len(b.named) > 1 and b.named.pop(next(iter(b.named))),
        "parts": lambda: put(b, "parts", nn.ModuleList(list(b.parts)[::-1])),
        "hook": lambda: b.layer.register_forward_hook(lambda m, a, out, k=number(): out * k),
        "pre-hook": lambda: b.register_forward_pre_hook(lambda m, a, k=number(): (a[0] + k,)),
        "no hooks": lambda: (b.layer._forward_hooks.clear(), b._forward_pre_hooks.clear()),
        "global": lambda: globals().update(FACTOR=number()),
        "global table": lambda: GLOBAL.update(scale=number()),
        "closure": lambda: w.set_factor(number()),
        "cleared cache": lambda: (TOLD.update(base=number()), remembered.cache_clear(), looked_up.cache_clear()),
        "what a cached function reads": lambda: TOLD.update(base=number()),
        "other entries of a cache": lambda: [remembered(word) for word in r.sample("wxyz", 4)],
        "nothing that matters": lambda: put(b, "note", number()),
        "nothing that matters in a class": lambda: put(w.block_class, "note", number()),
        "global that does not matter": lambda: globals().update(UNUSED=number()),
    }  # fmt: skip


def run(program):
    try:
        return program(X)
    except Exception as error:
        return type(error), str(error)


def alike(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return (
            a.shape == b.shape
            and a.stride() == b.stride()
            and torch.allclose(a, b, 1e-9, 1e-9, True)
        )
    return type(a) is type(b) and not isinstance(a, torch.Tensor) and a == b


@pytest.mark.parametrize("seed", range(3))
def test_no_change_is_missed(seed):
    rng = random.Random(seed)
    w, done, compiled = World(rng), [], 0
    runner = GraphRunner()
    jitted = _capture.JitFunction(w.program, runner)
    with torch.no_grad():
        for _ in range(CHANGES):
            changes = settings(w)
            name = rng.choice(sorted(changes))
            changes[name]()
            done.append(name)
            want, before, entries = run(w.program), len(runner.graphs), len(jitted.entries)
            got = run(jitted)
            assert alike(got, want), f"seed {seed}, after {done}"
            if "matter" in name and not isinstance(want, tuple) and entries:
                assert len(runner.graphs) == before, f"seed {seed}: compiled again after {done}"
            compiled += len(runner.graphs) - before
            if len(jitted.entries) >= FULL:
                jitted.clear()
            if isinstance(want, tuple) or not 1e-6 < want.abs().max() < 1e6:  # hides what comes
                w, done = World(rng), []
                jitted = _capture.JitFunction(w.program, runner)
    globals().update(FACTOR=1.0)
    GLOBAL["scale"] = 1.0
    assert all("until one comes back" in reason for reason in runner.plain), runner.plain
    assert compiled > CHANGES // 4, "hardly anything was captured"
