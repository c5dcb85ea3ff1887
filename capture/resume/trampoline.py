"""What new code calls when a piece ends: going on in a resume function, without growing the Python stack.

The captured function drives: it calls the resume function for the place where it left, which returns either the result or an `Exit` that names
the next resume function.  Inside inlined calls, a break function hands its state up as a `Live`, each caller adding its own.

    f (new code) -> drive -> resume -> Exit -> resume -> ... -> result

State goes from hand to hand as one list, which the resume function empties: nobody on the way keeps alive what the program lets go of.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

Link = weakref.ref[
    Callable[..., Any]
]  # code constants hold functions weakly: the garbage collector does not look into code


class Exit:
    """A resume function ends here; `link` is the next one."""

    __slots__ = ("link", "state")

    def __init__(self, link: Link, state: list[Any]) -> None:
        self.link = link
        self.state = state


class Live:
    """State of frames inside an inlined call: the number of the way out, and the frames' values, innermost first."""

    __slots__ = ("state", "way_out")

    def __init__(self, way_out: int, state: list[Any]) -> None:
        self.way_out = way_out
        self.state = state


def drive(link: Link, state: list[Any]) -> Any:
    """Run resume functions until one gives the result."""
    while True:
        resume = link()
        assert resume is not None
        result = resume(state)
        if type(result) is not Exit:
            return result
        link, state = result.link, result.state
        del resume, result


def show_once(error: BaseException) -> None:
    """An exception comes out of `drive`: its traceback is to show the program's frames alone, as if the captured function had gone on in its own."""
    tb = error.__traceback__
    after = tb.tb_next if tb is not None else None
    while after is not None and after.tb_frame.f_code in OWN_CODE:
        after = after.tb_next
    if after is not None:  # else it comes from here
        error.__traceback__ = after


hand_over = Exit  # as `drive`, inside a resume function, where somebody drives already
hand_up = Live  # the innermost frame of an inlined call ends here


def _after_call(links: tuple[Link, ...], state: list[Any]) -> Link:
    """Where to go on after an inlined call, whose result is the last of `state`: `links` by way out, the last one for a normal return."""
    result = state[-1]
    if type(result) is not Live:
        return links[-1]
    state[-1:] = ()
    state[:0] = result.state
    return links[result.way_out]


def drive_after_call(links: tuple[Link, ...], state: list[Any]) -> Any:
    return drive(_after_call(links, state), state)


def hand_over_after_call(links: tuple[Link, ...], state: list[Any]) -> Exit:
    return Exit(_after_call(links, state), state)


def hand_up_after_call(way_out: int, state: list[Any]) -> Live:
    """After an inlined call inside another one; `way_out` is the number of its normal return."""
    result = state[-1]
    if type(result) is not Live:
        return Live(way_out, state)
    state[-1:] = ()
    result.state += state
    return result


OWN_CODE = (drive.__code__, drive_after_call.__code__)
