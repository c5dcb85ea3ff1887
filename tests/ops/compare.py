"""Whether two runs of a call did the same.  Numbers may differ by rounding: then what the op gives in float64 decides.

Ours may be as far from that as eager's own, with some slack.  In float64 eager has nothing to be compared with: there its error is taken to be as many units
in the last place as that of the same call in float32, which says how the op sums up errors and how much the numbers given amplify them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.observe import Picture, aliasing_of, array_aliasing, with_tolerance

SLACK = 1.5  # times eager's own error
ROUNDINGS = 4  # units in the last place on top of that


class Run:
    """One call on arguments of its own, and what can be seen of it."""

    def __init__(self, call: Callable[..., Any], arguments: Any) -> None:
        self.arguments = arguments
        self.result = self.error = None
        torch.manual_seed(0)
        with torch.no_grad():
            try:
                self.result = call(*arguments)
            except Exception as error:
                self.error = error
        self.random = torch.get_rng_state()


def difference(
    got: Run,
    want: Run,
    in_precision: Callable[[torch.dtype], Run],
    undefined: Callable[[], list[torch.Tensor] | None],
) -> str | None:
    """What differs, in a line, or None.  `in_precision` gives the plain Run in another precision, `undefined` says of every leaf
    which elements eager leaves undefined: they are not compared."""
    if type(got.error) is not type(want.error):
        return f"exception: {_told(got.error)} instead of {_told(want.error)}"
    if want.error is not None:
        return None
    if not torch.equal(got.random, want.random):
        return "random stream differs"
    a, b = picture_of(want), picture_of(got)
    if (found := _first_difference(_relative(b), _relative(a))) is not None:
        return f"geometry: {found}"
    if aliasing_of(a.tensors) != aliasing_of(b.tensors):
        return "aliasing differs"
    if array_aliasing(a) != array_aliasing(b):
        return "aliasing of arrays differs"
    if bits(b.tensors) != bits(a.tensors):
        return "conjugate or negative bits differ"
    got_leaves, want_leaves = tensors_of(b.leaves), tensors_of(a.leaves)
    exact = [_equal(g, w) for g, w in zip(got_leaves, want_leaves, strict=True)]
    if all(exact):
        return None
    is_double = any(_is_double(leaf) for leaf in want_leaves)
    reference = in_precision(torch.float32 if is_double else torch.float64)
    references = [None] * len(want_leaves)
    if reference.error is None:
        c = picture_of(reference)
        if len(c.leaves) == len(want_leaves):
            references = tensors_of(c.leaves)
    masks = undefined() or [None] * len(want_leaves)
    for g, w, r, same, mask in zip(got_leaves, want_leaves, references, exact, masks, strict=True):
        if mask is not None:
            g, w, r = (_defined(leaf, mask) for leaf in (g, w, r))
            same = _equal(g, w)
        if not same and (found := _numbers(g, w, r)) is not None:
            return f"values: {found}"
    return None


def picture_of(run: Run) -> Picture:
    return Picture([run.arguments, with_tolerance(run.result)])


def tensors_of(leaves: list[Any]) -> list[Any]:
    """Returns leaves with tensors in place of arrays."""
    return [torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v for v in leaves]


def _defined(leaf: Any, mask: torch.Tensor) -> Any:
    """The elements that the mask leaves."""
    alike = leaf is not None and torch.as_tensor(leaf).shape == mask.shape
    return torch.as_tensor(leaf)[~mask] if alike else leaf


def _relative(picture: Picture) -> Any:
    """The tree, where offsets into storages that only one tensor uses do not count: some of eager's copies keep those of what they copy."""
    shared = Counter(aliasing_of(picture.tensors))
    alone = [shared[number] == 1 for number in aliasing_of(picture.tensors)]
    tensors = iter(alone)

    def walk(tree: Any) -> Any:
        if not isinstance(tree, tuple):
            return tree
        if (
            len(tree) >= 9
            and tree[0] in ("Tensor", "Parameter")
            and isinstance(tree[1], torch.dtype)
        ):
            return (*tree[:8], 0, *tree[9:]) if next(tensors) else tree
        return tuple(walk(item) for item in tree)

    return walk(picture.tree)


