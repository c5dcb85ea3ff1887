"""Links the specification of a plan: puts what a Name stands for in its place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from frameloom.runtime.spec import Name, PlanSpec

Lookup = Callable[[Name], Any]


def link(spec: PlanSpec, lookup: Lookup) -> PlanSpec:
    """Returns `spec` without Names: `lookup` returns what each stands for."""
    linked: PlanSpec = _linked(spec, lookup)
    return replace(
        linked,
        buffers=tuple(_linked(b, lookup) for b in spec.buffers),
        steps=tuple(_linked(s, lookup) for s in spec.steps),
        lazy={k: tuple(map(lookup, names)) for k, names in spec.lazy.items()},
        keep=tuple(map(lookup, spec.keep)),
    )


def _linked(part: Any, lookup: Lookup) -> Any:
    named = {f: lookup(v) for f in _fields(type(part)) if type(v := getattr(part, f)) is Name}
    return replace(part, **named) if named else part


@functools.cache
def _fields(of: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(of))
