"""Compares the first call of a plan with the reference interpreter of the loop IR: with FRAMELOOM_VERIFY=1.

If sizes are symbolic, the 2nd, 4th, 8th, ... call is compared, too.  Results that are not near (nearly.py)
are compared with the effect of rounding: noise of a few units in the last place, added to the inputs and
after each step of the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from frameloom.backend.nearly import distance, near, other_kind
from frameloom.backend.reference import Call, Noise, NotInterpreted, plan_modes, why_not
from frameloom.capture import _capture
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.debug import log
from frameloom.errors import VerifyError
from frameloom.ir.program import Program
from frameloom.report import verified

Tensor = torch.Tensor
TRIALS = 6
LEEWAY = 8  # how many times the effect of noise a difference may be

_inside = threading.local()  # whether the thread is in a check: calls inside it are not checked


def checked(plan: Any, program: Program, captured: CapturedGraph, name: str) -> Any:
    """Returns `plan` with the comparison, or `plan` itself if the interpreter cannot run `program`, the
    lowered program of the plan."""
    why = why_not(program)
    if why is not None:
        _skipped(name, why)
        return plan
    kind = Consumed if hasattr(plan, "consume") else Checked
    return kind(plan, program, captured, name)


def _skipped(name: str, why: str) -> None:
    verified["not verified"] += 1
    log("graph", f"{name} is not compared with the interpreter: {why}")


class Checked:
    """Replaces the plan, and compares some of its calls with the interpreter."""

    def __init__(self, plan: Any, program: Program, captured: CapturedGraph, name: str) -> None:
        self._plan, self._program, self._name = plan, program, name
        self._varies = captured.shape_env is not None and bool(captured.shape_env.symbols)
        self._owned = captured.owned
        self._calls = 0
        self._next = 1  # the call that is compared

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if not self._is_next():
            return self._plan(*inputs)  # type: ignore[no-any-return]
        return self._compared(inputs, lambda: self._plan(*inputs), None if self._owned else inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def _is_next(self) -> bool:
        self._calls += 1
        return self._calls == self._next and not getattr(_inside, "check", False)

    def _compared(
        self, inputs: Sequence[Any], run: Callable[[], Any], seen: Sequence[Any] | None
    ) -> tuple[Any, ...]:
        """Runs the plan and compares the call.  `seen`: the inputs, if they are compared as well."""
        suspended = _capture.hook_suspend(True)
        _inside.check = True
        try:
            with plan_modes():
                call = self._before(inputs)
            del inputs
            try:
                outputs = run()
            except BaseException:
                self._calls -= 1  # a call that raises does not count
                raise
            if self._varies:
                self._next *= 2
            if call is not None:
                with plan_modes():
                    self._verify(call, outputs, seen)
            return outputs  # type: ignore[no-any-return]
        finally:
            _inside.check = False
            _capture.hook_suspend(suspended)

    def _before(self, inputs: Sequence[Any]) -> Call | None:
        in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if in_use and torch.cuda.is_current_stream_capturing():
            return None
        try:
            return Call(self._program, inputs)
        except (NotInterpreted, RuntimeError) as why:  # e.g. not enough memory
            _skipped(self._name, str(why))
            return None

    def _verify(self, call: Call, outputs: Sequence[Any], seen: Sequence[Any] | None) -> None:
        try:
            difference_text = difference(call, outputs, seen)
        except NotInterpreted as why:
            _skipped(self._name, str(why))
            return
        verified["verified"] += 1
        if difference_text is not None:
            raise VerifyError(
                f"{self._name}: compiled code and the interpreter of its loops differ: {difference_text}.\n"
                "This is a bug in Frameloom. Please report it, with the folder that FRAMELOOM_DEBUG=1 writes for this program. "
                "Without FRAMELOOM_VERIFY the program goes on, with what the compiled code has computed; "
                "FRAMELOOM_DISABLE=1 runs it plainly."
            )


class Consumed(Checked):
    """The same for a plan that can consume its inputs."""

    def consume(self, values: list[Any]) -> tuple[Any, ...]:
        if not self._is_next():
            return self._plan.consume(values)  # type: ignore[no-any-return]
        # No other list holds them, so that memory is freed as without the check.
        return self._compared(values, lambda: self._plan.consume(values), None)


# --- comparing


def difference(call: Call, made: Sequence[Any], seen: Sequence[Any] | None) -> str | None:
    """Returns what differs, and by how much; None if nothing does."""
    names = [f"output {k}" for k in range(len(made))]
    got = [*made]
    if seen is not None:
        names += [f"input {k} behind the call" for k in range(len(seen))]
        got += seen

    def wanted(noise: Noise | None = None) -> list[Any]:
        outputs, inputs = call.run(noise)
        return [*outputs, *(inputs if seen is not None else ())]

    try:
        want = wanted()
    except NotInterpreted:
        raise
    except Exception as error:
        if any(_runs(wanted, trial) for trial in range(1, TRIALS + 1)):
            return None  # whether a step raises depends on rounding
        return f"only the interpreter raises {type(error).__name__}: {error}"
    far = []
    for k, name in enumerate(names):
        if (kind := other_kind(got[k], want[k])) is not None:
            if call.rounds and getattr(got[k], "shape", None) != getattr(want[k], "shape", None):
                # For instance the size depends on a sum near 0: noise does not find that.
                raise NotInterpreted("rounding may decide a size")
            return f"{name} is {kind}"
        if isinstance(want[k], Tensor) and not bool(near(got[k], want[k]).all()):
            far.append(k)
    if not far:
        return None
    reach = {k: torch.zeros_like(distance(want[k], want[k])) for k in far}
    for trial in range(1, TRIALS + 1):
        try:
            noisy = wanted(Noise(trial))
        except NotInterpreted:
            raise
        except Exception:
            return None
        if any(other_kind(noisy[k], want[k]) is not None for k in far):
            raise NotInterpreted("rounding decides a size")
        for k in far:
            reach[k] = torch.maximum(reach[k], distance(noisy[k], want[k]))
    for k in far:
        wrong = ~near(got[k], want[k]) & (distance(got[k], want[k]) > allowed(reach[k]))
        if bool(wrong.any()):
            return f"{names[k]} ({_mismatch_text(got[k], want[k], wrong)})"
    return None


def allowed(reach: Tensor) -> Tensor:
    """Returns how much elements may differ that noise changes by `reach`."""
    finite = reach[reach.isfinite()]
    usual = finite.median() if finite.numel() else 0.0
    return LEEWAY * (reach + usual)


def _runs(wanted: Callable[[Noise], Any], trial: int) -> bool:
    try:
        wanted(Noise(trial))
    except Exception:
        return False
    return True


def _mismatch_text(got: Tensor, want: Tensor, wrong: Tensor) -> str:
    apart = torch.where(wrong, distance(got, want), -1.0)
    at = torch.unravel_index(apart.argmax(), apart.shape)
    place = tuple(int(i) for i in at)
    of = place[: got.dim()]  # complex numbers come in parts
    kind = f"{str(got.dtype)[6:]}{list(got.shape)}"
    count = int(wrong.sum())
    return (
        f"{kind}: {count} of {wrong.numel()} numbers; the largest difference is {float(apart.max()):.4g}, "
        f"{got[of].item()} for {want[of].item()} at {list(of)}"
    )
