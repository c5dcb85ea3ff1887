"""Finds calls that an op would refuse where shape functions do not always report it. These are calls whose
results are unread, which are left out otherwise, and calls in graphs that cannot bail out: those with earlier
writes, or whose exceptions the program would handle.

In: a node. Out: whether its kernel raises, tried with small tensors of ones and of zeros; then the program
    has to make the call itself. The trial runs on the CPU for a GPU's calls, too, because a failed assertion
    there would end all GPU work; what one device refuses, the other mostly refuses as well. A floating point
    dtype that the CPU refuses is tried on the GPU. Calls on tensors of several devices, most of which are
    mistakes, are left to the program."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
import torch.fx

from frameloom.capture.tensors.constant_folding import FILLING
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import (
    draws,
    may_raise,
    never_raises,
    properties_of,
    taking_generator,
)
from frameloom.ir.symbolic.expr import Size, hint_of

aten = torch.ops.aten
MOST = 1 << 16  # elements of all arguments
# On a GPU, they also take indices from the CPU.
TAKE_PLACES = frozenset({aten.index.Tensor, aten.index_put.default})
# below every instruction's index: other calls are avoided at the instruction itself
SITES = -(1 << 20)


def site_of(code: Any, index: int) -> tuple[Any, int]:
    """Returns the place under which a session stores that the call there is refused."""
    return code, SITES - index


def _has_one_element(operand: torch.fx.Node) -> bool:
    fake = operand.meta.get("val")
    return isinstance(fake, Fake) and all(n == 1 for n in fake.shape)


def has_no_elements(node: torch.fx.Node) -> bool:
    """Whether its result has no elements for all values of the symbolic sizes."""
    fake = node.meta.get("val")
    if type(fake) is not Fake:  # a number, or several tensors
        return isinstance(fake, Fake) and 0 in [n for n in fake.shape if type(n) is int]
    return 0 in fake.meta.shape


# Ops that read only the layout of their operand and not its elements, and those for which this holds if there
# is one element.
READ_NO_ELEMENTS = frozenset({
    *FILLING, aten.empty_like.default, aten.new_empty.default, aten.rand_like.default, aten.randn_like.default,
})  # fmt: skip
READ_NO_SINGLE_ELEMENT = frozenset({aten.argmax.default, aten.argmin.default})


def is_unread(node: torch.fx.Node, unread: Collection[torch.fx.Node]) -> bool:
    """Whether the backend leaves the node out because its elements are not read. `unread`: the later nodes
    for which this holds."""
    for user in node.users:
        if user in unread or has_no_elements(user):
            continue
        is_one = user.target in READ_NO_SINGLE_ELEMENT and _has_one_element(node)
        if user.target not in READ_NO_ELEMENTS and not is_one:
            return False
    return True


def is_refused(node: torch.fx.Node) -> bool:
    if not _can_be_tried(node):
        return False
    if _on_several_devices(node):
        return True
    error = _refusal(node)
    # The dtype is refused, rather than that the op has no kernel.
    return not isinstance(error, NotImplementedError | None) or "not implemented for '" in str(
        error
    )


def first_refused(nodes: Iterable[torch.fx.Node]) -> torch.fx.Node | None:
    """Returns the first of these nodes that its device refuses, as far as that is known."""
    seen = set()
    for node in nodes:
        if not _can_be_tried(node):
            continue
        # The plan's op may have another name than the program's, and error messages contain the name.
        if _on_several_devices(node):
            return node
        if _is_known_to_pass(node):
            continue
        call = torch.fx.node.map_aggregate((node.args, node.kwargs), _described)
        if (key := (node.target, repr(call))) in seen:
            continue
        seen.add(key)
        error = _refusal(node)
        if _is_of_floats_elsewhere(node) and "not implemented for" in str(error):
            # A floating point dtype without a CPU kernel may have one on a GPU; the GPU refuses a dtype
            # before it starts a kernel.
            error = _refusal(node, at_home=True)
        if error is not None:
            return node
    return None


def _can_be_tried(node: torch.fx.Node) -> bool:
    if node.meta.get("site") is None or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target.namespace != "aten" or properties_of(node.target).behaviour != "pure":
        return False
    return not draws(node) or taking_generator(node.target) is not None


def _is_known_to_pass(node: torch.fx.Node) -> bool:
    """Whether it was checked during recording, or breaks the graph anyway where it could raise."""
    target: Any = node.target
    if torch.Tag.pointwise in target.tags or never_raises(target):
        # All of them accept these.
        return all(f.is_floating_point() for f in _fakes_of(node.all_input_nodes))
    return may_raise(node, at_once=True)


def _is_of_floats_elsewhere(node: torch.fx.Node) -> bool:
    return any(
        f.device.type != "cpu" and f.is_floating_point() for f in _fakes_of(node.all_input_nodes)
    )


def _refusal(node: torch.fx.Node, at_home: bool = False) -> Exception | None:
    """Returns the kernel's error for small tensors, on the CPU or on their own device (`at_home`); None if it
    computes or cannot be tried."""
    first_error = None
    for number in (1, 0):  # zeros are valid indices wherever any index is, but not divisors
        budget = [MOST]
        try:
            given = torch.fx.node.map_aggregate(
                (node.args, node.kwargs),
                lambda a, number=number, budget=budget: _plain(a, number, budget, at_home),
            )
        except _TooLarge:
            return None
        args, kwargs = given
        target: Any = node.target
        if draws(node):  # with a generator of its own: the program's generator keeps its state
            target = taking_generator(target)
            device = node.meta["val"].device if at_home else "cpu"
            kwargs = {**kwargs, "generator": torch.Generator(device)}
        try:
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                target(*args, **kwargs)
            return None
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            first_error = first_error or error
    return first_error


def _described(a: Any) -> Any:
    """Returns what distinguishes one tried call from another."""
    fake = a.meta.get("val") if isinstance(a, torch.fx.Node) else None
    return (fake.dtype, fake.shape, fake.stride()) if isinstance(fake, Fake) else a


def _fakes_of(nodes: Iterable[Any]) -> list[Fake]:
    values = (a.meta.get("val") for a in nodes if isinstance(a, torch.fx.Node))
    return [v for v in values if isinstance(v, Fake)]


def _on_several_devices(node: torch.fx.Node) -> bool:
    """Ignores single numbers, which every device accepts from the CPU."""
    fakes = _fakes_of(node.all_input_nodes)
    if node.target in TAKE_PLACES and _fakes_of(node.args[:1])[0].device.type != "cpu":
        fakes = _fakes_of((node.args[0], *node.args[2:]))
    return len({f.device for f in fakes if f.device.type != "cpu" or f.dim()}) > 1


class _TooLarge(Exception):
    """The trial would take long, or is not possible here."""


def _plain(a: Any, number: int, budget: list[int], at_home: bool) -> Any:
    if isinstance(a, Size):
        return int(hint_of(a))
    if isinstance(a, torch.device):
        return a if at_home else torch.device("cpu")
    if not isinstance(a, torch.fx.Node):
        return a
    like = a.meta.get("val")
    if not isinstance(like, Fake) or like.device.type == "meta" or like.layout != torch.strided:
        raise _TooLarge
    shape, strides = ([int(hint_of(n)) for n in sizes] for sizes in (like.shape, like.stride()))
    extent = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    budget[0] -= max(extent, 0)
    if budget[0] < 0:
        raise _TooLarge
    with torch._C._DisableTorchDispatch():
        filling = 1 + 1j if like.dtype.is_complex else number  # complex numbers are not indices
        device = like.device if at_home else "cpu"
        made = torch.empty_strided(shape, strides, dtype=like.dtype, device=device)
        return made.fill_(filling)
