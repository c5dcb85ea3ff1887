"""Numbers that are inputs of the graph: Python ints and floats that differ from call to call.

At first a number is specialized: guarded by its value. If it changes
(`capture/symbolic/dynamic_policy.py`), the next capture has a `SymbolicNumber` for it, guarded only by its
exact type. The interface, also for sizes of tensors:

  number.hint              its value in the captured call
  number.origin            its source, if it is not computed
  number.fn, .operands     the function that computes it from other numbers, with Python's own meaning
  number.specialize()          specializes it and returns the value: for every use that needs the value
  number.symbol()          the torch.SymInt or torch.SymFloat for calls of PyTorch's functions
  computed(t, fn, args)    a new number, or None if the values are needed

It is a `ConstValue` whose `real` specializes it when read: so code that does not know of dynamic numbers
works, with an entry per value. In the graph a number is a node whose `meta["val"]` is the hint
(`capture/symbolic/number_inputs.py`). New code computes it with Python's operators. A number in an input
tensor (`step.item()`) is a leaf, too: see `capture/library/torch_api/data.py`.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.bytecode.opcodes import IN_PLACE
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.errors import Avoid, let_mistakes_through
from frameloom.ir.numbers import single
from frameloom.ir.symbolic.symint import NumberNode

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.numbers.number import NumberValue

LARGEST = 1 << 62  # larger ints do not fit into a kernel's arguments
# What compiled code can compute (ir/numbers.py), and whether Python may raise or return a number of another
# type there.
MAY_REFUSE: dict[Any, bool] = {
    operator.add: False, operator.sub: False, operator.mul: False, operator.truediv: True, operator.floordiv: True,
    operator.mod: True, operator.pow: True, pow: True, math.pow: True, operator.neg: False, operator.pos: False, operator.abs: False,
    abs: False, float: False, int: True, min: False, max: False, math.sqrt: True, math.exp: True, math.log: True, math.log2: True,
    math.log10: True, math.log1p: True, math.expm1: True, math.sin: True, math.cos: True, math.tan: True, math.tanh: False,
    math.floor: True, math.ceil: True, math.trunc: True, single: False,
}  # fmt: skip
SAME = {abs: operator.abs, pow: operator.pow}
COMPARED = {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip
MAX_PROGRAM = 200
C_FLOAT_VALUE = ctypes.c_float.value.__get__  # type: ignore[attr-defined]
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class SymbolicNumber(ConstValue):
    """A dynamic number; see the top of the file. For a leaf from a tensor, `element` is the node of that
    input."""

    is_size = False

    def __init__(
        self,
        t: Tracer,
        hint: int | float,
        origin: Origin | None = None,
        fn: Any = None,
        operands: Sequence[ConstValue] = (),
        element: Any = None,
    ) -> None:
        self.t = t
        self.hint = hint
        self.origin = origin
        self.fn = fn
        self.operands = list(operands)
        self.element = element
        self.site: Any = None  # for a number from a tensor: where to break if its value is needed
        self.take: Callable[[], NumberValue] | None = None
        self._taken: NumberValue | None = None
        self.sized: Any = None  # its value as a size, if it was used as one (size.py)
        self._has_guard = False

    @property
    def real(self) -> Any:  # type: ignore[override]
        return self.specialize()

    @property
    def is_specialized(self) -> bool:
        return self._has_guard

    def type(self) -> type:
        return type(self.hint)

    def describe(self) -> str:
        return f"{type(self.hint).__name__} that varies"

    def truth(self, t: Tracer) -> bool:
        truth = outcome(t, operator.ne, [self, ConstValue(0)])
        return bool(self.real) if truth is None else truth

    def specialize(self) -> int | float:
        """Specializes the number: guards its value and returns it."""
        if not self.is_specialized:
            if self.site is not None:
                raise Avoid(self.site)
            self._has_guard = True
            try:
                if self.sized is not None:
                    int(self.sized)
                for operand in self.operands:
                    hint_of(operand, specialize=True)
            except BaseException:  # it depends on data: it stays computed from that
                self._has_guard = False
                raise
            self.t.specialized_numbers.append(self)
            if self.origin is not None:
                self.t.guards.add(self.origin, "equal", self.hint)
        return self.hint

    def unspecialize(self) -> None:
        """Takes back the guard of its value, since nothing depends on the value."""
        self._has_guard = False
        if self.origin is not None:
            self.t.guards.forget(self.origin, "equal", self.hint)

    def symbol(self) -> Any:
        if self.is_specialized:
            return self.hint
        return (torch.SymInt if type(self.hint) is int else torch.SymFloat)(Symbol(self))  # type: ignore[arg-type]

    def postfix(self, program: list[Any]) -> str | None:
        """Appends the steps that compute it in a guard; returns a text for it, None if there are too many
        steps.

        A specialized number is loaded like any other: `unspecialize` may take back the guard of its value,
        and a guard starts at a source.
        """
        if self.origin is not None:
            program.append(self.origin)
            return self.origin.path()
        if self.element is not None:
            origin = self.t.recorder.origin_of(self.element)
            program += [origin, (torch.Tensor.item, 1)]
            return f"{origin.path()}.item()"
        if len(program) > MAX_PROGRAM:
            return None
        if self.fn is single:
            text = _postfix(self.operands[0], program)
            program += [(ctypes.c_float, 1), (C_FLOAT_VALUE, 1)]
            return text
        texts = [_postfix(a, program) for a in self.operands]
        program.append((self.fn, len(texts)))
        return None if None in texts else f"{self.fn.__name__}({', '.join(texts)})"  # type: ignore[arg-type]

    @property
    def taken(self) -> NumberValue | None:
        """For a number from a tensor: the same number, taken from a result of the graph."""
        if self._taken is None and self.take is not None:
            self._taken = self.take()
            self.t.on_undo(functools.partial(setattr, self, "_taken", None))
        return self._taken

    def parts(self) -> list[Value]:
        return [self.taken] if self.take is not None else list(self.operands)  # type: ignore[list-item]

    def rebuild(self, r: Rebuilder) -> None:
        if self.taken is not None:
            return self.taken.rebuild(r)
        assert self.fn is not None
        r.call(self.fn, *self.operands)


class DeferredValue(SymbolicNumber):
    """A value made of dynamic numbers that no guard computes: using it specializes it."""

    def symbol(self) -> Any:
        return self.specialize()

    def truth(self, t: Tracer) -> bool:
        return bool(self.specialize())

    def postfix(self, program: list[Any]) -> str | None:
        return None


def outcome(t: Tracer, fn: Callable[..., Any], args: Sequence[Value]) -> bool | None:
    """Returns the result of comparing numbers, some of them dynamic, and guards only this result; None if the
    values are needed."""
    if fn not in COMPARED or not any(map(is_symbolic, args)):
        return None
    program: list[Any] = []
    texts = [_postfix(a, program) for a in args]
    if None in texts or len(program) > MAX_PROGRAM:
        return None
    program.append((fn, len(args)))
    result: bool = fn(*(hint_of(a) for a in args))  # type: ignore[arg-type]
    t.guards.outcome(f"{texts[0]} {COMPARED[fn]} {texts[-1]}", tuple(program), result)
    return result


def _postfix(value: Value, program: list[Any]) -> str | None:
    """Appends the steps that compute the number; returns a text for it."""
    if isinstance(value, SymbolicNumber):
        return value.postfix(program)
    if not isinstance(value, ConstValue) or value.type() not in (int, float):
        return None
    program.append((value.real,))
    return repr(value.real)


def hint_of(value: ConstValue, specialize: bool = False) -> Any:
    if isinstance(value, SymbolicNumber):
        return value.specialize() if specialize else value.hint
    return value.real


def taken_out(value: Value) -> Value:
    """Returns a number of an input tensor as a result of the graph, which can compare it."""
    taken = value.taken if isinstance(value, SymbolicNumber) else None
    return value if taken is None else taken


def is_symbolic(value: Value) -> bool:
    return isinstance(value, SymbolicNumber) and not value.is_specialized


def computed(t: Tracer, fn: Callable[..., Any], args: Sequence[Value]) -> Value | None:
    """Returns `fn(*args)` for numbers, some of them dynamic; None if the values are needed."""
    fn = IN_PLACE[fn][1] if fn in IN_PLACE else SAME.get(fn, fn)
    if fn not in MAY_REFUSE or not any(map(is_symbolic, args)):
        return None
    numbers: list[ConstValue] = []
    for a in args:
        if not isinstance(a, ConstValue) or a.type() not in (int, float):
            return None
        numbers.append(a)
    hints = [hint_of(a) for a in numbers]
    try:
        result = fn(*hints)
    except Exception as error:
        let_mistakes_through(error)
        return None  # Python raises it if the numbers are known
    if type(result) not in (int, float) or not all(map(_fits, (result, *hints))):
        return None
    if fn in (min, max) and len({type(h) for h in hints}) > 1:
        return None
    if len(args) not in (1, 2) or (fn is operator.pow and _is_odd_power(*hints)):
        return None
    if fn in (int, float, operator.pos) and type(result) is type(hints[0]):
        return numbers[0]
    made = SymbolicNumber(t, result, None, fn, numbers)
    if MAY_REFUSE[fn] and not _never_refuses(fn, numbers) and not t.refusable(made):
        return None
    return made


def _fits(number: int | float) -> bool:
    return type(number) is float or abs(number) < LARGEST


def _is_odd_power(base: int | float, exponent: int | float) -> bool:
    return type(base) is int and type(exponent) is int and exponent < 0  # the result is a float


def _never_refuses(fn: Any, numbers: list[ConstValue]) -> bool:
    if fn in (operator.truediv, operator.floordiv, operator.mod):
        divisor = numbers[1]
        return (
            not isinstance(divisor, SymbolicNumber)
            and divisor.type() is float
            and bool(divisor.real)
        )
    return False


class Symbol(NumberNode):
    """The node behind a torch.SymInt, SymFloat or SymBool, with the methods that PyTorch's C++ code calls."""

    def __init__(self, number: Any) -> None:
        self.number = number

    def is_int(self) -> bool:
        return self.number.type() is int

    def is_float(self) -> bool:
        return self.number.type() is float

    def is_bool(self) -> bool:
        return self.number.type() is bool

    def str(self) -> str:
        return f"<{self.number.describe()}>"

    _graph_repr = __repr__ = __str__ = str

    def guard_int(self, *place: Any) -> int:
        return int(self.number.real)

    def guard_float(self, *place: Any) -> float:
        return float(self.number.real)

    def guard_bool(self, *place: Any) -> bool:
        return bool(self.number.real)

    int_, bool_ = guard_int, guard_bool
    guard_size_oblivious = guard_or_true = guard_or_false = expect_true = expect_size = guard_bool

    def wrap_int(self, number: int) -> Symbol:
        return Symbol(ConstValue(number))

    wrap_float = wrap_bool = wrap_int

    def __getattr__(self, name: Any) -> Any:
        fn = ARITHMETIC.get(name)
        if fn is None:
            raise AttributeError(name)

        def apply(*others: Symbol) -> Symbol:
            numbers = [self.number, *(o.number for o in others)]
            t = next(n.t for n in numbers if isinstance(n, SymbolicNumber))
            known = outcome(t, fn, numbers)
            result = computed(t, fn, numbers) if known is None else ConstValue(known)
            return Symbol(ConstValue(fn(*(n.real for n in numbers))) if result is None else result)

        return apply


ARITHMETIC: dict[Any, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "float_truediv": operator.truediv, "int_truediv": operator.truediv, "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "float_pow": operator.pow,
    "pow_by_natural": operator.pow, "neg": operator.neg, "pos": operator.pos, "abs": abs, "sym_float": float, "sym_int": int,
    "sym_min": min, "sym_max": max, "sym_sqrt": math.sqrt, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
