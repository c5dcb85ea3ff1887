"""A small convolution net learns scikit-learn's digits, plain and jitted side by side: the same losses, step by step.

    python examples/train_digits.py [--epochs 3] [--plot digits.png]

Needs scikit-learn (its images are in the package); the plot needs matplotlib and is left out without it.
"""

import argparse
import copy
import importlib.util
import time

import torch
import torch.nn.functional as F
from torch import nn

import frameloom


class Net(nn.Module):
    # Smooth all through: where a ReLU has its kink, the last bit of a sum may decide, and float32 and float64 part after 100 steps, too.
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.GELU(),
        )
        self.classes = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images):
        features = F.dropout(self.features(images).flatten(1), 0.2, self.training)
        return self.classes(features)


def load():
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    return images, torch.tensor(digits.target)


def train(model, images, labels, epochs):
    """The loss of every step, and seconds per epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1)  # the same order and the same dropout for both
    losses, seconds = [], []
    for _ in range(epochs):
        start = time.perf_counter()
        order = torch.randperm(1500)
        for part in order.split(128):  # the last one has 92
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[part]), labels[part])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def plot(path, curves):
    if importlib.util.find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for name, losses in curves.items():
        plt.plot(losses, label=name, linestyle="-" if name == "plain" else "--")
    plt.xlabel("step")
    plt.ylabel("loss")
    plt.legend()
    plt.savefig(path)
    print("curves in", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--plot", default="")
    options = parser.parse_args()
    images, labels = load()
    torch.manual_seed(0)
    plain = Net()
    jitted = frameloom.jit(copy.deepcopy(plain))
    curves = {}
    for name, model in (("plain", plain), ("jitted", jitted)):
        curves[name], seconds = train(model, images, labels, options.epochs)
        right = accuracy(model, images[1500:], labels[1500:])
        times = ", ".join(f"{s:.2f}" for s in seconds)
        print(
            f"{name:6}  last loss {curves[name][-1]:.4f}, right {right:.1%}, seconds per epoch {times}"
        )
    apart = max(abs(a - b) / abs(a) for a, b in zip(curves["plain"], curves["jitted"], strict=True))
    print(f"largest relative difference of two losses: {apart:.1e}")
    print("same curve:", apart < 1e-4, "over", len(curves["plain"]), "steps")
    if options.plot:
        plot(options.plot, curves)


if __name__ == "__main__":
    main()
