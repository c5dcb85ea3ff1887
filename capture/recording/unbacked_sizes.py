"""Unbacked sizes, which data decides: of `nonzero`, masks that select, `unique`, counts of repetitions.

In: such an op, as the recorder receives it. Out: its result, a tensor with an unbacked symbol as one of its
    sizes (ir/symbolic/expr.py): the number is known only after the op. The plan checks assumptions about it
    (symbolic/shape_env.py) there, before it writes to any input; if one fails, the call bails out and runs as
    plain Python. Where that is impossible, the graph breaks at the op. On a GPU it always breaks, except for
    ops of the program (recording/custom_op_sizes.py) if no assumption is made about their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from frameloom.capture.recording.views import view
from frameloom.capture.shapes.iteration import empty
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.rerunnable import is_rerunnable
from frameloom.capture.tensors.schema import tensors_of
from frameloom.capture.tensors.sized import SizedMeta, strides_of
from frameloom.capture.values.const import ConstValue
from frameloom.errors import Avoid, Break
from frameloom.ir.symbolic.atoms import atoms_of, unbacked_in
from frameloom.ir.symbolic.expr import Int, Size

if TYPE_CHECKING:
    from types import CodeType

    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.captured_graph import CapturedGraph
    from frameloom.capture.recording.recorder import Recorder
    from frameloom.capture.values.base import Value

aten = torch.ops.aten
COPIES = (aten.clone.default, aten.detach.default, aten.alias.default)


@dataclass(eq=False)
class Result:
    """Source of an unbacked symbol: the size of dimension `dim` of the tensor that `node` makes, at the
    instruction `site`."""

    dim: int
    node: Any = None
    fake: Any = None
    value: Any = None
    site: tuple[CodeType, int] | None = None
    origin = None
    is_item = False

    @property
    def is_erased(self) -> bool:
        return self.node is None or self.node._erased

    @property
    def is_on_cpu(self) -> bool:
        return self.fake is None or self.fake.device.type == "cpu"

    def text(self) -> str:
        return f"{self.node}.shape[{self.dim}]"

    def read(self) -> tuple[Any, tuple[Any, ...]]:
        """Returns the call that reads it, in a graph."""
        return aten.sym_size.int, (self.node, self.dim)

    def computed_from(self, t: Tracer) -> tuple[Any, list[Value]]:
        return torch.Tensor.size, [self.value, ConstValue(self.dim)]


# --- ops


def places(recorder: Recorder, mask: Fake) -> list[Fake]:
    """Returns the indices of the mask's ones, one tensor per dimension."""
    value = _value_of(current(mask, recorder))
    indices = recorder.from_data.places.get(value)
    if indices is None or indices.node._erased:
        indices = recorder.from_data.places[value] = nonzero(recorder, mask)
    return [view(recorder, aten.select.int, (indices, 1, d), {}) for d in range(mask.dim())]


def nonzero(recorder: Recorder, x: Fake) -> Fake:
    """Records `nonzero`, with the same size as an earlier one of the same values."""
    value, source = _value_of(current(x, recorder)), None
    known = recorder.from_data.counted.get(value)
    size: Int
    if known is None or known[1].is_erased:
        size, source = new_size(recorder, x.numel(), 0)
        if source is not None:
            recorder.from_data.counted[value] = size, source
    else:
        size = known[0]
    meta = SizedMeta((size, x.dim()), (1, size), torch.int64)
    return made(recorder, aten.nonzero.default, (x,), meta, source=source)


def _value_of(node: Any, depth: int = 4) -> Any:
    """Returns a key that is equal for nodes of the same values: `x[x > 0]` and then `y[x > 0]` have the same
    size."""
    if not isinstance(node, torch.fx.Node):
        same = tuple(_value_of(a, depth) for a in node) if isinstance(node, list | tuple) else None
        return (type(node), repr(node)) if same is None else same
    target = node.target
    if target in COPIES:
        return _value_of(node.args[0], depth)
    if not depth or not isinstance(target, torch._ops.OpOverload):
        return node
    if torch.Tag.pointwise not in target.tags or torch.Tag.nondeterministic_seeded in target.tags:
        return node
    given = [*node.args, *node.kwargs.items()]
    return (target, *(_value_of(a, depth - 1) for a in given))


