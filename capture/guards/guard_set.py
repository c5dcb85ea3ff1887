"""The conditions under which a captured call is valid again.

In: checks that the interpreter notes while it reads objects, as (source, kind, value), each at most once.
Out: `build` writes them into the C guard tree, parents before children, and returns the node of any source.
The kinds of checks are the rows of the guard_*.c files in capture/native.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any, NamedTuple

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.class_lookup import MISSING, ORDER, Lookups, class_attribute
from frameloom.capture.guards.source import SOURCE_KINDS, Origin, Roots


class OfNodes(NamedTuple):
    """The value of a check that names other nodes. `make` is given a function from sources to their nodes."""

    make: Callable[[Callable[[Origin], int]], Any]


class GuardSet:
    """The checks of one capture, in the order in which they were noted."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._checks: dict[Any, tuple[Origin, str, Any]] = {}
        self._distinct: dict[int, Origin] = {}
        self._pinned: set[int] = set()  # ids of sources at which only one object passes
        self._has_functions = torch._C._is_torch_function_enabled()
        self.lookups: Lookups = {}  # look-ups in classes that can change

    def add(self, origin: Origin, kind: str, value: Any = None) -> None:
        """Notes a check of the object at `origin`. `value`: as the row of its kind says; a source in place of
        a node."""
        if origin.kind == "object" and kind in ("is", "type"):
            return  # the guards hold the object itself
        if kind == "no_attr":
            origin, kind = origin.child("dict"), "no_key"
        by_value = kind == "length" or (kind == "no_key" and isinstance(value, str | int))
        key = value if by_value else id(value)
        if kind == "is":
            self._pinned.add(id(origin))
        self._checks.setdefault((id(origin), kind, key), (origin, kind, value))

    def forget(self, origin: Origin, kind: str, value: Any) -> None:
        self._checks.pop((id(origin), kind, id(value)), None)

    def distinct(self, origin: Origin) -> None:
        """Notes that the object at `origin` differs from all others noted here."""
        self._distinct[id(origin)] = origin

    def reaches(self, origin: Origin) -> None:
        """Notes that some object must be at `origin`; any object passes."""
        self._checks.setdefault((id(origin), "reaches"), (origin, "reaches", None))

    def add_tensor(self, origin: Origin, tensor: Any) -> None:
        self.add(origin, "tensor", tensor)

    def returns(self, fn: Any, args: tuple[Any, ...], result: Any) -> None:
        """Notes that a function written in C, without effects, returns that result for these arguments."""
        key = (fn, args, result)
        self._checks.setdefault(key, (self._roots.object(fn), "returns", (args, result)))

    def outcome(self, text: str, program: tuple[Any, ...], expected: bool) -> None:
        """Notes the result of a computation with dynamic numbers. `program` is in postfix form and has
        sources, (constant,) and (function, operands). A program without sources uses only specialized
        numbers, so its result is the same in every call."""
        origin = next((item for item in program if isinstance(item, Origin)), None)
        if origin is None:
            return
        key = ("outcome", tuple(map(_identity, program)), expected)

        def make(node: Callable[[Origin], int]) -> tuple[Any, ...]:
            nodes = (node(x) if isinstance(x, Origin) else x for x in program)
            return text, tuple(nodes), expected

        self._checks.setdefault(key, (origin, "outcome", OfNodes(make)))

    def sizes(self, origin: Origin, text: str, program: tuple[Any, ...]) -> None:
        """Notes a condition on dynamic sizes: triples of an operation and two operands; the first operand may
        be a source."""
        key = ("sizes", tuple(_identity(x) for step in program for x in step))

        def make(node: Callable[[Origin], int]) -> tuple[str, bytes]:
            flat = (node(x) if isinstance(x, Origin) else x for step in program for x in step)
            return text, struct.pack(f"{3 * len(program)}q", *flat)

        self._checks.setdefault(key, (origin, "sizes", OfNodes(make)))

    def apart(self, first: Origin, second: Origin) -> None:
        """Notes that two tensors share no memory."""
        make = lambda node: [node(first), node(second)]  # noqa: E731
        self._checks.setdefault(
            (id(first), "no_overlap", id(second)), (first, "no_overlap", OfNodes(make))
        )

    def subclass(self, cls: type, abstract: type, answer: bool) -> None:
        """Notes the answer of an abstract class about a class, which a registration can change."""
        key = ("subclass", cls, abstract)
        self._checks.setdefault(key, (self._roots.object(cls), "subclass", (cls, abstract, answer)))

    def compares_numbers(self, start: int) -> bool:
        """Whether one of the checks from number `start` on compares a number that the program may change."""
        checks = [*self._checks.values()][start:]
        return any(kind == "equal" and type(v) in (int, float, complex) for _, kind, v in checks)

    def release(self) -> None:
        """Frees the checks after the guards are built; the guards hold these objects weakly."""
        self._checks.clear()
        self._distinct.clear()
        self.lookups.clear()

    def __len__(self) -> int:
        return len(self._checks)

    def _outside(self) -> Any:
        """Brings back the state outside of the capture, which turns `__torch_function__` off."""
        return torch._C._EnableTorchFunction() if self._has_functions else nullcontext()  # type: ignore[attr-defined]

    def build(self, apart: Sequence[Origin] = ()) -> BuiltGuards:
        """Builds the guards. `apart`: tensors that must not share memory."""
        built = BuiltGuards(self._roots)
        with self._outside():
            built.guards.global_state()
        self._build_lookups(built, 0)
        known = len(self.lookups)
        for origin, kind, value in self._checks.values():
            node = built.node(origin)
            if kind == "reaches":
                continue
            if type(value) is Origin:
                value = built.node(value)
            elif type(value) is OfNodes:
                value = value.make(built.node)
            built.guards.check(node, kind, value)
        self._build_lookups(built, known)  # the look-ups made while building
        if len(apart) > 1:
            nodes = [built.node(origin) for origin in apart]
            built.guards.check(nodes[0], "no_overlap", nodes)
        if len(self._distinct) > 1 and not all(map(self._is_pinned, self._distinct.values())):
            nodes = [built.node(origin) for origin in self._distinct.values()]
            built.guards.check(nodes[0], "distinct", nodes)
        return built

    def _is_pinned(self, origin: Origin) -> bool:
        """Whether only one object passes at this source."""
        return origin.kind == "object" or id(origin) in self._pinned

    def _build_lookups(self, built: BuiltGuards, start: int) -> None:
        for (cls, name, after), attribute in list(self.lookups.items())[start:]:
            built.lookup(cls, name if after is None else (name, after), attribute)


