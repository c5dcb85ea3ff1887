"""What new code calls when a piece ends: going on in a resume function, without growing the Python stack.

The captured function drives: it calls the resume function for the place where it left, which returns either the result or an `Exit` that names
the next resume function.  Inside inlined calls, a break function hands its state up as a `Live` tuple, each caller adding its own.

    f (new code) -> drive -> resume -> Exit -> resume -> ... -> result
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

    def __init__(self, link: Link, state: tuple[Any, ...]) -> None:
        self.link = link
        self.state = state


class Live(tuple[Any, ...]):
    """State of frames inside an inlined call: the number of the way out, then the frames' values, innermost first."""

    __slots__ = ()


def drive(link: Link, *state: Any) -> Any:
    """Run resume functions until one gives the result."""
    while True:
        resume = link()
        assert resume is not None
        result = resume(*state)
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


def hand_over(link: Link, *state: Any) -> Exit:
    """As `drive`, inside a resume function, where somebody drives already."""
    return Exit(link, state)


def hand_up(way_out: int, *state: Any) -> Live:
    """The innermost frame of an inlined call ends here."""
    return Live((way_out, *state))


def drive_after_call(links: tuple[Link, ...], result: Any, *own: Any) -> Any:
    """After an inlined call in the captured function: `links` by way out, the last one for a normal return."""
    if type(result) is Live:
        return drive(links[result[0]], *result[1:], *own)
    return drive(links[-1], *own, result)


def hand_over_after_call(links: tuple[Link, ...], result: Any, *own: Any) -> Exit:
    if type(result) is Live:
        return Exit(links[result[0]], (*result[1:], *own))
    return Exit(links[-1], (*own, result))


def hand_up_after_call(way_out: int, result: Any, *own: Any) -> Live:
    """After an inlined call inside another one; `way_out` is the number of its normal return."""
    if type(result) is Live:
        return Live((*result, *own))
    return Live((way_out, *own, result))


OWN_CODE = (drive.__code__, drive_after_call.__code__)
