"""One function called with tensors of drawn sizes and layouts, one after the other: what the first calls assume of how an argument lies must not hold for the next.

`sweep_layouts(seed, count)` tells which calls differ from eager: in values, strides, or in which memory the result has a part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

import frameloom
from tests.fuzz.interpret import interpreted

CALLS = 6  # of one compiled function
FORMAT = {4: torch.channels_last, 5: torch.channels_last_3d}


def gradient(x: torch.Tensor) -> Any:
    leaf = x.detach().requires_grad_()
    leaf.sum().backward()
    return leaf.grad


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "contiguous": lambda x: x.contiguous(),
    "contiguous, written": lambda x: x.contiguous().mul_(3) if 0 not in x.stride() else x.contiguous(),
    "channels-last": lambda x: x.contiguous(memory_format=FORMAT.get(x.dim(), torch.contiguous_format)),
    "to channels-last": lambda x: x.to(memory_format=FORMAT.get(x.dim(), torch.contiguous_format)),
    "reshape": lambda x: x.reshape(-1),
    "reshape of rows": lambda x: x.reshape(x.shape[0], -1),
    "reshape of pairs": lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]),
    "reshape and back": lambda x: x.reshape(1, *x.shape).squeeze(0),
    "flatten": lambda x: x.flatten(0, -1),
    "flatten of the last": lambda x: x.flatten(-2),
    "view": lambda x: x.view(-1) if x.is_contiguous() else x,
    "clone": lambda x: x.clone(),
    "zeros_like": lambda x: torch.zeros_like(x),
    "product": lambda x: x * 2,
    "sum with its transpose": lambda x: x + x.mT.contiguous().mT,
    "sum": lambda x: x.sum(0),
    "sum kept": lambda x: x.sum(-1, keepdim=True),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x], -1),
    "where": lambda x: torch.where(x > 2, x, 0),
    "unsqueeze": lambda x: x.unsqueeze(0).contiguous(),
    "squeeze": lambda x: x.squeeze().contiguous(),
    "transpose": lambda x: x.mT.contiguous(),
    "what is said": lambda x: (x.is_contiguous(), x.mT.is_contiguous(), x.stride()),
    "cast": lambda x: x.half(),
    "sort": lambda x: x.sort(0)[0],
    "flip": lambda x: x.flip(0),
    "tril": lambda x: x.tril(),
    "expand": lambda x: x.expand(2, *x.shape).reshape(-1, *x.shape[1:]),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 0)),
    "select": lambda x: x[0].contiguous(),
    "narrow": lambda x: x[1:].contiguous(),
    "narrow of the second": lambda x: x[:, 1:].reshape(-1),
    "chunk": lambda x: x.chunk(2)[0].contiguous(),
    "gradient": gradient,
    "of the transpose: reshape": lambda x: x.mT.reshape(x.shape[-1], -1),
    "of the transpose: flatten": lambda x: x.mT.flatten(),
    "of the transpose: stack": lambda x: torch.stack([x.mT, x.mT]),
    "of the transpose: reshape, then view": lambda x: x.mT.reshape(-1).view(x.shape[-1], -1),
    "permute": lambda x: x.permute(*range(x.dim() - 1, -1, -1)).contiguous(),
    "movedim": lambda x: x.movedim(0, -1).reshape(-1),
    "unflatten": lambda x: x.reshape(-1).unflatten(0, (x.shape[0], -1)),
    "unbind": lambda x: x.unbind(1)[0].contiguous(),
    "split": lambda x: x.split(1)[-1].reshape(-1),
    "expand_as": lambda x: x[:1].expand_as(x).contiguous(),
    "detach": lambda x: x.detach().reshape(-1),
    "data": lambda x: x.data.contiguous(),
    "einsum": lambda x: torch.einsum("...ij->...ji", x).contiguous(),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "amax": lambda x: x.amax(0),
    "cummax": lambda x: x.cummax(0)[0],
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.long)),
    "index": lambda x: x[:, torch.tensor([0])],
    "diagonal": lambda x: x.diagonal().contiguous(),
    "bits": lambda x: x.contiguous().view(torch.int32),
    "whether it is one object": lambda x: [x is y for y in (x.contiguous(), x.reshape(x.shape), x.to(torch.float32), x.flatten(0, 0))],
}  # fmt: skip
WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "transpose": lambda x: x.mT.add_(1),
    "steps": lambda x: x[..., ::2].mul_(2),
    "reshape": lambda x: x.reshape(-1)[1:].zero_(),
    "flatten": lambda x: x.flatten().add_(1),
    "a row's reshape": lambda x: x[0].reshape(-1).add_(1),
    "diagonal": lambda x: x.diagonal().add_(1),
    "unfold": lambda x: x.unfold(0, 1, 1).mul_(2),
    "squeeze_": lambda x: x.squeeze_().add_(1),
    "unsqueeze_": lambda x: x.unsqueeze_(0).mul_(2),
    "transpose_": lambda x: x.transpose_(0, 1),
    "copy_": lambda x: x.copy_(x.flip(0)),
    "copy_ of a row": lambda x: x[0].copy_(x[-1]),
    "cumsum_": lambda x: x.cumsum_(0),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, 0),
    "index_put_": lambda x: x.index_put_((torch.tensor([0]),), torch.tensor(5.0)),
    "tril_": lambda x: x.tril_(),
    "assignment": lambda x: x.__setitem__(slice(1, None), x[:-1].clone()),
    "chunk": lambda x: x.chunk(2)[0].add_(3),
    "as_strided": lambda x: x.as_strided((1,), (1,)).add_(1),
}


def writing(write: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    def fn(x: torch.Tensor) -> Any:
        if 0 in x.stride():
            return x.sum()
        write(x)
        return x

    return fn


FUNCTIONS |= {f"{name}, written": writing(write) for name, write in WRITES.items()}


def drawn(choose: random.Random, rank: int) -> torch.Tensor:
    shape = [choose.choice((1, 2, 3, 4, 4, 5)) for _ in range(rank)]
    d = choose.randrange(rank)
    kind = choose.choice(("plain", "permuted", "stepped", "part", "expanded", "behind others"))
    if kind == "permuted":
        order = choose.sample(range(rank), rank)
        back = [order.index(k) for k in range(rank)]
        return numbers([shape[k] for k in order]).permute(back)
    if kind == "stepped":
        return numbers([2 * n if k == d else n for k, n in enumerate(shape)]).unflatten(
            d, (shape[d], 2)
        ).select(d + 1, 0)  # fmt: skip
    if kind == "part":
        whole = numbers([n + (k == d) for k, n in enumerate(shape)])
        return whole.narrow(d, choose.choice((0, 1)), shape[d])
    if kind == "expanded":
        return numbers([1 if k == d else n for k, n in enumerate(shape)]).expand(shape)
    if kind == "behind others":
        return numbers([torch.Size(shape).numel() + 3])[3:].view(shape)
    return numbers(shape)


def numbers(shape: list[int]) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def outcome(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    before = x._version
    try:
        found = fn(x)
    except RuntimeError as error:
        return str(error)
    if not isinstance(found, torch.Tensor):
        return found
    shares = found.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    place = found.storage_offset() if shares else None
    lies = found is x, place, found.shape, found.stride()
    return *lies, x._version - before, x.tolist(), found.tolist()


def sweep_layouts(seed: int = 0, count: int = 1_000) -> Iterator[tuple[str, str]]:
    """The calls that differ, each with the number that draws it again."""
    with interpreted(), torch.enable_grad():
        for number in range(count):
            choose = random.Random(f"{seed} {number}")
            name, rank = choose.choice([*FUNCTIONS]), choose.choice((2, 2, 3, 3, 4))
            fn, dynamic = FUNCTIONS[name], choose.choice((True, None))
            backend = choose.choice(("frameloom", "frameloom", "eager"))
            jitted = frameloom.jit(fn, dynamic=dynamic, backend=backend)
            for k in range(CALLS):
                plain, ours = (
                    outcome(side, drawn(random.Random(f"{seed} {number} {k}"), rank))
                    for side in (fn, jitted)
                )
                if repr(plain) != repr(ours):
                    yield f"{name}, {seed} {number}, call {k}", f"{plain} and {ours}"[:400]
                    break
            if number % 100 == 0:
                frameloom.reset()
