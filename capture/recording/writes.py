"""Records in-place and out= ops, and writes the final values of inputs at the end of the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.recording.captured_graph import INFERENCE
from frameloom.capture.recording.fill_order import in_memory_order
from frameloom.capture.recording.refused_writes import refusal
from frameloom.capture.shapes.iteration import expands_to
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import (
    adopt_offset,
    counter,
    counts,
    current,
    functional_form,
    has_same_strides,
    is_inference,
    mixed_mode_view,
    view_chain,
    write,
)
from frameloom.capture.tensors.schema import is_out, one_needs_another, plain_arguments, tensors_of
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

aten = torch.ops.aten


def write_op(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Records the functional form of a write, and assigns its results to the written tensors."""
    schema = func._schema
    named = {**dict(zip((a.name for a in schema.arguments), args, strict=False)), **kwargs}
    targets: list[Fake] = []
    listed: list[Fake] = []  # those in lists: the kernels count their versions, not autograd
    for a in schema.arguments:
        if a.alias_info is not None and a.alias_info.is_write and named.get(a.name) is not None:
            value = named[a.name]
            if isinstance(value, list | tuple):
                listed.extend(value)
            targets.extend(value if isinstance(value, list | tuple) else [value])
    # PyTorch converts a number to a tensor, also one given as `out`.
    if not all(isinstance(t, Fake) for t in targets):
        raise Break("unsupported_op", f"{func} into a number")
    is_foreach = func.namespace == "aten" and isinstance(args[0], list | tuple)
    if is_foreach and one_needs_another(args, kwargs):
        for k in range(len(args[0])):
            own = (a[k : k + 1] if isinstance(a, list | tuple) else a for a in args)
            write_op(recorder, func, tuple(own), kwargs)
        return args[0] if schema.returns else None
    # An op of the program may write to optional arguments only, and to none in this call.
    if targets and (permuted := in_memory_order(recorder, func, targets[0])) is not None:
        write_op(recorder, func, (permuted, *args[1:]), kwargs)
        return targets[0]
    if (reason := refusal(func, targets, tensors_of(func, args, kwargs))) is not None:
        raise Break("unsupported_op", f"{func} {reason}")
    if func is aten.copy_.default:
        values = [_copied(recorder, args[0], args[1])]
    else:
        form = functional_form(func)
        if form is None:
            raise Break("unsupported_op", f"{func} has no functional form")
        result = recorder.pure(form, *plain_arguments(schema, named))
        results = list(result) if isinstance(result, list | tuple) else [result]
        written = results[len(results) - len(targets) :]
        values = [conform(recorder, r, t, func) for r, t in zip(written, targets, strict=True)]
    if is_out(func):
        recorder.current_call.outs.update(map(id, targets))
    for target, value in zip(targets, values, strict=True):
        if mixed_mode_view(target) is not None:  # autograd counts no writes for it
            raise Break(
                "unsupported_op",
                f"{func} writes a view(dtype) made in another inference mode than its memory",
            )
        if target.memory.inference and not recorder.current_call.inference:
            raise Break("op_error", f"{func} writes a tensor made in inference mode")
        if target.requires_grad and torch.is_grad_enabled() and is_by_function(target):
            raise Break("op_error", f"{func} writes a view that an autograd Function made")
        write_value(recorder, target, value)
    for target in listed:
        if counts(target):
            torch.autograd.graph.increment_version(target)
    if not schema.returns:
        return None
    if schema.returns[0].alias_info is None:
        # The results proper come first, the new values of the written tensors last.
        results = results[: len(schema.returns)]
        return tuple(results) if len(results) > 1 else results[0]
    if len(schema.returns) == 1:
        return args[0] if isinstance(args[0], list | tuple) else targets[0]
    return tuple(targets)


def write_value(recorder: Recorder, target: Fake, value: Any) -> None:
    """Writes the value of a node to a tensor, in the current gradient mode."""
    is_followed = target.requires_grad and torch.is_grad_enabled()
    if target.memory.root.requires_grad and not is_followed:
        recorder.history.hidden_writes = True
    write(target, value, recorder)