class BuiltGuards:
    """The C tree, and the node of each source."""

    def __init__(self, roots: Roots) -> None:
        self.guards = _capture.Guards()
        self._roots = roots
        self._nodes: dict[int, int] = {}

    def node(self, origin: Origin) -> int:
        node = self._nodes.get(id(origin))
        if node is None:
            node = self._nodes[id(origin)] = self._load(origin)
        return node

    def lookup(self, cls: type, key: Any, attribute: Any) -> None:
        """Adds the check that the raw attribute of a class is unchanged. `key`: its name, or its name and the
        class after which it was looked up."""
        origin = self._roots.object(cls)
        node, path = self.node(origin), origin.path()
        if key is ORDER:
            order = self.guards.load(node, "class_order", None, f"{path}.__mro__")
            self.guards.check(order, "is", attribute)
        elif attribute is MISSING:
            self.guards.check(node, "no_class_attr", key)
        else:
            kind = "equal" if type(attribute) in LITERALS else "is"
            name = key[0] if isinstance(key, tuple) else key
            stored = self.guards.load(node, "class_attr", key, f"{path}.{name}")
            self.guards.check(stored, kind, attribute)

    def _load(self, origin: Origin) -> int:
        kind, key, base = SOURCE_KINDS[origin.kind].guard, origin.key, origin.base
        if kind == "attr" and base is not None and base.kind == "object" and is_stored(origin):
            kind = "class_attr"
        if kind in ("arg", "cell"):
            key = self._roots.position(origin)
        parent = None if base is None else self.node(base)
        return self.guards.load(parent, kind, key, origin.path())


def _identity(item: Any) -> Any:
    """Returns a key for a part of a program: two sources may have the same name, and equal numbers may be
    different ones."""
    return id(item) if isinstance(item, Origin) else (item, repr(item))


LITERALS = (bool, int, float, complex, str, bytes)


def is_stored(origin: Origin) -> bool:
    """Whether an attribute of a pinned class is the object in its dictionary itself, not a bound one."""
    assert origin.base is not None
    cls = origin.base.key
    if not isinstance(cls, type) or class_attribute(type(cls), origin.key) is not MISSING:
        return False
    attribute = class_attribute(cls, origin.key)
    return type(attribute) is FunctionType or class_attribute(type(attribute), "__get__") is MISSING
