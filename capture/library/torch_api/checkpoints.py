"""`torch.utils.checkpoint`: a region of the program whose results are computed again in the backward pass.

The region is interpreted where it is called, and its ops are marked (`Region`): the partition into forward
and backward graph saves nothing inside (capture/autograd/partition.py). Random numbers are saved and not
drawn again, which gives the same values. A region that does more than compute is left to plain PyTorch,
which would repeat these other actions in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint as checkpoints

from frameloom.capture.autograd.backward_python import hand_over, same_nodes, site_of
from frameloom.capture.autograd.checkpoint_regions import REGION, NodeRange, Region
from frameloom.capture.autograd.inference_results import is_noted_as_inference
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.interpreter.context_managers import GRAD
from frameloom.capture.interpreter.wrapped_tensor import refuse_inside
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.library.torch_api.watched import Watched
from frameloom.capture.recording.captured_graph import recorded_behind
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import is_inference
from frameloom.capture.tensors.schema import is_view
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

SEEDED = torch.Tag.nondeterministic_seeded
NAMES = ("context_fn", "determinism_check", "debug", "early_stop")


def left_to_python(why: str) -> Break:
    return Break("library_call", f"torch.utils.checkpoint.checkpoint(...){why}")


@knows(checkpoints.checkpoint, least=1, keywords="*")
def _checkpoint(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    options = {name: kwargs[name] for name in kwargs if name in NAMES}
    if options and not _are_usual(t, options):
        raise left_to_python("")
    given = {name: value for name, value in kwargs.items() if name not in NAMES}
    reentrant = _flag(t, given.pop("use_reentrant", None))
    keeps_random = _flag(t, given.pop("preserve_rng_state", ConstValue(True)))
    if reentrant is None or keeps_random is None or (reentrant and (given or options)):
        raise left_to_python("")  # it warns, or raises
    function, *rest = args
    refuse_inside(t, "torch.utils.checkpoint.checkpoint(...)")
    if not torch.is_grad_enabled():
        if reentrant:
            raise left_to_python("")  # it warns
        return t.call(function, rest, given)
    if t.session.is_avoided(*site_of(t.frame)):
        raise left_to_python(" of a function that finds other objects when it is called again")
    watched = Watched(t, [function, *rest, *given.values()])
    if reentrant:
        _check_arguments(t, rest)
    last = t.recorder.graph._root.prev
    first = torch._C._autograd._get_sequence_nr()
    given_tensors = [v.fake for v in map(t.look, rest) if isinstance(v, TensorValue)]
    if torch.is_inference_mode_enabled() or any(
        is_inference(f) or is_noted_as_inference(f) for f in given_tensors
    ):
        # It saves its arguments, and one of its own, and autograd refuses. A view it refuses where its base
        # is changed, before it looks at the count.
        raise left_to_python(" with inference tensors")

    def called() -> Value:
        t.backward.regions.append(reentrant)
        try:
            return t.look(t.call(function, rest, given))
        finally:
            t.backward.regions.pop()

    entered = len(t.entered)
    result = called()
    if (changed := watched.changed()) is not None:
        raise left_to_python(f" of a function that changes {changed}")
    nodes = recorded_behind(last)
    if not keeps_random and any(SEEDED in getattr(n.target, "tags", ()) for n in nodes):
        raise left_to_python(" without its random state")
    fakes = [v.fake for v in _tensors(t, result)]
    if reentrant:
        _check_results(t, result, rest, nodes)
    edge = {f.node for f in fakes}
    for n in reversed(nodes):  # the base of a view is kept for it
        if n in edge and is_view(n):
            edge.update(n.all_input_nodes)
    end = torch._C._autograd._get_sequence_nr()
    node_range = NodeRange(
        first, end, tuple((f.memory, f.memory.root.counted) for f in given_tensors)
    )
    for n in nodes:
        n.meta[REGION] = Region(is_result=n in edge, reentrant=reentrant, node_range=node_range)

    def records_the_same() -> bool:
        last = t.recorder.graph._root.prev
        t.settings.set(t, *GRAD, True)
        called()
        return same_nodes(nodes, recorded_behind(last))

    hand_over(t, [function, *rest, *given.values()], entered, records_the_same)
    return result


def _are_usual(t: Tracer, options: dict[str, Value]) -> bool:
    """Whether the options change nothing: a region that only computes can be left early, and computes the
    same again."""
    usual: dict[str, tuple[Any, ...]] = {
        "context_fn": (checkpoints.noop_context_fn,),
        "determinism_check": (checkpoints._DEFAULT_DETERMINISM_MODE, "none"),
        "debug": (False,),
        "early_stop": (True, False),
    }
    return all(getattr(t.look(v), "real", None) in usual[name] for name, v in options.items())


def _flag(t: Tracer, value: Value | None) -> bool | None:
    value = value and t.look(value)
    if not isinstance(value, ConstValue) or type(value.real) is not bool:
        return None
    return value.real


def _tensors(t: Tracer, value: Value) -> Iterator[TensorValue]:
    value = t.look(value)
    if isinstance(value, TensorValue):
        yield value
    elif value.origin is None:
        for part in value.parts():
            yield from _tensors(t, part)


def _check_arguments(t: Tracer, args: Args) -> None:
    """Checks the arguments of the older (reentrant) form, whose gradients come only through its arguments."""
    tensors = [v for v in map(t.look, args) if isinstance(v, TensorValue)]
    if not any(v.fake.requires_grad for v in tensors):
        raise left_to_python(" of arguments that need no gradient")


def _check_results(t: Tracer, result: Value, args: Args, nodes: list[Any]) -> None:
    """Checks that each result is a new tensor with a gradient, as if one autograd node made it, and that no
    history enters except through the arguments."""
    results = result.items if isinstance(result, TupleValue) else [result]
    own = {id(v.fake.memory) for v in map(t.look, args) if isinstance(v, TensorValue)}
    for value in map(t.look, results):
        if isinstance(value, ConstValue):
            continue
        if not isinstance(value, TensorValue) or value.origin is not None:
            raise left_to_python(" of something else than tensors")
        fake: Any = value.fake
        if fake.view_of is not None or not fake.requires_grad or id(fake.memory) in own:
            raise left_to_python(" of views, or of tensors without gradient")
    inside = set(nodes)
    for operand in {a for n in nodes for a in n.all_input_nodes} - inside:
        fake = operand.meta.get("val")
        history = isinstance(fake, Fake) and fake.grad_fn is not None
        if history and id(fake.memory) not in own:
            raise left_to_python(" that uses tensors with a history which are not its arguments")


@knows(torch.is_grad_enabled, least=0, most=0)
def _is_grad_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if any(t.backward.regions):  # off in the forward pass and on when the region is computed again
        raise left_to_python(" that asks for the gradient mode")
    return t.evaluate(torch.is_grad_enabled, [], {})


@knows(checkpoints.checkpoint_sequential, keywords="*")
def _sequential(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return interpret(t, checkpoints.checkpoint_sequential, args, kwargs)
