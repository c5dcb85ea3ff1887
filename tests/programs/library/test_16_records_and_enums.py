"""dataclass, Enum, IntEnum, Flag, SimpleNamespace, TypedDict.

PYTEST_DONT_REWRITE
"""

import dataclasses
import enum
from dataclasses import InitVar, asdict, astuple, dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any, ClassVar, TypedDict

import torch

from tests.programs.program import X, program


@dataclass
class Config:
    width: int = 4
    scale: float = 2.0
    names: list = field(default_factory=list)
    kind: ClassVar[str] = "plain"

    def apply(self, x):
        return x * self.scale + self.width


@dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0

    @property
    def text(self):
        return f"{self.major}.{self.minor}"


@dataclass
class Checked:
    size: int
    start: InitVar[int] = 0
    end: int = field(init=False)
    hidden: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self, start):
        if self.size < 0:
            raise ValueError("negative")
        self.end = start + self.size


@dataclass(slots=True, kw_only=True)
class Slotted:
    a: Any
    b: int = 3


@dataclass
class Wide(Config):
    width: int = 8
    extra: Any = None


@program()
def dataclass_construction(x):
    c = Config(scale=3.0)
    c.names.append("n")
    c.width += 1
    return c.apply(x), c, Config().names, c.kind, Config(1, 2.0, ["q"])


@program()
def dataclass_equality_and_repr(x):
    return (
        x + 1,
        Config() == Config(),
        Config(1) == Config(2),
        repr(Config(1)),
        Config() != Config(),
        Config() == 4,
        str(Version(1, 2)),
    )


@program()
def frozen_ordered_dataclass(x):
    a, b = Version(1, 2), Version(1, 3)
    try:
        a.major = 5
    except dataclasses.FrozenInstanceError as error:
        message = str(error)
    return (
        x + a.minor,
        a < b,
        a >= b,
        max(a, b),
        sorted([b, a]),
        message,
        a.text,
        {a: 1}[Version(1, 2)],
        hash(a) == hash(Version(1, 2)),
    )


@program()
def dataclass_post_init(x):
    c = Checked(3, start=2)
    try:
        Checked(-1)
    except ValueError as error:
        message = str(error)
    return x + c.end, c, message, repr(c)


@program()
def dataclass_functions(x):
    c = Config(names=["a"])
    return (
        x + 1,
        [f.name for f in fields(c)],
        replace(c, width=9),
        asdict(c),
        astuple(c),
        dataclasses.is_dataclass(c),
    )


@program()
def slotted_dataclass(x):
    s = Slotted(a=x)
    s.b += 1
    return s.a * s.b, s, hasattr(s, "__dict__")


@program()
def dataclass_inheritance(x):
    w = Wide(extra=x)
    return w.apply(w.extra), w, isinstance(w, Config), w.width


@program(args=(X, Config(5, 1.5, ["a"])))
def dataclass_argument(x, c):
    c.names.append("b")
    c.scale = 1.0
    return c.apply(x)


@program(calls=[(X, Config(1)), (X, Config(2)), (X, Config(1))], graphs=2)
def dataclass_argument_is_guarded(x, c):
    return x + c.width


@program()
def dataclass_holding_tensors(x):
    s = Slotted(a=x + 1)
    t = replace(s, a=s.a * 2)
    return s, t, s is t


class Mode(enum.Enum):
    TRAIN = "train"
    EVAL = "eval"

    @property
    def factor(self):
        return 2 if self is Mode.TRAIN else 3

    @classmethod
    def default(cls):
        return cls.EVAL


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Name(str, enum.Enum):  # noqa: UP042
    RELU = "relu"
    TANH = "tanh"


@program()
def enum_members(x):
    m = Mode.TRAIN
    return (
        x * m.factor,
        m,
        m.name,
        m.value,
        m is Mode("train"),
        Mode["EVAL"],
        m == Mode.EVAL,
        Mode.default(),
        list(Mode),
        len(Mode),
        isinstance(m, Mode),
        m in (Mode.TRAIN,),
        {m: 1}[Mode.TRAIN],
        repr(m),
        str(m),
        f"{m}",
    )


@program()
def int_enum(x):
    return (
        x + Level.HIGH,
        Level.LOW < Level.HIGH,
        Level.LOW + 1,
        Level(5),
        [1, 2, 3][Level.LOW],
        max(Level),
        int(Level.HIGH),
        Level.LOW == 1,
        f"{Level.LOW}",
    )


@program()
def flags(x):
    both = Access.READ | Access.WRITE
    return (
        x + both.value,
        both,
        Access.READ in both,
        both & Access.READ,
        both ^ Access.READ,
        bool(Access(0)),
        ~Access.READ,
    )


@program()
def string_enum_names_a_function(x):
    return (
        getattr(torch, Name.RELU)(x),
        Name.TANH == "tanh",
        Name.RELU.upper(),
        getattr(torch, Name("tanh").value)(x),
    )


@program()
def enum_error_is_caught(x):
    try:
        Mode("nothing")
    except ValueError as error:
        return x + 1, str(error)


@program(calls=[(X, Mode.TRAIN), (X, Mode.EVAL), (X, Mode.TRAIN)], graphs=2)
def enum_argument(x, mode):
    if mode is Mode.TRAIN:
        return x + 1
    return x - 1


@program()
def enum_in_dict_and_match(x):
    table = {Mode.TRAIN: torch.sin, Mode.EVAL: torch.cos}
    for mode in Mode:
        x = table[mode](x)
    match mode:
        case Mode.TRAIN:
            return x
        case Mode.EVAL:
            return x * 2


@program()
def simple_namespace(x):
    n = SimpleNamespace(a=x, b=2)
    n.c = n.a * n.b
    n.b += 1
    del n.a
    return (
        n,
        n.c + n.b,
        hasattr(n, "a"),
        vars(n),
        SimpleNamespace(k=1) == SimpleNamespace(k=1),
        repr(SimpleNamespace(k=1)),
        getattr(n, "zz", None),
    )


@program(args=(X, SimpleNamespace(scale=2.0, layers=[1, 2])))
def namespace_argument(x, n):
    n.layers.append(3)
    n.seen = x + 1
    return x * n.scale + len(n.layers)


class Batch(TypedDict):
    ids: Any
    mask: Any


@program()
def typed_dict(x):
    b = Batch(ids=x, mask=x > 0)
    return b["ids"] * b["mask"], b, type(b)
