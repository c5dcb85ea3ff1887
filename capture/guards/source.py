"""Where a value comes from: a chain of loads that starts at a root of the call.

In: the interpreter, which extends chains while the program reads its objects. Out: the same chain reloads the
value in new code (`load`), is a path of the guard tree (`node`), and can be shown as the user would write it
(`path`). The kinds are those of `_capture.Guards`. Checks of values are in `guards/guard_set.py`.

Sources describe the state at the entry of the call; the interpreter keeps later changes in the values
themselves.
"""

from __future__ import annotations

import builtins
import gc
import weakref
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from frameloom.capture.bytecode.emitter import CodeBuilder


class Origin:
    """One link of a chain. `child` returns the same object for the same key, so sources compare by
    identity."""

    __slots__ = ("_children", "_path", "base", "key", "kind")

    def __init__(self, kind: str, base: Origin | None, key: Any) -> None:
        self.kind = kind
        self.base = base
        self.key = key
        self._children: dict[Any, Origin] = {}
        self._path: str | None = None

    def child(self, kind: str, key: Any = None) -> Origin:
        if type(key) is str or key is None:
            index: Any = (kind, key)
        elif isinstance(key, str | int):
            index = (kind, type(key), key)
        else:
            index = (kind, id(key))
        child = self._children.get(index)
        if child is None:
            child = self._children[index] = Origin(kind, self, key)
        return child

    def load(self, code: CodeBuilder) -> None:
        """Pushes the object; the base, if any, must have just been pushed."""
        kind = self.kind
        if kind in ATTRIBUTES:
            code.load_attr(ATTRIBUTES[kind])
        elif kind == "attr":
            code.load_attr(self.key)
        elif kind in ("item", "key"):
            if isinstance(self.key, torch.Tensor):  # a constant of the code would keep it alive
                code.call_const(weakref.ref(self.key))
            else:
                code.load_const(self.key)
            code.emit("BINARY_SUBSCR")
        elif kind in READERS:
            code.call_const_after(READERS[kind], () if self.key is None else (self.key,))
        elif kind == "arg":
            code.load_argument(self.key)
        elif kind == "cell":
            code.emit("LOAD_DEREF", self.key)
        elif kind == "object":
            code.load_const(self.key)
        else:
            assert kind == "globals", kind
            code.load_globals()

    def path(self) -> str:
        """Returns the source as the user would write it."""
        if self._path is None:
            self._path = self._make_path()
        return self._path

    def _make_path(self) -> str:
        base = self.base.path() if self.base is not None else ""
        match self.kind:
            case "arg" | "cell":
                return str(self.key)
            case "globals":
                return "globals()"
            case "object":
                if self.key is builtins.__dict__:
                    return "builtins"
                return getattr(self.key, "__name__", type(self.key).__name__)
            case "attr":
                return f"{base}.{self.key}"
            case "dict":
                return f"{base}.__dict__"
            case "type":
                return f"type({base})"
            case "state":
                return f"{base}.__reduce__()"
            case "proxied" | "cached" | "cast":
                return base
            case "referent":
                return f"{base}()"
            case "item" | "base_item":
                return f"{base}[{self.key!r}]"
            case "key" | "base_key":
                return self._key_path(base)
            case kind:
                return f"{base}.{ATTRIBUTES[kind]}"

    def _key_path(self, base: str) -> str:
        """Shows `x.__dict__['_modules']['fc']` as `x.fc`, and a key of globals() as a name."""
        parent = self.base
        assert parent is not None
        if parent.kind in ("globals", "func_globals") or parent.key is builtins.__dict__:
            return str(self.key)
        if parent.kind == "dict" and isinstance(self.key, str) and parent.base is not None:
            return f"{parent.base.path()}.{self.key}"
        if (
            parent.kind == "key"
            and parent.key in REGISTRIES
            and parent.base is not None
            and parent.base.kind == "dict"
        ):
            assert parent.base.base is not None
            owner = parent.base.base.path()
            return f"{owner}[{self.key}]" if str(self.key).isdigit() else f"{owner}.{self.key}"
        return (
            f"{base}[{self.key!r}]"
            if _is_plain(self.key)
            else f"{base}[{getattr(self.key, '__name__', '...')}]"
        )

    def links(self) -> list[Any]:
        """Returns a key that is equal for the same source in all captures."""
        links: list[Any] = []
        place: Origin | None = self
        while place is not None:
            key = place.key
            links.append((place.kind, key if key is None or isinstance(key, NAMES) else id(key)))
            place = place.base
        return links

    def __repr__(self) -> str:
        return f"<{self.path()}>"


