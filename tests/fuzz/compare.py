"""What differs between what is seen of two calls, and by how much."""

from __future__ import annotations

import re
import traceback
from typing import Any

import torch

from tests.fuzz.sides import NODE, Picture, Seen
from tests.observe import _difference, aliasing_of, without_stack

# Relative errors that differently ordered sums and other functions of the same accuracy may make, in units of the last place.
ULPS = 64.0
# From here on float32 has not one place in common.
LOST = 0.1 / (ULPS * torch.finfo(torch.float32).eps)
# Numbers in printed text, and the blanks that fill their columns.
NUMBER = re.compile(r"\s*[-+]?\d+\.\d*(?:e[-+]?\d+)?")
# A pass finds out about a change where the first op of its own needs the tensor: of eager's ops another one than of a graph's.
CHANGED = re.compile(
    r"(one of the variables needed .*|Output \d+ of \w+ is a view .*) has been modified (by an )?inplace.*",
    re.DOTALL,
)


def compare(got: Seen, want: Seen) -> tuple[str, str] | None:
    """Kind and text of the first difference; kinds "value" and "gradient value" may be rounding."""
    for look in (_errors, _printed, _random):
        if (found := look(got, want)) is not None:
            return found
    for what, root in want.roots.items():
        if (found := _pictures(Picture(got.roots[what]), Picture(root), what)) is not None:
            return found
    return None


def _errors(got: Seen, want: Seen) -> tuple[str, str] | None:
    g, w = got.call.error, want.call.error
    if type(g) is not type(w):
        trace = "".join(traceback.format_exception(g)[-3:]) if g else ""
        return f"{type(g).__name__} for {type(w).__name__}", f"{g!r} for {w!r} {trace}"
    if NODE.sub("", without_stack(str(g))) != NODE.sub("", without_stack(str(w))):
        return "text of an exception", f"{g!r} for {w!r}"
    said, meant = (NODE.sub("", CHANGED.sub("changed", s.graded)) for s in (got, want))
    if said != meant:
        return "backward", f"{got.graded or 'done'} for {want.graded or 'done'}"
    return None


def _printed(got: Seen, want: Seen) -> tuple[str, str] | None:
    if not _same_text(got.printed, want.printed):
        return "printed", f"{got.printed} for {want.printed}"
    if got.call.world != want.call.world:
        return "global state", f"{got.call.world} for {want.call.world}"
    if got.written != want.written:
        return "version", f"{got.written} for {want.written}"
    return None


def _same_text(got: list[str], want: list[str]) -> bool:
    """Whether the texts differ in nothing but the last places of their numbers."""
    if got == want:
        return True
    g, w = "\n".join(got), "\n".join(want)
    if NUMBER.sub(" 0.", g) != NUMBER.sub(" 0.", w):
        return False
    eps = torch.finfo(torch.float32).eps
    for a, b in zip(NUMBER.findall(g), NUMBER.findall(w), strict=True):
        exponent = b.partition("e")[2]
        place = 10.0 ** (
            int(exponent or 0) - max(len(s.partition("e")[0].partition(".")[2]) for s in (a, b))
        )
        if abs(float(a) - float(b)) > 1.01 * place + 4 * eps * abs(float(b)):
            return False
    return True


def _random(got: Seen, want: Seen) -> tuple[str, str] | None:
    same = torch.equal(got.call.random_state, want.call.random_state)
    return None if same else ("random state", "differs")


def _pictures(a: Picture, b: Picture, what: str) -> tuple[str, str] | None:
    if (found := _difference(a.tree, b.tree)) is not None:
        return f"tree of {what}", found
    for k, (g, w) in enumerate(zip(a.leaves, b.leaves, strict=True)):
        if (off := _off(g, w)) > 1:
            return f"value of {what}", f"leaf {k}, {off:.1f} times what may be: {_cut(g)} for {_cut(w)}"  # fmt: skip
    if aliasing_of(a.tensors) != aliasing_of(b.tensors):
        return f"aliasing of {what}", f"{aliasing_of(a.tensors)} for {aliasing_of(b.tensors)}"
    return None


def _cut(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 200 else text[:200] + "..."


def _off(g: Any, w: Any) -> float:
    """How far apart, where 1 is what rounding may do."""
    if not isinstance(w, torch.Tensor):
        if g == w or (g != g and w != w):
            return 0.0
        if not isinstance(w, float):
            return 2.0
        # What a tensor of float32 gave, as a Python float.
        is_single = torch.equal(torch.tensor([g, w], dtype=torch.float32).double(), torch.tensor([g, w], dtype=torch.float64))  # fmt: skip
        return abs(g - w) / ((1e-7 if is_single else 1e-12) * ULPS * (abs(w) + 1))
    with torch.no_grad():
        g, w = g.detach().cpu(), w.detach().cpu()
        if w.numel() == 0:
            return 0.0
        if not (w.is_floating_point() or w.is_complex()):
            return 0.0 if torch.equal(g, w) else 2.0
        g, w = (_parts(t) for t in (g, w))
        eps = torch.finfo(w.dtype).eps
        if not torch.equal(g.isnan(), w.isnan()) or not torch.equal(_infinite(g), _infinite(w)):
            return 1e9
        g, w = (t.double().nan_to_num(0, 0, 0) for t in (g, w))
        scale = w.abs() + w.abs().mean() + 1e-3
        return float(((g - w).abs() / (ULPS * eps * scale)).max())


def _parts(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t.resolve_conj().resolve_neg()) if t.is_complex() else t


def _infinite(t: torch.Tensor) -> torch.Tensor:
    return t.isinf() * t.nan_to_num(0).sign()


def distances(got: Seen, want: Seen) -> dict[tuple[str, int], float]:
    """How far apart the leaves are that both have."""
    found = {}
    for what, root in want.roots.items():
        a, b = Picture(got.roots[what]), Picture(root)
        if len(a.leaves) == len(b.leaves):
            pairs = enumerate(zip(a.leaves, b.leaves, strict=True))
            found.update({(what, k): _off(g, w) for k, (g, w) in pairs})
    return found
