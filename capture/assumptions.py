"""Going on as if a condition on the tensors' data held, and leaving the calls for which it does not to plain Python.

A program that checks its data (`if bad.any(): raise ...`) is captured on the side that does not raise.  The graph checks the condition, too; where
it fails, and where an operation raises inside a `try`, nothing has been changed yet, so the call starts anew as plain Python, which raises or
handles the exception in the right place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.aten_op import draws, may_raise
from frameloom.capture.instr import Instr
from frameloom.capture.values.base import Avoid
from frameloom.errors import Break, let_mistakes_through
from frameloom.ir.program import ANEW, ASSUMED

if TYPE_CHECKING:
    from frameloom.capture.frame import Frame
    from frameloom.capture.graph import CapturedGraph
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue


def assume(t: Tracer, condition: TensorValue, expected: bool, otherwise: Exception) -> None:
    """Record that `bool(condition)` is `expected`; raises `otherwise` where that cannot be."""
    assert t.frame is not None
    site = (t.frame.code, t.frame.at.index)
    if t.session.per_code or t.session.is_avoided(*site) or condition.fake.numel() != 1:
        raise otherwise
    t.torch_call(partial(hold, expected=expected), [condition], {})
    t.rerun_sites.append((site, True))


def hold(condition: torch.Tensor, expected: bool, message: str = ASSUMED) -> None:
    """Check the truth of a tensor of one element."""
    holds = condition.reshape(()).to(torch.bool)
    torch.ops.aten._assert_async.msg(holds if expected else holds.logical_not(), message)


def may_be_caught(t: Tracer, what: str) -> None:
    """An operation that may raise was recorded inside a `try` that handles it."""
    _start_anew(t, Break("may_raise", what))


def assumed(t: Tracer, what: str) -> None:
    """A call was recorded as if what it checks of the data held."""
    _start_anew(t, Break("data_dependent", what))


def _start_anew(t: Tracer, otherwise: Break) -> None:
    assert t.frame is not None
    site = (t.frame.code, t.frame.at.index)
    if t.session.per_code or t.session.is_avoided(*site):
        raise otherwise
    t.rerun_sites.append((site, False))


def may_fail(node: torch.fx.Node) -> bool:
    """Whether anything recorded after `node` can raise at run time."""
    while (node := node.next).op != "root":
        if may_raise(node):
            return True
    return False


def check_that_rerun_is_possible(t: Tracer, graph: CapturedGraph, ours: bool) -> None:
    """What the graph has written before it raises cannot be taken back, and of what it has drawn only what the CPU's own generator gave: then
    capture breaks at those places instead.  `ours`: our own plan runs it, which writes nothing before all conditions were checked."""
    may_write = ours and may_draw_again(graph)
    if not may_start_anew(graph):
        for site, early in t.rerun_sites:
            if not (early and may_write):
                raise Avoid(site)


def draws_any(graph: CapturedGraph) -> bool:
    return any(map(draws, graph.graph.nodes))


def may_start_anew(graph: CapturedGraph) -> bool:
    return not graph.mutated and may_draw_again(graph)


def may_draw_again(graph: CapturedGraph) -> bool:
    return all(map(_is_drawn_from_cpu, graph.graph.nodes))


def _is_drawn_from_cpu(node: torch.fx.Node) -> bool:
    if not draws(node):
        return True
    results = node.meta["val"]
    first = results[0] if isinstance(results, (list, tuple)) else results
    given = (*node.args, *node.kwargs.values())
    return first.device.type == "cpu" and not any(isinstance(a, torch.Generator) for a in given)


def rerunning(
    compiled: Callable[..., Any],
    recorded: Callable[..., Any] | None = None,
    draws_numbers: bool = False,
) -> Callable[..., Any]:
    """The compiled graph, whose exceptions mean that the call starts anew.  With `recorded`, the graph as it was captured, which changes nothing: an
    exception that it does not raise is a fault of ours and comes through."""
    if draws_numbers:
        compiled, recorded = _as_if_not_drawn(compiled), recorded and _as_if_not_drawn(recorded)

    def run(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except Exception as error:
            let_mistakes_through(error)
            # On a GPU the recorded graph would fail later, and take the device with it.
            on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs)
            if recorded is not None and not on_gpu and not _fails(recorded, inputs):
                raise
            raise _capture.RunPlainly from None

    return run


def before_it_writes(compiled: Callable[..., Any], draws_numbers: bool) -> Callable[..., Any]:
    """The compiled graph, which starts a call anew before it writes anything; what else it raises, the program does, too."""

    def run(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except RuntimeError as error:
            if str(error) not in ANEW:
                raise
            raise _capture.RunPlainly from None

    return _as_if_not_drawn(run, _capture.RunPlainly) if draws_numbers else run


def _as_if_not_drawn(
    function: Callable[..., Any], where: type[BaseException] = BaseException
) -> Callable[..., Any]:
    """Where it raises, the CPU's generator gives the same numbers again."""
    generator = torch.default_generator

    def run(*inputs: Any) -> Any:
        before = generator.get_state()
        try:
            return function(*inputs)
        except where:
            generator.set_state(before)
            raise

    return run


def _fails(function: Callable[..., Any], inputs: tuple[Any, ...]) -> bool:
    try:
        function(*inputs)
    except Exception as error:
        let_mistakes_through(error)
        return True
    return False


def raises(instrs: list[Instr], start: Instr | None, limit: int = 80) -> bool:
    """Whether the code from `start` on does nothing but make an exception and raise it."""
    if start is None:
        return False
    for ins in instrs[start.index : start.index + limit]:
        if ins.op == "RAISE_VARARGS":
            return True
        if ins.target is not None or ins.op.startswith(("STORE_", "DELETE_", "RETURN_", "YIELD_")):
            return False
    return False


def side_that_does_not_raise(instrs: list[Instr], ins: Instr) -> bool | None:
    """For a conditional jump: whether to jump so that nothing is raised; None where neither or both sides raise."""
    following = instrs[ins.index + 1] if ins.index + 1 < len(instrs) else None
    falls, jumps = raises(instrs, following), raises(instrs, ins.target)
    return None if falls is jumps else falls


def is_asserted(frame: Frame | None) -> bool:
    """Whether the result of the present instruction only decides whether something is raised."""
    if frame is None:
        return False
    instrs, at = frame.instrs, frame.at.index + 1
    if at >= len(instrs) or not instrs[at].op.startswith("POP_JUMP"):
        return False
    return side_that_does_not_raise(instrs, instrs[at]) is not None


__all__ = [
    "assume",
    "assumed",
    "before_it_writes",
    "check_that_rerun_is_possible",
    "draws_any",
    "hold",
    "is_asserted",
    "may_be_caught",
    "may_draw_again",
    "may_fail",
    "may_start_anew",
    "raises",
    "rerunning",
    "side_that_does_not_raise",
]
