"""Branches on small int and bool inputs: assumed to be as in the captured call.

Examples are `if mask.any():` and `if pad in ids:`. Such masks and flags are mostly the same in each call. The
same is true of questions whether numbers are finite (`if x.isnan().any():`): they are assumed to be finite.
The graph checks the assumption (speculation/assume.py). The first call that fails it starts again as plain
Python, and from then on the graph breaks there. Other conditions on floating point numbers break the graph at
once.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.speculation.assume import hold
from frameloom.capture.speculation.hoisting import ArrayOrigin
from frameloom.capture.tensors.constant_folding import (
    MAX_ELEMENTS,
    ancestors,
    evaluated,
    is_fixed,
)
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.config import config
from frameloom.debug import log
from frameloom.ir.program import SPECULATED

if TYPE_CHECKING:
    from types import CodeType

    from frameloom.capture.driver.session import Session
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue

SAME = ("aten.all.default", "aten.any.default", "aten.all.dim", "aten.any.dim", "aten.clone.default", "aten.detach.default", "aten.view.default")  # fmt: skip
NOT = ("aten.logical_not.default", "aten.bitwise_not.default")
AND = ("aten.mul.Tensor", "aten.logical_and.default", "aten.bitwise_and.Tensor")
OR = ("aten.logical_or.default", "aten.bitwise_or.Tensor")
MOST = 64  # speculated branches of one graph
MOST_HERE = 2  # by one instruction of one frame, which may be in a loop that the data ends


def speculated_truth(t: Tracer, condition: TensorValue, taken_out: bool = False) -> bool | None:
    """Returns the truth of a condition in the captured call; None if it is not assumed. `taken_out`: the
    condition is used as a number, which needs no break until its value is needed."""
    frame = t.frame
    if frame is None or not t.options.may_speculate or condition.fake.numel() != 1:
        return None
    site = t.site
    refused = t.session.is_certain if taken_out else t.session.is_avoided
    here = (id(frame), frame.at.index)
    if (
        refused(*site)
        or len(t.speculation.speculated) >= MOST
        or t.speculation.speculated.count((here, site)) >= MOST_HERE
    ):
        return None
    expected = _expected(t, condition)
    if expected is None:
        return None
    t.torch_call(partial(hold, expected=expected, message=SPECULATED), [condition], {})
    t.speculation.rerun_sites.append(site)
    t.speculation.speculated.append((here, site))
    t.on_undo(t.speculation.speculated.pop)
    return expected


def _expected(t: Tracer, condition: TensorValue) -> bool | None:
    if condition.fake.device.type != "cpu":
        return None
    node = current(condition.fake, t.recorder)  # type: ignore[arg-type]
    value = _value(t, node)
    return if_finite(node) if value is None else bool(value)


def _value(t: Tracer, node: torch.fx.Node) -> torch.Tensor | None:
    """Returns the value in the captured call if it is cheap to compute."""
    recorder = t.recorder
    values: dict[Any, Any] = {}
    for place in recorder.graph.find_nodes(op="placeholder"):
        if isinstance(fake := place.meta.get("val"), Fake):
            key, real, _ = recorder.inputs[fake.memory.input]  # type: ignore[index, union-attr]
            if _is_discrete(real) and not isinstance(key, ArrayOrigin):
                values[place] = real
    order = ancestors(node, is_fixed, values, set())
    return None if order is None else evaluated(node, order, values, recorder)


def _is_discrete(tensor: torch.Tensor) -> bool:
    kind = tensor.dtype
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and not (kind.is_floating_point or kind.is_complex)
        and tensor.numel() <= MAX_ELEMENTS
    )


def if_finite(node: torch.fx.Node, depth: int = 8) -> bool | None:
    """Returns the value of a condition if all numbers that it tests are finite; None if it tests anything
    else."""
    name, args = str(node.target), node.args
    if name in ("aten.isnan.default", "aten.isinf.default"):
        return False
    if name in ("aten.eq.Tensor", "aten.ne.Tensor"):
        same = args[0] is args[1] and args[0].meta["val"].is_floating_point()  # type: ignore[union-attr]
        return name == "aten.eq.Tensor" if same else None
    if name in ("aten.eq.Scalar", "aten.ne.Scalar"):
        of_sizes = str(getattr(args[0], "target", "")) == "aten.abs.default"
        return name == "aten.ne.Scalar" if of_sizes and args[1] == math.inf else None
    is_bool = getattr(node.meta.get("val"), "dtype", None) is torch.bool
    if not is_bool or not depth or name not in (*SAME, *NOT, *AND, *OR):
        return None
    truths = [if_finite(a, depth - 1) for a in node.all_input_nodes]
    if None in truths:
        return None
    if name in NOT:
        return not truths[0]
    return any(truths) if name in OR else all(truths)


def forgetting(t: Tracer, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the graph: if a call fails a speculated branch, the compiled entries are dropped."""
    session, jitted = t.session, t.session.capturing
    sites = [site for _, site in t.speculation.speculated]

    def run(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except _capture.RunPlainly as stop:
            if stop.args and str(stop.args[0]) == SPECULATED:
                _forget(session, sites, jitted)
            raise

    return run


def _forget(
    session: Session, sites: list[tuple[CodeType, int]], jitted: weakref.ref[Any] | None
) -> None:
    if "recompiles" in config.logs:
        log("recompiles", f"{sites[0][0].co_qualname}: a choice by data is another one: a break")
    for code, index in sites:
        session.avoid(code, index)
        session.avoid(code, index)
    owner = jitted() if jitted is not None else None
    if owner is not None:
        owner.clear()
