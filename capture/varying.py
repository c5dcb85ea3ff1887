"""Which numbers vary from call to call: those that were another one when the same function was captured before.

A number is guarded by its value at first.  When a call has no entry, all numbers that differ from what they were become inputs of the graph
together (values/symbolic.py), so that a learning rate or a counter makes two compiles and not one per value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.debug import log

if TYPE_CHECKING:
    from types import CodeType

    from frameloom.capture.origin import Origin


class Varying:
    """What is known of the numbers that one jitted function has looked at."""

    def __init__(self) -> None:
        self._seen: dict[Any, int | float] = {}
        self._varying: set[Any] = set()

    def varies(self, code: CodeType, origin: Origin, number: int | float) -> bool:
        """Whether the number at `origin` is to be an input."""
        place = (code, type(number), *_links(origin))
        if place in self._varying:
            return True
        before = self._seen.setdefault(place, number)
        if before == number:
            return False
        self._varying.add(place)
        log("recompiles", f"{origin.path()} became an input: it was {before!r} and is {number!r}")
        return True


def _links(origin: Origin) -> list[Any]:
    """Equal for the same place, in whichever capture."""
    links: list[Any] = []
    place: Origin | None = origin
    while place is not None:
        key = place.key
        links.append((place.kind, key if isinstance(key, str | int | None) else id(key)))
        place = place.base
    return links
