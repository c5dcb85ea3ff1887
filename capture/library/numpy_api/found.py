"""NumPy's functions that find elements: how many there are decides the size of the result."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs
from frameloom.capture.library.numpy_api.calls import Function, captured, captures, evaluated
from frameloom.capture.library.numpy_api.samples import dtype_of
from frameloom.capture.library.numpy_api.ufuncs import cast
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.arrays.ndarray import ArrayValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_DTYPES, ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _places(array: Any) -> Any:
    """Returns the matrix of which NumPy's `nonzero` returns the columns."""
    return NUMPY.ascontiguousarray(NUMPY.argwhere(array))


def _computed_places(array: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(array).contiguous()


PLACES = Function(_places, _computed_places)


def _nonzero(otherwise: Any) -> Any:
    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        array = t.look(args[0]) if len(args) == 1 and not kwargs else None
        if not isinstance(array, ArrayValue) or not array.tensor(t).fake.ndim:
            return otherwise(t, args, kwargs)  # type: ignore[no-any-return]
        matrix = captured(t, PLACES, [array], {})
        assert isinstance(matrix, ArrayValue)
        # Without elements, NumPy's columns have other strides than those of tensors.
        t.recorder.shape_env.assume_not_0(matrix.tensor(t).fake.shape[0])
        columns = t.look(t.call_builtin(NUMPY.transpose, [matrix], {}))
        ndim = array.tensor(t).fake.ndim
        return TupleValue([columns.getitem(t, ConstValue(d)) for d in range(ndim)])

    return rule


def _where(otherwise: Any) -> Any:
    """Returns the rule for `numpy.where`, which with a condition alone is `numpy.nonzero`."""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) == 1 and not kwargs:
            return t.look(t.call_builtin(NUMPY.nonzero, args, {}))
        return otherwise(t, args, kwargs)  # type: ignore[no-any-return]

    return rule


def _common(*operands: Any) -> Any:
    """Returns the dtype that NumPy computes with for these operands."""
    return NUMPY.result_type(*(dtype_of(a) if isinstance(a, Fake) else a for a in operands))


def _chosen(condition: Any, left: Any, right: Any) -> torch.Tensor:
    dtype = _common(left, right)
    return torch.where(cast(condition, NUMPY.dtype(bool)), cast(left, dtype), cast(right, dtype))


def _first_chosen(conditions: Any, choices: Any, default: Any = 0) -> torch.Tensor:
    dtype = _common(*choices, default)
    made = cast(default, dtype)
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        made = torch.where(cast(condition, NUMPY.dtype(bool)), cast(choice, dtype), made)
    return made


def _chosen_by_number(numbers: torch.Tensor, choices: Any, mode: str = "raise") -> torch.Tensor:
    given = list(choices.unbind(0)) if isinstance(choices, Fake) else list(choices)
    dtype = _common(*given)
    at, *wide = torch.broadcast_tensors(numbers.long(), *(cast(a, dtype) for a in given))
    if mode == "wrap":
        at = torch.remainder(at, len(wide))
    elif mode == "clip":
        at = at.clamp(0, len(wide) - 1)
    return torch.gather(torch.stack(wide), 0, at[None])[0]


def _put_where(array: torch.Tensor, mask: Any, values: Any) -> None:
    """Writes, where the mask says so, the one value or that of the same place."""
    if not isinstance(mask, Fake) or isinstance(values, list | tuple):
        raise Break("numpy", "putmask(...) with these arguments")
    new = cast(values, dtype_of(array)).clone()
    if new.shape != array.shape:
        if new.numel() != 1:
            raise Break("numpy", "putmask(...) of these values")
        new = new.reshape(())
    array.copy_(torch.where(cast(mask, NUMPY.dtype(bool)), new, array))


def _selected(array: torch.Tensor, condition: Any, axis: Any = None) -> torch.Tensor:
    along = array if axis == 0 else array.reshape(-1)
    if axis not in (None, 0) or not isinstance(condition, Fake):
        raise Break("numpy", "compress(...) with these arguments")
    return along[cast(condition, NUMPY.dtype(bool))]


def _distinct(
    array: torch.Tensor, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: Any = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """Computes the distinct elements in order; of equal ones NumPy takes the first."""
    if axis is not None or not sorted or array.is_complex() or array.numel() == 0:
        raise Break("numpy", "unique(...) of these elements")
    ordered, order = torch.sort(array.reshape(-1), stable=True)
    differs = ordered[1:] != ordered[:-1]
    if equal_nan and array.is_floating_point():
        differs = differs & (ordered[1:] == ordered[1:]) | (
            (ordered[1:] != ordered[1:]) & (ordered[:-1] == ordered[:-1])
        )
    is_first = torch.cat([torch.ones(1, dtype=torch.bool), differs])
    if not (return_index or return_inverse or return_counts):
        return ordered[is_first]
    (at,) = torch.nonzero(is_first, as_tuple=True)
    made = [ordered[at]]
    if return_index:
        made.append(order[at])
    if return_inverse:
        number = torch.cumsum(is_first, 0) - 1
        made.append(torch.empty_like(order).scatter(0, order, number).reshape(array.shape))
    if return_counts:
        behind = torch.cat([at[1:], torch.full((1,), order.shape[0])])
        made.append(behind - at)
    return tuple(made)


if NUMPY_DTYPES:
    import numpy as NUMPY

    for _fn in (NUMPY.nonzero, NUMPY.ndarray.nonzero):
        FUNCTIONS[_fn] = _nonzero(functools.partial(evaluated, fn=_fn))
    captures(NUMPY.where, _chosen)
    FUNCTIONS[NUMPY.where] = _where(FUNCTIONS[NUMPY.where])
    captures(NUMPY.argwhere, torch.nonzero)
    captures(NUMPY.unique, _distinct)
    captures(NUMPY.ndarray.compress, _selected)
    captures(NUMPY.select, _first_chosen)
    captures(NUMPY.choose, _chosen_by_number)
    captures(NUMPY.ndarray.choose, _chosen_by_number)
    captures(NUMPY.putmask, _put_where, writes=True)
