"""NumPy's arrays, and its numbers that tensors decide: each stands for a tensor over the same memory.

What they do is captured by the rules of `library/numpy_api`, which compute with the tensors. A property that
guards fix (shape, dtype) is a constant. An array from before the call becomes an input of the graph when its
elements or its layout are needed first.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from frameloom.capture import _capture
from frameloom.capture.bytecode.opcodes import IN_PLACE
from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.values.arrays.flags import FlagsValue, check_owner
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_DTYPES, NUMPY_SCALARS, ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break
from frameloom.ir.symbolic.atoms import unbacked_in

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.ir.symbolic.expr import Int

TENSOR_OF_ARRAY, _ = _capture.LOADS["tensor_of_array"]
DTYPES: dict[torch.dtype, Any] = {
    getattr(torch, name): dtype for name, dtype in NUMPY_DTYPES.items()
}


class Access(NamedTuple):
    """How an array reads its memory: the dimensions along which it does so backwards, and whether it may not
    write there."""

    backwards: tuple[int, ...] = ()
    readonly: bool = False

    @property
    def number(self) -> int:
        """As the guards have it."""
        return int(self.readonly) + sum(2 << d for d in self.backwards)


PLAIN = Access()


def access_of(array: Any) -> Access:
    backwards = tuple(d for d, stride in enumerate(array.strides) if stride < 0)
    return Access(backwards, not array.flags.writeable)


def accessed(array: Any, access: Access) -> Any:
    """Returns a view, with the given access, of an array that is read forwards."""
    viewed = numpy.flip(array, access.backwards) if access.backwards else array.view()
    viewed.flags.writeable = not access.readonly
    return viewed


class ArrayValue(Value):
    """An array; or a number of NumPy, of the class `cls`, which has no identity and never changes."""

    def __init__(
        self,
        tensor: TensorValue | None,
        cls: Any,
        real: Any = None,
        origin: Origin | None = None,
        access: Access | None = None,
    ) -> None:
        self._tensor = tensor
        self.cls = cls
        self.real = real
        self.origin = origin
        self._access = access

    @property
    def is_number(self) -> bool:
        return self.cls.__name__ != "ndarray"

    def describe(self) -> str:
        return str(self.cls.__name__)

    def refuse(self, kind: str, use: str) -> NoReturn:
        super().refuse("numpy", use)

    def tensor(self, t: Tracer) -> TensorValue:
        """Returns the tensor over its memory, which is read forwards along all dimensions."""
        if self._tensor is None:
            assert self.origin is not None
            number = self.access.number
            try:
                real = TENSOR_OF_ARRAY(self.real, number)
            except LookupError:
                raise Break("numpy", "an array whose memory PyTorch cannot share") from None
            if NUMPY_DTYPES.get(str(self.real.dtype)) is not self.real.dtype:
                raise Break("numpy", f"an array of {self.real.dtype}")
            origin = self.origin.child("tensor_of_array", number or None)
            self._tensor = t.tensor(real, origin)
        return self._tensor

    @property
    def access(self) -> Access:
        if self._access is None:
            self._access = access_of(self.real) if isinstance(self.real, ARRAY_CLASSES) else PLAIN
        return self._access

    def elements(self, t: Tracer) -> TensorValue:
        """Returns a tensor with the elements in the order of the array: over its memory, or a copy."""
        tensor = self.tensor(t)
        if not self.access.backwards:
            return tensor
        dims = t.from_python(self.access.backwards)
        flipped = t.look(t.torch_call(torch.flip, [tensor, dims], {}))
        assert isinstance(flipped, TensorValue)
        return flipped

    def dtype(self, t: Tracer) -> Any:
        return DTYPES[self.tensor(t).fake.dtype]

    def like(self, t: Tracer, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Returns an array of one element that is laid out so."""
        return accessed(without_elements(shape, self.dtype(t), strides), self.access)

    def parts(self) -> list[Value]:
        return [] if self._tensor is None else [self._tensor]

    # --- operations of the program
    def getattr(self, t: Tracer, name: str) -> Value:
        attribute = class_attribute(self.cls, name)
        check_owner(self, name)
        if (read := PROPERTIES.get(name)) is not None:
            return t.from_python(read(self.tensor(t).fake))
        if name == "strides":
            return t.from_python(self._strides(t))
        if name == "dtype":
            return ConstValue(self.dtype(t))
        if name == "flags" and not self.is_number:
            return FlagsValue(self)
        if name == "__class__":
            return t.from_python(self.cls)
        if name in COMPUTED_ATTRIBUTES:
            return t.call_builtin(COMPUTED_ATTRIBUTES[name], [self], {})
        if type(attribute).__name__ in ("method_descriptor", "wrapper_descriptor"):
            return BoundMethodValue(BuiltinValue(attribute), self)
        self.refuse("attribute", f"{self.describe()}.{name}")

    def _strides(self, t: Tracer) -> tuple[Int, ...]:
        fake = self.tensor(t).fake
        if any(map(unbacked_in, fake.shape)):
            self.refuse("numpy", "strides of an array of which data decides a size")
        steps = (stride * fake.itemsize for stride in fake.stride())
        backwards = self.access.backwards
        return tuple(-step if d in backwards else step for d, step in enumerate(steps))

    def _method(self, t: Tracer, name: str, *args: Value) -> Value:
        return t.call_builtin(class_attribute(self.cls, name), [self, *args], {})

    def condition(self, t: Tracer) -> TensorValue:
        """Returns the tensor whose truth is that of the array."""
        tensor = self.tensor(t)
        if tensor.fake.numel() != 1:
            self.refuse("numpy", "bool(...) of an array")
        return tensor

    def truth(self, t: Tracer) -> bool:
        return self.condition(t).truth(t)

    def length(self, t: Tracer) -> int:
        shape = self.tensor(t).fake.shape
        if not shape:
            self.refuse("numpy", f"len(...) of {self.describe()} without dimensions")
        return int(shape[0])

    def iterate(self, t: Tracer) -> Value:
        items = [self.getitem(t, ConstValue(n)) for n in range(self.length(t))]
        return TupleValue(items).iterate(t)

    def getitem(self, t: Tracer, key: Value) -> Value:
        return self._method(t, "__getitem__", key)

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        if self.is_number:
            self.refuse("numpy", f"{self.describe()}[...] = ...")
        self._method(t, "__setitem__", key, value)

    # --- the end of a capture
    def rebuild(self, r: Rebuilder) -> None:
        assert self._tensor is not None
        if self.is_number:
            build = number_in
        else:
            build = array_of_nothing if has_no_elements(self._tensor.fake) else torch.Tensor.numpy
        if self.access == PLAIN:
            r.call(build, self._tensor)
        else:
            r.call(with_access, build, self._tensor, self.access)


