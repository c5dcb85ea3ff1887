"""Assumes that a condition on tensor data holds; a call that fails it bails out to plain Python.

If a program checks its data (`if bad.any(): raise ...`), the side that does not raise is captured. The
graph checks the condition, too. If the check fails, or an operation raises, nothing has been changed yet.
So the call starts again as plain Python, which does the steps before, and raises or handles the exception
in the right place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.bytecode.instruction import Instr
from frameloom.capture.recording.dead_calls import first_refused
from frameloom.capture.speculation.exception_paths import is_caught, leaves_settings_changed
from frameloom.capture.tensors.fake import is_wrapper
from frameloom.capture.tensors.rerunnable import OWN_EFFECTS, is_rerunnable
from frameloom.capture.tensors.schema import may_raise, never_raises
from frameloom.debug import log
from frameloom.errors import Avoid, Break, let_mistakes_through
from frameloom.ir.program import ASSUMED, BAIL_OUT_MESSAGES

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.captured_graph import CapturedGraph
    from frameloom.capture.values.tensor import TensorValue


CHECKS = ("_assert", "_check")  # of torch, which raise for False
ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
LEAVING = ("STORE_", "DELETE_", "RETURN_", "YIELD_")


def assume(t: Tracer, condition: TensorValue, expected: bool, otherwise: Exception) -> None:
    """Assumes that `bool(condition)` is `expected`; raises `otherwise` if this is not possible."""
    site = t.site_or(otherwise)
    if t.session.per_code or is_wrapper(condition.fake) or condition.fake.numel() != 1:
        raise otherwise
    t.torch_call(partial(hold, expected=expected), [condition], {})
    t.speculation.rerun_sites.append(site)


def hold(condition: torch.Tensor, expected: bool, message: str = ASSUMED) -> None:
    """Checks the truth of a tensor of one element."""
    holds = condition.reshape(()).to(torch.bool)
    torch.ops.aten._assert_async.msg(holds if expected else holds.logical_not(), message)


def assumed(t: Tracer, what: str) -> None:
    """Notes a call that was recorded on the assumption that its check of data passes."""
    site = t.site_or(Break("data_dependent", what))
    if t.session.per_code:
        raise Break("data_dependent", what)
    t.speculation.rerun_sites.append(site)


def note_fallible(t: Tracer, what: str) -> None:
    """Notes that an operation that may raise was recorded. After effects, or inside a `try` that handles the
    exception, this needs calls that can bail out."""
    if not is_caught(t.frame) and not _has_effects(t) and not leaves_settings_changed(t):
        return
    site = t.site_or(Break("may_raise", what))
    if t.session.per_code:
        raise Break("may_raise", what)
    t.speculation.fallible_sites.append(site)


def _has_effects(t: Tracer) -> bool:
    """Whether the program has changed any object from before the call."""
    return any(fake.memory.version for _, _, fake in t.recorder.inputs) or _has_own_effects(t)


def _has_own_effects(t: Tracer) -> bool:
    """The same for objects that are not tensors."""
    if t.draws:
        return True
    values = t.changed.values()
    return any(v.origin is not None or getattr(v, "real", None) is not None for v in values)


def may_fail(node: torch.fx.Node) -> bool:
    """Whether anything recorded after `node` can raise at run time, in the call itself."""
    while (node := node.next).op != "root":
        ours = node.target is OWN_EFFECTS[1] and node.args[1] in BAIL_OUT_MESSAGES
        if not ours and may_raise(node, at_once=True):
            return True
    return False


def check_that_restart_is_possible(t: Tracer, graph: CapturedGraph, ours: bool) -> bool:
    """Whether a call of the graph that fails can bail out: our own plan (`ours`) writes after everything that
    may fail, and restores the CPU's generator. If it cannot, but something relies on that, raises `Avoid`,
    and the capture breaks there."""
    rerunnable = is_rerunnable(graph)
    may = not t.session.per_code and rerunnable and (ours or not graph.mutated)
    sites = [*t.speculation.rerun_sites, *t.speculation.fallible_sites]
    if sites and not may:
        raise Avoid(sites[0])
    has_effects = graph.mutated or not rerunnable or _has_own_effects(t)
    nodes: Iterable[torch.fx.Node] = graph.graph.nodes
    if may:  # a plan runs what may raise before its writes, except these
        nodes = (n for n in nodes if never_raises(n.target))
    elif not (has_effects or t.settings.start):
        nodes = (n for n in nodes if n.meta.get("site") in t.speculation.handled_sites)
    refused = first_refused(nodes)
    if refused is not None and not t.session.is_avoided(*refused.meta["site"]):
        raise Avoid(refused.meta["site"])
    # Python may raise there, before all writes.
    if t.recorder.numbers.checked and not ours:
        return not t.session.per_code and rerunnable
    return may


def restarting(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a graph that no plan runs: if it raises, the call bails out."""

    def run(*inputs: Any) -> Any:
        generator = torch.default_generator.get_state()
        try:
            return compiled(*inputs)
        except Exception as error:
            let_mistakes_through(error)
            torch.default_generator.set_state(generator)
            # A fault of the backend is shown only here and with FRAMELOOM_VERIFY.
            log(
                "recompiles",
                f"a call starts anew as plain Python ({type(error).__name__}: {error})",
            )
            raise _capture.RunPlainly(error) from None

    return run


def verified(compiled: Callable[..., Any], recorded: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the compiled graph. If the captured graph (`recorded`, which changes nothing) does not raise, the
    exception is our own fault and is raised."""

    def run(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except _capture.RunPlainly as stop:
            # On a GPU the recorded graph would fail later and make the device unusable.
            on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs)
            if stop.args and not on_gpu and not _fails(recorded, inputs):
                raise stop.args[0] from None
            raise

    return run


def _fails(function: Callable[..., Any], inputs: tuple[Any, ...]) -> bool:
    generator = torch.default_generator.get_state()
    try:
        function(*inputs)
    except Exception as error:
        let_mistakes_through(error)
        return True
    finally:
        torch.default_generator.set_state(generator)
    return False


def raises(instrs: list[Instr], start: Instr | None, limit: int = 80) -> bool:
    """Whether the code from `start` on only makes an exception, with local variables, and raises it."""
    if start is None:
        return False
    before = start
    for ins in instrs[start.index : start.index + limit]:
        fails = ins.op == "LOAD_CONST" and ins.arg is False and before.op in ATTRIBUTE
        if ins.op == "RAISE_VARARGS" or (fails and before.arg in CHECKS):
            return True
        if ins.op != "PUSH_NULL":  # CPython 3.13 has it between a function and its arguments
            before = ins
        if ins.target is not None or (ins.op.startswith(LEAVING) and ins.op != "STORE_FAST"):
            return False
    return False


def side_that_does_not_raise(instrs: list[Instr], ins: Instr) -> bool | None:
    """For a conditional jump: whether it must jump so that nothing is raised; None if neither or both sides
    raise."""
    following = instrs[ins.index + 1] if ins.index + 1 < len(instrs) else None
    falls, jumps = raises(instrs, following), raises(instrs, ins.target)
    return None if falls is jumps else falls


def is_asserted(frame: Frame | None) -> bool:
    """Whether the result of the current instruction only decides whether something is raised."""
    if frame is None:
        return False
    instrs, at = frame.instrs, frame.at.index + 1
    at += at < len(instrs) and instrs[at].op == "TO_BOOL"
    if at >= len(instrs) or not instrs[at].op.startswith("POP_JUMP"):
        return False
    return side_that_does_not_raise(instrs, instrs[at]) is not None
