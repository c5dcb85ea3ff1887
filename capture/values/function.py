"""Callables: Python functions, bound methods, builtins, partials; and the cells that closures share.

`interpreter/calls.py` decides how a call is captured (interpreted, recorded, evaluated, or a break).
"""

from __future__ import annotations

from functools import _lru_cache_wrapper, partial
from types import (
    BuiltinFunctionType,
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import PY312
from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.values.base import Effect, ExistingValue, Value
from frameloom.capture.values.const import BY_VALUE, NONE, NUMPY_FUNCTIONS, ConstValue, is_constant
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.identity import identity_key
from frameloom.capture.values.unchanged import ABSENT, is_unchanged, note_end
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.containers.dictionary import DictValue


FUNCTION_PARTS = {
    "__dict__": "dict", "__defaults__": "func_defaults", "__kwdefaults__": "func_kwdefaults", "__closure__": "func_closure",
    "__code__": "func_code",
}  # fmt: skip


class CellValue(Value):
    """A closure cell. `content` is None while it is empty; `slot` is the captured function's frame slot that
    holds it."""

    mutable = ("content",)
    cls = CellType

    def __init__(
        self,
        content: Value | None,
        real: CellType | None = None,
        origin: Origin | None = None,
        slot: str | None = None,
        place: Origin | None = None,
    ) -> None:
        self.place = place  # source of the content before the call
        self.content = content
        self.real = real
        self.origin = origin
        self.slot = slot

    def parts(self) -> list[Value]:
        return [self.content] if self.content is not None else []

    def write(self, t: Tracer, content: Value | None) -> None:
        t.change(self)
        self.content = content

    @property
    def is_shared_with_caller(self) -> bool:
        return self.real is not None

    def effects(self, t: Tracer) -> list[Effect]:
        try:
            before = self.real.cell_contents
        except ValueError:
            before = ABSENT
        if self.content is None:
            note_end(t, before, self.place)
        elif is_unchanged(t, self.content, before, self.place):
            return []
        return [Effect(self, write_cell, self.parts())]

    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "cell_contents" and self.content is not None:
            return t.look(self.content)
        return super().getattr(t, name)

    def rebuild(self, r: Rebuilder) -> None:
        if self.slot is not None:
            r.code.load_cell(self.slot)
            return
        r.call(CellType)
        r.keep(self)
        if self.content is not None:
            r.store_attribute("cell_contents", self.content)


def write_cell(cell: CellType, content: tuple[Any, ...]) -> None:
    """Called from new code."""
    if content:
        cell.cell_contents = content[0]
    else:
        del cell.cell_contents


class FunctionValue(Value):
    """A Python function: one from before the call (`real`), or one that the captured code made (`made`)."""

    cls = FunctionType
    is_true = True

    def __init__(
        self, real: FunctionType | None, origin: Origin | None, made: MadeFunction | None = None
    ) -> None:
        self.real = real
        self.origin = origin
        self.made = made

    def describe(self) -> str:
        return f"{self.name}"

    @property
    def code(self) -> CodeType:
        return self.made.code if self.made is not None else self.real.__code__

    @property
    def name(self) -> str:
        return self.code.co_name if self.made is not None else self.real.__name__

    def globals(self, t: Tracer) -> DictValue:
        if self.made is not None:
            return self.made.globals
        return t.globals_of(self.real, self.origin)

    def defaults(self, t: Tracer) -> list[Value]:
        if self.made is not None:
            return self.made.defaults
        origin = self._own(t).child("func_defaults")
        if self.real.__defaults__ is None:
            t.guards.add(origin, "is", None)
        else:
            t.guards.add(origin, "length", len(self.real.__defaults__))
        return [
            t.wrap(value, origin.child("item", i))
            for i, value in enumerate(self.real.__defaults__ or ())
        ]

    def kwdefault(self, t: Tracer, name: str) -> Value | None:
        if self.made is not None:
            return self.made.kwdefaults.get(name)
        table, origin = self.real.__kwdefaults__, self._own(t).child("func_kwdefaults")
        if table is None:
            t.guards.add(origin, "is", None)
            return None
        if name not in table:
            t.guards.add(origin, "no_key", name)
            return None
        place = origin.child("key", name)
        t.guards.reaches(place)
        return t.wrap(table[name], place)

    def closure(self, t: Tracer) -> list[CellValue]:
        if self.made is not None:
            return self.made.closure
        origin = self._own(t).child("func_closure")
        return [
            t.cell(cell, origin.child("item", i))
            for i, cell in enumerate(self.real.__closure__ or ())
        ]

    def _own(self, t: Tracer) -> Origin:
        return self.origin if self.origin is not None else t.roots.object(self.real)

    def parts(self) -> list[Value]:
        if self.made is None:
            return []
        made = self.made
        return [
            *made.defaults,
            *made.kwdefaults.values(),
            *made.closure,
            *made.special.values(),
            *made.attributes.parts(),
            made.globals,
        ]

    def key(self, t: Tracer) -> Any:
        if self.real is None:
            return self
        if self.origin is not None:  # guarded only by its code
            t.guards.add(self.origin, "is", self.real)
        return self.real

    def _real_attribute(self, t: Tracer, name: str) -> Value:
        """Returns an attribute of a function from before the call."""
        own = self.real.__dict__
        origin = self._own(t)
        if name in own:
            return t.look(t.wrap(own[name], origin.child("dict").child("key", name)))
        if name == "__globals__":
            return self.globals(t)
        if name == "__class__":
            return t.pinned(FunctionType)
        if name == "__get__":
            return BoundMethodValue(BuiltinValue(FunctionType.__get__), self)
        if name in FUNCTION_PARTS:
            return t.look(t.wrap(getattr(self.real, name), origin.child(FUNCTION_PARTS[name])))
        if name == "__annotations__" or (name == "__type_params__" and PY312):
            return t.look(t.wrap(getattr(self.real, name), origin.child("attr", name)))
        if not hasattr(self.real, name):
            t.guards.add(origin.child("dict"), "no_key", name)
            return t.raise_(AttributeError, f"'function' object has no attribute '{name}'")
        value = getattr(self.real, name)
        if not is_constant(value):
            raise Break("attribute", f"{self.name}.{name}")
        return t.look(t.wrap(value, origin.child("attr", name)))

    def getattr(self, t: Tracer, name: str) -> Value:
        if self.made is None:
            return self._real_attribute(t, name)
        made = self.made
        if name in made.special:
            return t.look(made.special[name])
        if name == "__dict__":
            return made.attributes
        if name == "__module__":
            return made.globals.get(t, t.from_python("__name__")) or t.from_python(None)
        if name == "__annotations__":
            t.change(self)
            made.special[name] = t.table_of({})
            return made.special[name]
        if name in ("__defaults__", "__kwdefaults__", "__closure__"):
            return self._operand(t, name)
        if name == "__type_params__" and PY312:
            return t.from_python(())
        if name in ("__name__", "__qualname__", "__code__", "__doc__"):
            text = self.code.co_consts[0] if self.code.co_consts else None
            properties = {
                "__name__": self.name,
                "__qualname__": self.code.co_qualname,
                "__code__": self.code,
                "__doc__": text if isinstance(text, str) else None,
            }
            return t.from_python(properties[name])
        attribute = made.attributes.get(t, t.from_python(name))
        return t.instance_attribute(self, name) if attribute is None else attribute

    def _operand(self, t: Tracer, name: str) -> Value:
        """Returns an operand of MAKE_FUNCTION as the program sees it."""
        made = self.made
        parts = {"__defaults__": made.defaults, "__kwdefaults__": made.kwdefaults}
        if not parts.get(name, made.closure):
            return NONE
        if name != "__defaults__":
            raise Break("attribute", f"{self.name}.{name}")
        t.change(self)
        made.special[name] = TupleValue(made.defaults)
        return made.special[name]

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        if self.made is None or name in (
            "__code__",
            "__defaults__",
            "__kwdefaults__",
            "__globals__",
            "__closure__",
        ):
            super().setattr(t, name, value)
            return
        if name not in SPECIAL_ATTRIBUTES:
            self.made.attributes.setitem(t, t.from_python(name), value)
            return
        t.change(self)
        self.made.special[name] = value

    def snapshot(self) -> Any:
        return dict(self.made.special)

    def restore(self, saved: Any) -> None:
        self.made.special = saved

    def rebuild(self, r: Rebuilder) -> None:
        if self.made is None:
            r.code.load_const(self.real)
            return
        made = self.made
        keywords = tuple(made.kwdefaults), [*made.kwdefaults.values()]
        r.call(make_function, made.code, made.globals, made.defaults, *keywords, made.closure)
        r.keep(self)
        added = {k: item for k, (_, item) in made.attributes.written.items()}
        for name, value in {**made.special, **added}.items():
            r.store_attribute(name, value)


SPECIAL_ATTRIBUTES = frozenset(
    {"__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__type_params__"}
)


class MadeFunction:
    """The operands of MAKE_FUNCTION."""

    def __init__(self, code: CodeType, globals_: DictValue, attributes: DictValue) -> None:
        self.code = code
        self.globals = globals_
        self.defaults: list[Value] = []
        self.kwdefaults: dict[str, Value] = {}
        self.closure: list[CellValue] = []
        self.special: dict[str, Value] = {}  # standard attributes that were written
        self.attributes = attributes  # `__dict__`


def make_function(
    code: CodeType, scope: dict[str, Any], defaults: Any, names: Any, values: Any, closure: Any
) -> Any:
    """Called from new code: returns the function that MAKE_FUNCTION would make."""
    function = FunctionType(code, scope, code.co_name, defaults or None, closure or None)
    if names:
        function.__kwdefaults__ = dict(zip(names, values, strict=True))
    return function


def is_descriptor(fn: Any) -> bool:
    """Whether a C callable binds itself, like the methods in a class's dictionary; the program binds others
    by `MethodType`."""
    return hasattr(type(fn), "__get__") and type(fn) is not _lru_cache_wrapper


def bind(descriptor: Any, owner: Any) -> Any:
    """Called from new code."""
    if owner is None:  # `__get__` treats None as no object
        return getattr(None, descriptor.__name__)
    return descriptor.__get__(owner, type(owner))


class BoundMethodValue(Value):
    """`func` bound to `owner`, read as an attribute or found as a method object."""

    is_true = True

    def __init__(
        self, func: Value, owner: Value, origin: Origin | None = None, real: Any = None
    ) -> None:
        self.func = func
        self.owner = owner
        self.origin = origin
        self.real = real

    def type(self) -> type:
        if not isinstance(self.func, BuiltinValue) or not is_descriptor(self.func.real):
            return MethodType
        is_slot = isinstance(self.func.real, WrapperDescriptorType)
        return MethodWrapperType if is_slot else BuiltinMethodType

    def describe(self) -> str:
        return f"{self.owner.describe()}.{getattr(self.func, 'name', '?')}"

    def parts(self) -> list[Value]:
        return [self.func, self.owner]

    def key(self, t: Tracer) -> Any:
        func, owner = t.look(self.func), t.look(self.owner)
        if isinstance(owner.real, BY_VALUE):
            raise Break("identity", f"hash({self.describe()})")
        is_known = owner.real is None or t.known(owner.real) is owner
        return (func.key(t), identity_key(t, owner) if is_known else owner.key(t))

    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "__self__":
            return t.look(self.owner)
        if name == "__func__" and self.type() is MethodType:
            return t.look(self.func)
        if name == "__class__":
            return t.pinned(self.type())
        kind = self.type()
        if name == "__module__" and kind is BuiltinMethodType:
            return ConstValue(None)
        if name == "__qualname__" and kind is BuiltinMethodType:
            owner = t.look(self.owner)
            of = owner.real if isinstance(owner.real, type) else owner.type()
            return t.from_python(f"{of.__qualname__}.{self.func.real.__name__}")
        if name == "__get__" and name in vars(kind):  # since 3.13 it gives the bound method itself
            raise Break("attribute", f"{self.describe()}.__get__")
        is_without = name == "__module__" and kind is MethodWrapperType
        is_defined = hasattr(kind, name) or isinstance(self.func, FunctionValue)
        if is_without or not is_defined:
            return t.raise_no_attribute(f"'{kind.__name__}' object", name)
        return self.func.getattr(t, name)

    def rebuild(self, r: Rebuilder) -> None:
        if isinstance(self.func, BuiltinValue) and is_descriptor(self.func.real):
            r.call(
                bind, self.func.real, self.owner
            )  # by name, another class's method might be found
        else:
            r.call(MethodType, self.func, self.owner)


class BuiltinValue(ExistingValue):
    """A callable written in C, or one that is treated like it: torch functions, operators, methods of
    built-in types."""

    is_true = True

    @property
    def name(self) -> str:
        return getattr(self.real, "__name__", type(self.real).__name__)

    def describe(self) -> str:
        return self.name

    def key(self, t: Tracer) -> Any:
        return self.real

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return t.from_python(getattr(self.real, name))
        attribute = getattr(self.real, name, None)
        if callable(attribute) and type(self.real).__module__.partition(".")[0] == "torch":
            return BuiltinValue(attribute)  # an overload of an operator packet
        method = class_attribute(type(self.real), name)
        if isinstance(self.real, NUMPY_FUNCTIONS) and isinstance(method, MethodDescriptorType):
            return BoundMethodValue(BuiltinValue(method), self)
        if type(self.real) is BuiltinFunctionType and not hasattr(self.real, name):
            text = f"'builtin_function_or_method' object has no attribute '{name}'"
            return t.raise_(AttributeError, text)
        raise Break("attribute", f"{self.name}.{name}")

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return t.call_builtin(self.real, args, kwargs)


class PartialValue(Value):
    """A functools.partial."""

    is_true = True

    mutable = ("attributes",)
    cls = partial

    def __init__(
        self,
        func: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        origin: Origin | None = None,
        real: Any = None,
    ):
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.origin = origin
        self.real = real
        self.attributes: DictValue | None = None  # `__dict__` of a new one

    def _dict(self, t: Tracer) -> DictValue:
        if self.attributes is None:
            t.change(self)
            self.attributes = t.table_of({})
        return self.attributes

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        if self.origin is not None:
            super().setattr(t, name, value)
        self._dict(t).setitem(t, ConstValue(name), value)

    def parts(self) -> list[Value]:
        own = [] if self.attributes is None else self.attributes.parts()
        return [self.func, *self.args, *self.kwargs.values(), *own]

    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "__dict__" and self.origin is not None:
            return t.look(t.wrap(self.real.__dict__, self.origin.child("dict")))
        if name == "__dict__":
            return self._dict(t)
        if self.attributes is not None:
            own = self.attributes.get(t, ConstValue(name))
            if own is not None:
                return t.look(own)
        if name == "func":
            return t.look(self.func)
        if name in ("args", "keywords") and self.origin is not None:
            return t.look(t.wrap(getattr(self.real, name), self.origin.child("attr", name)))
        if name in ("args", "keywords"):
            # imports this module
            from frameloom.capture.values.containers.container import TupleValue

            return TupleValue(list(self.args)) if name == "args" else t.table_of(self.kwargs)
        return t.instance_attribute(self, name)

    def rebuild(self, r: Rebuilder) -> None:
        r.call(partial, self.func, *self.args, **self.kwargs)
        r.keep(self)
        written = {} if self.attributes is None else self.attributes.written
        for name, (_, value) in written.items():
            r.store_attribute(name, value)
