"""Functions that make instances of subclasses of torch.Tensor, and those around `__torch_function__`."""

from __future__ import annotations

from types import GetSetDescriptorType, MethodWrapperType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from frameloom.capture.interpreter import torch_function
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs, knows, knows_kind
from frameloom.capture.interpreter.dispatch.wrapper import WrapperValue, new_wrapper
from frameloom.capture.symbolic.number_inputs import without_symbols
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import FALSE, ConstValue, is_none
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import BuiltinValue
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.subclass import DEFAULT, dispatch_of, is_recordable
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


@knows(torch.Tensor.as_subclass, least=2, most=2)
def _as_subclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    tensor, cls = t.look(args[0]), torch_function.class_of(t, args[1])
    if not isinstance(tensor, TensorValue) or (cls is not torch.Tensor and not is_recordable(cls)):
        raise Break("tensor_subclass", f"as_subclass({cls.__name__})")
    return torch_function.as_subclass(t, tensor, cls)


@knows(
    torch.overrides.has_torch_function,
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
)
def _has_torch_function(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    return t.settings.function_mode is not None or bool(torch_function.overloads(t, args))


@knows(torch.Tensor._make_wrapper_subclass, least=2, keywords="*")
def _make_wrapper(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = torch_function.class_of(t, args[0])
    if dispatch_of(cls) is None or torch._C._are_functorch_transforms_active():
        raise Break("tensor_subclass", f"_make_wrapper_subclass({cls.__name__})")
    given = [without_symbols(t.to_torch(value)) for value in args[1:]]
    options = {name: without_symbols(t.to_torch(value)) for name, value in kwargs.items()}
    return new_wrapper(t, cls, tuple(given), options)


@knows(torch.Tensor._make_subclass, least=2, most=3, keywords="require_grad")
def _make_subclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls, tensor = torch_function.class_of(t, args[0]), t.look(args[1])
    is_known = cls is not torch.Tensor and is_recordable(cls)
    if not is_known or not isinstance(tensor, TensorValue) or isinstance(tensor, WrapperValue):
        raise Break("tensor_subclass", f"_make_subclass({cls.__name__})")
    flag = args[2] if len(args) > 2 else kwargs.get("require_grad", FALSE)
    return torch_function.make_subclass(t, tensor, cls, t.look(flag).truth(t))


@knows(return_and_correct_aliasing, least=4, most=4)
def _correct_aliasing(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Returns the argument that an op in place returns. Who shares memory shows only outside of the call,
    and plain Python makes the views that get there."""
    func, operands, options, out = (t.look(value) for value in args)
    if not isinstance(func, BuiltinValue) or not isinstance(func.real, torch._ops.OpOverload):
        raise Break("tensor_subclass", "return_and_correct_aliasing(...)")
    schema = func.real._schema
    written = [r.alias_info for r in schema.returns if r.alias_info and r.alias_info.is_write]
    if not written:
        return out
    if len(schema.returns) > 1:
        raise Break("tensor_subclass", f"return_and_correct_aliasing({func.real}, ...)")
    given = list(t.items(operands))
    for position, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is not None and info.before_set & written[0].before_set:
            if position < len(given):
                return t.look(given[position])
            return options.getitem(t, ConstValue(argument.name))
    raise Break("tensor_subclass", f"return_and_correct_aliasing({func.real}, ...)")


def _handle(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) < 2 or t.settings.function_mode is not None:
        raise Break("tensor_subclass", "handle_torch_function(...)")
    owners = torch_function.overloads(t, [args[1]])
    return torch_function.dispatch(t, t.look(args[0]), owners, args[2:], kwargs)


FUNCTIONS[torch.overrides.handle_torch_function] = _handle


@knows(DEFAULT, least=3, most=5, keywords="args kwargs")
def _default(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    names = ("cls", "func", "types", "args", "kwargs")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    cls, types = t.look(given["cls"]), t.look(given["types"])
    operands = t.look(given.get("args", TupleValue([])))
    options = t.look(given["kwargs"]) if "kwargs" in given else None
    if not isinstance(cls, ClassValue):
        raise Break("tensor_subclass", "__torch_function__(...)")
    kinds = types if isinstance(types, TupleValue) else TupleValue(list(t.items(types)))
    named: dict[str, Value] = {}
    if isinstance(options, DictValue):
        named = {str(name): value for name, (_, value) in options.entries(t).items()}
    elif options is not None and not is_none(options):
        raise Break("tensor_subclass", "__torch_function__(...)")
    func = t.look(given["func"])
    return torch_function.by_default(t, cls.real, func, kinds, list(t.items(operands)), named)


@knows_kind(MethodWrapperType)
def _getter(t: Tracer, fn: MethodWrapperType, args: Args, kwargs: Kwargs) -> Value:
    """Reads a property of tensors."""
    descriptor: Any = fn.__self__
    is_property = type(descriptor) is GetSetDescriptorType and len(args) == 1 and not kwargs
    if not is_property or fn.__name__ != "__get__":
        raise Break("unknown_call", f"{fn.__name__}(...)")
    return t.look(args[0]).getattr(t, descriptor.__name__)
