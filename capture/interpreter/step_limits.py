"""Limits on the size of a capture: compiling a very large graph takes longer than it can save."""

from __future__ import annotations

from typing import NoReturn

from frameloom.capture.interpreter.journal import Journal
from frameloom.capture.recording.recorder import Recorder
from frameloom.errors import Skip, Where

MAX_STEPS = 500_000  # of one capture
STEPS_PER_TENSOR = 100
MAX_IDLE_STEPS = 50_000  # without a tensor operation: running such code is faster than following it
MAX_TORCH_CALLS = 20_000
MAX_TENSORS = 100_000
MAX_DEPTH = 60


class StepLimits(Journal):
    """Counts the instructions and torch calls of a capture."""

    recorder: Recorder

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0  # of frames
        self.steps = 0
        self.torch_calls = 0
        self.step_limit = MAX_IDLE_STEPS

    def where(self) -> Where:
        """Returns the place of the current instruction."""
        raise NotImplementedError

    def count_torch_call(self) -> None:
        self.torch_calls += 1
        if self.torch_calls > MAX_TORCH_CALLS:
            self._too_large(f"more than {MAX_TORCH_CALLS} calls of PyTorch")
        if len(self.recorder.fakes) > MAX_TENSORS:  # one call may return thousands of tensors
            self._too_large(f"more than {MAX_TENSORS} tensors")
        self.step_limit = min(MAX_STEPS, self.steps + MAX_IDLE_STEPS)

    def count_step(self) -> None:
        """Counts one instruction, or one item of a loop inside a builtin."""
        self.steps += 1
        if self.steps > self.step_limit:
            if self.steps > MAX_STEPS:
                self._too_large(f"more than {MAX_STEPS} instructions")
            # Lists of many tensors need more steps.
            n_tensors = self.recorder.n_inputs
            if self.steps > self.step_limit + STEPS_PER_TENSOR * n_tensors:
                self._too_large(f"{MAX_IDLE_STEPS} instructions without a tensor operation")

    def _too_large(self, what: str) -> NoReturn:
        """Leaves the code to Python: compiling so large a graph takes longer than it can save."""
        raise Skip(
            f"too large to follow: {what}, at {self.where()}; "
            "try: jit the function that the loop calls, and leave the loop outside"
        )