def bits(tensors: list[torch.Tensor]) -> list[tuple[bool, bool]]:
    return [(t.is_conj(), t.is_neg()) for t in tensors]


def _told(error: BaseException | None) -> str:
    if error is None:
        return "none"
    lines = str(error).splitlines()
    return f"{type(error).__name__}({lines[0][:150] if lines else ''})"


def _first_difference(got: Any, want: Any) -> str | None:
    if isinstance(got, tuple) and isinstance(want, tuple) and len(got) == len(want):
        for a, b in zip(got, want, strict=True):
            if (found := _first_difference(a, b)) is not None:
                return found if isinstance(a, tuple) and isinstance(b, tuple) and found else f"{got} instead of {want}"[:300]  # fmt: skip
        return None
    return None if got == want else f"{got!r} instead of {want!r}"[:300]


def _equal(got: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return (
            torch.allclose(got, want, rtol=0, atol=0, equal_nan=True)
            if _is_inexact(want)
            else torch.equal(got, want)
        )
    return bool(got == want or (got != got and want != want))


def _is_inexact(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _numbers(got: Any, want: Any, reference: Any) -> str | None:
    """How a leaf that is not equal is too far off."""
    got, want = torch.as_tensor(got), torch.as_tensor(want)
    if not _is_inexact(want):
        wrong = got != want
        return f"{int(wrong.sum())} of {want.numel()} elements: {got[wrong][0]} instead of {want[wrong][0]}"
    if reference is not None:
        reference = torch.as_tensor(reference)
    if reference is None or reference.shape != want.shape or not _is_inexact(reference):
        close = torch.testing.assert_close
        try:
            close(got, want, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:250] + " (no reference)"
        return None
    if want.is_complex():
        parts = [
            torch.view_as_real(t.resolve_conj())
            for t in (got, want, reference.to(torch.complex128))
        ]
    else:
        parts = [got, want, reference.double()]
    if _is_double(want):
        parts = [parts[0], _with_error_of(parts[2], parts[1]), parts[1]]
    return _as_near(*parts)


def _is_double(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float64, torch.complex128)


def _with_error_of(narrow: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """As far from `want` as the result in float32 is, in units of the last place."""
    scale = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
    moved = want + (narrow - want) * scale
    return torch.where(torch.isfinite(moved), moved, want)


def _as_near(got: torch.Tensor, want: torch.Tensor, reference: torch.Tensor) -> str | None:
    eps, tiny = torch.finfo(want.dtype).eps, torch.finfo(want.dtype).tiny
    g, w = got.double(), want.double()
    odd = ~(torch.isfinite(g) & torch.isfinite(w))
    wrong = odd & (g != w) & ~(g.isnan() & w.isnan())
    # Where the wide result lies at the edge of the range, one may overflow and the other not.
    wrong &= ~(reference.abs() > 0.99 * torch.finfo(want.dtype).max)
    if wrong.any():
        return f"{int(wrong.sum())} elements: {got[wrong][0]} instead of {want[wrong][0]}, in float64 {reference[wrong][0]}"
    fine = ~odd & torch.isfinite(reference)
    g, w, r = g[fine], w[fine], reference[fine]
    if not g.numel():
        return None
    ours, theirs = (g - r).abs(), (w - r).abs()
    unit = eps * r.abs().clamp(min=tiny)
    if bool((ours / unit).max() <= SLACK * (theirs / unit).max() + ROUNDINGS):
        return None
    if bool(ours.max() <= SLACK * theirs.max() + ROUNDINGS * eps * r.abs().max()):
        return None
    worst = int(((g - w).abs() / unit).argmax())
    return f"error {float((ours / unit).max()):.3g} units in the last place, eager's {float((theirs / unit).max()):.3g}: {g[worst]} instead of {w[worst]}, in float64 {r[worst]}"
