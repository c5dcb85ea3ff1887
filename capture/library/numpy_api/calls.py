"""Captures a call of a NumPy function whose arguments are arrays, numbers and containers of them.

NumPy says what the result is (`samples.py`). A view of an argument is made from that alone. A new array is
computed by the function's own `Compute`, which runs torch functions on tensors; its dtype and shape must be
what NumPy says, and it gets the strides that NumPy says. A result of constants alone becomes a constant of
the graph, of which each call makes a copy.

Where the elements decide sizes of the result, these are the sizes of what is computed. Not captured are
functions with effects, and calls with arguments about which the registration of the function says nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs
from frameloom.capture.interpreter.convert import to_torch
from frameloom.capture.library.numpy_api.samples import (
    Accessed,
    Constant,
    Number,
    Result,
    ask,
    call_numpy,
    map_arguments,
)
from frameloom.capture.library.numpy_api.sizes import agreed, has_unbacked, note_sizes
from frameloom.capture.tensors.constant_folding import known_value
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.arrays.ndarray import (
    ARRAY_CLASSES,
    PLAIN,
    ArrayValue,
    access_of,
    has_no_elements,
)
from frameloom.capture.values.arrays.numpy_values import check_error_state
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import (
    DTYPE_CLASSES,
    NUMPY_DTYPES,
    NUMPY_FUNCTIONS,
    NUMPY_SCALARS,
    ConstValue,
    is_constant,
)
from frameloom.capture.values.containers.container import ListValue, SliceValue, TupleValue
from frameloom.capture.values.numbers.size import size_of
from frameloom.capture.values.policy import is_pure
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

# Computes the new arrays of a call: gets the function, NumPy's description of the results, and the arguments,
# with tensors in place of arrays.
Compute = Callable[..., Any]
UFUNC: Any = NUMPY_FUNCTIONS[:1]
LARGE = 64  # elements of a constant that is filled by an op if all of them are equal


class Function(NamedTuple):
    """A NumPy function. `compute` is None if all its results are views. `writes`: it writes to its first
    argument. `creates`: it makes an array of numbers. `takes_out`: it computes the same for `out`, and casts.
    `tells`: its answer is a constant, which depends on no elements."""

    fn: Any
    compute: Compute | None = None
    writes: bool = False
    creates: bool = False
    takes_out: bool = False
    tells: bool = False

    @property
    def name(self) -> str:
        return getattr(self.fn, "__name__", str(self.fn))


def captures(fn: Any, *how: Any, **named: Any) -> None:
    """Registers the rule for calls of a NumPy function; the other arguments are those of `Function`."""
    function = Function(fn, *how, **named)
    otherwise = FUNCTIONS.get(fn) or functools.partial(evaluated, fn=fn)

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        args = [t.look(arg) for arg in args]
        kwargs = {name: t.look(arg) for name, arg in kwargs.items()}
        values = (*args, *kwargs.values())
        if (
            function.creates
            or function.tells
            or not is_pure(fn)
            or "out" in kwargs
            or any(isinstance(v, ArrayValue | ListValue | TupleValue) for v in values)
        ):
            return captured(t, function, args, kwargs)
        return otherwise(t, args, kwargs)

    FUNCTIONS[fn] = rule


def evaluated(t: Tracer, args: Args, kwargs: Kwargs, fn: Any) -> Value:
    if not is_pure(fn):
        raise Break("numpy", f"{getattr(fn, '__name__', fn)}(...)")
    return t.evaluate(fn, args, kwargs)


def captured(t: Tracer, function: Function, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(function.fn, UFUNC) and len(args) == function.fn.nin + 1 and "out" not in kwargs:
        args, kwargs = args[:-1], {**kwargs, "out": args[-1]}
    kwargs = {name: arg for name, arg in kwargs.items() if not _is_left_out(arg)}
    arrays: dict[int, ArrayValue] = {}  # by id of the Fake
    given = [_argument(t, function, value, arrays) for value in args]
    named = {name: _argument(t, function, value, arrays) for name, value in kwargs.items()}
    if function.tells:
        return _known_answer(t, function, given, named)
    sized = note_sizes([given, named])
    if not arrays and not (sized and function.creates):
        known = _constant(t, function, given, named)
        return t.evaluate(function.fn, args, kwargs) if known is None else known
    writes = function.writes or named.get("out") not in (None, ...)
    asked = (function.fn, given, {**named}, writes, functools.partial(known_elements, t))
    described, decided = ask(*asked)
    out = named.pop("out", None)
    if out is ...:  # asks for an array in place of a number, which is part of NumPy's answer
        out = None
    where = named.pop("where", True) if isinstance(function.fn, UFUNC) else True
    if where is not True and out is None:
        raise Break("numpy", f"{function.name}(...) that leaves out elements")
    if writes:
        _check_writes(function, args[0] if function.writes else kwargs["out"], out)
    made: Value | None = None
    if writes or sized or _has_new(described):
        check_error_state(t, function.fn)
        compute = function.compute
        if compute is None:
            raise Break("numpy", f"{function.name}(...)")
        of_tensors = functools.partial(_of_tensors, t, arrays)
        values = [t.from_python(of_tensors(argument)) for argument in given]
        options = {name: t.from_python(of_tensors(a)) for name, a in named.items()}
        if function.writes:
            made = _written(t, compute, args[0], values[1:], options)
        else:
            made = t.look(t.torch_call(compute, values, options))
        if out is not None:
            _written(t, _write, t.look(kwargs["out"]), [made, t.from_python(of_tensors(where))], {})
    computed = None if made is None else to_torch(t, made)
    if sized or decided or has_unbacked(computed):
        described = agreed(*asked, described, computed)
    return _result(t, function, described, made, arrays)


def _written(
    t: Tracer, compute: Compute, target: Value, values: list[Value], options: dict[str, Value]
) -> Value:
    """Calls a function that writes to its first argument, the array `target`; autograd does not count writes
    to it, as it counts none of NumPy's."""
    assert isinstance(target, ArrayValue)
    if target.access.backwards:
        compute = functools.partial(_write_backwards, compute, target.access.backwards)
    return t.look(t.torch_call(compute, [target.tensor(t).uncounted(t), *values], options))