NAMES = (str, int)
REGISTRIES = frozenset({"_modules", "_parameters", "_buffers"})
ATTRIBUTES = {
    "cell_contents": "cell_contents",
    "func_closure": "__closure__",
    "func_defaults": "__defaults__",
    "func_kwdefaults": "__kwdefaults__",
    "func_code": "__code__",
    "func_globals": "__globals__",
    "method_self": "__self__",
    "method_func": "__func__",
}


def _read_dict(obj: Any) -> Any:
    return object.__getattribute__(obj, "__dict__")


def _read_base_item(obj: Any, index: int) -> Any:
    return list.__getitem__(obj, index) if isinstance(obj, list) else tuple.__getitem__(obj, index)


def _read_base_key(obj: Any, key: Any) -> Any:
    return dict.__getitem__(obj, key)


# "base_item" and "base_key" bypass an overridden __getitem__, "dict" an overridden __getattribute__.
def _read_state(iterator: Any) -> Any:
    return iterator.__reduce__()


def _read_proxied(proxy: Any) -> Any:
    return gc.get_referents(proxy)[0]


def _read_referent(reference: Any) -> Any:
    return reference()


READERS: dict[str, Any] = {
    "proxied": _read_proxied,
    "referent": _read_referent,
    "state": _read_state,
    "dict": _read_dict,
    "type": type,
    "base_item": _read_base_item,
    "base_key": _read_base_key,
}
GUARD_KINDS = {"base_item": "item", "base_key": "key"}
# Sources of these kinds often lead to new objects in each call: functions and frozensets there are not guarded
# by identity.
FRESH_KINDS = frozenset({"arg", "cell", "item", "cell_contents"})


def _is_plain(key: Any) -> bool:
    return key is None or isinstance(key, str | int)


class Roots:
    """The roots of one call: the function's arguments, free variables and globals, and pinned objects."""

    def __init__(self, function: FunctionType) -> None:
        self.globals = Origin("globals", None, None)
        self._arguments: dict[int, Origin] = {}
        self._cells: dict[int, Origin] = {}
        self._objects: dict[int, Origin] = {}
        self.slots: list[str] = []
        self.function = function

    def argument(self, position: int, name: str) -> Origin:
        origin = Origin("arg", None, name)
        self._arguments[position] = origin
        return origin

    def cell(self, position: int, name: str) -> Origin:
        origin = Origin("cell", None, name)
        self._cells[position] = origin
        return origin

    def object(self, obj: object, path: str | None = None) -> Origin:
        """Returns the source of a pinned object. Use it for objects that the function cannot reach by its own
        names (classes, builtins). `path`: its name in messages."""
        origin = self._objects.get(id(obj))
        if origin is None:
            origin = self._objects[id(obj)] = Origin("object", None, obj)
            origin._path = path
        return origin

    def release(self) -> None:
        """Breaks the reference cycles between sources and their children, so that they are freed without the
        garbage collector."""
        origins = [
            self.globals,
            *self._arguments.values(),
            *self._cells.values(),
            *self._objects.values(),
        ]
        while origins:
            children = origins.pop()._children
            origins.extend(children.values())
            children.clear()

    def position(self, origin: Origin) -> int:
        table = self._arguments if origin.kind == "arg" else self._cells
        return next(position for position, known in table.items() if known is origin)
