"""Classes of quantized weights: a rule for each function, dtypes as keys, calls of `super()`.

PYTEST_DONT_REWRITE
"""

import enum

import torch
import torch.nn.functional as F

from tests.programs.program import X, program


class Narrow(enum.Enum):
    INT2 = 2
    INT4 = 4


BOUNDS = {torch.int8: (-128, 127), Narrow.INT4: (-8, 7), torch.uint8: (0, 255)}


class Named(str, enum.Enum):  # noqa: UP042
    ONE = "one"


class OddlyEqual:
    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


class Weight(torch.Tensor):
    """Rows of int8 with scales; `rules` has the functions that know them."""

    rules: dict = {}

    @staticmethod
    def __new__(cls, rows, scale, note=None):
        return torch.Tensor._make_wrapper_subclass(cls, rows.shape, dtype=scale.dtype)

    def __init__(self, rows, scale, note=None):
        super().__init__()
        self.rows, self.scale, self.note = rows, scale, note

    @classmethod
    def of(cls, weight):
        low, high = BOUNDS[torch.int8]
        scale = weight.abs().amax(dim=1, keepdim=True) / high
        return cls((weight / scale).round().clamp(low, high).to(torch.int8), scale)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.rules:
            return cls.rules[func](*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        aten, kwargs = torch.ops.aten, kwargs or {}
        if func in (aten.detach.default, aten.clone.default):
            return cls(func(args[0].rows, **kwargs), args[0].scale, args[0].note)
        return func(*(a.rows * a.scale if isinstance(a, Weight) else a for a in args), **kwargs)


def linear(x, w, bias=None):
    rows = Weight.of(x) if isinstance(w, Weight) else x
    product = torch._int_mm(rows.rows.repeat(6, 1), w.t().rows)[: x.shape[0]]
    out = product * rows.scale * w.t().scale
    return out if bias is None else out + bias


Weight.rules[F.linear] = linear
Weight.rules[torch.Tensor.t] = lambda w: w.__class__(w.rows.t(), w.scale.t(), "t")


class Sized(torch.Tensor):
    """Calls methods that it inherits."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def add(self, other):
        return super().add(other) * 2

    def __init__(self, *args):
        super().__init__()
        self.note = "made"


def weights():
    torch.manual_seed(0)
    return Weight.of(torch.randn(8, 16)), torch.randn(3, 16), torch.randn(8)


@program(args=weights)
def quantized_operands(w, x, bias):
    return F.linear(x, w, bias), w.t().note


def swapped(number):
    def make():
        w, x, bias = weights()
        w.scale = w.scale * number
        w.note = number
        return w, x, bias

    return make


@program(calls=[swapped(1), swapped(2), swapped(1)], graphs=2)
def attributes_between_calls(w, x, bias):
    out = F.linear(x, w)
    return out + w.note


def sharing():
    w, x, bias = weights()
    return w, Weight(w.rows, w.scale), x


@program(calls=[sharing, lambda: (*weights()[:1], *weights()[:2])], graphs=2)
def one_inner_tensor_of_two(v, w, x):
    v.rows.add_(1)
    return F.linear(x, w), F.linear(x, v), v.rows is w.rows


@program(args=weights)
def inner_tensors_swapped(w, x, bias):
    out = F.linear(x, w)
    w.scale, old = w.scale * 2, w.scale
    return out, F.linear(x, w), old, w.scale


@program(args=lambda: (X.clone().as_subclass(Sized),))
def inherited_methods(x):
    return x.add(1), torch.sin(x)


@program(args=weights)
def the_class_of_a_tensor(w, x, bias):
    return w.__class__, w.t().__class__, type(w), x.__class__, x * 2


@program(args=(X, Narrow.INT4))
def members_as_keys(x, kind):
    return x + BOUNDS[kind][1], BOUNDS.get(Narrow.INT2), Narrow.INT2 in BOUNDS, [*BOUNDS]


@program(calls=[(X, {Narrow.INT2: 1}), (X, {Narrow.INT2: 2}), (X, {Narrow.INT4: 2}), (X, {Narrow.INT2: 1})], graphs=3)  # fmt: skip
def a_table_is_guarded(x, table):
    return x * table.get(Narrow.INT2, 5)


@program(calls=[(X, {Narrow.INT2}), (X, {Narrow.INT4}), (X, {Narrow.INT2})], graphs=2)
def a_set_is_guarded(x, members):
    return x * (2 if Narrow.INT2 in members else 3)


@program(args=(X, {Narrow.INT2: 1, torch.int8: 2}))
def a_table_changes(x, table):
    table[Narrow.INT4] = table.pop(Narrow.INT2) + 1
    table[torch.int8] += 1
    return x * table[Narrow.INT4], {**table}


@program(args=lambda: (X, {OddlyEqual(): 1}), graphs=0, breaks="dictionary_key")
def a_key_that_compares(x, table):
    return table.get(torch.int8)


@program()
def what_the_processor_can_do(x):
    return x + torch.cpu._is_vnni_supported() + torch.cpu._is_avx2_supported()


@program()
def eight_bit_floats(x):
    x = x.to(torch.float8_e4m3fn)
    y = x.t().to(torch.float32) * 3
    return y, y.clamp(-9, 9).to(torch.float8_e5m2).view(torch.uint8), x.to(torch.bfloat16)
