"""The undo log of a capture, and limits on its size: compiling a very large graph takes longer than it can save."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NoReturn

from frameloom.capture.recording.recorder import Recorder
from frameloom.capture.values.base import Effect, Value
from frameloom.errors import Skip, Where

MAX_STEPS = 500_000  # of one capture
STEPS_PER_TENSOR = 100
MAX_IDLE_STEPS = 50_000  # without a tensor operation: running such code is faster than following it
MAX_TORCH_CALLS = 20_000
MAX_TENSORS = 100_000
MAX_DEPTH = 60


class Journal:
    """An undo log: call `mark` before a step that may fail, and `take_back` to undo the step."""

    def __init__(self) -> None:
        self.changed: dict[int, Value] = {}  # in the order of the first change
        self._journal: list[tuple[Value, Any] | Callable[[], Any]] = []

    def change(self, value: Value) -> None:
        """Saves the value's state; called before it changes."""
        self._journal.append((value, value.snapshot()))
        if id(value) not in self.changed:
            self.changed[id(value)] = value

    def on_undo(self, action: Callable[[], Any]) -> None:
        self._journal.append(action)

    def mark(self) -> int:
        return len(self._journal)

    def changed_since(self, mark: int) -> list[Value]:
        """Returns the values that were changed since `mark`, even if they were changed back."""
        return [step[0] for step in self._journal[mark:] if isinstance(step, tuple)]

    def pending(self, unseen: Collection[int] = ()) -> list[Effect]:
        """Returns the writes that are due. `unseen`: ids of values that only this call can see."""
        due = [v for v in self.changed.values() if v.is_shared_with_caller and id(v) not in unseen]
        return [effect for value in due for effect in value.effects(self)]

    def take_back(self, mark: int) -> None:
        """Undoes every change since `mark`."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            if callable(entry):
                entry()
            else:
                entry[0].restore(entry[1])


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
