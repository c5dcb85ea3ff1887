"""Constant folding of tensors that depend on no graph input: a mask made of sizes, `torch.linspace(...)`, a
constant.

Code that asks for data (`item`, a branch, a mask that decides the size of a result) then has its answer at
capture: the ops that lead to the tensor run once more, on real tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.schema import draws, properties_of, taking_generator
from frameloom.errors import let_mistakes_through
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

aten = torch.ops.aten
MAX_NODES = 10_000
MAX_MASK = 1 << 24  # elements
MAX_ELEMENTS = 1 << 15  # with more, threads share the work, and their number affects the result
UNINITIALISED = ("empty", "new_empty")
# Of their tensor, only the layout matters.
FILLING = frozenset({
    aten.ones_like.default, aten.zeros_like.default, aten.full_like.default, aten.new_ones.default, aten.new_zeros.default,
    aten.new_full.default,
})  # fmt: skip


def known_value(fake: Fake, recorder: Recorder) -> torch.Tensor | None:
    """Returns the tensor that `fake` is in every call, or None where that is not known."""
    if not isinstance(fake, Fake) or fake.memory is None or fake.device.type != "cpu":
        return None
    recorder.from_data.looks_at_data = True
    values = recorder.constant_nodes.known
    node = current(fake, recorder)
    order = ancestors(node, is_fixed, values, recorder.constant_nodes.unknown)
    if order is None:
        return None
    return evaluated(node, order, values, recorder)


def known_mask(mask: Fake, recorder: Recorder) -> torch.Tensor | None:
    """Returns, on the CPU, the value that a bool mask on any device has in every call; None where that is not
    known. A value that depends only on integers and bools is the same on every device."""
    if mask.memory is None or mask.dtype is not torch.bool:
        return None
    recorder.from_data.looks_at_data = True
    values = dict[Any, Any]()
    node = current(mask, recorder)
    order = ancestors(node, _is_discrete, values, set())
    if order is None:
        return None
    return evaluated(node, order, values, recorder, "cpu")


def evaluated(
    node: torch.fx.Node, order: Sequence[torch.fx.Node], values: dict[Any, Any], recorder: Recorder,
    device: str | None = None, generator: torch.Generator | None = None,
) -> torch.Tensor | None:  # fmt: skip
    """Computes `node` by running the nodes of `order`, and adds their results to `values`. If given, `device`
    and `generator` replace those of the program."""
    default = torch.get_default_dtype()
    if default != recorder.modes.default_dtype:
        torch.set_default_dtype(recorder.modes.default_dtype)
    try:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            for n in order:
                values[n] = _run(n, values, recorder, device, generator)
    except Exception as error:
        let_mistakes_through(error)
        return None  # it raises at run time, at its own place
    finally:
        if default != recorder.modes.default_dtype:
            torch.set_default_dtype(default)
    result: torch.Tensor = values[node]
    return result


def _is_discrete(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, Fake) or _has_more(value, MAX_MASK):
        return False
    if value.dtype.is_floating_point or value.dtype.is_complex or node.op != "call_function":
        return node.op == "get_attr" and not value.dtype.is_complex
    target: Any = node.target
    is_random = torch.Tag.nondeterministic_seeded in target.tags
    return not is_random and not properties_of(target).name.startswith(UNINITIALISED)


def ancestors(
    node: torch.fx.Node,
    is_fixed: Callable[[torch.fx.Node], bool],
    known: dict[Any, Any],
    unknown: set[torch.fx.Node],
) -> list[torch.fx.Node] | None:
    """Returns all nodes that `node` needs, without those in `known`; `node` is the last. Returns None if any
    of them is not constant, and adds the nodes that are known not to be constant to `unknown`."""
    order: dict[torch.fx.Node, None] = {}
    pending = [node]
    opened: set[torch.fx.Node] = set()  # nodes whose operands are in `pending`
    while pending:
        node = pending[-1]
        if node in order or node in known:
            pending.pop()
            continue
        if node in unknown or not is_fixed(node):
            unknown.update(n for n in pending if n in opened)
            unknown.add(node)
            return None
        if len(pending) + len(order) > MAX_NODES:
            return None
        missing = [n for n in _needed_by(node) if n not in order and n not in known]
        if missing:
            opened.add(node)
            pending += missing
        else:
            order[pending.pop()] = None
    return list(order)


def _needed_by(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Returns the operands whose values matter."""
    operands = node.all_input_nodes
    return [n for n in operands if n is not node.args[0]] if node.target in FILLING else operands


def is_fixed(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple) else (value,)
    fakes = [v for v in parts if isinstance(v, Fake)]
    if any(_has_more(v, MAX_ELEMENTS) or v.device.type != "cpu" for v in fakes):
        return False
    if node.op == "get_attr" or node.target is operator.getitem:
        return True
    target: Any = node.target
    return (
        node.op == "call_function"
        and isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not properties_of(target).name.startswith(UNINITIALISED)
    )


def _has_more(fake: Fake, most: int) -> bool:
    """Whether it has more than `most` elements, or their number differs between calls."""
    count = fake.numel()
    return isinstance(count, Size) or count > most


def _run(
    node: torch.fx.Node,
    values: dict[Any, Any],
    recorder: Recorder,
    device: str | None = None,
    generator: torch.Generator | None = None,
) -> Any:
    if node.op == "get_attr":
        constant = recorder.constant(str(node.target))
        return constant if device is None else constant.to(device)
    like = node.args[0] if node.target in FILLING else None

    def find(n: torch.fx.Node) -> Any:
        return _empty_like(n) if n is like else values[n]

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), find)
    if device is not None and kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": device}
    target: Any = node.target
    if generator is not None and draws(node):
        target = taking_generator(target) or target
        kwargs = {**kwargs, "generator": generator}
    return target(*args, **kwargs)


def _empty_like(node: torch.fx.Node) -> torch.Tensor:
    meta = node.meta["val"].meta
    return torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype)
