"""Frameloom in a page: decorate a function, call it, look inside."""

import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit


@jit
def gated(x, gate, weight):
    """Fused into one kernel: the three ops read x and gate once."""
    return F.silu(gate) * x * weight


def noisy(x):
    y = torch.relu(x) + 1
    print("half way")  # must happen in between: the graph breaks here
    return y * 2


def main() -> None:
    x, gate, weight = torch.randn(64, 256), torch.randn(64, 256), torch.randn(256)
    with torch.no_grad():
        result = gated(x, gate, weight)
        print("jitted equals plain:", torch.allclose(result, F.silu(gate) * x * weight, atol=1e-6))

        # A module is compiled in place and stays itself.
        model = torch.nn.Sequential(
            torch.nn.Linear(256, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)
        )
        same = jit(model)
        print("same object:", same is model, "| keys:", sorted(model.state_dict())[:2])
        print("output:", tuple(model(x).shape))

        # What was captured, and why it was split.
        print(frameloom.explain(noisy)(x))
    print("so far:", frameloom.stats())


if __name__ == "__main__":
    main()
