"""Programs as users write them around their models: configurations, registries, caches, protocols, logging, text.

PYTEST_DONT_REWRITE
"""

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import json
import logging
import math
import operator
import os
import re
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F

from tests.programs.changing import changes
from tests.programs.program import X, program

logger = logging.getLogger("user.model")


@dataclasses.dataclass(frozen=True)
class AttnConfig:
    dim: int = 4
    heads: int = 2
    dropout: float = 0.0
    kind: str = "full"
    extra: dict = dataclasses.field(default_factory=dict)

    @property
    def head_dim(self):
        return self.dim // self.heads

    def replace(self, **kw):
        return dataclasses.replace(self, **kw)

    @classmethod
    def from_dict(cls, d):
        return cls(**{k: v for k, v in d.items() if k in {f.name for f in dataclasses.fields(cls)}})


CFG = AttnConfig()


@program()
def dc_config(x):
    c = CFG.replace(heads=4)
    d = AttnConfig.from_dict({"dim": 8, "foo": 1})
    return x * c.head_dim + d.dim, c, dataclasses.asdict(d), c == CFG, hash((c.dim, c.heads))


REG: dict[str, Callable] = {}


def register(name):
    def deco(fn):
        REG[name] = fn

        @functools.wraps(fn)
        def wrapper(*a, **k):
            logger.debug("calling %s with %d args", name, len(a))
            return fn(*a, **k)

        return wrapper

    return deco


@register("gelu")
def my_gelu(x):
    return F.gelu(x)


@register("swish")
def my_swish(x, beta: float = 1.0):
    return x * torch.sigmoid(beta * x)


@program()
def registry(x):
    y = my_gelu(x) + REG["swish"](x, beta=2.0)
    for name, fn in sorted(REG.items()):
        y = y + fn(x)
    return y, sorted(REG), my_swish.__name__


class KV:
    def __init__(self):
        self.store: dict[int, tuple] = {}
        self.hits = 0

    def update(self, layer, k, v):
        if layer in self.store:
            pk, pv = self.store[layer]
            k = torch.cat([pk, k], 0)
            v = torch.cat([pv, v], 0)
            self.hits += 1
        self.store[layer] = (k, v)
        return k, v

    def __len__(self):
        return len(self.store)

    def __iter__(self):
        return iter(self.store.values())

    def __contains__(self, l):
        return l in self.store

    def __getitem__(self, l):
        return self.store[l]


@program()
def kvcache(x):
    c = KV()
    for i in range(2):
        for l in range(2):
            k, v = c.update(l, x, x + 1)
    return k, v, len(c), c.hits, [a.shape for a, b in c], 1 in c, c[0][0].sum()


class Out(collections.OrderedDict):
    def __post_init__(self):
        pass

    def __getattr__(self, n):
        try:
            return self[n]
        except KeyError:
            raise AttributeError(n) from None

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@program()
def outcls(x):
    o = Out(a=x + 1, b=None)
    o["c"] = x * 2
    return o.a, o.to_tuple(), hasattr(o, "zzz"), {k: v for k, v in o.items() if v is not None}


class Kind(str, enum.Enum):
    FULL = "full"
    LOCAL = "local"

    @classmethod
    def parse(cls, v):
        try:
            return cls(v)
        except ValueError:
            return cls.FULL


class Flag(enum.IntFlag):
    A = 1
    B = 2


@program()
def enum_(x):
    k = Kind.parse(CFG.kind)
    k2 = Kind.parse("nope")
    f = Flag.A | Flag.B
    match k:
        case Kind.FULL:
            y = x + 1
        case Kind.LOCAL:
            y = x - 1
    return y, k, k2 is k, f"{k.value}-{k.name}", Flag.A in f, int(f), [m.name for m in Kind]


@program()
def logging_(x):
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("shape %s", x.shape)
    logger.debug("val %s", x)
    logger.info(f"x {tuple(x.shape)}")
    return x + 1


_WARNED = set()


def warn_once(msg):
    if msg in _WARNED:
        return
    _WARNED.add(msg)


@functools.lru_cache(None)
def warn_once2(m):
    return None


@program()
def warnonce(x):
    warn_once("hi")
    warn_once2("a")
    return x + 1, len(_WARNED)


T = TypeVar("T")


@runtime_checkable
class HasForward(Protocol):
    def forward(self, x): ...


class Box(Generic[T]):
    def __init__(self, v: T):
        self.v = v

    def map(self, f: Callable[[T], Any]) -> "Box":
        return Box(f(self.v))


@program()
def generic(x):
    b = Box[int](3).map(lambda v: v * 2)
    return x * b.v, Box.__name__


class Sched(abc.ABC):
    @abc.abstractmethod
    def at(self, t): ...
    def table(self, n):
        return [self.at(i / n) for i in range(n)]


class Cos(Sched):
    def at(self, t):
        return math.cos(t * math.pi / 2)


@program()
def abc_(x):
    s = Cos()
    return x * s.table(4)[2], isinstance(s, Sched), torch.tensor(s.table(4))


@contextlib.contextmanager
def scope(name, stack):
    stack.append(name)
    try:
        yield ".".join(stack)
    finally:
        stack.pop()


