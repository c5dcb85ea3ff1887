"""The function transforms of torch.func: `vmap`, `grad`, `vjp`, `jvp`, and what PyTorch builds from them.

PyTorch's Python code around the transforms (`jacrev`, `hessian`, ...) is interpreted. The functions that open
a level of a transform run as they are, on Fakes: PyTorch wraps these, and the ops below all levels reach the
recorder. When they call the program's function, its code is interpreted. A break inside is a break at the
call of the transform, since no frame in there can be resumed.
"""

from __future__ import annotations

import functools
import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from frameloom.capture.autograd.hooked_tensors import check_not_hooked
from frameloom.capture.guards.surroundings import watch_autograd
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.interpreter.frame import Broken
from frameloom.capture.interpreter.wrapped_tensor import Transform
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.recording.dead_calls import site_of
from frameloom.capture.recording.recorder_state import CurrentCall
from frameloom.capture.tensors.fake import Fake, is_wrapper
from frameloom.capture.tensors.transform_levels import levels_off, levels_on
from frameloom.capture.values.base import NotConstant, Raised, Value
from frameloom.capture.values.const import NONE, ConstValue
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import FunctionValue
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.numbers.symbolic import SymbolicNumber
from frameloom.capture.values.policy import TRANSFORMS
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.config import config
from frameloom.errors import Avoid, Break, Skip, first_line, let_mistakes_through

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

OURS = (Break, Avoid, Skip, Broken, Raised, NotConstant, RecursionError, MemoryError)
# The modules of these functions are not imported by their own, private names.
VMAP: dict[str, Any] = torch.func.vmap.__globals__
GRAD: dict[str, Any] = torch.func.jacrev.__globals__


class ProgramObject:
    """An object of the program that PyTorch's code passes on, or calls."""

    def __init__(self, transform: _Running, value: Value) -> None:
        self._transform, self._value = transform, value
        self.__name__ = value.describe()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._transform.call_back(self._value, args, kwargs)


class MadeByTransform(Value):
    """A function that a transform returns, such as the one of `vjp`. It holds tensors of the transform."""

    cls = FunctionType
    is_true = True

    def __init__(self, function: Callable[..., Any], transform: Transform) -> None:
        self.function, self.transform = function, transform

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return run(t, self.function, args, kwargs)

    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "__dict__" and not self.function.__dict__:
            return t.table_of({})
        if name in functools.WRAPPER_ASSIGNMENTS:
            return t.from_python(getattr(self.function, name))
        return super().getattr(t, name)

    def check_rebuild(self) -> None:
        raise Avoid(self.transform.site)


class TransformedModule(FunctionValue):
    """A transformed module as a function. PyTorch copies the module's attributes to it, which takes a guard
    for each, and which hardly any program reads."""

    def __init__(self, made: Any, site: Any) -> None:
        super().__init__(None, None, made)
        self.site = site

    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "__dict__" and t.frame.globals.real.get("__name__") == TRANSFORMS[0]:  # type: ignore[union-attr]
            return super().getattr(t, name)  # PyTorch deletes marks of its compiler
        raise Break("attribute", f"{self.name}.{name} of a transformed module")

    def check_rebuild(self) -> None:
        raise Avoid(self.site)


