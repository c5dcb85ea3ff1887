"""Results of captured code whose history a backward pass inside that code has used up.

In eager such a tensor still has a history, of which autograd says that it was freed when it is asked to go through it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.history import history, without_autocast
from frameloom.capture.late_sizes import avoid_late
from frameloom.errors import Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if "
    "you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
)


class Spent(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, made: tuple[Any], *ends: Any) -> Any:
        return made[0]  # no argument, as a write to one would count

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        raise RuntimeError(TWICE)


def with_spent_histories(
    which: Mapping[int, tuple[int, ...]], outputs: tuple[Any, ...], *ends: Any
) -> tuple[Any, ...]:
    """Called from new code.  `which`: the outputs, and to which of `ends` their histories lead: a backward pass from others, too,
    comes there only after it has asked for these."""
    with torch.enable_grad():
        anchor = torch.empty(0, requires_grad=True)
        return tuple(
            Spent.apply((out.detach(),), anchor, *[ends[k] for k in which[n]])  # type: ignore[no-untyped-call]
            if n in which
            else out
            for n, out in enumerate(outputs)
        )


class Used:
    """Those of the outputs whose history is used up."""

    def __init__(self, t: Tracer, outputs: list[TensorValue]) -> None:
        self.which: dict[int, tuple[int, ...]] = {}
        ends: dict[int, Any] = {}
        given = {id(f): key for key, _, f in t.recorder.inputs}
        for n, value in enumerate(outputs if t.went_back else ()):
            if _has_history(t, value) and _is_freed(t, value):
                with t.recorder:
                    nodes = history(value.fake)
                own = [f for node in nodes if id(f := getattr(node, "variable", None)) in given]
                ends.update({id(f): given[id(f)] for f in own})
                self.which[n] = tuple([*ends].index(id(f)) for f in own)
        self.ends = [*ends.values()]

    def emit(self, r: Rebuilder) -> None:
        """With the outputs on top of the stack."""
        code = r.code
        code.emit("PUSH_NULL")
        code.emit("SWAP", 2)
        code.load_const(with_spent_histories)
        code.emit("SWAP", 2)
        code.load_const(self.which)
        code.emit("SWAP", 2)
        for origin in self.ends:
            r.load_origin(origin)
        code.call(2 + len(self.ends))


def _has_history(t: Tracer, value: TensorValue) -> bool:
    with t.recorder:  # autograd makes that of a view anew where its base was written to
        return value.fake.grad_fn is not None


def _is_freed(t: Tracer, value: TensorValue) -> bool:
    recorder, before = t.recorder, t.recorder.snapshot()
    leaves = [f for _, _, f in recorder.inputs if f.requires_grad]
    leaves += [f for f, _ in t.leaves.values()]
    if not leaves:
        return False

    def ask() -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            seed = torch.ones_like(value.fake)
            return torch.autograd.grad(
                value.fake, leaves, seed, retain_graph=True, allow_unused=True
            )

    try:
        with without_autocast():
            recorder.run(ask, (), {})
    except RuntimeError as error:
        return "a second time" in str(error)
    except Break as cause:
        avoid_late(recorder)
        raise Skip(f"a history that cannot be followed: {cause}") from cause
    finally:
        recorder.restore(before)
    return False


def without_histories(t: Tracer, outputs: list[TensorValue], which: Collection[int]) -> list[Any]:
    """The outputs as the graph returns them, wherever the program is by then."""
    with torch.inference_mode(False), torch.no_grad():
        return [
            t.recorder.run(torch.Tensor.detach, (value.fake,), {}) if n in which else value.fake
            for n, value in enumerate(outputs)
        ]
