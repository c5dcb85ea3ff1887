"""`loss.backward()` and `torch.autograd.grad(...)` inside captured code.

The recording runs under autograd, so the Fakes have the same history as the program's tensors. Autograd is
called for the gradients at once, and its ops are recorded like any others. The changes that `backward`
makes to `.grad` of the leaves are effects: a missing gradient is set, an existing one is added to in
place. A break leaves these to autograd itself: histories that began before the call, hooks, and gradients
of gradients put into `.grad`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from frameloom.capture import _capture
from frameloom.capture.autograd.backward_python import check_deferred_code
from frameloom.capture.autograd.checkpoint_regions import REGION
from frameloom.capture.autograd.history import history
from frameloom.capture.guards.surroundings import watch_autograd
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.interpreter.wrapped_tensor import refuse_inside
from frameloom.capture.library.torch_api import transforms
from frameloom.capture.recording.special_ops import is_checked
from frameloom.capture.shapes.iteration import is_dense
from frameloom.capture.tensors.cast_cache import without_autocast
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.leaves import (
    begins_history,
    guard_leaf,
    has_leaf_behind,
    real_is_leaf,
    require_gradient,
)
from frameloom.capture.tensors.sized import resolved
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import FALSE, NONE, TRUE, ConstValue, is_none
from frameloom.capture.values.containers.container import ListValue, SequenceValue, TupleValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break, Skip, first_line
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
BACKWARD = ("gradient", "retain_graph", "create_graph", "inputs")
GRAD = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused", "is_grads_batched", "materialize_grads")  # fmt: skip


@knows(torch.Tensor.backward, least=1, most=5, keywords=" ".join(BACKWARD))
def _backward(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    given = {**dict(zip(BACKWARD, args[1:], strict=False)), **kwargs}
    loss, gradient = t.look(args[0]), t.look(given.get("gradient", NONE))
    keeps = _flag(t, given, "retain_graph")
    if not isinstance(loss, TensorValue) or _flag(t, given, "create_graph"):
        raise Break("autograd", "backward(create_graph=True)")
    if not is_none(inputs := t.look(given.get("inputs", NONE))):
        _leave(t, inputs, Break("autograd", "backward(inputs=...)"))
    if is_none(gradient) and loss.fake.numel() != 1:
        raise Break("autograd", "backward() of a tensor that is no scalar")
    if not is_none(gradient) and not isinstance(gradient, TensorValue):
        raise Break("autograd", "backward(...)")
    leaves = _leaves(t, [loss])
    if not leaves:
        raise Break("autograd", "backward() along a history that leads to no leaf")
    for leaf in leaves:
        _check_leaf(t, leaf)
    with _going_back(t):
        seeds = gradient if is_none(gradient) else ListValue([gradient])
        asked: list[Value] = [
            ListValue([loss]), ListValue(list(leaves)), seeds, ConstValue(keeps), FALSE, TRUE, FALSE
        ]  # fmt: skip
        gradients = t.torch_call(_asked, asked, {})
        new = t.recorder.made_in_call()
        for leaf, made in zip(leaves, t.items(gradients), strict=True):
            if isinstance(made := t.look(made), TensorValue):
                _accumulate(t, leaf, made, new)


@knows(torch.autograd.grad, least=1, most=9, keywords=" ".join(GRAD))
def _grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = {**dict(zip(GRAD, args, strict=False)), **kwargs}
    try:
        return _recorded_grad(t, given)
    except Break as cause:
        _leave(t, given.get("inputs", NONE), cause)


def _leave(t: Tracer, inputs: Value, cause: Break) -> NoReturn:
    """Raises `cause`, or Skip if gradients of tensors made here are requested: behind a break, the outputs
    and these tensors would be results of one autograd node, with no history between them."""
    for value in [] if is_none(t.look(inputs)) else _tensors(t, inputs):
        if value.real is None and value.fake.grad_fn is not None:
            raise Skip(f"a gradient for something that is computed here: {cause}") from cause
    raise cause


def _recorded_grad(t: Tracer, given: dict[str, Value]) -> Value:
    if "inputs" not in given:
        raise Break("autograd", "torch.autograd.grad(...)")
    if any(r.reentrant for n in t.recorder.graph.nodes if (r := n.meta.get(REGION)) is not None):
        raise Break("autograd", "torch.autograd.grad(...) with a reentrant checkpoint")
    outputs, inputs = (_tensors(t, given[name]) for name in ("outputs", "inputs"))
    leaves = _leaves(t, outputs)
    for leaf in leaves:
        _check_hooks(t, leaf)
    for value in inputs:
        if value.real is not None and not begins_history(value.real):
            raise Break("autograd", "torch.autograd.grad(...) of a tensor that is no leaf")
    if any(value.real is not None for value in inputs):
        # A tensor from before the call may be part of a history that existed then.
        for leaf in leaves:
            _check_ends(t, leaf)
    seeds = t.look(given.get("grad_outputs", NONE))
    if isinstance(seeds, TensorValue):
        seeds = TupleValue([seeds])
    creates = _flag(t, given, "create_graph")
    keeps = _flag(t, given, "retain_graph", creates)
    unused = t.look(given.get("allow_unused", NONE))
    if not is_none(unused):
        unused = ConstValue(unused.truth(t))
    asked: list[Value] = [
        ListValue(list(outputs)), ListValue(list(inputs)), seeds, ConstValue(keeps), ConstValue(creates),
        unused, ConstValue(_flag(t, given, "materialize_grads")),
    ]  # fmt: skip
    with _going_back(t):
        if _flag(t, given, "is_grads_batched"):
            return transforms.run(t, _asked_in_a_batch, asked, {})
        return t.torch_call(_asked, asked, {})


@contextlib.contextmanager
def _going_back(t: Tracer) -> Iterator[None]:
    """Marks a backward pass. If recording inside fails, autograd has already freed a part of the histories,
    so the capture starts again with a break here."""
    site = t.site_or(Break("autograd", "a backward pass that cannot be recorded"))
    watch_autograd(t)
    check_deferred_code(t)
    try:
        yield
        t.backward.last_backward = torch._C._autograd._get_sequence_nr()
        t.backward.last_backward_site = site
    except Break as cause:
        raise Avoid(site) from cause


def _asked(
    outputs: Any, inputs: Any, seeds: Any, keeps: bool, creates: bool, unused: bool | None, zeros: bool,
    batched: bool = False
) -> Any:  # fmt: skip
    with torch.autograd.set_multithreading_enabled(False), without_autocast():
        return torch.autograd.grad(
            outputs, inputs, seeds, retain_graph=keeps, create_graph=creates, allow_unused=unused,
            materialize_grads=zeros, is_grads_batched=batched,
        )  # fmt: skip


def _asked_in_a_batch(*asked: Any) -> Any:
    return _asked(*asked, batched=True)


def _flag(t: Tracer, given: dict[str, Value], name: str, default: bool = False) -> bool:
    value = t.look(given.get(name, NONE))
    return default if is_none(value) else value.truth(t)


def _tensors(t: Tracer, value: Value) -> list[TensorValue]:
    value = t.look(value)
    items = t.list_items(value) if isinstance(value, SequenceValue) else [value]
    tensors = [t.look(item) for item in items]
    if not all(isinstance(item, TensorValue) for item in tensors):
        raise Break("autograd", "torch.autograd.grad(...) of other objects than tensors")
    return tensors  # type: ignore[return-value]


def _leaves(t: Tracer, roots: list[TensorValue]) -> list[TensorValue]:
    """Returns the tensors of the program at which the histories begin."""
    recorder = t.recorder
    refuse_inside(t, "a backward pass")
    if recorder.current_call.inference or any(r.fake.grad_fn is None for r in roots):
        raise Break("autograd", "a backward pass without a history")
    if any(map(is_checked, recorder.graph.nodes)):
        raise Break("autograd", "a gradient that depends on data to be defined")
    try:
        with recorder:
            variables = {
                id(leaf): leaf
                for root in roots
                for node in history(root.fake)  # type: ignore[arg-type]
                if isinstance(leaf := getattr(node, "variable", None), Fake)
            }
    except RuntimeError as error:
        raise Break("autograd", first_line(error)) from error
    leaves = []
    for leaf in variables.values():
        if recorder.casts.has_given(leaf):
            raise Break("autograd", "a backward pass that leaves the captured code")
        if (value := t.tensor_of(leaf)) is not None:  # the program never saw the others
            leaves.append(value)
    return leaves


def _check_hooks(t: Tracer, leaf: TensorValue) -> None:
    if leaf.origin is None:  # made here, where a hook would break the graph
        return
    for name in HOOKS:
        if getattr(leaf.real, name, None) is not None:
            raise Break("autograd", "a backward pass to a tensor that has hooks")
        t.guards.add(leaf.origin.child("attr", name), "equal", None)


def _check_accumulator(t: Tracer, leaf: TensorValue) -> None:
    """Breaks if hooks run where autograd adds up the gradient, which only a pass that does so calls."""
    if leaf.origin is None:
        return
    if _capture.accumulator_hooked(leaf.real):
        raise Break("autograd", "a backward pass to a tensor that has hooks")
    t.guards.add(leaf.origin, "no_accumulator_hooks")


def _check_ends(t: Tracer, leaf: TensorValue) -> None:
    if leaf.origin is not None:
        if not begins_history(leaf.real):
            raise Break("autograd", "a backward pass that leaves the captured code")
        guard_leaf(t, leaf)


def _check_leaf(t: Tracer, leaf: TensorValue) -> None:
    """Checks that a backward pass ends at the leaf, and that its gradient is known."""
    _check_ends(t, leaf)
    _check_hooks(t, leaf)
    _check_accumulator(t, leaf)
    before = leaf.gradient(t)
    if not is_none(before) and (not isinstance(before, TensorValue) or before.fake.requires_grad):
        raise Break("autograd", "a gradient that has a history itself")


def _accumulate(t: Tracer, leaf: TensorValue, made: TensorValue, new: set[int]) -> None:
    """Adds a gradient like AccumulateGrad. `new`: tensors that the backward pass has made. Source:
    torch/csrc/autograd/functions/accumulate_grad.h."""
    before = leaf.gradient(t)
    if isinstance(before, TensorValue):
        t.torch_call(_add, [before, made], {})
        return
    fake = made.fake
    # A gradient that the program or another leaf has is copied; a view of it is not.
    own = id(fake) in new and id(fake) not in t.backward.gradients_set
    answer = t.recorder.layout_assumptions.answer
    dense = answer(is_dense, leaf.fake)
    if not own or not answer(_matches_leaf_layout, fake, leaf.fake, dense):
        copy = _copy if dense else _copy_plainly
        made = t.torch_call(copy, [leaf, made], {})  # type: ignore[assignment]
    t.backward.gradients_set.add(id(made.fake))
    leaf.set_gradient(t, made)


def _add(before: Any, made: Any) -> None:
    with torch.no_grad():
        before.add_(made)


def _copy(leaf: Any, made: Any) -> Any:
    with torch.no_grad():
        like = torch.empty_strided(leaf.shape, leaf.stride(), dtype=made.dtype, device=made.device)
        return like.copy_(made)


def _copy_plainly(leaf: Any, made: Any) -> Any:
    with torch.no_grad():
        return made.clone(memory_format=torch.contiguous_format)


def _matches_leaf_layout(made: torch.Tensor, leaf: torch.Tensor, dense: bool) -> bool:
    """Whether the gradient is kept and not copied. Source:
    torch/csrc/autograd/utils/grad_layout_contract.h."""
    if not dense:
        return _is_contiguous(made)
    strides = zip(made.shape, made.stride(), leaf.stride(), strict=True)
    return all(ours == theirs if size != 1 else ours != 0 for size, ours, theirs in strides)


def _is_contiguous(made: torch.Tensor) -> bool:
    """Whether the gradient is contiguous. If this depends on sizes being 1, the answer is that of this
    call."""
    step: Int = 1
    for size, stride in reversed([*zip(made.shape, made.stride(), strict=True)]):
        if not same(stride, step) and size != 1 and stride != step:
            return False
        step = step * resolved(size)
    return True


@knows(torch.Tensor.requires_grad_, least=1, most=2, keywords="requires_grad")
def _requires_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    refuse_inside(t, "tensor.requires_grad_(...)")
    tensor = t.look(args[0])
    given = t.look(kwargs.get("requires_grad", args[1] if len(args) > 1 else TRUE))
    wanted = given.truth(t)
    if (
        not isinstance(tensor, TensorValue)
        or given.type() is not bool
        or (tensor.fake.requires_grad and (not wanted or _inherits_requires_grad(tensor)))
    ):
        raise Break("autograd", "tensor.requires_grad_(...)")
    if not tensor.fake.requires_grad:
        if wanted:
            require_gradient(t, tensor)
    elif tensor.origin is not None and tensor.real is not None and tensor.real.requires_grad:
        guard_leaf(t, tensor)
    return tensor


def _inherits_requires_grad(tensor: TensorValue) -> bool:
    """For a tensor that requires gradients: whether it is a view without history that requires them only
    because of another tensor."""
    if tensor.real is None:
        return has_leaf_behind(tensor.fake)  # type: ignore[arg-type]
    return real_is_leaf(tensor.real) and not begins_history(tensor.real)


@knows(torch.Tensor._is_view, least=1, most=1)
def _is_view(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    refuse_inside(t, "tensor._is_view()")
    tensor = t.look(args[0])
    if isinstance(tensor, TensorValue) and tensor.real is None:
        raise Skip(FOR_AUTOGRAD)
    raise Break("data_pointer", "tensor._is_view()")


@knows(torch.Tensor.detach_, torch.detach_, least=1, most=1)
def _detach_in_place(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Captures `detach_`. Autograd refuses it for views that it tracks. Fakes are no such views, and for a
    tensor from before the call this is unknown."""
    refuse_inside(t, "tensor.detach_()")
    tensor = t.look(args[0])
    if not isinstance(tensor, TensorValue) or tensor.real is not None:
        raise Break("autograd", "tensor.detach_()")
    view = tensor.fake.view_of  # type: ignore[attr-defined]
    if view is not None and view.func is not torch.ops.aten.detach.default:
        raise Skip(FOR_AUTOGRAD)
    return t.torch_call(torch.Tensor.detach_, [tensor], {})


# A break makes it anew, maybe not as one; and some of PyTorch's own functions return views only where nobody
# follows them.
FOR_AUTOGRAD = "whether a tensor that is made here is a view for autograd"
