"""`with lock:` where the lock is free.

The program reads and writes under the lock; the graph and the replay of the writes come after all of it, and a lock that is taken and left
before them has nothing to keep apart, so it is not taken at all.  A break inside the block needs the lock for what runs plainly: then
the capture breaks at the `with` instead.
"""

from __future__ import annotations

import threading
from types import CodeType
from typing import TYPE_CHECKING, Any

from frameloom.capture.builtins import Args, Kwargs, knows
from frameloom.capture.generator import Avoid
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.frame import Frame

LOCKS = (type(threading.Lock()), type(threading.RLock()))


class HeldLockValue(Value):
    """A lock inside its `with` block, which began at `site`."""

    def __init__(self, lock: OpaqueValue, site: tuple[CodeType, int]) -> None:
        self.lock = lock
        self.site = site

    def type(self) -> type:
        return type(self.lock.real)

    def check_rebuild(self) -> None:
        raise Avoid(self.site)


def enter_lock(frame: Frame, lock: OpaqueValue) -> None:
    """What `with lock:` puts on the stack."""
    site = (frame.code, frame.at.index)
    if frame.t.session.forced or frame.t.session.is_avoided(*site) or _is_taken(lock.real):
        raise Break("context_manager", f"with {lock.describe()}")
    leave: Any = type(lock.real).__exit__
    frame.push(BoundMethodValue(BuiltinValue(leave), HeldLockValue(lock, site)))
    frame.push(NONE)


def _is_taken(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


@knows(*(kind.__exit__ for kind in LOCKS), least=1, most=4)  # type: ignore[attr-defined]
def _leave(t: Any, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(t.look(args[0]), HeldLockValue):
        raise Break("context_manager", "lock.__exit__(...)")
    return NONE
