"""Every stage of one small function, printed: bytecode, graph, loops before and after fusion, C++, result."""

import dis

import torch
import torch.nn.functional as F

import frameloom


def scores(x, bias):
    """A biased softmax: five ATen-level steps that become one kernel."""
    return F.softmax((x + bias) * 0.5, dim=-1)


def title(text: str) -> None:
    print(f"\n==== {text} " + "=" * (90 - len(text)))


def main() -> None:
    x, bias = torch.randn(8, 64), torch.randn(64)

    title("1. the function's bytecode, which capture interprets on fake tensors")
    dis.dis(scores)

    with torch.no_grad():
        report = frameloom.explain(scores)(x, bias)
    graph = report.graphs[0]

    title("2. the captured ATen graph")
    print(graph.gm.graph)

    title("3. guards: when this result may be used again")
    print("\n".join(report.guards))

    title("4. loops, one kernel per op")
    print(graph.loops_before)

    title("5. loops after fusion: one kernel, nothing stored in between")
    print(graph.loops_after)

    title("6. the C++ that runs")
    for kernel in graph.kernels:
        print(kernel.source)

    title("7. the result")
    torch.testing.assert_close(report.result, scores(x, bias))
    print(
        "equal to the plain call;",
        ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in report.seconds.items()),
    )


if __name__ == "__main__":
    main()
