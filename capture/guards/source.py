"""Where a value comes from: a chain of loads that starts at a root of the call.

In: the interpreter, which extends chains while the program reads its objects. Out: the same chain reloads the
value in new code (`load`), is a path of the guard tree (`node`), and can be shown as the user would write it
(`path`). The kinds are the rows of capture/native/guard_loads.c, which say all that, and `SOURCE_KINDS`, which
has what only Python can say. Checks of values are in `guards/guard_set.py`.

Sources describe the state at the entry of the call; the interpreter keeps later changes in the values
themselves.
"""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from frameloom.capture import _capture

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
        SOURCE_KINDS[self.kind].load(self, code)

    def path(self) -> str:
        """Returns the source as the user would write it."""
        if self._path is None:
            self._path = SOURCE_KINDS[self.kind].path(self)
        return self._path

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


class SourceKind(NamedTuple):
    """What a kind of source does. `guard`: the load of the guard tree; `load` and `path` as those of
    `Origin`."""

    guard: str
    load: Callable[[Origin, CodeBuilder], None]
    path: Callable[[Origin], str]


def _native(name: str, reader: Any, shown: str) -> SourceKind:
    """Makes the record of a row of guard_loads.c. `reader`: the attribute that new code loads, or the function
    that it calls. `shown`: the format of the path."""

    def load(origin: Origin, code: CodeBuilder) -> None:
        if isinstance(reader, str):
            code.load_attr(reader)
        else:
            code.call_const_after(reader, () if origin.key is None else (origin.key,))

    def path(origin: Origin) -> str:
        assert origin.base is not None
        return shown.format(origin.base.path(), origin.key)

    return SourceKind(name, load, path)


def _subscript(origin: Origin, code: CodeBuilder) -> None:
    if isinstance(origin.key, torch.Tensor):  # a constant of the code would keep it alive
        code.call_const(weakref.ref(origin.key))
    else:
        code.load_const(origin.key)
    code.emit("BINARY_SUBSCR")


def _name(origin: Origin) -> str:
    return str(origin.key)


def _object_path(origin: Origin) -> str:
    if origin.key is builtins.__dict__:
        return "builtins"
    return getattr(origin.key, "__name__", type(origin.key).__name__)


def _key_path(origin: Origin) -> str:
    """Shows `x.__dict__['_modules']['fc']` as `x.fc`, and a key of globals() as a name."""
    key, parent = origin.key, origin.base
    assert parent is not None
    if parent.kind in ("globals", "func_globals") or parent.key is builtins.__dict__:
        return str(key)
    if parent.kind == "dict" and isinstance(key, str) and parent.base is not None:
        return f"{parent.base.path()}.{key}"
    if (
        parent.kind == "key"
        and parent.key in REGISTRIES
        and parent.base is not None
        and parent.base.kind == "dict"
    ):
        assert parent.base.base is not None
        owner = parent.base.base.path()
        return f"{owner}[{key}]" if str(key).isdigit() else f"{owner}.{key}"
    shown = (
        repr(key) if key is None or isinstance(key, str | int) else getattr(key, "__name__", "...")
    )
    return f"{parent.path()}[{shown}]"


_NATIVE = {name: _native(name, *row) for name, row in _capture.LOADS.items()}
SOURCE_KINDS = _NATIVE | {
    "arg": SourceKind("arg", lambda origin, code: code.load_argument(origin.key), _name),
    "cell": SourceKind("cell", lambda origin, code: code.emit("LOAD_DEREF", origin.key), _name),
    "globals": SourceKind("globals", lambda _, code: code.load_globals(), lambda _: "globals()"),
    "object": SourceKind("object", lambda origin, code: code.load_const(origin.key), _object_path),
    "attr": _NATIVE["attr"]._replace(load=lambda origin, code: code.load_attr(origin.key)),
    "item": _NATIVE["item"]._replace(load=_subscript),
    "key": _NATIVE["key"]._replace(load=_subscript, path=_key_path),
    # These bypass an overridden __getitem__.
    "base_item": _NATIVE["item"],
    "base_key": _NATIVE["key"]._replace(path=_key_path),
}
# Sources of these kinds often lead to new objects in each call: functions and frozensets there are not guarded
# by identity.
FRESH_KINDS = frozenset({"arg", "cell", "item", "cell_contents"})


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
