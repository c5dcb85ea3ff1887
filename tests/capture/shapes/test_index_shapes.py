"""Strides of results of indexing, as inferred and as eager has them."""

import random

import torch

from frameloom.capture.shapes.registry import infer
from tests.capture.capturing import captured

INDEX = torch.ops.aten.index.Tensor


def shuffled(rng, shape, dtype):
    order = list(range(len(shape)))
    rng.shuffle(order)
    return torch.zeros([shape[d] for d in order], dtype=dtype).permute(
        [order.index(d) for d in range(len(shape))]
    )


def some_indexing(rng):
    x = shuffled(rng, [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(1, 4))], torch.float32)
    if rng.random() < 0.3:
        x = x[..., ::2]
    common = [rng.choice([1, 2, 3]) for _ in range(rng.randint(0, 3))]
    indices = []
    for _ in range(rng.randint(1, x.dim())):
        shape = [n if rng.random() < 0.7 else 1 for n in common][rng.random() < 0.2 :]
        indices.append(None if rng.random() < 0.3 else shuffled(rng, shape, torch.int64))
    return x, indices


def test_strides_of_indexed_tensors():
    rng = random.Random(1)
    compared = 0
    while compared < 400:
        x, indices = some_indexing(rng)
        if all(t is None for t in indices):
            continue
        want = INDEX(x, indices)
        found = infer(INDEX, (x.to("meta"), [t if t is None else t.to("meta") for t in indices]), {})  # fmt: skip
        assert (found.shape, found.stride()) == (want.shape, want.stride()), (x.stride(), indices)
        compared += 1


def test_indexing_by_what_is_permuted():
    a = torch.arange(6.0).reshape(2, 3).remainder(2)
    captured(lambda a: (a[a.long()], a[:, a.long()[0]], a[a.long(), a.long()]), a.t(), breaks=0)
