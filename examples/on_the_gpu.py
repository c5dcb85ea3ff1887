"""A small network on the GPU: its kernels, and the time of a call, plainly and jitted.  Runs on the CPU where there is no GPU."""

import statistics
import time

import torch
import torch.nn.functional as F

import frameloom

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.gate = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.gate(self.norm(x))))


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def microseconds(call, calls: int = 50) -> float:
    """Of one call, the median of five runs."""
    taken = []
    for _ in range(5):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        taken.append(1e6 * (time.perf_counter() - start) / calls)
    return statistics.median(taken)


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Block(256) for _ in range(4)]).to(DEVICE).eval()
    x = torch.randn(32, 256, device=DEVICE)
    print(f"device: {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'cpu'}")

    with torch.no_grad():
        report = frameloom.explain(model)(x)
        print(f"{len(report.kernels)} kernels; the first one:\n{report.kernels[0].source}")

        ways = {
            "plain": model.forward,
            "jitted": frameloom.jit(model.forward),
            # On a GPU: the launches are recorded once and replayed.  On the CPU the same as above.
            "reduce-overhead": frameloom.jit(model.forward, mode="reduce-overhead"),
        }
        want = model(x)
        for name, call in ways.items():
            for _ in range(3):  # the first call compiles, the third may be a replay
                torch.testing.assert_close(call(x), want, rtol=1e-4, atol=1e-4)
            print(f"{name:16} {microseconds(lambda call=call: call(x)):8.1f} us")
    print("all equal")


if __name__ == "__main__":
    main()
