"""Functions that new code calls where it leaves: they run resume functions without growing the Python stack.

The captured function drives: it calls the resume function for the place where it left. That returns either
the result or an `Exit` that names the next resume function. Inside inlined calls, a break function returns
its state as a `Live`, and each caller adds its own.

  f (new code) -> drive -> resume -> Exit -> resume -> ... -> result

The state is passed on as one list, which the resume function empties. So no frame in between keeps objects
alive that the program drops.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

Link = weakref.ref[
    Callable[..., Any]
]  # constants of code hold functions weakly: the garbage collector does not traverse code


class Exit:
    """The end of a resume function; `link` is the next one."""

    __slots__ = ("link", "state")

    def __init__(self, link: Link, state: list[Any]) -> None:
        self.link = link
        self.state = state


class Live:
    """The state of frames inside an inlined call: the number of the exit, and the frames' values,
    innermost first."""

    __slots__ = ("exit_number", "state")

    def __init__(self, exit_number: int, state: list[Any]) -> None:
        self.exit_number = exit_number
        self.state = state


def drive(link: Link, state: list[Any]) -> Any:
    """Runs resume functions until one returns the result."""
    while True:
        resume = link()
        assert resume is not None
        result = resume(state)
        if type(result) is not Exit:
            return result
        link, state = result.link, result.state
        del resume, result


def show_once(error: BaseException) -> None:
    """Changes the traceback of an exception from `drive`: it shows only the program's frames, as if the
    captured function had continued in its own."""
    tb = error.__traceback__
    after = tb.tb_next if tb is not None else None
    while after is not None and after.tb_frame.f_code in OWN_CODE:
        after = after.tb_next
    if after is not None:  # otherwise it was raised here
        error.__traceback__ = after


hand_over = Exit  # used instead of `drive` inside a resume function, where `drive` runs already
hand_up = Live  # the end of the innermost frame of an inlined call


def _after_call(links: tuple[Link, ...], state: list[Any]) -> Link:
    """Returns where to resume after an inlined call, whose result is the last of `state`. `links`: by exit
    number; the last one is for a normal return."""
    result = state[-1]
    if type(result) is not Live:
        return links[-1]
    state[-1:] = ()
    state[:0] = result.state
    return links[result.exit_number]


def drive_after_call(links: tuple[Link, ...], state: list[Any]) -> Any:
    return drive(_after_call(links, state), state)


def hand_over_after_call(links: tuple[Link, ...], state: list[Any]) -> Exit:
    return Exit(_after_call(links, state), state)


def hand_up_after_call(exit_number: int, state: list[Any]) -> Live:
    """Passes on the state after an inlined call inside another one; `exit_number` is the number of its normal
    return."""
    result = state[-1]
    if type(result) is not Live:
        return Live(exit_number, state)
    state[-1:] = ()
    result.state += state
    return result


OWN_CODE = (drive.__code__, drive_after_call.__code__)
