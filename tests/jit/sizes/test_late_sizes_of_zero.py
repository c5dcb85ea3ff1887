"""Reductions over as many elements as data decides, none among them."""

import pytest
import torch
from torch import tensor

import frameloom

XS = [tensor([1.0, 0, 2]), torch.zeros(3), tensor([0.0, 0, 3]), torch.ones(4)]
SIZED = {
    "masked": lambda x: x[x > 0],
    "positions": lambda x: torch.arange(x.nonzero().shape[0]),
    "constants": lambda x: torch.ones_like(x[x > 0]),
    "rows": lambda x: torch.arange(x.nonzero().shape[0])[None] <= torch.arange(5)[:, None],
    "a number": lambda x: torch.ones(int((x > 0).sum())),
}
REDUCED = {
    "any": lambda t: (t >= 0).any(-1),
    "all": lambda t: (t < 0).all(-1),
    "any of all": lambda t: torch.ones_like(t, dtype=torch.bool).any(),
    "all of all": lambda t: torch.zeros_like(t, dtype=torch.bool).all(),
    "at an end": lambda t: (torch.arange(t.shape[-1]) == 0).any(),
    "sum": lambda t: t.sum(-1),
    "sum of constants": lambda t: torch.full_like(t, 2).sum(),
    "prod": lambda t: torch.full_like(t, 2).prod(-1),
    "mean": lambda t: t.double().mean(),
    "max": lambda t: t.max(),
    "amax": lambda t: t.amax(-1),
    "max of constants": lambda t: torch.full_like(t, 3).amax(-1),
    "argmax": lambda t: torch.ones_like(t).argmax(),
    "aminmax": lambda t: t.aminmax(),
    "norm": lambda t: torch.linalg.vector_norm(t.float(), float("inf"), dim=-1),
    "logsumexp": lambda t: t.double().logsumexp(-1),
    "cumsum": lambda t: t.cumsum(-1),
}


def outcomes(fn):
    found = []
    for x in XS:
        try:
            found.append(fn(x.to(torch.get_default_device(), copy=True)))
        except (RuntimeError, IndexError) as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.parametrize("reduced", REDUCED.values(), ids=REDUCED)
@pytest.mark.parametrize("sized", SIZED.values(), ids=SIZED)
def test_reductions(sized, reduced):
    def program(x):
        return reduced(sized(x))

    for wanted, found in zip(outcomes(program), outcomes(frameloom.jit(program)), strict=True):
        if isinstance(wanted, str):
            assert found == wanted
        else:
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0, equal_nan=True)


def test_a_part_that_is_empty():
    """However many elements there are: no loop goes over it."""
    shapes = []

    def backend(module, examples):
        shapes.extend(tuple(n.meta["val"].shape) for n in module.graph.nodes if "fill" in n.name)
        return module.forward

    def program(x):
        y = x[x > 0]
        y[3:2] = 0
        return y

    x = torch.ones(4)
    assert torch.equal(frameloom.jit(program, backend=backend)(x), program(x))
    assert shapes == [(0,)]


LAID_OUT = {
    "indexed": lambda x, m: x[m],
    "computed": lambda x, m: x[m] * 2,
    "compared": lambda x, m: (x[m] > 0, x[m][0:0]),
    "a dimension more": lambda x, m: x[m].unsqueeze(1) + 1,
    "transposed": lambda x, m: x[m].transpose(0, -1) * 2,
    "contiguous": lambda x, m: x[m].transpose(0, -1).contiguous(),
    "at positions": lambda x, m: x[m.nonzero()[:, 0]],
    "positions": lambda x, m: m.nonzero() * 2,
    "two masks": lambda x, m: x[None][:, m] + x[m.nonzero()[:, 0]],
    "a dimension between": lambda x, m: x.permute(2, 1, 0)[..., m] + 1,
    "different rows": lambda x, m: torch.unique(x[:, :, 0], dim=0)[:, None] * 2,
    "repeated": lambda x, m: torch.ones(1, int(m.sum()), 1) * x[m][:, :1, :1].mT,
    "a gradient's strides": lambda x, m: torch.autograd.grad((x[m] * x[m]).sum(0).sum(), x)[0],
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", LAID_OUT.values(), ids=LAID_OUT)
def test_strides_where_data_decides_that_there_are_none_or_one(program, dynamic):
    """PyTorch orders a dimension of size 0 behind one of size 1, and one of 1 not at all."""
    jitted = frameloom.jit(program, dynamic=dynamic)
    for shape in [(3, 3, 1), (3, 3, 2), (3, 1, 1), (1, 1, 1), (3, 1, 2)]:
        for selected in (2, 0, 1):
            x, mask = torch.ones(shape, requires_grad=True), torch.arange(shape[0]) < selected
            wanted, found = program(x, mask), jitted(x, mask)
            several = isinstance(wanted, tuple)
            for a, b in zip(*((wanted, found) if several else ([wanted], [found])), strict=True):
                assert (b.shape, b.stride()) == (a.shape, a.stride()), (shape, selected)


def test_none_is_no_case_of_its_own_where_layouts_are_the_same():
    """Code that may start anew behind a size of 0 breaks at the op, where a backend runs the graph."""
    graphs = []

    def backend(module, examples):
        graphs.append(module)
        return module.forward

    def program(x, mask):
        kept = x[mask]
        return kept * 2, kept[:, :2].exp(), torch.cat([kept, kept[:, :1]], 1)

    jitted = frameloom.jit(program, backend=backend)
    for selected in (2, 0, 1):
        x, mask = torch.ones(3, 4), torch.arange(3) < selected
        for a, b in zip(program(x, mask), jitted(x, mask), strict=True):
            assert (b.shape, b.stride()) == (a.shape, a.stride())
    assert len(graphs) == 1


def test_a_product_of_as_many_rows_as_have_to_be_one():
    """Its memory is there before the call knows how many there are."""

    def program(x, mask):
        rows = x[mask, ..., :1]
        return (rows @ torch.ones(1, 1)).cumsum(-1) * (rows + rows)

    x, mask = torch.ones(1, 1, requires_grad=True), torch.tensor([True])
    jitted = frameloom.jit(program, dynamic=True)
    assert torch.equal(jitted(x, mask), program(x, mask))


def test_an_extent_that_has_to_be_zero():
    """It stays a formula where no symbol gives way to the number."""

    def program(x, counts):
        found = torch.arange(int(counts.sum()) % 7)
        return found + x.new_zeros(2, 0, dtype=torch.int64), found * 2

    jitted = frameloom.jit(program)
    for n in (7, 14, 0, 3, 1):
        try:
            wanted = program(torch.ones(2), tensor([n]))
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                jitted(torch.ones(2), tensor([n]))
            assert str(raised.value) == str(error)
        else:
            for a, b in zip(wanted, jitted(torch.ones(2), tensor([n])), strict=True):
                assert (b.shape, b.stride()) == (a.shape, a.stride())


def test_strides_beside_a_position_that_data_decides():
    """No call has all of the numbers that sizes are first thought to be."""

    def program(x, mask, start):
        rest = x[mask].mT[..., int(start) :]
        return x[mask][:1], rest

    jitted = frameloom.jit(program, dynamic=False)
    for selected in (True, False):
        given = torch.ones(1, 3, 1), tensor([selected]), tensor(0)
        for a, b in zip(program(*given), jitted(*given), strict=True):
            assert (b.shape, b.stride()) == (a.shape, a.stride())