@program()
def scopes(x):
    st = []
    with scope("a", st) as n1, scope("b", st) as n2:
        y = x + len(n2)
    return y, n1, n2, st


def tree_map(f, t):
    if isinstance(t, dict):
        return {k: tree_map(f, v) for k, v in t.items()}
    if isinstance(t, (list, tuple)):
        r = [tree_map(f, v) for v in t]
        return type(t)(*r) if hasattr(t, "_fields") else type(t)(r)
    if isinstance(t, torch.Tensor):
        return f(t)
    return t


class P2(NamedTuple):
    x: Any
    y: Any


@program()
def tree(x):
    return tree_map(
        lambda v: v * 2,
        {
            "a": [x, (x + 1, 3)],
            "b": P2(x, "s"),
            "c": torch.utils._pytree.tree_map(lambda v: v, [1, x]),
        },
    )


CONFIG_JSON = '{"scale": 2, "names": ["a", "b"]}'


@program()
def json_(x):
    c = json.loads(CONFIG_JSON)
    return x * c["scale"], c["names"]


@program()
def re_(x):
    m = re.match(r"layer\.(\d+)", "layer.12.weight")
    return x + int(m.group(1)), re.sub(r"\d", "#", "a1b2")


@program()
def env(x):
    return x + int(os.environ.get("NOPE", "3")), os.path.join("a", "b")


PIPE = [functools.partial(torch.add, alpha=2), operator.mul]


@program()
def pipe(x):
    y = functools.reduce(lambda a, f: f(a, x), PIPE, x)
    g = operator.attrgetter("head_dim")(CFG)
    it = operator.itemgetter(1, 0)([5, 6])
    return (
        y,
        g,
        it,
        functools.cmp_to_key(lambda a, b: b - a)
        and sorted([1, 3, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
    )


class Rope:
    def __init__(self, d):
        self.d = d

    @functools.cached_property
    def freqs(self):
        return 1.0 / (10000 ** (torch.arange(0, self.d, 2).float() / self.d))

    def __call__(self, n):
        return torch.outer(torch.arange(n).float(), self.freqs)


@program()
def rope_fresh(x):
    r = Rope(4)
    return r(3).sin() * x[:, :2], "freqs" in r.__dict__


@program()
def kwargs(x):
    kw = {"a": 1, "b": 2} | {"c": 3}

    def f(x, a, *, c=0, **rest):
        return x * a + c + sum(rest.values())

    return f(x, **kw), [*zip("ab", [1, 2], strict=True)], {**kw, "d": 4}.keys() - {"a"}


@program()
def assert_isinstance(x):
    assert isinstance(x, torch.Tensor), f"got {type(x)}"
    if not torch.is_tensor(x):
        raise TypeError
    if torch.onnx.is_in_onnx_export() or torch.jit.is_scripting():
        return x
    return x + 1


@program()
def slots(x):
    s = Sl(x)
    s.a += 1
    return s.a


class Sl:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


@program()
def deq(x):
    d = collections.deque(maxlen=2)
    for i in range(3):
        d.append(x + i)
    return torch.stack(list(d)), len(d)


@program()
def dictsort(x):
    d = collections.defaultdict(list)
    for i, n in enumerate(["b", "a", "b"]):
        d[n].append(x + i)
    return {k: torch.stack(v) for k, v in sorted(d.items())}, collections.Counter(
        "aab"
    ).most_common(1)


@changes
def marks_of_parameters():
    tensor = torch.ones(2)
    yield lambda x: (x + 1, isinstance(tensor, torch.nn.Parameter))
    tensor._is_param = True
    yield
    tensor._is_param = False
    yield


@changes
def attributes_that_a_protocol_asks_for():
    class Plain:
        pass

    plain = Plain()
    yield lambda x: (x + 1, isinstance(plain, HasForward))
    plain.forward = lambda: 1
    yield
    del plain.forward
    yield
    Plain.forward = lambda self, x: x
    yield


@changes
def shape_that_is_replaced():
    yield lambda x: x * x.shape[0]
    torch.Tensor.shape = property(lambda self: (7,))
    try:
        yield
    finally:
        del torch.Tensor.shape
    yield


class Answering:
    asked = 0

    def __getattr__(self, name):
        Answering.asked += 1
        raise AttributeError(name)


@program(
    graphs=1,
    breaks="unknown_call",
    before=lambda: setattr(Answering, "asked", 0),
    state=lambda: Answering.asked,
)
def protocol_of_an_object_that_answers_itself(x):
    return x + 1, isinstance(Answering(), HasForward)


class Hidden:
    def __init__(self):
        self.seen = []

    def __getattribute__(self, name):
        object.__getattribute__(self, "seen").append(name)
        return object.__getattribute__(self, name)


HIDDEN = Hidden()


@program(
    graphs=1,
    breaks="unknown_call",
    before=lambda: HIDDEN.seen.clear(),
    state=lambda: list(HIDDEN.seen),
)
def object_that_notes_every_look_in_a_call_that_breaks(x):
    return x + 1, weakref.getweakrefcount(HIDDEN)
