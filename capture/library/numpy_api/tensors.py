"""From tensors to arrays and back, over the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.autograd.hooked_tensors import check_hooking
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs, knows
from frameloom.capture.library.numpy_api.samples import dtype_of
from frameloom.capture.symbolic.numbers_given import has_number, with_number
from frameloom.capture.values.arrays.ndarray import (
    ARRAY_CLASSES,
    PLAIN,
    ArrayValue,
    has_no_elements,
)
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import (
    FALSE,
    NUMPY_DTYPES,
    NUMPY_SCALARS,
    TRUE,
    ConstValue,
    is_none,
)
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _numpy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Captures `tensor.numpy()`. Where it raises, plain Python runs it."""
    tensor, force = t.look(args[0]), t.look(kwargs.get("force", FALSE))
    check_hooking(t, "numpy", args)
    if not isinstance(tensor, TensorValue) or force is not FALSE or not NUMPY_DTYPES:
        raise Break("numpy", "tensor.numpy(...)")
    fake = tensor.fake
    if tensor.type() not in (torch.Tensor, torch.nn.Parameter) or fake.device.type != "cpu":
        raise Break("numpy", f"numpy() of a tensor on {fake.device.type}")
    if fake.requires_grad or fake.is_conj() or fake.is_neg():
        raise Break("numpy", "numpy() of a tensor that requires gradients, or is conjugated")
    dtype_of(fake)
    memory = t.look(t.torch_call(torch.Tensor.detach, [tensor], {}))
    if has_no_elements(fake):
        layout = [t.from_python(sizes) for sizes in (tuple(fake.shape), (0,) * fake.ndim)]
        memory = t.look(t.torch_call(torch.as_strided, [memory, *layout], {}))
    assert isinstance(memory, TensorValue)
    return ArrayValue(memory, ARRAY_CLASSES[0])


def _memory_of(t: Tracer, array: TensorValue) -> TensorValue:
    """Returns the tensor that PyTorch makes of an array. It has a count of writes of its own; in a capture it
    shares that of the tensor whose memory it is, if that is none of the graph's inputs."""
    owner = t.recorder.memory_owner(array.fake)
    if owner is not None and owner[0].kind != "tensor_of_array":
        made = array.uncounted(t)
    else:
        made = t.look(t.torch_call(torch.Tensor.detach, [array], {}))
    assert isinstance(made, TensorValue)
    return made


@knows(torch.from_numpy, least=1, most=1)
def _from_numpy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    array = t.look(args[0])
    if not isinstance(array, ArrayValue) or array.is_number:
        raise Break("numpy", f"from_numpy(...) of {array.describe()}")
    if array.access != PLAIN:  # PyTorch raises, or warns
        raise Break("numpy", "from_numpy(...) of an array that is read-only or read backwards")
    return _memory_of(t, array.tensor(t))


def _converting(fn: Any) -> Any:
    """Returns the rule for `torch.tensor`, which copies an array, or `torch.as_tensor`."""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        array = t.look(args[0]) if args else None
        if not isinstance(array, ArrayValue):
            if has_number(t, [*args, *kwargs.values()]):
                return with_number(t, fn, args, kwargs)
            return t.torch_call(fn, args, kwargs)
        if len(args) > 1 or not kwargs.keys() <= {"dtype", "device"} or array.access != PLAIN:
            raise Break("numpy", f"{fn.__name__}(...) of {array.describe()} with these arguments")
        options = {name: value for name, value in kwargs.items() if not is_none(t.look(value))}
        if "device" not in options and torch.get_default_device().type != "cpu":
            raise Break("numpy", f"{fn.__name__}(...) on the default device")
        tensor = _memory_of(t, array.tensor(t))
        if fn is torch.tensor or array.is_number:
            options["copy"] = TRUE
        if not options:
            return tensor
        options.setdefault("dtype", ConstValue(tensor.fake.dtype))
        return t.torch_call(torch.Tensor.to, [tensor], options)

    return rule


def of_tensor(otherwise: Any) -> Any:
    """Returns the rule for a function of NumPy that asks its argument for an array without a copy: a tensor
    answers by `__array__`. (NumPy warns if it asks for a copy.)"""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) == 1 and not kwargs and isinstance(t.look(args[0]), TensorValue):
            args = [t.call_builtin(torch.Tensor.__array__, [t.look(args[0])], {})]
        return otherwise(t, args, kwargs)  # type: ignore[no-any-return]

    return rule


def _to_python(method: Any) -> Any:
    """Returns the rule for `item` or `tolist` of an array or a number of NumPy, as that of a tensor."""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        array = t.look(args[0])
        if not isinstance(array, ArrayValue):
            return t.evaluate(getattr(array.type(), method.__name__), args, kwargs)
        return t.call_builtin(method, [array.elements(t)], {})

    return rule


for _cls in ARRAY_CLASSES:
    for _name in ("item", "tolist"):
        _methods = (getattr(_cls, _name), getattr(NUMPY_SCALARS[0].__base__, _name))
        knows(*_methods, least=1, most=1)(_to_python(getattr(torch.Tensor, _name)))
knows(torch.Tensor.numpy, least=1, most=1, keywords="force")(_numpy)
knows(torch.Tensor.__array__, least=1, most=1)(_numpy)
for _fn in (torch.tensor, torch.as_tensor, torch.asarray):
    FUNCTIONS[_fn] = _converting(_fn)