def new_size(recorder: Recorder, bound: Int | None, dim: int) -> tuple[Int, Result | None]:
    if isinstance(bound, int) and not bound:
        return 0, None
    call = recorder.current_call
    if call.refuses_unbacked:  # before a reader of it changes the history of a tensor
        fn = call.function
        raise Break("data_dependent", f"{getattr(fn, '__name__', fn)}(...)")
    source = Result(dim)
    recorder.from_data.unbacked.append(source)
    return recorder.shape_env.unbacked_symbol(source, bound), source


def made(
    recorder: Recorder, func: Any, args: Any, metas: Any, kwargs: Any = None, source: Result | None = None
) -> Any:  # fmt: skip
    """Records the op with results of these layouts."""
    recorder.from_data.looks_at_data = True
    kwargs = kwargs or {}
    device = tensors_of(func, args, kwargs)[0].device
    result = recorder.pure(func, args, kwargs, recorder.new(metas, device))
    if source is not None:
        source.fake = result if isinstance(result, Fake) else result[0]
        source.node = source.fake.node
    return result


def _nonzero(recorder: Recorder, func: Any, x: Fake) -> Any:
    return nonzero(recorder, x)


def _unique(
    recorder: Recorder, func: Any, x: Fake, inverse: bool, counts: bool, first: Any = ()
) -> Any:
    """Records the distinct elements, the index of each element among them, and their counts."""
    size, source = new_size(recorder, x.numel(), 0)
    metas = (
        empty((size,), x.dtype),
        empty(x.shape if inverse else (0,), torch.int64),
        empty((size if counts else 0,), torch.int64),
    )
    return made(recorder, func, (x, *first, inverse, counts), metas, source=source)


