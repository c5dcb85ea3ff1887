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