@knows(functools.update_wrapper, keywords="*")
def _update_wrapper(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = {**dict(zip(("wrapper", "wrapped"), args, strict=False)), **kwargs}
    wrapper, wrapped = (t.look(given.get(name, NONE)) for name in ("wrapper", "wrapped"))
    if (
        isinstance(wrapped, ModuleValue | TransformedModule)
        and isinstance(wrapper, FunctionValue)
        and wrapper.made is not None
        and wrapper.made.globals.real.get("__name__") in TRANSFORMS
    ):
        site = t.site_or(Break("library_call", f"a transform of {wrapped.describe()}"))
        return TransformedModule(wrapper.made, site)
    return interpret(t, functools.update_wrapper, args, kwargs)


def run(
    t: Tracer, function: Callable[..., Any], args: Args, kwargs: Kwargs, opaque: bool = False
) -> Value:
    """Runs a function of PyTorch that opens a level. `opaque`: it does not look into keyword arguments."""
    name = f"torch.func: {function.__name__}(...)"
    if t.trying:
        raise Break("too_large", "a question that computes with tensors")
    if torch.is_inference_mode_enabled() or t.recorder.current_call.autocast:
        raise Break("library_call", f"{name} in inference mode or under autocast")
    check_not_hooked(t)
    watch_autograd(t)
    site = t.site_or(Break("library_call", name))
    return _Running(t, site).run(function, args, kwargs, opaque, name)


class _Running(Transform):
    """A running call."""

    def __init__(self, t: Tracer, site: Any) -> None:
        super().__init__(site)
        self.t = t

    def run(
        self, function: Callable[..., Any], args: Args, kwargs: Kwargs, opaque: bool, name: str
    ) -> Value:
        t, recorder = self.t, self.t.recorder
        given = [self.to_torch(a) for a in args]
        named = {
            k: ProgramObject(self, a) if opaque else self.to_torch(a) for k, a in kwargs.items()
        }
        t.count_torch_call()
        t.on_undo(functools.partial(recorder.restore, recorder.snapshot()))
        call = recorder.current_call
        try:
            with self._inside(function):
                result = function(*given, **named)
            queries = recorder.current_call.relies_on
        except OURS:
            raise
        except Exception as error:
            let_mistakes_through(error)
            text = f"{name}: {type(error).__name__}: {first_line(error)}"
            raise Break("op_error", text) from error
        finally:
            self.has_ended = True
            recorder.current_call = call
        for query in queries:
            t.guards.returns(query, (), query())
        return self.from_torch(result)

    @contextmanager
    def _inside(self, function: Callable[..., Any]) -> Iterator[None]:
        """Records the ops of PyTorch's own code."""
        t, recorder = self.t, self.t.recorder
        call = recorder.current_call = CurrentCall()
        call.function, call.where, call.site = function, t.where(), site_of(*t.site)
        call.old, call.last = len(recorder.fakes), recorder.graph._root.prev
        call.is_followed = any(f.requires_grad for f in recorder.fakes)
        call.refuses_unbacked = True
        if call.is_followed and not config.gradients:
            raise Break("gradient", function.__name__)
        t.backward.transforms.append(self)
        try:
            with levels_on(), torch.autograd.set_multithreading_enabled(False), recorder:
                yield
        finally:
            t.backward.transforms.pop()

    def call_back(self, value: Value, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Interprets a call of the program's function."""
        t, recorder = self.t, self.t.recorder
        call = recorder.current_call
        given = [self.from_torch(a) for a in args]
        named = {name: self.from_torch(a) for name, a in kwargs.items()}
        recorder.__exit__()
        recorder.current_call = CurrentCall()
        try:
            with levels_off():
                return self.to_torch(t.look(t.call(value, given, named)))
        finally:
            recorder.current_call = call
            recorder.__enter__()

    def to_torch(self, value: Value) -> Any:
        """Returns what PyTorch's code gets for a value. It looks into containers, and finds tensors and
        constants there."""
        t = self.t
        value = t.look(value)
        cls = value.type()
        if isinstance(value, TensorValue):
            return value.fake
        if isinstance(value, ConstValue | ClassValue):
            return value.real
        if isinstance(value, SymbolicNumber):
            return ProgramObject(self, value)
        if isinstance(value, TupleValue):
            items = [self.to_torch(item) for item in value.items]
            # A namedtuple takes its items one by one; others, such as torch.return_types, take a sequence.
            return cls(*items) if hasattr(cls, "_fields") else cls(items)  # type: ignore[call-arg]
        if isinstance(value, ListValue) and cls is list:
            return [self.to_torch(item) for item in value.items]
        if isinstance(value, DictValue) and cls in (dict, OrderedDict):
            return cls((self.to_torch(k), self.to_torch(v)) for k, v in value.entries(t).values())
        if cls in pytree.SUPPORTED_NODES:
            raise Break("library_call", f"a function transform of {value.describe()}")
        return ProgramObject(self, value)

    def from_torch(self, obj: Any) -> Value:
        """Returns the value of an object that PyTorch's code passes on."""
        t, cls = self.t, type(obj)
        if cls is ProgramObject:
            return obj._value  # type: ignore[no-any-return]
        if isinstance(obj, tuple):
            return TupleValue([self.from_torch(item) for item in obj], cls)
        if cls is list:
            return ListValue([self.from_torch(item) for item in obj])
        if cls in (dict, OrderedDict):
            table = DictValue(cls=cls)
            for key, item in obj.items():
                name = self.from_torch(key)
                table.written[name.key(t)] = (name, self.from_torch(item))
            return table
        if isinstance(obj, torch.Tensor) and not isinstance(obj, Fake) and not is_wrapper(obj):
            raise Break("library_call", "a function transform that makes a tensor")
        if cls is FunctionType:
            return MadeByTransform(obj, self)
        return t.from_python(obj)


@knows(VMAP["vmap_impl"], least=5, keywords="*")
def _vmap(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if t.look(args[3]).constant() == "same" and t.look(args[4]).constant() is not None:
        raise Break("library_call", "torch.func.vmap(...) that sets the random state")
    return run(t, VMAP["vmap_impl"], args, kwargs, opaque=True)


def _runs(function: Any) -> None:
    @knows(function, keywords="*")
    def _rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return run(t, function, args, kwargs)


for _name in ("grad_and_value_impl", "_vjp_with_argnums"):
    _runs(GRAD[_name])


@knows(GRAD["_jvp_with_argnums"], keywords="*")
def _jvp(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    # Slow to import. PyTorch imports it at the first op, where a warning of the import would be an error.
    importlib.import_module("torch._decomp.decompositions_for_jvp")
    return run(t, GRAD["_jvp_with_argnums"], args, kwargs)
