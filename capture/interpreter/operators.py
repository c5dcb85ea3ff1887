"""Operators and comparisons, also in place: which operand's method runs, in CPython's order.

In: the function of the `operator` module and the operands as values. Out: the result; or `Break`. Special
methods written in Python are interpreted. The operators of classes written in C are in
`container_operators.py`, `values/numbers/number.py` and, for tensors, `torch_calls.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.bytecode.opcodes import (
    COMPARISONS,
    IN_PLACE,
    OPERATORS,
    PY312,
    SPECIAL_METHODS,
)
from frameloom.capture.guards.class_lookup import (
    MISSING,
    asks_program,
    class_attribute,
    is_programs_method,
    is_subtype,
    name_in_texts,
    refuses_instances,
)
from frameloom.capture.interpreter import call_rules
from frameloom.capture.interpreter.container_operators import container_operator
from frameloom.capture.speculation.assume import is_asserted
from frameloom.capture.symbolic.numbers_given import with_number
from frameloom.capture.values.arrays.ndarray import ArrayValue, array_operator
from frameloom.capture.values.arrays.numpy_values import is_of_numpy
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import DTYPE_CLASSES, LITERALS, ConstValue, boolean
from frameloom.capture.values.draw import compared
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue, FunctionValue
from frameloom.capture.values.kinds import CONTAINERS, native_class
from frameloom.capture.values.numbers import number
from frameloom.capture.values.numbers.number import NumberValue, combine
from frameloom.capture.values.numbers.symbolic import is_symbolic, taken_out
from frameloom.capture.values.object import ObjectValue, boxed
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.capture.values.proxy import WeakRefValue
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.subclass import SubclassValue, is_of_tensors
from frameloom.capture.values.tensor import TensorValue
from frameloom.capture.values.token import TokenValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

EQUALITY = (operator.eq, operator.ne)
REMAINDER = (operator.mod, operator.imod)


def unary(t: Tracer, fn: Callable[[Any], Any], name: str, value: Value) -> Value:
    value = t.look(value)
    if isinstance(value, SubclassValue) and not is_of_tensors(
        name, class_attribute(value.cls, name)
    ):
        result = value.call_special(t, name)
        assert result is not None
        return result
    if isinstance(value, TensorValue):
        return t.torch_call(fn, [value], {})
    if isinstance(value, NumberValue):
        return number.unary(t, fn, value)
    if isinstance(value, ArrayValue):
        return array_operator(t, fn, value)
    if isinstance(value, ObjectValue):
        result = value.call_special(t, name)
        if result is not None:
            return result
        value = boxed(value) or value
    elif _is_program_operator(value, fn, name):
        return t.call_method(value.type(), name, [value])
    if PY312 and fn is operator.invert and value.type() is bool:
        raise Break("warning", "~ of a bool")
    return t.evaluate(fn, [value], {})


def binary(t: Tracer, fn: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Captures a binary operator, a comparison, or an in-place operator."""
    left, right = t.look(left), t.look(right)
    # Numbers are the most frequent operands: they skip all other checks.
    literal = type(left) is ConstValue is type(right) and type(left.real) in LITERALS
    if literal and type(right.real) in LITERALS:  # type: ignore[attr-defined]
        return t.evaluate(fn, [left, right], {})
    if _is_program_operator(left, fn) or _is_program_operator(right, fn):
        result = _special_binary(t, fn, left, right)
        if result is not None:
            return result
        if fn not in EQUALITY:
            raise Break("opaque_object", f"{left.describe()} {SYMBOLS.get(fn)} {right.describe()}")
        return boolean(_default_equal(t, left, right) is (fn is operator.eq))
    if isinstance(left, ConstValue) and isinstance(right, ConstValue):
        if not (is_symbolic(left) or is_symbolic(right)) or not is_asserted(t.frame):
            return t.evaluate(fn, [left, right], {})
        left, right = taken_out(left), taken_out(right)  # the graph checks them
        if not isinstance(left, NumberValue) and not isinstance(right, NumberValue):
            return t.evaluate(fn, [left, right], {})
    if fn in REMAINDER and left.type() is str and not issubclass(right.type(), str):
        return call_rules.FUNCTIONS[str.__mod__](t, [left, right], {})
    if isinstance(left, NumberValue) or isinstance(right, NumberValue):
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            return with_number(t, fn, [left, right], {})
        return combine(t, fn, left, right)
    if isinstance(left, ObjectValue | SubclassValue) or isinstance(
        right, ObjectValue | SubclassValue
    ):
        _check_torch_function(left, right)
        if boxed(left) is not None or boxed(right) is not None:
            return _with_boxed(t, fn, left, right)
        result = _special_binary(t, fn, left, right)
        if result is not None:
            return result
        if any(isinstance(v, SubclassValue) and _has_operator(v, fn) for v in (left, right)):
            raise Break(
                "tensor_subclass", f"{left.describe()} {SYMBOLS.get(fn)} {right.describe()}"
            )
    if issubclass(left.type(), DTYPE_CLASSES) or issubclass(right.type(), DTYPE_CLASSES):
        return t.evaluate(fn, [left, right], {})  # they compare themselves with names and classes
    if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
        return array_operator(t, fn, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        if fn in (operator.eq, operator.ne) and not _comparable_to_tensor(left, right):
            return ConstValue(fn is operator.ne)
        for name in SPECIAL_METHODS.get(fn, ()):
            class_attribute(torch.Tensor, name)
        return t.torch_call(fn, [left, right], {})
    if isinstance(left, TokenValue) and isinstance(right, TokenValue) and fn in EQUALITY:
        return boolean((left.key(t) == right.key(t)) is (fn is operator.eq))
    has_been_asked = fn in COMPARISONS.values() and isinstance(left, ObjectValue)
    known = None if has_been_asked else container_operator(t, fn, left, right)
    if known is not None:
        return known
    if (answer := compared(fn, left, right)) is not None:
        return boolean(answer)
    if fn in (operator.eq, operator.ne):
        equal = _default_equal(t, left, right)
        return ConstValue(equal if fn is operator.eq else not equal)
    if any(isinstance(v, ObjectValue) and v.payload is None for v in (left, right)):
        if is_sequence_operator(fn, left, right):
            t.raise_unworded(TypeError, unsupported(fn, left, right))
        t.raise_(TypeError, unsupported(fn, left, right))
    if fn in IN_PLACE and left.native is not None:
        t.raise_unworded(TypeError, unsupported(fn, left, right))
    return t.evaluate(IN_PLACE[fn][1] if fn in IN_PLACE else fn, [left, right], {})


def _check_torch_function(left: Value, right: Value) -> None:
    """Breaks if a tensor meets an object with `__torch_function__`: PyTorch calls that before the object's
    own methods."""
    for tensor, other in ((left, right), (right, left)):
        if (
            isinstance(tensor, TensorValue)
            and class_attribute(other.type(), "__torch_function__") is not MISSING
            and not isinstance(other, TensorValue)
        ):
            raise Break("opaque_object", f"an operator on {other.describe()}, which has __torch_function__")  # fmt: skip


def _is_program_operator(value: Value, fn: Callable[..., Any], name: str = "") -> bool:
    """Whether code of the program defines the operator for a constant or a class. `name`: the method of a
    unary operator."""
    if not isinstance(value, ConstValue | ClassValue) or value.type() in LITERALS:
        return False
    own, plain = IN_PLACE.get(fn, (name, fn))
    also = "__eq__" if fn is operator.ne else ""
    return asks_program(value.type(), filter(None, (own, also, *SPECIAL_METHODS.get(plain, ()))))


def _has_operator(value: Value, fn: Callable[..., Any]) -> bool:
    """Whether the class of a tensor has a method of its own for the operator."""
    own, plain = IN_PLACE.get(fn, ("", fn))
    names = filter(None, (own, *SPECIAL_METHODS.get(plain, ())))
    return any(not is_of_tensors(name, class_attribute(value.type(), name)) for name in names)


def is_sequence_operator(fn: Callable[[Any, Any], Any], left: Value, right: Value) -> bool:
    """Whether a sequence's own code raises the error. Its text is different for each class."""
    return fn in SEQUENCE_OPERATORS and any(
        class_attribute(v.type(), "__getitem__") is not MISSING and not isinstance(v, ObjectValue)
        for v in (left, right)
    )


SEQUENCE_OPERATORS = (operator.add, operator.iadd, operator.mul, operator.imul)


def unsupported(fn: Callable[[Any, Any], Any], left: Value, right: Value) -> str:
    symbol = SYMBOLS.get(fn, "?")
    names = " and ".join(f"'{name_in_texts(v.type())}'" for v in (left, right))
    if fn in COMPARISONS.values():
        return f"'{symbol}' not supported between instances of {names}"
    symbol = "** or pow()" if symbol == "**" else symbol
    return f"unsupported operand type(s) for {symbol}: {names}"


SYMBOLS = {fn: symbol for symbol, fn in {**OPERATORS, **COMPARISONS}.items()}


def _comparable_to_tensor(left: Value, right: Value) -> bool:
    """Whether an op compares the tensor with this operand, and not by identity. Breaks for an operand that is
    neither known nor a Python object, since PyTorch may make a number or a tensor of it: NumPy's numbers
    and arrays, instances of subclasses of numbers and tensors."""
    other = right if isinstance(left, TensorValue) else left
    is_number = issubclass(other.type(), int | float | complex)
    if isinstance(other, ConstValue | TensorValue):
        return is_number or isinstance(other, TensorValue) or is_of_numpy(other.real)
    was_asked = isinstance(other, ObjectValue) and other.special("__eq__") is not MISSING
    is_plain = class_attribute(other.type(), "__eq__") is object.__eq__
    if is_number or not (
        was_asked or is_plain or issubclass(other.type(), (*CONTAINERS, MethodType))
    ):
        raise Break("opaque_object", f"{left.describe()} == {right.describe()}")
    return False


def _default_equal(t: Tracer, left: Value, right: Value) -> bool:
    """Compares objects that have no equality but identity."""
    # Weak references compare the objects that they refer to, whose `__eq__` may say anything.
    if left is right and not isinstance(left, ObjectValue | OpaqueValue | WeakRefValue):
        return True
    for value in (left, right):
        if isinstance(value, ConstValue | ClassValue | FunctionValue | BuiltinValue):
            continue
        if isinstance(value, ObjectValue) and value.special("__eq__") is not MISSING:
            continue  # its `__eq__` returned NotImplemented
        if class_attribute(value.type(), "__eq__") is not object.__eq__:
            has_own = value.native is not None or isinstance(value, BoundMethodValue)
            if has_own and left.type() is not right.type():
                continue
            raise Break("opaque_object", f"{left.describe()} == {right.describe()}")
    return t.identical(left, right)


def _special_binary(
    t: Tracer, fn: Callable[[Any, Any], Any], left: Value, right: Value
) -> Value | None:
    """Calls the special methods of user classes in CPython's order; returns None if none applies."""
    if fn in IN_PLACE:
        name, plain = IN_PLACE[fn]
        if (result := _ask(t, name, left, right)) is not None:
            return result
        kind = native_class(left.type())
        is_inherited = isinstance(left, ObjectValue) and not is_overridden(left, name)
        if (fn is operator.ior and kind is dict) or (
            is_inherited and hasattr(kind, name) and fn is operator.iadd
        ):
            return container_operator(t, fn, left, right)  # runs before the right operand's methods
        result = _special_binary(t, plain, left, right)
        if (
            result is None
            and fn is operator.imul
            and isinstance(left, ObjectValue)
            and kind is None
        ):
            t.raise_(
                TypeError, unsupported(fn, left, right)
            )  # a sequence on its right is not tried
        return result
    if fn not in SPECIAL_METHODS:
        return None
    forward, reflected = SPECIAL_METHODS[fn]
    order = [(left, forward, right), (right, reflected, left)]
    if left.type() is right.type():
        if fn not in COMPARISONS.values():
            del order[1]
    elif is_subtype(right.type(), left.type()):
        overridden = class_attribute(right.type(), reflected) is not class_attribute(
            left.type(), reflected
        )
        if overridden or fn in COMPARISONS.values():
            order.reverse()
    for own, name, other in order:
        if (result := _ask(t, name, own, other)) is not None:
            return result
        if _answers_natively(fn, name, own, other):
            result = container_operator(t, fn, left, right)
            return (
                t.raise_unworded(TypeError, unsupported(fn, left, right))
                if result is None
                else result
            )
    if fn in SEQUENCE_OPERATORS and any(
        native_class(v.type()) and _has_slot(fn, v) for v in (left, right)
    ):
        t.raise_unworded(TypeError, unsupported(fn, left, right))
    return None


def _answers_natively(fn: Callable[[Any, Any], Any], name: str, own: Value, other: Value) -> bool:
    """Whether a container's own operator, written in C, is next for this operand. CPython tries those of
    sequences after all others. But in a class that defines a special method for the operator or its
    reflection, the inherited operator counts as a special method, too."""
    kind = native_class(own.type())
    if kind is None or is_overridden(own, name) or class_attribute(own.type(), name) is MISSING:
        return False
    if fn in SEQUENCE_OPERATORS and kind is not dict:
        return _has_slot(fn, own)
    return kind is native_class(other.type())


def _has_slot(fn: Callable[[Any, Any], Any], value: Value) -> bool:
    plain = IN_PLACE[fn][1] if fn in IN_PLACE else fn
    return any(is_overridden(value, name) for name in SPECIAL_METHODS.get(plain, ()))


def _with_boxed(t: Tracer, fn: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Captures an operator with an instance of a subclass of int, float or str. Breaks where code written in C
    decides whether, and when, a method of the program is asked."""
    refused = Break("opaque_object", f"{left.describe()} {SYMBOLS.get(fn)} {right.describe()}")
    inside = boxed(left) or left, boxed(right) or right
    if isinstance(left, TensorValue):  # it is asked first, and knows numbers
        if not issubclass(right.type(), int | float):
            raise refused
        return binary(t, fn, *inside)
    if fn is operator.imul and not isinstance(inside[1], ConstValue | TensorValue):
        raise refused  # a sequence on its right is not tried
    is_asking = any(boxed(v) is not None and _has_slot(fn, v) for v in (left, right))
    if is_asking or isinstance(inside[0], ObjectValue) or isinstance(inside[1], ObjectValue):
        is_first = isinstance(inside[0], ConstValue) and not _has_slot(fn, left)
        is_first = is_first or (boxed(left) is not None and boxed(right) is not None)
        is_contested = is_first and not is_subtype(right.type(), left.type())
        if is_asking and (is_contested or any(isinstance(v, ObjectValue) for v in inside)):
            raise refused
        result = _special_binary(t, fn, left, right)
        if result is None:
            raise refused
        return result
    if fn in REMAINDER and issubclass(left.type(), str):
        return call_rules.FUNCTIONS[str.__mod__](t, [inside[0], right], {})
    return binary(t, fn, *inside)


def _ask(t: Tracer, name: str, own: Value, other: Value) -> Value | None:
    """Calls an operand's special method that is written in Python. Returns None for NotImplemented, and if it
    has no such method."""
    cls = own.type()
    method = class_attribute(cls, name)
    if isinstance(own, TensorValue) and is_of_tensors(name, method):
        return None
    if name == "__ne__" and method is object.__ne__:  # it calls only `__eq__` of its own operand
        equal = _ask(t, "__eq__", own, other)
        return None if equal is None else boolean(not equal.truth(t))
    if isinstance(own, ObjectValue):
        result = own.call_special(t, name, other)
    elif isinstance(method, FunctionType):
        result = t.look(t.call_method(cls, name, [own, other]))
    elif is_programs_method(cls, method) or (
        isinstance(own, OpaqueValue) and method is not MISSING and method not in OF_OBJECT
    ):
        raise Break("opaque_object", f"{own.describe()}.{name}(...)")
    else:
        return None
    return None if result is None or is_not_implemented(result) else result


OF_OBJECT = (
    object.__eq__,
    object.__ne__,
    object.__lt__,
    object.__le__,
    object.__gt__,
    object.__ge__,
)


def is_overridden(value: Value, name: str) -> bool:
    method = class_attribute(value.type(), name)
    return isinstance(method, FunctionType) or refuses_instances(value.type(), method)


def is_not_implemented(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.real is NotImplemented


FUNCTIONS = frozenset(SPECIAL_METHODS) | frozenset(IN_PLACE) | {operator.getitem}
