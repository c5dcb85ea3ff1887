"""Restarts calls as plain Python if they fail before they change anything.  Plain Python then does what the
program does before it raises, in order.

In: the steps of a plan, in order.  Out: how many of the first steps may fail so, and whether the state of the
CPU's random generator has to be restored.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture import _capture
from frameloom.config import config
from frameloom.debug import log
from frameloom.ir.program import Step


class Restart:
    """`allowed`: whether the steps change nothing but inputs and the state of that generator."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.draws: int | None = None  # the first step that draws
        self.writes: int | None = None  # the first step that writes to an input
        self.remembers = False  # whether the state of the generator has to be restored
        self.checks_after_write = False  # whether an assumption on data is checked after a write

    def look_at(self, step: Step, number: int) -> None:
        if self.writes is None and step.writes_input:
            self.writes = number
        elif self.draws is None and step.commits:
            self.draws = number
        if not self.allowed or not step.may_fail:
            return
        if self.writes is None:
            self.remembers |= self.draws is not None
        elif step.defines or step.bails_out:
            self.checks_after_write = True

    def steps(self, count: int) -> int:
        """Returns how many of the first of `count` steps may fail before the call has changed anything."""
        ends = [count, count if self.writes is None else self.writes]
        if self.draws is not None and not self.remembers:
            ends.append(self.draws)
        return min(ends)


def bail_out(error: Exception, generator: Any) -> None:
    """Makes the caller run as plain Python: a step failed with `error` before the call changed anything."""
    if generator is not None:
        torch.default_generator.set_state(generator)
    if "recompiles" in config.logs:
        log("recompiles", f"a call starts anew as plain Python ({type(error).__name__}: {error})")
    raise _capture.RunPlainly(error) from None