def _write_backwards(
    compute: Compute, dims: tuple[int, ...], array: torch.Tensor, *args: Any, **options: Any
) -> None:
    turned = torch.flip(array, dims)
    compute(turned, *args, **options)
    array.copy_(torch.flip(turned, dims))


def _write(out: torch.Tensor, made: torch.Tensor, where: Any) -> None:
    """Writes a result, where a mask says so."""
    if where is not True:
        made = torch.where(torch.as_tensor(where, dtype=torch.bool), made.to(out.dtype), out)
    out.copy_(made)


def _known_answer(t: Tracer, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Value:
    described, _ = ask(function.fn, args, kwargs)
    if not isinstance(described, Constant) or not is_constant(described.value):
        raise Break("numpy", f"{function.name}(...)")
    return ConstValue(described.value)


def _argument(t: Tracer, function: Function, value: Value, arrays: dict[int, ArrayValue]) -> Any:
    """Returns an argument with Fakes in place of arrays, which it adds to `arrays`."""
    value = t.look(value)
    if isinstance(value, ArrayValue):
        fake = value.tensor(t).fake
        arrays[id(fake)] = value
        if value.access != PLAIN:
            return Accessed(fake, value.access)
        return Number(fake) if value.is_number else fake
    if isinstance(value, TupleValue | ListValue) and value.type() in (tuple, list, torch.Size):
        items = [_argument(t, function, item, arrays) for item in value.items]
        return items if value.type() is list else tuple(items)
    if isinstance(value, SliceValue):
        return slice(*(_argument(t, function, bound, arrays) for bound in value.bounds))
    if (size := size_of(value)) is not None:
        return size
    if isinstance(value, ConstValue):
        return value.constant()
    if isinstance(value, ClassValue) and issubclass(value.real, DTYPE_NAMES):
        return value.real
    if isinstance(value, ClassValue) and issubclass(value.real, DTYPE_CLASSES):
        return value.real()
    raise Break("numpy", f"{function.name}(...) of {value.describe()}")


def _is_left_out(value: Value) -> bool:
    """Whether NumPy takes the argument for one that is not given."""
    return value.real is not None and value.real is getattr(NUMPY, "_NoValue", None)


DTYPE_NAMES = (bool, int, float, complex, *(cls.__base__ for cls in NUMPY_SCALARS[:1]))


def _of_tensors(t: Tracer, arrays: dict[int, ArrayValue], argument: Any) -> Any:
    """Returns an argument with Fakes of its arrays' elements."""
    if isinstance(argument, Number | Accessed):
        return arrays[id(argument.fake)].elements(t).fake
    return map_arguments(functools.partial(_of_tensors, t, arrays), argument)


def known_elements(t: Tracer, fake: Fake) -> Any:
    """Returns an array with the elements of the tensor in every call; None if they are not known."""
    known = known_value(fake, t.recorder)
    return None if known is None else known.numpy()


def _check_writes(function: Function, target: Value, out: Any) -> None:
    is_array = isinstance(target, ArrayValue) and not target.is_number
    if not is_array or (out is not None and not function.takes_out):
        raise Break("numpy", f"{function.name}(...) that writes to {target.describe()}")


def _has_new(described: Any) -> bool:
    """Whether any result is neither an argument nor a view of one."""
    if isinstance(described, Result):
        return described.same is None and described.shares is None
    return type(described) in (tuple, list) and any(map(_has_new, described))


def _result(
    t: Tracer, function: Function, described: Any, made: Value | None, arrays: dict[int, ArrayValue]
) -> Value:
    """Returns the value of a result that NumPy describes so; `made`: what was computed for it."""
    if type(described) in (tuple, list):
        parts: list[Any] = [None] * len(described)
        if made is not None:
            parts = made.items if isinstance(made, TupleValue | ListValue) else []
        if len(parts) != len(described):
            raise Break("numpy", f"{function.name}(...)")
        items = [
            _result(t, function, item, part and t.look(part), arrays)
            for item, part in zip(described, parts, strict=True)
        ]
        return ListValue(items) if type(described) is list else TupleValue(items)
    if isinstance(described, Constant):
        if described.value is not None:
            raise Break("numpy", f"{function.name}(...), which returns no array")
        return t.from_python(None)
    if described.same is not None:
        return arrays[id(described.same)]
    if described.shares is not None:
        source, place = arrays[id(described.shares)].tensor(t), t.from_python(described.offset)
        layout = [t.from_python(described.shape), t.from_python(described.strides)]
        if source.fake.dtype is not described.dtype:
            source = _as_dtype(t, source, described.dtype)
        viewed = t.look(t.torch_call(torch.as_strided, [source, *layout, place], {}))
        assert isinstance(viewed, TensorValue)
        return ArrayValue(viewed, described.cls, access=described.access)
    if not isinstance(made, TensorValue) or described.access != PLAIN:
        raise Break("numpy", f"{function.name}(...)")
    if issubclass(described.cls, NUMPY_SCALARS):
        known = known_elements(t, made.fake)
        if known is not None and made.fake.dtype is described.dtype:
            return ConstValue(described.cls(known.item()))
    sources = {id(array.tensor(t).fake.memory) for array in arrays.values()}
    return ArrayValue(_laid_out(t, function, described, made, sources), described.cls)


def _as_dtype(t: Tracer, source: TensorValue, dtype: torch.dtype) -> TensorValue:
    """Returns the memory of a dense tensor as a vector of another dtype."""
    fake = source.fake
    steps = [*fake.shape, *fake.stride(), fake.storage_offset()]
    dense = sorted(n for n in zip(fake.stride(), fake.shape, strict=True) if n[1] != 1)
    if not all(type(n) is int for n in steps) or fake.storage_offset() or 0 in fake.shape:
        raise Break("numpy", "a view of a part of an array as another dtype")
    size = 1
    for stride, length in dense:
        if stride != size:
            raise Break("numpy", "a view of a part of an array as another dtype")
        size *= length
    if size * fake.itemsize % dtype.itemsize:
        raise Break("numpy", "a view of a part of an array as another dtype")
    line = [t.from_python((size,)), t.from_python((1,))]
    return _tensor(
        t, torch.Tensor.view, [_tensor(t, torch.as_strided, [source, *line]), t.from_python(dtype)]
    )


def _laid_out(
    t: Tracer, function: Function, described: Result, made: TensorValue, sources: set[int]
) -> TensorValue:
    """Returns the tensor with the strides that NumPy says, in memory of its own."""
    if made.fake.dtype is not described.dtype or tuple(made.fake.shape) != described.shape:
        raise Break("numpy", f"{function.name}(...), which PyTorch computes with another dtype")
    strides = zip(described.shape, made.fake.stride(), described.strides, strict=True)
    is_same = all(stride == wanted or size == 1 for size, stride, wanted in strides)
    if not is_same and not has_no_elements(made.fake):
        layout = (described.shape, described.strides)
        made = _tensor(t, _copied, [made, *map(t.from_python, layout)])
    elif id(made.fake.memory) in sources or made.fake.memory.root is not made.fake:
        made = _tensor(t, torch.clone, [made])
    if made.fake.stride() != described.strides:
        layout = (described.shape, described.strides)
        made = _tensor(t, torch.as_strided, [made, *map(t.from_python, layout)])
    return made


def _tensor(t: Tracer, fn: Any, args: list[Value]) -> TensorValue:
    made = t.look(t.torch_call(fn, args, {}))
    assert isinstance(made, TensorValue)
    return made


def _copied(tensor: torch.Tensor, shape: Any, strides: Any) -> torch.Tensor:
    """Returns a copy with these strides."""
    made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


# --- results of constants


def _constant(
    t: Tracer, function: Function, args: list[Any], kwargs: dict[str, Any]
) -> Value | None:
    """Returns a new array that depends on constants alone; NumPy makes it in the capture. Returns None if the
    result is no array."""
    check_error_state(t, function.fn)
    array = call_numpy(function.fn, args, kwargs)
    if type(array) not in ARRAY_CLASSES:
        return None
    if array.dtype not in NUMPY_DTYPES.values():
        raise Break("numpy", f"an array of {array.dtype}")
    access = access_of(array)
    if not array.flags.forc:  # one element along a dimension may be repeated
        once = array[tuple(slice(None if stride else 1) for stride in array.strides)]
        if access.backwards or not once.flags.c_contiguous:
            raise Break("numpy", f"{function.name}(...) of constants")
        repeated = t.from_python(t.recorder.new_constant(torch.from_numpy(once.copy())))
        wide = _tensor(t, torch.Tensor.expand, [repeated, t.from_python(array.shape)])
        return ArrayValue(wide, type(array), access=access)
    tensor = torch.from_numpy(array.copy("K"))
    bits = array.reshape(-1).view(f"V{array.itemsize}") if array.itemsize else array
    if array.size > LARGE and array.flags.c_contiguous and (bits == bits[:1]).all():
        value = ConstValue(tensor.reshape(-1)[0].item())
        dtype = {"dtype": ConstValue(tensor.dtype)}
        made = t.look(t.torch_call(torch.full, [t.from_python(array.shape), value], dtype))
    else:
        made = t.from_python(t.recorder.new_constant(tensor))
    assert isinstance(made, TensorValue)
    return ArrayValue(made, type(array), access=access)


NUMPY: Any = None
if NUMPY_DTYPES:
    import numpy as NUMPY
