"""Calls of torch functions with tensors whose classes have a `__torch_dispatch__`.

In: a torch function and its arguments as values. Out: its result as a value. PyTorch runs the function on
stand-ins. For each op that meets such a tensor, the program's `__torch_dispatch__` is interpreted; any other op
is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from frameloom.capture.guards.thread_warnings import OF_PYTHON, warnings_here
from frameloom.capture.interpreter.dispatch.stand_in import StandIn, stand_in
from frameloom.capture.interpreter.dispatch.wrapper import WrapperValue
from frameloom.capture.tensors.cast_cache import autocast_devices
from frameloom.capture.tensors.functionalize import is_inference
from frameloom.capture.tensors.schema import properties_of
from frameloom.capture.tensors.transform_levels import are_active
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.function import BuiltinValue
from frameloom.capture.values.subclass import dispatch_of
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break, first_line, let_mistakes_through

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def wrappers(t: Tracer, args: Iterable[Value]) -> list[WrapperValue]:
    """Returns the arguments whose classes have a `__torch_dispatch__`. Lists are searched, too."""
    those = []
    for arg in args:
        value = t.look(arg)
        if isinstance(value, WrapperValue):
            those.append(value)
        elif isinstance(value, ListValue | TupleValue):
            those += wrappers(t, value.items)
    return those


def dispatched(
    t: Tracer, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Returns the result of a call of a torch function if an argument has a `__torch_dispatch__`."""
    if not wrappers(t, [*args, *kwargs.values()]):
        return None
    name = getattr(fn, "__name__", str(fn))
    site = t.site_or(Break("tensor_subclass", f"{name}(...), which makes a view"))
    if autocast_devices() or are_active():
        raise Break("tensor_subclass", f"{name}(...) under autocast or a function transform")
    t.count_torch_call()
    ops = Ops(t, site)
    given = [ops.given(value, fn) for value in args]
    named = {key: ops.given(value, fn) for key, value in kwargs.items()}
    if torch.is_grad_enabled() and any(s.requires_grad for s in ops.stand_ins.values()):
        raise Break("gradient", f"{name}(...) of tensors with __torch_dispatch__")
    try:
        with warnings_here("error", OF_PYTHON), ops:
            result = fn(*given, **named)
    except Warning as warning:
        raise Break("warning", f"{name}: {warning}") from None
    except Exception as error:
        if error is ops.ended:
            raise
        let_mistakes_through(error)
        raise Break("op_error", f"{name}: {type(error).__name__}: {first_line(error)}") from error
    return ops.taken(result)


class Ops(TorchDispatchMode):
    """Gets the ops of one call of a torch function. `stand_ins`: by id of the value. `ended`: what ended the
    interpretation of the program's code, which passes through PyTorch."""

    def __init__(self, t: Tracer, site: Any) -> None:
        super().__init__()
        self.t, self.site = t, site
        self.stand_ins: dict[int, StandIn] = {}
        self.ended: Exception | None = None
        self.keys = (
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
        )

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see recording/recorder.py

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._interpreted(func, args, kwargs or {})
        except Exception as error:
            self.ended = error
            raise

    def _interpreted(self, func: Any, args: Any, kwargs: Any) -> Any:
        values = [self.taken(a) for a in args]
        named = {name: self.taken(a) for name, a in kwargs.items()}
        # Below autograd, PyTorch has turned its own keys off. The interpreter records calls from above.
        with torch._C._ForceDispatchKeyGuard(*self.keys), below_autograd(self.t):
            owners = wrappers(self.t, [*values, *named.values()])
            if owners:
                result = self._by_program(func, owners, values, named)
            else:
                result = self.t.torch_call(func, values, named)
            return self._returned(func, values, self.t.look(result))

    def _by_program(
        self, func: Any, owners: list[WrapperValue], args: list[Value], kwargs: dict[str, Value]
    ) -> Value:
        """Calls the `__torch_dispatch__` of the arguments until one has an answer."""
        t = self.t
        if torch.Tag.inplace_view in func.tags or func.namespace == "inductor":
            raise Break("tensor_subclass", f"{func}, which changes a layout")
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                for written in wrappers(t, [] if value is None else [value]):
                    written.note_write(t)
        in_order: list[type] = []  # from left to right, subclasses before their bases
        for owner in owners:
            cls = owner.type()
            if cls not in in_order:
                places = (k for k, other in enumerate(in_order) if issubclass(cls, other))
                in_order.insert(next(places, len(in_order)), cls)
        types = TupleValue([t.pinned(cls) for cls in in_order])
        for cls in in_order:
            function = dispatch_of(cls)
            assert function is not None
            given = [t.pinned(cls), BuiltinValue(func), types, TupleValue(args), t.table_of(kwargs)]
            result = t.look(t.call(t.pinned(function), given, {}))
            if not (isinstance(result, ConstValue) and result.real is NotImplemented):
                return result
        t.raise_unworded(TypeError, f"{func}: no __torch_dispatch__ has an answer")

    # --- between values and what PyTorch gets
    def given(self, value: Value, fn: Any) -> Any:
        """Returns an argument for PyTorch."""
        value = self.t.look(value)
        if isinstance(value, TensorValue):
            if id(value) not in self.stand_ins:
                self.stand_ins[id(value)] = self._stand_in(value)
            return self.stand_ins[id(value)]
        if isinstance(value, ListValue) and value.type() is list:
            return [self.given(item, fn) for item in value.items]
        if isinstance(value, TupleValue) and value.cls is tuple:
            return tuple(self.given(item, fn) for item in value.items)
        return self.t.to_torch(value, fn)

    def _stand_in(self, value: TensorValue) -> StandIn:
        if isinstance(value, WrapperValue):
            return value.fake  # type: ignore[no-any-return]
        made = stand_in(value.fake, is_inference(value.fake))
        made.value = value
        return made

    def taken(self, obj: Any) -> Value:
        """Returns the value of what PyTorch passes on or returns."""
        if isinstance(obj, StandIn):
            return obj.value  # type: ignore[no-any-return]
        if isinstance(obj, torch.Tensor):
            raise Break("tensor_subclass", "a tensor made outside of dispatch")
        if type(obj) is list:
            return ListValue([self.taken(item) for item in obj])
        if isinstance(obj, tuple):
            return TupleValue([self.taken(item) for item in obj], type(obj))
        return self.t.from_python(obj)

    def _returned(self, func: Any, args: list[Value], result: Value) -> Any:
        """Returns the result of an op for PyTorch."""
        if isinstance(result, ListValue | TupleValue):
            items = [self._returned(func, args, self.t.look(item)) for item in result.items]
            return items if isinstance(result, ListValue) else tuple(items)
        if not isinstance(result, TensorValue):
            return self.t.to_torch(result, func)
        if (known := self.stand_ins.get(id(result))) is not None:
            return known
        if properties_of(func).behaviour != "view":
            made = self.stand_ins[id(result)] = self._stand_in(result)
            return made
        if not isinstance(result, WrapperValue):
            raise Break("tensor_subclass", f"{func}, whose result is a plain tensor")
        result.view_at = self.site
        if args and isinstance(base := args[0], WrapperValue):
            result.base = base.base or base
        # PyTorch would detach a tensor that somebody else holds.
        made = stand_in(result.fake, result.is_inference)
        made.value = result
        return made


@contextmanager
def below_autograd(t: Tracer) -> Iterator[None]:
    """Autograd follows no op that a `__torch_dispatch__` calls."""
    history = t.recorder.history
    before, history.below_autograd = history.below_autograd, True
    try:
        yield
    finally:
        history.below_autograd = before
