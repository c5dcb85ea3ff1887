"""Ints in tensors that are used as sizes: `x[:n.item()]`, `x.split(counts.tolist())`, `torch.zeros(int(n))`.

In: a tensor of ints. Out: an unbacked symbol for each (ir/symbolic/expr.py), read after the op that computes
    the tensor. Where the number itself is needed, capture starts again with a graph break where it was taken
    out of the tensor."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.tensors.constant_folding import known_value
from frameloom.capture.tensors.fake import is_wrapper
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.numbers.size import SymbolicSize
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.tensor import TensorValue

MOST = 256  # most ints of one tensor


class Items(Value):
    """The list of a vector of ints."""

    cls = list

    def __init__(self, vector: TensorValue) -> None:
        self.vector = vector

    def describe(self) -> str:
        return "list"

    def parts(self) -> list[Value]:
        return [self.vector]

    def rebuild(self, r: Rebuilder) -> None:
        r.load(self.vector)
        r.code.call_const_after(torch.Tensor.tolist)


@dataclass(eq=False)
class Item:
    """Source of an unbacked symbol: `node` takes it out of a list."""

    items: Items
    index: int
    node: Any
    site: tuple[CodeType, int]
    origin = None
    is_item = True
    is_on_cpu = True

    @property
    def is_erased(self) -> bool:
        return bool(self.node._erased)

    def text(self) -> str:
        return f"{self.node}"

    def read(self) -> tuple[Any, tuple[Any, ...]]:
        return operator.pos, (self.node,)

    def computed_from(self, t: Tracer) -> tuple[Any, list[Value]]:
        return operator.getitem, [self.items, ConstValue(self.index)]


def sizes_in(t: Tracer, tensor: TensorValue, site: tuple[CodeType, int]) -> list[ConstValue]:
    """Returns the elements of a small tensor of ints in the CPU's memory, as unbacked sizes."""
    n_ops, recorder = t.recorder.n_ops, t.recorder
    vector: Any = t.torch_call(_vector, [tensor], {})
    recorder.n_ops = n_ops  # a graph is not worth running for this op alone
    t.on_undo(functools.partial(recorder.restore, recorder.snapshot()))
    items = Items(vector)
    whole = recorder.graph.create_node(
        "call_function", torch.Tensor.tolist, (current(vector.fake, recorder),), name="items"
    )
    whole.meta.update(val=None, stack=str(t.where()))
    t.session.dynamic_policy.has_unbacked = True
    made: list[ConstValue] = []
    for index in range(vector.fake.shape[0]):
        node = recorder.graph.create_node("call_function", operator.getitem, (whole, index))
        source = Item(items, index, node, site)
        recorder.from_data.unbacked.append(source)
        size = recorder.shape_env.unbacked_symbol(source, None, least=None)
        node.meta.update(val=size, stack="")
        recorder.numbers.is_made(size, node)
        made.append(SymbolicSize(t, size))
    return made


def positions(t: Tracer, key: Value) -> Value:
    """Replaces tensors of one int in an index by sizes."""
    if isinstance(key, TupleValue) and key.type() is tuple:
        items = [positions(t, t.look(item)) for item in key.items]
        return TupleValue(items) if any(map(operator.is_not, items, key.items)) else key
    fake = getattr(key, "fake", None)
    if fake is None or t.frame is None or fake.dim() or fake.dtype is torch.uint8:
        return key
    site = t.site
    if t.session.is_avoided(*site) or not may_be_sizes(t, fake):
        return key
    if known_value(fake, t.recorder) is not None:
        return key
    # An unwritten tensor that is read again gives the same position, so that writes and reads there are known
    # to be at one place.
    place = current(fake, t.recorder)
    known = t.positions.get(place)
    if known is None or known[1].is_erased:
        (size,) = sizes_in(t, key, site)  # type: ignore[arg-type]
        known = t.positions[place] = size, t.recorder.from_data.unbacked[-1]
    return known[0]


def _vector(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).to(torch.int64, copy=True)


def may_be_sizes(t: Tracer, fake: Any) -> bool:
    """Whether the ints of a tensor may be used as sizes."""
    if is_wrapper(fake):
        return False
    kind = fake.dtype
    return (
        t.session.dynamic_policy.follows_unbacked
        and fake.device.type == "cpu"
        and not (kind.is_floating_point or kind.is_complex)
        and kind not in (torch.bool, torch.uint64)
        and not any(isinstance(n, Size) for n in fake.shape)
        and 0 < fake.numel() <= MOST
    )
