"""Results of captured code whose history a backward pass inside that code has used up.

In eager such a tensor still has a history, of which autograd says that it was freed when it is asked to go through it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.history import without_autocast
from frameloom.capture.late_sizes import avoid_late
from frameloom.errors import Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if "
    "you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
)


class Spent(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: Any, anchor: Any) -> Any:
        context.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        raise RuntimeError(TWICE)


def with_spent_histories(outputs: tuple[Any, ...], which: tuple[int, ...]) -> tuple[Any, ...]:
    """Called from new code."""
    with torch.enable_grad():
        anchor = torch.empty(0, requires_grad=True)
        return tuple(
            Spent.apply(out.detach(), anchor) if n in which else out  # type: ignore[no-untyped-call]
            for n, out in enumerate(outputs)
        )


def without_gradients(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Library calls in a graph that contains its backward pass are no part of anybody's history."""

    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return compiled(*inputs)

    return run


def spent(t: Tracer, outputs: list[TensorValue]) -> tuple[int, ...]:
    """Of the outputs, those whose history is used up."""
    if not t.went_back:
        return ()
    return tuple(
        n for n, value in enumerate(outputs) if _has_history(t, value) and _is_freed(t, value)
    )


def _has_history(t: Tracer, value: TensorValue) -> bool:
    with t.recorder:  # autograd makes that of a view anew where its base was written to
        return value.fake.grad_fn is not None


def _is_freed(t: Tracer, value: TensorValue) -> bool:
    recorder, before = t.recorder, t.recorder.snapshot()
    leaves = [f for _, _, f in recorder.inputs if f.requires_grad]
    leaves += [f for f, _ in t.leaves.values()]

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


def without_histories(t: Tracer, outputs: list[TensorValue], which: tuple[int, ...]) -> list[Any]:
    """The outputs as the graph returns them."""
    with torch.no_grad():
        return [
            t.recorder.run(torch.Tensor.detach, (value.fake,), {}) if n in which else value.fake
            for n, value in enumerate(outputs)
        ]
