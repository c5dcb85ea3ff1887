"""Ops whose result's value or size depends on data, where capture can determine it.

In: one such op, as the recorder receives it. Out: its result. The result is constant because everything that
    the op reads is (`tensors/constant_folding.py`), or it is recorded under an assumption that the graph
    checks. Otherwise Break."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.recording.unbacked_sizes import is_possible, places, unbacked_result
from frameloom.capture.recording.views import view
from frameloom.capture.shapes.iteration import broadcast
from frameloom.capture.tensors.constant_folding import MAX_ELEMENTS, known_value
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import tensors_of
from frameloom.capture.tensors.sized import has_contiguous_strides
from frameloom.errors import Break
from frameloom.ir.program import ASSUMED
from frameloom.ir.symbolic.compare import equal

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

aten = torch.ops.aten
MASKS = (torch.bool, torch.uint8)


def asks_for_data(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    values = {id(t): known_value(t, recorder) for t in tensors_of(func, args, kwargs)}
    if all(v is not None for v in values.values()):
        real_args, real_kwargs = torch.fx.node.map_aggregate(
            (args, kwargs), lambda a: values[id(a)] if isinstance(a, Fake) else a
        )
        with torch._C._DisableTorchDispatch():
            return _recorded(recorder, func, func(*real_args, **real_kwargs))
    handler = HANDLERS.get(func)
    result = handler(recorder, values, *args, **kwargs) if handler is not None else None
    if result is None:
        fakes = tensors_of(func, args, kwargs)
        result = unbacked_result(recorder, func, fakes, args, kwargs)
    if result is None:
        raise Break("data_dependent", str(func))
    return result


def _recorded(recorder: Recorder, func: Any, result: Any) -> Any:
    """Records computed results as constants, as the program gets them."""
    if isinstance(result, tuple):
        return tuple(_recorded(recorder, func, part) for part in result)
    if not isinstance(result, torch.Tensor):
        return result
    if result.numel() > MAX_ELEMENTS:
        raise Break("data_dependent", str(func))
    return recorder.new_constant(result)


Values = dict[int, torch.Tensor | None]


def _index(recorder: Recorder, values: Values, x: Fake, indices: list[Fake | None]) -> Any:
    """Replaces constant masks by the indices of their ones, as ATen does."""
    new_indices: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in MASKS:
            new_indices.append(index)
            continue
        dims, rank = len(new_indices), index.dim()
        if not rank or x.dim() < dims + rank:
            return None
        if not all(map(equal, index.shape, x.shape[dims : dims + rank])):
            return None
        mask = values[id(index)]
        if mask is not None:
            new_indices += _places(recorder, mask)
        elif index.dtype is torch.bool and is_possible([x, *(i for i in indices if i is not None)]):
            new_indices += places(recorder, index)
        else:
            return None
    inside = all(i is None or i.dtype is torch.bool for i in indices)
    func = aten._unsafe_index.Tensor if inside else aten.index.Tensor
    return recorder.pure(func, (x, new_indices), {})


def _masked_select(recorder: Recorder, values: Values, x: Fake, mask: Fake) -> Any:
    known = values[id(mask)]
    if known is None and (mask.dtype is not torch.bool or not is_possible([x, mask])):
        return None
    shape = broadcast(x.shape, mask.shape)
    # The gradient has the layout of the tensor that is selected from; the recorded gradient is contiguous.
    if not shape or (
        recorder.current_call.is_followed and x.requires_grad and not has_contiguous_strides(x)
    ):
        return None
    wide = view(recorder, aten.expand.default, (x, list(shape)), {})
    if known is not None:
        at = _places(recorder, known.expand(shape))
    else:
        at = places(recorder, view(recorder, aten.expand.default, (mask, list(shape)), {}))
    return recorder.pure(aten._unsafe_index.Tensor, (wide, at), {})


def _places(recorder: Recorder, mask: torch.Tensor) -> list[Fake]:
    """Returns the indices of a constant mask's ones, one tensor per dimension."""
    with torch._C._DisableTorchDispatch():
        columns = [column.clone() for column in mask.nonzero().unbind(1)]
    return [recorder.new_constant(column) for column in columns]


def _is_true(recorder: Recorder, values: Values, a: Fake, b: Fake) -> Any:
    """Assumes the usual answer of `equal(condition, ones)`. PyTorch's own functions ask it where they raise
    or warn on one side of a condition: that numbers are valid, or that any is too small."""
    one = values[id(b)]
    if a.dtype is not torch.bool or a.shape or one is None or one.shape or not bool(one):
        return None
    asked = str(a.node.target).partition(".")[2]
    expected = not asked.startswith(("lt", "le"))
    _assume(recorder, a if expected else recorder.pure(aten.logical_not.default, (a,), {}))
    return expected


def _lstsq(
    recorder: Recorder, values: Values, a: Fake, b: Fake, rcond: Any = None, *, driver: Any = None
) -> Any:
    """Assumes full rank: these drivers return residuals only if every matrix has full rank."""
    if a.device.type != "cpu" or a.dim() < 2 or a.shape[:-2] != b.shape[: a.dim() - 2]:
        return None
    rows, columns = a.shape[-2:]
    results = recorder.pure(aten.linalg_lstsq.default, (a, b, rcond), {"driver": driver})
    if driver in ("gelss", "gelsd") and rows > columns:
        full = recorder.pure(aten.eq.Scalar, (results[2], columns), {})
        _assume(recorder, recorder.pure(aten.all.default, (full,), {}))
    return results


def record_quantile(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Records a quantile with the check that all fractions are between 0 and 1; eager makes this check only
    on the CPU."""

    def record(recorder: Recorder, input: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
        result = recorder.run(fn, (input, q, *args), kwargs)
        if isinstance(q, Fake) and q.device.type == "cpu":
            _assume(recorder, recorder.run(_are_fractions, (q,), {}))
        return result

    return record


def _are_fractions(q: torch.Tensor) -> torch.Tensor:
    return ((q >= 0) & (q <= 1)).all()


QUANTILES = [getattr(of, f"{nan}quantile") for of in (torch, torch.Tensor) for nan in ("", "nan")]


def _assume(recorder: Recorder, condition: Fake) -> None:
    recorder.emit(aten._assert_async.msg, (condition, ASSUMED), {})
    recorder.n_ops += 1
    recorder.current_call.assumes = True


HANDLERS: dict[Any, Callable[..., Any]] = {
    aten.index.Tensor: _index,
    aten.masked_select.default: _masked_select,
    aten.equal.default: _is_true,
    aten.linalg_lstsq.default: _lstsq,
}
