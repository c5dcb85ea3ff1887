"""Tensors made in one of PyTorch's modes and used in another, with graph breaks in both: autograd notes how each view was made, and refuses some uses.

`sweep_modes(seed, count)` tells which drawn programs differ from eager: in values, histories, strides, exceptions, gradients, or in what may be written
to the result behind the call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch

import frameloom

CALLS = 2
MODES: dict[str, Callable[[], Any]] = {
    "gradients": torch.enable_grad,
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "no inference": lambda: torch.inference_mode(False),
    "none": nullcontext,
}
MADE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice": lambda x: x[1:],
    "slice of a slice": lambda x: x[1:][1:],
    "piece": lambda x: x.split(1)[1],
    "piece of a result": lambda x: (x * 2).chunk(2)[1],
    "slice of a result": lambda x: (x * 2)[1:],
    "slice of what is written": lambda x: (x * 2).add_(1)[1:],
    "slice of the written input": lambda x: (x.mul_(1) if x.is_leaf and not x.requires_grad else x)[1:],
    "slice of a leaf": lambda x: (x.detach() * 2).requires_grad_()[1:],
    "slice of a clone": lambda x: x.clone()[1:],
    "slice of numbers": lambda x: torch.arange(4.0)[1:],
    "detach": lambda x: x.detach(),
    "slice of detach": lambda x: x.detach()[1:],
    "slice of data": lambda x: x.data[1:],
    "row of real and imaginary parts": lambda x: torch.view_as_real(x.to(torch.complex64))[1],
    "contiguous": lambda x: x.contiguous(),
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.view(2, 2).t(),
    "expand": lambda x: x.expand(2, 4)[0],
    "row of diag": lambda x: torch.diag(x)[0],
    "input": lambda x: x,
    "product": lambda x: x * 2,
    "cat": lambda x: torch.cat([x, x]),
    "index": lambda x: x[[0, 1]],
    "max": lambda x: x.view(2, 2).max(0)[0],
    "out=": lambda x: torch.add(x.detach(), 1, out=torch.empty(4)),
    "zeros_like": lambda x: torch.zeros_like(x),
    "new_ones": lambda x: x.new_ones(3),
    "leaf": lambda x: x.detach().requires_grad_(),
    "parameter": lambda x: torch.nn.Parameter(x.detach().clone()),
}  # fmt: skip
# Of what was made, of the input, and of a leaf.
USED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "nothing": lambda v, x, w: None,
    "product": lambda v, x, w: (v * w, v * 2),
    "views": lambda v, x, w: (v.view(-1), v[:1]),
    "written": lambda v, x, w: (v.add_(1), None)[1],
    "written with a history": lambda v, x, w: (v.mul_(w), None)[1],
    "copied into": lambda v, x, w: (v.copy_(w.expand_as(v)), None)[1],
    "element": lambda v, x, w: v.__setitem__(0, w),
    "part": lambda v, x, w: (v[:1].mul_(w), None)[1],
    "data": lambda v, x, w: (v.data.mul_(2), None)[1],
    "out=": lambda v, x, w: (torch.add(v.detach(), 1, out=v), None)[1],
    "written, then a product": lambda v, x, w: (v.add_(1), v * w)[1],
    "input written": lambda v, x, w: (x.add_(1), None)[1],
    "input written with a history": lambda v, x, w: (x.mul_(w), None)[1],
    "requires_grad_": lambda v, x, w: (v.requires_grad_(), None)[1],
    "detach_": lambda v, x, w: (v.detach_(), None)[1],
    "backward": lambda v, x, w: (v * w).sum().backward() if (v * w).requires_grad else None,
}


def _in(mode: Callable[[], Any], make: Callable[[], torch.Tensor]) -> torch.Tensor:
    with mode():
        return make()


GIVEN: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(4),
    "leaf": lambda: torch.ones(4).requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(4)),
    "result": lambda: torch.ones(4).requires_grad_() * 2,
    "view": lambda: torch.ones(5)[1:],
    "view without gradients": lambda: _in(torch.no_grad, lambda: torch.ones(5).requires_grad_()[1:]),
    "inference": lambda: _in(torch.inference_mode, lambda: torch.ones(4)),
}  # fmt: skip


def is_open(used: str, given: str, called: str) -> bool:
    """What is known to differ."""
    if used == "backward" and given == "view without gradients":
        return True  # nothing flows to it, so that its nodes do not miss what a pass has let go of: ours do
    # Within inference mode, outside of it again: a write with a history to a view of a view is not refused, nor is `detach_` of a view.
    return called == "inference" and used in ("part", "element", "detach_")


def program(choose: random.Random) -> tuple[str, Callable[[torch.Tensor], Any]]:
    around, making, using = (MODES[choose.choice([*MODES])] for _ in range(3))
    made, used = choose.choice([*MADE]), choose.choice([*USED])
    make, use = MADE[made], USED[used]
    # Where the graph breaks: before the tensor is made, where that is behind the first mode or inside of it; and behind it.
    first, second = choose.choice(("none", "inside", "before")), choose.random() < 0.5

    def fn(x: torch.Tensor) -> Any:
        if first == "before":
            with around():
                frameloom.graph_break()
            with making():
                v, other = make(x), x.detach() * 3
        else:
            with around():
                if first == "inside":
                    frameloom.graph_break()
                with making():
                    v, other = make(x), x.detach() * 3
        facts = v.requires_grad, v.is_leaf, v.is_inference()
        if second:
            frameloom.graph_break()
        w = torch.ones(()).requires_grad_()
        with using():
            result = use(v, x, w)
        return v, facts, other, result, w

    return f"{made}, {used}", fn


def gradient(leaf: torch.Tensor) -> Any:
    try:
        return leaf.grad if leaf.is_leaf else None
    except RuntimeError as error:
        return str(error)


def seen(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        try:
            facts = item.requires_grad, item.is_leaf, item.is_inference(), item.stride()
        except RuntimeError as error:  # a view whose base was written in another mode
            return str(error)
        return type(item).__name__, item.tolist(), *facts
    return [seen(i) for i in item] if isinstance(item, tuple | list) else item


def outcome(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> list[Any]:
    try:
        found = fn(x)
    except RuntimeError as error:
        return [str(error), seen(x)]
    v, w = found[0], found[-1]
    told = [seen(found), seen(x), v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()]
    for use in (lambda: v.sum().backward(), lambda: v.add_(torch.ones(()).requires_grad_())):
        try:
            use()
        except RuntimeError as error:
            told.append(str(error))
        told.append(seen([v, x, gradient(x), w.grad]))
    return told


def _called(
    mode: str, fn: Callable[[torch.Tensor], Any], make: Callable[[], torch.Tensor]
) -> list[Any]:
    with torch.enable_grad():
        x = make()
        with MODES[mode]():
            return outcome(fn, x)


def sweep_modes(seed: int = 0, count: int = 2_000) -> Iterator[tuple[str, str]]:
    """The programs that differ, each with the number that draws it again."""
    for number in range(count):
        choose = random.Random(f"{seed} {number}")
        name, fn = program(choose)
        given, backend = choose.choice([*GIVEN]), choose.choice(("frameloom", "eager"))
        called = choose.choice([*MODES])
        if is_open(name.partition(", ")[2], given, called):
            continue
        jitted = frameloom.jit(fn, backend=backend)
        plain = _called(called, fn, GIVEN[given])
        for call in range(CALLS):
            ours = _called(called, jitted, GIVEN[given])
            if repr(plain) != repr(ours):
                yield (
                    f"{name}, {given}, called in {called}, {backend}: {seed} {number}, call {call}",
                    f"{plain} and {ours}"[:600],
                )
                break
        if number % 100 == 0:
            frameloom.reset()
