"""A small GPT learns the standard library's own sources, letter by letter, plain and jitted side by side.

python examples/train_char_lm.py [--steps 60]
"""

import argparse
import copy
import string
import textwrap
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import frameloom

LENGTH, WIDTH, HEADS = 64, 64, 4
LETTERS = sorted({c for c in string.printable})


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            self.attend(self.before(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.think(self.behind(x))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.next = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, text):
        x = self.letters(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.next(self.norm(x))


def sources():
    """Texts of the standard library as numbers of letters."""
    folder = Path(textwrap.__file__).parent
    names = ("textwrap", "bisect", "heapq", "shlex", "string", "copy", "types")
    files = [folder / f"{name}.py" for name in names]
    text = "".join(f.read_text(encoding="utf-8") for f in files if f.exists())
    number = {c: k for k, c in enumerate(LETTERS)}
    return torch.tensor([number[c] for c in text if c in number])


def train(model, text, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    torch.manual_seed(1)
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        places = torch.randint(len(text) - LENGTH - 1, (16, 1)) + torch.arange(LENGTH + 1)
        batch = text[places]
        optimizer.zero_grad()
        guesses = model(batch[:, :-1])
        loss = F.cross_entropy(guesses.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def write(model, length):
    """What the model goes on with behind "def "."""
    model.eval()
    text = [LETTERS.index(c) for c in "\ndef "]
    with torch.no_grad():
        for _ in range(length):
            padded = torch.zeros(1, LENGTH, dtype=torch.long)
            recent = text[-LENGTH:]
            padded[0, : len(recent)] = torch.tensor(recent)
            text.append(int(model(padded)[0, len(recent) - 1].argmax()))
    return "".join(LETTERS[k] for k in text).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    text = sources()
    torch.manual_seed(0)
    plain = Writer()
    jitted = frameloom.jit(copy.deepcopy(plain))
    curves = {}
    for name, model in (("plain", plain), ("jitted", jitted)):
        curves[name], seconds = train(model, text, steps)
        print(
            f"{name:6}  loss {curves[name][0]:.3f} -> {curves[name][-1]:.3f}, best step {min(seconds) * 1e3:.1f} ms, first {seconds[0]:.2f} s"
        )
    apart = max(abs(a - b) / abs(a) for a, b in zip(curves["plain"], curves["jitted"], strict=True))
    print(f"largest relative difference of two losses: {apart:.1e}")
    print("same curve:", apart < 1e-4, "over", steps, "steps")
    print("it writes:", repr(write(jitted, 30)))


if __name__ == "__main__":
    main()
