"""Graphs whose results the program makes with inference mode the other way round than it is where the graph is called, all or some of them; or with a
history, which that mode would keep from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from frameloom.errors import Skip

if TYPE_CHECKING:
    from frameloom.capture.values.tensor import TensorValue


@dataclass(frozen=True)
class Modes:
    """Those to run the graph in, and the outputs to be copied in the other inference mode."""

    inference: bool
    gradients: bool
    copied: tuple[int, ...]


def modes_of(outputs: Sequence[TensorValue]) -> Modes | None:
    """None where they are those in which the graph is called."""
    now = torch.is_inference_mode_enabled()
    made = [n for n, value in enumerate(outputs) if value.fake.memory.input is None]  # type: ignore[attr-defined]
    memories = {n: outputs[n].fake.memory for n in made}  # type: ignore[attr-defined]
    other = tuple([n for n in made if memories[n].inference is not now])
    follows = any(value.fake.requires_grad for value in outputs)
    if not other and not (now and follows):
        return None
    if len(other) == len(made) and not follows:
        return Modes(not now, False, ())
    mode = now and not follows
    copied = tuple([n for n in made if memories[n].inference is not mode])
    shared = [id(memory) for memory in memories.values()]
    if any(shared.count(id(memories[n])) > 1 for n in copied):
        raise Skip("views of a tensor made in inference mode, beside tensors made outside of it")
    return Modes(mode, follows, copied)


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
    """It lies in memory of its own as the other does."""
    whole = out.new_empty(0).set_(out.untyped_storage().clone())  # type: ignore[call-overload]
    strided = out.shape, out.stride(), out.storage_offset()
    return whole.as_strided(*strided) if out._is_view() else whole.as_strided_(*strided)
