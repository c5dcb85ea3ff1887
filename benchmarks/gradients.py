"""The CPU's time for one jitted call with gradients and its backward pass, on tensors so small that kernels cost next to nothing.

    python -m benchmarks.gradients [--calls 2000]

Per number of inputs, in microseconds, the best of several rounds, forward and backward apart: eager; what no call with gradients can do
without, by PyTorch itself (an autograd Function that does nothing, and eager's own backward pass of one op with as many inputs);
jitted without and with gradients, and what that takes beyond the empty Function.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import frameloom


def total(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    result = tensors[0].tanh()
    for t in tensors[1:]:
        result = result * t
    return result


class Empty(torch.autograd.Function):
    """One node that makes one result, and gives every input the same gradient."""

    @staticmethod
    def forward(context: Any, gradients: tuple[Any, ...], *inputs: Any) -> Any:
        context.gradients = gradients
        return torch.empty(4)

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        return None, *context.gradients


# As jitted calls do: without the Python function around it.
empty = torch._C._FunctionBase.__dict__["apply"].__get__(None, Empty)


def best(fn: Callable[[], Any], calls: int, rounds: int = 7) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            fn()
        times.append((time.process_time() - start) / calls)
    return min(times) * 1e6


def best_backward(
    forward: Callable[[], Any], inputs: tuple[Any, ...], given: Any, calls: int
) -> float:
    """`forward` beforehand, so that only the pass is timed."""
    times = []
    for _ in range(7):
        outputs = [forward() for _ in range(calls)]
        start = time.process_time()
        for out in outputs:
            torch.autograd.grad(out, inputs, given)
        times.append((time.process_time() - start) / calls)
    return min(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    calls = parser.parse_args().calls
    torch.set_num_threads(1)
    print(
        "inputs   eager: forward  backward  (of cat)   empty: forward  backward   without gradients   jitted: forward  backward"
        "   beyond empty: forward  backward"
    )
    for count in (1, 2, 5, 10, 50, 200):
        inputs = tuple(torch.randn(4, requires_grad=True) for _ in range(count))
        given, gradients = torch.ones(4), (torch.ones(4),) * count
        wide = torch.ones(4 * count)
        f = frameloom.jit(lambda *tensors: total(tensors))
        with torch.no_grad():
            f(*inputs)
            bare = best(lambda: f(*inputs), calls)
        torch.autograd.grad(f(*inputs), inputs, given)
        figures = [
            best(lambda: total(inputs), calls // 4),
            best_backward(lambda: total(inputs), inputs, given, calls // 4),
            best_backward(lambda: torch.cat(inputs), inputs, wide, calls // 4),
            best(lambda: empty(gradients, *inputs), calls),
            best_backward(lambda: empty(gradients, *inputs), inputs, given, calls // 4),
            bare,
            best(lambda: f(*inputs), calls),
            best_backward(lambda: f(*inputs), inputs, given, calls // 4),
        ]
        figures += [figures[6] - figures[3], figures[7] - figures[4]]
        print(
            "{:6}   {:14.1f}  {:8.1f}  {:8.1f}   {:14.1f}  {:8.1f}   {:17.1f}   {:15.1f}  {:8.1f}   {:21.1f}  {:8.1f}".format(
                count, *figures
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
