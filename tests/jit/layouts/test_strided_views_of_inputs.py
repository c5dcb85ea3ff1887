"""`as_strided` counts from the start of the memory, wherever the input that it leads to starts: in plans, and where PyTorch runs the graph."""

import pytest
import torch

from frameloom import jit
from tests.jit.gradients.training import caught

PARENTS = {
    "itself": lambda z: z,
    "element": lambda z: z[1],
    "slice": lambda z: z[1:],
    "view": lambda z: z.view(1, -1),
    "detached": lambda z: z.detach(),
    "result": lambda z: (z + 1)[1:],
}
WAYS = {
    "read": lambda v: v + 1,
    "written": lambda v: (v.add_(1), None)[1],
    "returned": lambda v: (v.storage_offset(), v),
}


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}, {"backend": lambda gm, _: gm}])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("parent", PARENTS.values(), ids=PARENTS)
def test_elements_are_those_of_eager(parent, way, options):
    for offset in ((), (0,), (1,), (3,)):
        for size, stride in (((2,), (1,)), ((), ())):

            def fn(z):
                return way(parent(z).as_strided(size, stride, *offset))

            for start in (0, 2):
                seen = []
                for side in (jit(fn, **options), fn):
                    memory = torch.arange(9.0) * 100
                    seen.append(str((caught(side, memory[start : start + 3]), memory)))
                assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "use", [lambda x: x[:], torch.t, lambda x: x * 1, lambda x: x.unfold(0, 2, 1)]
)
def test_what_was_written_through_a_view_with_another_stride_of_a_size_of_1(use):
    def fn(x):
        view = x.as_strided((2, 1), (1, 2), 0)
        view += 1
        return use(x)

    x = torch.zeros(2, 1)
    found, wanted = jit(fn)(x), fn(x.clone())
    assert (found.stride(), x.tolist()) == (wanted.stride(), [[1], [1]])
