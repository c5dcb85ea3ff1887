"""Graphs some of whose results the program makes in another inference mode than that at the call of the
graph; or makes with a history, which inference mode would prevent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.autograd.outputs import is_noted_as_inference
from frameloom.capture.autograd.trace import wants_gradients
from frameloom.errors import Skip

if TYPE_CHECKING:
    from frameloom.capture.values.tensor import TensorValue


@dataclass(frozen=True)
class Modes:
    """The modes in which the graph runs, and the outputs that are copied in the other inference mode."""

    inference: bool
    gradients: bool
    copied: tuple[int, ...]


def modes_of(outputs: Sequence[TensorValue]) -> Modes | None:
    """Returns None if the modes at the call are right."""
    now = torch.is_inference_mode_enabled()
    fakes: list[Any] = [value.fake for value in outputs]
    made = [n for n, fake in enumerate(fakes) if fake.memory.input is None]
    memories = {n: fakes[n].memory for n in made}
    # Autograd also notes for views of inputs in which mode they were made, and says so when it refuses a
    # write.
    of_inputs = [f for f in fakes if f.memory.input is not None and f.view_of is not None]
    views = [f.view_of for f in of_inputs]
    noted = [is_noted_as_inference(f) for f in of_inputs]
    modes = [*(memories[n].inference for n in made), *noted]
    follows = wants_gradients(fakes)
    if all(mode is now for mode in modes) and not (now and follows):
        return None
    if not any(mode is now for mode in modes) and not follows:
        return Modes(not now, now and any(view.grad for view in views), ())
    mode = now and not follows
    differ = [f for f, m in zip(of_inputs, noted, strict=True) if m is not mode]
    if not follows and any(f.memory.root.requires_grad for f in differ):
        raise Skip("views of an input made in inference mode, beside what is made outside of it")
    copied = tuple([n for n in made if memories[n].inference is not mode])
    shared = [id(memory) for memory in memories.values()]
    if any(shared.count(id(memories[n])) > 1 for n in copied):
        raise Skip("views of a tensor made in inference mode, beside tensors made outside of it")
    if mode is now and not copied and not follows:
        return None
    return Modes(mode, follows or (mode is now and torch.is_grad_enabled()), copied)


def run_in_modes(graph: Any, modes: Modes, *inputs: Any) -> tuple[Any, ...]:
    """Called from new code."""
    mode, copied = modes.inference, modes.copied
    with torch.inference_mode(mode), torch.set_grad_enabled(modes.gradients):
        outputs: tuple[Any, ...] = graph(*inputs)
    if not copied:
        return outputs
    with torch.inference_mode(not mode), torch.no_grad():
        return tuple(_copy(out) if n in copied else out for n, out in enumerate(outputs))


def _copy(out: torch.Tensor) -> torch.Tensor:
    """Returns a copy with the same layout in memory of its own."""
    whole = out.new_empty(0).set_(out.untyped_storage().clone())  # type: ignore[call-overload]
    strided = out.shape, out.stride(), out.storage_offset()
    return whole.as_strided(*strided) if out._is_view() else whole.as_strided_(*strided)
