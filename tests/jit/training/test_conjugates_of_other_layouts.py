"""What is conjugated or negated lazily keeps that where gradients come in another layout than in the recording."""

import pytest
import torch

from frameloom import jit

pytestmark = pytest.mark.filterwarnings("ignore")  # of `triangular_solve`, which is old

FUNCTIONS = {
    "solve": lambda b, a: torch.triangular_solve(b, a)[0],
    "product": lambda b, a: a @ b,
    "pointwise": lambda b, a: (b * b).conj() * a.sum(),
    "parts": lambda b, a: (a @ b).conj().imag * (a @ b).real,
}
TANGENTS = {
    "plain": lambda t: t.contiguous(),
    "transposed": lambda t: t.t().contiguous().t(),
    "with gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    "wide": lambda t: t.clone().as_strided(t.shape, (t.shape[1], 7 if t.shape[1] == 1 else 1)),
}


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name, gaps, width):
    function = FUNCTIONS[name]
    a = torch.randn(4, 4, dtype=torch.cfloat).triu() + 3 * torch.eye(4)
    if gaps:
        a = torch.stack([a, a], -1)[..., 0]
    b = torch.randn(4, width, dtype=torch.cfloat)
    jitted = jit(function)
    for tangent in TANGENTS.values():
        found = []
        for fn in (jitted, function):
            leaves = [x.detach().requires_grad_() for x in (b, a)]
            y = fn(*leaves)
            torch.manual_seed(1)
            found.append(torch.autograd.grad(y, leaves, tangent(torch.randn_like(y))))
        torch.testing.assert_close(found[0], found[1])