def _unique2(
    recorder: Recorder, func: Any, x: Fake, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> Any:  # fmt: skip
    return _unique(recorder, func, x, inverse, counts, (sorted,))


def _unique_consecutive(
    recorder: Recorder, func: Any, x: Fake, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> Any:  # fmt: skip
    return _unique(recorder, func, x, inverse, counts) if dim is None else None


def _unique_dim(
    recorder: Recorder, func: Any, x: Fake, dim: int, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> Any:  # fmt: skip
    if not -x.dim() <= dim < x.dim() or not x.numel() > 0:
        return None
    dim %= x.dim()
    size, source = new_size(recorder, x.shape[dim], dim)
    rest = [n for d, n in enumerate(x.shape) if d != dim]
    shape, (step, *strides) = [*rest], strides_of([size, *rest])
    shape.insert(dim, size)
    strides.insert(dim, step)
    metas = (
        SizedMeta(shape, strides, x.dtype),
        empty((x.shape[dim],), torch.int64),
        empty((size,), torch.int64),
    )
    return made(recorder, func, (x, dim, sorted, inverse, counts), metas, source=source)


def _repeated(
    recorder: Recorder, func: Any, repeats: Fake, *, output_size: Int | None = None
) -> Any:
    if repeats.dim() != 1:
        return None
    if output_size is not None:
        meta, source = empty((output_size,), repeats.dtype), None
    else:
        size, source = new_size(recorder, None, 0)
        meta = empty((size,), repeats.dtype)
    return made(recorder, func, (repeats,), meta, {"output_size": output_size}, source)


def _bincount(
    recorder: Recorder, func: Any, x: Fake, weights: Fake | None = None, minlength: Int = 0
) -> Any:
    """Records `bincount`. If a minimum length is given, the length is assumed to equal it, as it most
    likely does."""
    if x.dim() != 1:
        return None
    size, source = new_size(recorder, None, 0)
    kind = torch.int64 if weights is None else torch.float64
    if weights is not None and weights.dtype is torch.float32:
        kind = torch.float32
    counts = made(recorder, func, (x, weights, minlength), empty((size,), kind), source=source)
    if minlength > 0 and isinstance(size, Size):
        recorder.shape_env.expect_0(size - minlength)
    return counts


OPS: dict[Any, Callable[..., Any]] = {
    aten.nonzero.default: _nonzero,
    aten._unique2.default: _unique2,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.unique_dim.default: _unique_dim,
    aten.repeat_interleave.Tensor: _repeated,
    aten.bincount.default: _bincount,
}


def unbacked_result(
    recorder: Recorder, func: Any, fakes: Sequence[Fake], args: Any, kwargs: Any
) -> Any:
    """Returns the op's result with an unbacked size; None where it is unknown."""
    op = OPS.get(func)
    return op(recorder, func, *args, **kwargs) if op is not None and is_possible(fakes) else None


def is_possible(fakes: Sequence[Fake]) -> bool:
    return all(f.device.type == "cpu" for f in fakes)


def check_device(node: torch.fx.Node, meta: Any) -> None:
    """Breaks where a GPU's op would depend on unbacked sizes of CPU tensors."""
    metas = meta if isinstance(meta, list | tuple) else [meta]
    sizes = [n.meta.get("val") for n in node.all_input_nodes]
    for m in metas:
        if isinstance(m, SizedMeta):
            sizes += [*m.shape, *m.stride(), m.storage_offset()]
    if any(s.source.is_on_cpu for n in sizes for s in unbacked_in(n)):
        raise Break("data_dependent", f"{node.target} on a GPU")


# --- assumptions


def undecided(recorder: Recorder, size: Size) -> NoReturn:
    """Breaks, because code depends on an unbacked size."""
    sources = [s.source for s in unbacked_in(size)]
    for source in sources:
        if source.site is not None and (source.is_item or recorder.shape_env.relaxed):
            raise Avoid(source.site)
    raise Break("data_dependent", f"the size {size!r} has to be known")


def refuses(t: Tracer) -> bool:
    """Whether the current instruction may not make unbacked sizes."""
    if t.frame is None:
        return False
    site = (t.frame.code, t.frame.at.index)
    return t.session.is_avoided(*site) or not t.session.dynamic_policy.follows_unbacked


def note_size_site(t: Tracer, sources: Sequence[Result]) -> None:
    """Notes that the current instruction has made these sizes."""
    assert t.frame is not None
    site = (t.frame.code, t.frame.at.index)
    t.session.dynamic_policy.has_unbacked = True
    for source in sources:
        source.site = site
        source.value = t.from_python(source.fake)


def assumed(recorder: Recorder) -> list[Result]:
    """Returns the sources of unbacked sizes about which assumptions are made."""
    symbols = [s for n in recorder.shape_env.unbacked_conditions() for s in unbacked_in(n)]
    return [s.source for s in dict.fromkeys(symbols) if not s.source.is_erased]


def numbers_compared(recorder: Recorder) -> set[Any]:
    """Returns the nodes of numbers that unbacked sizes are compared with: the plan compares them even if
    nothing else needs them."""
    shape_env = recorder.shape_env
    symbols = {
        s: None
        for n in shape_env.unbacked_conditions()
        if not any(s.source.is_erased for s in unbacked_in(n))
        for s in atoms_of(n)
    }
    given = [s for s in symbols if not s.unbacked and s.source.kind == "int"]
    return {recorder.numbers.size(shape_env.make({(s,): 1})) for s in given}


def avoid_parts(recorder: Recorder) -> None:
    """Captures again, with graph breaks where the graph calls a part of the program, if it does."""
    for node, site in recorder.parts:
        if not node._erased:
            raise Avoid(site)


def avoid_unbacked(recorder: Recorder) -> None:
    """Captures again, with graph breaks where unbacked sizes are made, if there are any."""
    for source in recorder.from_data.unbacked:
        if not source.is_erased:
            raise Avoid(source.site)  # type: ignore[arg-type]


def check_returned(recorder: Recorder, nodes: Sequence[torch.fx.Node]) -> None:
    """Avoids unbacked sizes in results that never have elements: no step of a plan makes these, so they would
    exist before their size is known."""
    for node in nodes if recorder.from_data.unbacked else ():
        shape = getattr(node.meta.get("val"), "shape", ())
        if any(map(unbacked_in, shape)) and any(not isinstance(n, Size) and n == 0 for n in shape):
            avoid_unbacked(recorder)


def checks_sizes(t: Tracer, graph: CapturedGraph, ours: bool) -> bool:
    """Whether calls of the graph may bail out. `ours`: our own plan runs it, which writes nothing before its
    checks."""
    for n in t.recorder.shape_env.unbacked_conditions():
        for symbol in unbacked_in(n):
            if not symbol.source.is_on_cpu:
                raise Avoid(symbol.source.site)
    assumptions = assumed(t.recorder)
    if not assumptions:
        return False
    if not ours or t.session.per_code or not is_rerunnable(graph):
        raise Avoid(assumptions[0].site)  # type: ignore[arg-type]
    return True
