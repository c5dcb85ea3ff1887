"""Guards against aliases: an object that a call changes must not be one that was read under another name.

If two names led to one object during the capture, they have one value, and a guard says that they are the
same. This file handles all other pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.raw_attributes import instance_dict
from frameloom.capture.speculation.hoisting import ArrayOrigin
from frameloom.capture.tensors.cast_cache import is_cast
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.instance import InstanceValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Skip

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.recorder import Recorder


def tell_objects_apart(t: Tracer) -> None:
    for value in t.changed.values():
        if value.origin is None:
            continue
        if value.native is not None or _has_attributes(value):
            for other in t.known_objects(type(value.real)):
                if other is not value and other.origin is not value.origin:
                    t.guards.add(*apart(value, other))
        if _has_attributes(value) and (own := dictionary(value)) is not None:
            for other in t.known_objects(dict):
                is_plain = type(other) is DictValue and other.origin is not None
                if is_plain and other.real is not instance_dict(value.real):
                    t.guards.add(own, "different", other.origin)


def _has_attributes(value: Value) -> bool:
    """Whether a changed object may have changed in its attributes. Of most tensors, only `.grad` is set."""
    return isinstance(value, InstanceValue) and (
        not isinstance(value, TensorValue) or bool(value.attributes) or value.new_data is not None
    )


def apart(value: Value, other: Value) -> tuple[Origin, str, Origin]:
    """Returns the check that two objects are different, and do not share their dictionary unless they do
    now."""
    own, others = dictionary(value), dictionary(other)
    is_shared = own is not None and instance_dict(value.real) is instance_dict(other.real)
    if own is not None and others is not None and not is_shared:
        return own, "different", others
    return value.origin, "different", other.origin


def dictionary(value: Value) -> Origin | None:
    """Returns the dictionary's source for an object with attributes: others have no dictionary of their own
    yet."""
    if (
        not isinstance(value, InstanceValue)
        or value.origin is None
        or not instance_dict(value.real)
    ):
        return None
    return value.origin.child("dict")


def inputs_followed(recorder: Recorder) -> dict[Origin, torch.Tensor]:
    """Returns the inputs whose uses autograd tracks, by source. After a write to their memory, autograd
    refuses some uses, even if the results are not read."""
    nodes = [n for n in recorder.graph.find_nodes(op="placeholder") if n.users]
    tensors = [n for n in nodes if isinstance(n.meta["val"], Fake) and n.meta["val"].requires_grad]
    return {recorder.origin_of(n): recorder.real_of(n) for n in tensors}


def apart_in_memory(given: Iterable[tuple[Origin, Any]]) -> list[Origin]:
    """Returns the tensors among the inputs of a graph that changes some of them; `given` has an example for
    each. Tensors that are made before the graph share memory with nothing."""
    tensors = [
        (origin, example)
        for origin, example in given
        if isinstance(example, torch.Tensor)
        and not isinstance(origin, ArrayOrigin)
        and not is_cast(origin)
    ]
    if _share_memory([example for _, example in tensors]):
        raise Skip("inputs share memory, and one is changed")
    return [origin for origin, _ in tensors]


def _share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether any two of the tensors overlap."""
    extents = []
    for tensor in tensors:
        if tensor.numel():
            low = tensor.data_ptr()
            steps = sum(
                (size - 1) * stride
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
            extents.append((low, low + (steps + 1) * tensor.element_size()))
    extents.sort()
    return any(after[0] < before[1] for before, after in itertools.pairwise(extents))
