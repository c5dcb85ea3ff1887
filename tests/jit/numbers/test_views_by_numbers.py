"""Views made by ints that vary, where gradients flow: their derivatives are told the ints."""

import pytest
import torch

from tests.jit.gradients.training import facts, same_training

VIEWS = {
    "split": lambda x, n: x.split(n, 1)[0],
    "pieces": lambda x, n: x.split([n, 6 - n], 1)[1],
    "head": lambda x, n: x[:n],
    "tail": lambda x, n: x[n:],
    "column": lambda x, n: x[:, n],
    "narrow": lambda x, n: x.narrow(1, 1, n),
    "select": lambda x, n: x.select(0, n),
    "diagonal": lambda x, n: x.diagonal(n),
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "expand": lambda x, n: x[:1].expand(n, 6),
    "strided": lambda x, n: x.as_strided((n, 2), (6, 1)),
    "step": lambda x, n: x[::n],
    "repeated": lambda x, n: x.broadcast_to(n, *x.shape),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("is_leaf", [True, False])
def test_as_eager(name, is_leaf):
    view = VIEWS[name]

    def program(jit):
        fns = [jit(view), jit(lambda x, n: (view(x, n), x * 2)), jit(lambda x, n: view(x * 2, n) * 3)]  # fmt: skip
        seen = []
        for fn in fns:
            for n in (2, 3, 4, 1):
                x = torch.arange(36.0).view(6, 6).requires_grad_()
                made = fn(x if is_leaf else x * 1, n)
                made = made if isinstance(made, tuple) else (made,)
                sum(t.square().sum() for t in made).backward()
                seen.append((facts(x, *made), [t._is_view() for t in made]))
        return seen

    same_training(program, plain=None)
