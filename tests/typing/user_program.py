"""A user's file: `make lint` checks its types strictly, with Frameloom's own as `py.typed` offers them."""

from typing import assert_type

import torch

import frameloom
from frameloom import Explanation, cond, disable, explain, graph_break, jit, mark_dynamic


@jit
def decorated(x: torch.Tensor, n: int = 2) -> torch.Tensor:
    return x * n


@jit(fullgraph=True, dynamic=None, mode="default", options={"freezing": True})
def with_options(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    return x + 1, x.dim()


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        graph_break()
        return x.sin()


@disable
def outside(x: torch.Tensor) -> float:
    return float(x.sum())


def use(x: torch.Tensor) -> None:
    assert_type(decorated(x, n=3), torch.Tensor)
    assert_type(with_options(x), tuple[torch.Tensor, int])
    assert_type(jit(Net()), Net)
    assert_type(explain(decorated)(x), Explanation)
    assert_type(frameloom.stats(), dict[str, int])
    mark_dynamic(x, 0)
    cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    frameloom.reset()