def conform(recorder: Recorder, value: Fake, target: Fake, func: Any) -> Any:
    """Returns a node with `value`'s elements in `target`'s dtype and layout."""
    if value.device != target.device:
        raise Break("op_error", f"{func} into a tensor on another device")
    if value.shape != target.shape:
        raise Break("metadata_mutation", f"{func} resizes its output")
    if value.dtype != target.dtype:
        if is_out(func):  # some ops cast, others refuse
            raise Break("unsupported_op", f"{func} into a tensor of another dtype")
        if not torch.can_cast(value.dtype, target.dtype):
            raise Break(
                "op_error", f"{func}: result type {value.dtype} can't be cast to {target.dtype}"
            )
        value = recorder.pure(aten._to_copy.default, (value,), {"dtype": target.dtype})
    if has_same_strides(value, target):
        node = current(value, recorder)
        adopt_offset(node, target)
        return node
    return recorder.emit(aten.copy.default, (target, value), {}, like=target)


def _copied(recorder: Recorder, target: Fake, source: Any) -> Any:
    if not isinstance(source, Fake) or source.device != target.device:
        raise Break("unsupported_op", "copy_ between devices")
    if not expands_to(source.shape, target.shape):
        raise Break("op_error", f"copy_ of {list(source.shape)} into {list(target.shape)}")
    recorder.n_ops += 1
    if (
        not recorder.history.notes_nodes  # gradients may have other layouts, and the target keeps its own
        and source.shape == target.shape
        and source.dtype == target.dtype
        and has_same_strides(source, target)
    ):
        return recorder.emit(aten.clone.default, (source,), {}, like=target)
    return recorder.emit(aten.copy.default, (target, source), {}, like=target)


def write_back(recorder: Recorder) -> list[int]:
    """Copies the last value of each written input into it, at the end of the graph. Returns the numbers of
    these inputs."""
    mutated = []
    numbers = {p for _, _, p in recorder.numbers.inputs}
    recorder.placeholders = [
        n for n in recorder.graph.nodes if n.op == "placeholder" and n not in numbers
    ]
    recorder.current_call.where = ""
    for i, (_, _, fake) in enumerate(recorder.inputs):
        memory, placeholder = fake.memory, recorder.placeholders[i]
        if memory.version:
            node = recorder.emit(aten.copy_.default, (placeholder, memory.root.node), {}, like=fake)
            if is_inference(fake):
                node.meta[INFERENCE] = True
            mutated.append(i)
            memory.root.node = placeholder
            memory.version += 1
            memory.root.version = memory.version
    return mutated


def written_results(results: Sequence[Fake], views_behind: Collection[int]) -> dict[int, int]:
    """Returns the results that the graph makes and the program wrote to, with the number of writes that
    autograd counts. Of results that share a count, the first has it. `views_behind` are made after the
    graph, and so are results of `.data` that share memory with others (autograd/detached_results.py)."""
    first: dict[Fake, int] = {}
    sharing = Counter(id(fake.memory) for fake in results)
    for k, fake in enumerate(results):
        own, memory = counter(fake), fake.memory
        is_apart = own is memory.root or sharing[id(memory)] == 1
        if is_apart and k not in views_behind and memory.input is None and not memory.inference:
            first.setdefault(own, k)
    return {k: f.counted for f, k in first.items() if f.counted or _is_from_nothing(f)}


def _is_from_nothing(fake: Fake) -> bool:
    """Whether its op makes a tensor from nothing: such ops count their own writes, where plans call them."""
    nodes = fake.memory.root.node.all_input_nodes
    return not any(isinstance(n.meta.get("val"), torch.Tensor) for n in nodes)


def is_by_function(fake: Fake) -> bool:
    """Whether it is a view that an autograd Function of the program made, or a view of such a view."""
    while fake.view_of is not None and fake.view_of.func is not aten.detach.default:
        if fake.by_function is not None:
            return True
        fake = fake.view_of.parent
    return False


def forget_values(outputs: Iterable[Fake]) -> dict[int, Any]:
    """Makes written outputs replay their views from the memory. Returns, by id, the nodes that views hold
    themselves and that others have read."""
    written = [f for f in outputs if f.memory.version]
    held = {id(f): f.node for f in written if f.version == f.memory.version}
    for fake in written:
        forget_views(fake)
    return held


def forget_views(fake: Fake) -> None:
    """Makes every view between `fake` and its memory's root replay: a written view holds a value of its
    own."""
    for view in view_chain(fake)[1:]:
        view.version = -1
