"""`with numpy.errstate(...):` around captured code.

Recorded operations neither warn nor raise for errors of floats, so that NumPy's settings need not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.library.warning_filters import BlockValue, enter_block, leave_block
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_DTYPES
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

QUIET = ("ignore", "warn", None)
ERRORS = frozenset({"all", "divide", "over", "under", "invalid"})


def _made(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = {name: t.look(value) for name, value in kwargs.items()}
    refused = Break("library_call", "numpy.errstate(...)")
    call = given.pop("call", None)
    allowed = QUIET
    if call is not None:
        # NumPy's own functions of linear algebra are told so that a matrix is not as it must be. Operations
        # that compute them raise then, and the call starts again as plain Python.
        if not str(getattr(call.real, "__module__", "")).startswith("numpy.linalg."):
            raise refused
        allowed = (*QUIET, "call")
    if not given.keys() <= ERRORS or any(value.real not in allowed for value in given.values()):
        raise refused
    return BlockValue(NUMPY.errstate, t.site_or(refused))


def _around_a_function(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise Break("library_call", "numpy.errstate(...)(...)")


if NUMPY_DTYPES:
    import numpy as NUMPY

    knows(NUMPY.errstate, most=0, keywords="call all divide over under invalid")(_made)
    knows(NUMPY.errstate.__enter__, least=1, most=1)(enter_block)
    knows(NUMPY.errstate.__exit__, least=1)(leave_block)
    knows(NUMPY.errstate.__call__, least=1)(_around_a_function)
