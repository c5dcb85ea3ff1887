"""What must hold for a captured call to be valid again.

In: checks noted by the interpreter while it looks at things, as (origin, kind, value), each at most once.  Out: `build` writes them
into the C guard tree, parents before children, and gives the node of any origin.  The kinds of checks are those of `_capture.Guards`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any

from frameloom.capture import _capture
from frameloom.capture.origin import GUARD_KINDS, Origin, Roots


class GuardSet:
    """The checks of one capture, in the order in which they were noted."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._checks: dict[Any, tuple[Origin, str, Any]] = {}

    def add(self, origin: Origin, kind: str, value: Any = None) -> None:
        if origin.kind == "object" and kind in ("is", "type"):
            return  # the guards hold the object itself
        if kind == "no_attr":
            origin, kind = origin.child("dict"), "no_key"
        key = value if kind in ("length", "no_key") and isinstance(value, str | int) else id(value)
        self._checks.setdefault((id(origin), kind, key), (origin, kind, value))

    def add_tensor(self, origin: Origin, tensor: Any) -> None:
        self.add(origin, "tensor", tensor)

    def __len__(self) -> int:
        return len(self._checks)

    def build(self, code: CodeType, apart: Sequence[Origin] = ()) -> BuiltGuards:
        """`apart`: tensors that must not share memory."""
        built = BuiltGuards(code, self._roots)
        built.guards.global_state()
        for origin, kind, value in self._checks.values():
            node = built.node(origin)
            if kind in ("same", "different"):
                value = built.node(value)
            built.guards.check(node, kind, value)
        if len(apart) > 1:
            built.guards.no_overlap([built.node(origin) for origin in apart])
        return built


class BuiltGuards:
    """The C tree, and which node stands for which origin."""

    def __init__(self, code: CodeType, roots: Roots) -> None:
        self.guards = _capture.Guards(code)
        self._roots = roots
        self._nodes: dict[int, int] = {}

    def node(self, origin: Origin) -> int:
        found = self._nodes.get(id(origin))
        if found is None:
            found = self._nodes[id(origin)] = self._make(origin)
            self.guards.describe(found, origin.path())
        return found

    def _make(self, origin: Origin) -> int:
        if origin.base is not None:
            kind = GUARD_KINDS.get(origin.kind, origin.kind)
            return self.guards.child(self.node(origin.base), kind, origin.key)
        if origin.kind == "arg":
            return self.guards.arg(self._roots.position(origin))
        if origin.kind == "cell":
            return self.guards.cell(self._roots.position(origin))
        if origin.kind == "globals":
            return self.guards.globals()
        return self.guards.object(origin.key)