def with_access(build: Any, tensor: torch.Tensor, access: Access) -> Any:
    """Called from new code: returns an array over the memory of a tensor."""
    return accessed(build(tensor), access)


def number_in(tensor: torch.Tensor) -> Any:
    """Called from new code: returns NumPy's number in a tensor without dimensions."""
    return tensor.numpy()[()]


def has_no_elements(fake: torch.Tensor) -> bool:
    """Whether a size is 0, with which `Tensor.numpy` sets all strides to 0."""
    return any(type(n) is int and n == 0 for n in fake.shape)


def array_of_nothing(tensor: torch.Tensor) -> Any:
    """Called from new code: returns an array with the strides of a tensor without elements."""
    return without_elements(tuple(tensor.shape), DTYPES[tensor.dtype], tensor.stride())


def without_elements(shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> Any:
    """Returns an array with these strides. NumPy sets those of new arrays without elements to 0, but keeps
    others for views."""
    in_bytes = tuple(stride * dtype.itemsize for stride in strides)
    return numpy.lib.stride_tricks.as_strided(numpy.empty(0, dtype), shape, in_bytes)


PROPERTIES: dict[str, Any] = {
    "shape": lambda fake: tuple(fake.shape),
    "ndim": operator.attrgetter("ndim"),
    "size": lambda fake: fake.numel(),
    "itemsize": operator.attrgetter("itemsize"),
    "nbytes": lambda fake: fake.numel() * fake.itemsize,
}
COMPUTED_ATTRIBUTES = {name: operator.attrgetter(name) for name in ("T", "mT", "real", "imag")}


def array_operator(t: Tracer, fn: Any, left: Value, right: Value | None = None) -> Value:
    """Captures an operator or a comparison, at least one operand of which is an array: the universal function
    that NumPy calls. Breaks for an operand of another kind, whose own methods may come first."""
    operands = [left] if right is None else [left, right]
    plain = IN_PLACE[fn][1] if fn in IN_PLACE else fn
    if right is not None and (known := _with_tensor(t, fn, left, right)) is not None:
        return known
    known = all(isinstance(value, ArrayValue) or is_number(value) for value in operands)
    if not known or plain not in UFUNCS:
        text = " and ".join(value.describe() for value in operands)
        raise Break("numpy", f"{fn.__name__}(...) of {text}")
    if fn in IN_PLACE and isinstance(left, ArrayValue) and not left.is_number:
        return t.call_builtin(UFUNCS[plain], operands, {"out": left})
    return t.call_builtin(UFUNCS[plain], operands, {})


def _with_tensor(t: Tracer, fn: Any, left: Value, right: Value) -> Value | None:
    """Captures the arithmetic of a tensor and a number of NumPy, which PyTorch takes as a number of Python;
    returns None for other operands."""
    if fn not in ARITHMETIC or {type(left), type(right)} != {TensorValue, ArrayValue}:
        return None
    operands = []
    for value in (left, right):
        if isinstance(value, ArrayValue):
            if not value.is_number:
                return None
            value = t.look(t.call_builtin(torch.Tensor.item, [value.tensor(t)], {}))
        operands.append(value)
    return t.binary(fn, *operands)


ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)


def is_number(value: Value) -> bool:
    return isinstance(value, ConstValue) and issubclass(
        value.type(), (bool, int, float, complex, *NUMPY_SCALARS)
    )


ARRAY_CLASSES: tuple[type, ...] = ()
UFUNCS: dict[Any, Any] = {}  # by the function of the `operator` module
if NUMPY_DTYPES:
    import numpy

    ARRAY_CLASSES = (numpy.ndarray,)
    UFUNCS = {
        getattr(operator, name): getattr(numpy, called)
        for name, called in {
            "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
            "mod": "remainder", "pow": "power", "matmul": "matmul", "and_": "bitwise_and", "or_": "bitwise_or",
            "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift", "lt": "less", "le": "less_equal",
            "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal", "neg": "negative",
            "pos": "positive", "invert": "invert", "inv": "invert", "abs": "absolute",
        }.items()
    } | {abs: numpy.absolute}  # fmt: skip
