"""Finds the number in a recorded one-element tensor where it follows from inputs in the CPU's memory.

A step counter of an optimizer is such a tensor: `step += 1; 0.9 ** step.item()`. Its number is read before
the graph runs. The effect of the recorded ops on it is computed beside the graph, with the same rounding."""

from __future__ import annotations

import functools
import operator
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.schema import is_view
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.numbers.number import NumberValue
from frameloom.capture.values.numbers.symbolic import SymbolicNumber, computed
from frameloom.ir.numbers import is_number, single

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32)
ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
COPIES = (aten.clone.default, aten._to_copy.default, aten.detach.default)
MAX_OPS = 50


def element_of(t: Tracer, fake: Fake, site: Site) -> SymbolicNumber | None:
    """Returns the value of `fake.item()` as a number that is an input; None where it does not follow from the
    inputs by simple ops. If its value must be known after all, capture breaks at `site`."""
    if not t.options.follows_elements or not _is_simple(fake):
        return None
    node = current(fake, t.recorder)  # type: ignore[arg-type]
    number = _Reader(t, site).number(node)
    if not isinstance(number, SymbolicNumber) or number.is_specialized:
        return None
    if number.take is None:
        number.take = functools.partial(_taken_out, t, node, number)
    return number


def _taken_out(t: Tracer, node: torch.fx.Node, number: SymbolicNumber) -> NumberValue:
    """Makes the graph return the number, and returns that result."""
    assert number.site is not None
    val = node.meta["val"]
    wide = torch.float64 if number.type() is float else torch.int64
    graph = t.recorder.graph
    copy = graph.call_function(aten._to_copy.default, (node,), {"dtype": wide})
    fake = Fake(torch.empty_like(val.meta, dtype=wide), val.device)
    copy.meta.update(val=fake, stack="")
    t.recorder.adopt(fake, copy)
    return NumberValue(t.from_python(fake), number.type(), number.site)  # type: ignore[arg-type]


def _is_simple(val: Any) -> bool:
    one = isinstance(val, Fake) and val.numel() == 1 and val.device.type == "cpu"
    return one and val.dtype in DTYPES and not val.meta.is_conj() and not val.meta.is_neg()


Site = tuple[CodeType, int]


class _Reader:
    def __init__(self, t: Tracer, site: Site) -> None:
        self.t = t
        self.site = site
        self.left = MAX_OPS

    def number(self, node: Any) -> Value | None:
        """Returns the number of a one-element node or of a constant."""
        if type(node) in (int, float):
            return ConstValue(node)
        if isinstance(node, torch.fx.Node) and is_number(node):
            return self.t.recorder.numbers.number_of(node)
        self.left -= 1
        if not isinstance(node, torch.fx.Node) or self.left < 0 or not _is_simple(node.meta["val"]):
            return None
        known = self.t.elements.get(node)
        if known is None:
            known = self._number(node)
            if isinstance(known, SymbolicNumber):
                known.site = known.site or self.site
                self.t.elements[node] = known
        return known

    def _number(self, node: torch.fx.Node) -> Value | None:
        if node.op == "placeholder":
            real = self.t.recorder.real_of(node)
            return SymbolicNumber(self.t, real.item(), element=node)
        if node.op == "get_attr":
            return ConstValue(self.t.recorder.constant(str(node.target)).item())
        made: Any = node.args[0] if node.target is operator.getitem else node
        if not isinstance(made, torch.fx.Node) or not isinstance(
            made.target, torch._ops.OpOverload
        ):
            return None
        target, args = made.target, made.args
        name = target._schema.name.partition("::")[2]
        if made is not node:  # a result of an op on lists of tensors
            if not name.startswith("_foreach_"):
                return None
            name, k = name.removeprefix("_foreach_"), node.args[1]
            args = tuple(a[k] if isinstance(a, list | tuple) else a for a in args)  # type: ignore[index]
        if is_view(made) or target in COPIES:
            return self._as(args[0], node.meta["val"].dtype)
        if target is aten.copy.default:
            return self._as(args[1], node.meta["val"].dtype)
        overloads = ("Tensor", "Scalar", "List", "ScalarList")
        if name not in ARITHMETIC or target._overloadname not in overloads:
            return None
        if len(args) != 2 or any(v not in (1, None) for v in node.kwargs.values()):
            return None
        return self._arithmetic(ARITHMETIC[name], args[0], args[1])

    def _as(self, node: Any, dtype: torch.dtype) -> Value | None:
        """Returns the number if it already has this dtype."""
        if not isinstance(node, torch.fx.Node) or not isinstance(node.meta["val"], Fake):
            return None
        return self.number(node) if node.meta["val"].dtype is dtype else None

    def _arithmetic(self, fn: Any, left: Any, right: Any) -> Value | None:
        dtypes = {n.meta["val"].dtype for n in (left, right) if isinstance(n, torch.fx.Node) and isinstance(n.meta["val"], Fake)}  # fmt: skip
        numbers = [self.number(left), self.number(right)]
        if len(dtypes) != 1 or None in numbers:
            return None
        (dtype,) = dtypes
        if dtype is torch.float32:
            numbers = [self._rounded(n) for n in numbers]
        elif dtype is not torch.float64 and (dtype is torch.int32 or any(n.type() is float for n in numbers)):  # type: ignore[union-attr]  # fmt: skip
            return None
        result = self.t.evaluate(fn, numbers, {})  # type: ignore[arg-type]
        return self._rounded(result) if dtype is torch.float32 else result

    def _rounded(self, number: Any) -> Value:
        """Rounds to 32 bits. Sums, differences and products of 32-bit numbers are exact enough in 64 bits to
        be rounded once more."""
        if not isinstance(number, SymbolicNumber):
            return ConstValue(single(float(number.real)))
        if number.fn is single or number.element is not None:
            return number
        return computed(self.t, single, [number]) or ConstValue(single(float(number.real)))
