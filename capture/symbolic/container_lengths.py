"""Containers whose lengths differ between calls: a list that grows would have an entry for each length.

The first two lengths are compiled at once. A further one runs as plain Python until it is worth an entry:
when it comes back after another length, or has stayed for many calls (`_capture.Lengths`, which the guards of
a plain entry ask, so that such calls cost almost nothing). In a large function, where the rest of the
function matters, a growing list is opaque: its items are not read, and the graph breaks where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture import _capture
from frameloom.debug import log, notice
from frameloom.errors import Skip

if TYPE_CHECKING:
    from types import CodeType

    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

AT_ONCE = 2  # lengths of a container that are compiled at first sight
LARGE = 64  # operations of a function that is compiled around a growing list


class NewLength(Skip):
    """The call runs as plain Python, and so do others with a new length."""

    def __init__(self, reason: str, origin: Origin, lengths: Any) -> None:
        super().__init__(reason)
        self.origin = origin
        self.lengths = lengths


class Lengths:
    """The lengths of containers that one jitted function has read."""

    def __init__(self) -> None:
        # least number of operations in the entries of a function
        self.n_ops: dict[CodeType, int] = {}
        self.may_break = True  # whether graphs may break
        self._seen: dict[Any, Any] = {}
        self._growing: set[Any] = set()

    def count(self, code: CodeType, n_ops: int) -> None:
        """Notes that a graph of `n_ops` operations was captured."""
        self.n_ops[code] = min(n_ops, self.n_ops.get(code, n_ops))

    def is_opaque_list(self, code: CodeType, origin: Origin) -> bool:
        """Whether the list at `origin` is opaque."""
        return (code, *origin.links()) in self._growing

    def note(self, t: Tracer, origin: Origin, kind: type, length: int) -> Any:
        """Notes that the capture depends on the length of the container at `origin`. Returns the object that
        its entry informs when it sees the length."""
        code = t.roots.function.__code__
        place = (code, *origin.links())
        seen = self._seen.setdefault(place, _capture.Lengths())
        known = seen.known()
        if seen.grows():
            alone = kind is list and t.options.follows_numbers and self.may_break
            alone = alone and self.n_ops.get(code, 0) >= LARGE
            what = "what uses it runs" if alone else "calls with a new length run"
            advice = f"{code.co_qualname}: {origin.path()} grows with each call, so that {what} as plain Python; try: a tensor that grows"
            notice(f"grows:{id(self)}", advice, self)
            if alone:
                self._growing.add(place)
                seen.close()
                t.guards.add(origin, "length", length)
                raise Skip(advice)
        if len(known) < AT_ONCE or not seen.is_new(length):
            seen.add(length)
            return seen
        lengths = ", ".join(map(str, known))
        reason = f"{origin.path()} has length {length}, and there are entries for {lengths}: others run as plain Python until one comes back"
        log("recompiles", f"{code.co_qualname}: {reason}")
        raise NewLength(reason, origin, seen)
