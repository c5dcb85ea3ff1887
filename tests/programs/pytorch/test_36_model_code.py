"""Pieces of code as model libraries write them: rearranging, masks, caches, rotary positions, routing, sampling, training-free loops.

PYTEST_DONT_REWRITE
"""

import functools
import math
import re
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.program import X, program

T = torch.linspace(-1, 1, 2 * 4 * 8).reshape(2, 4, 8)


def parse(side):
    groups, current = [], None
    for token in (
        re.findall(r"\w+|\(|\)", side)
        if False
        else side.replace("(", " ( ").replace(")", " ) ").split()
    ):
        if token == "(":
            current = []
        elif token == ")":
            groups.append(tuple(current))
            current = None
        elif current is None:
            groups.append((token,))
        else:
            current.append(token)
    return groups


def rearrange(x, pattern, **sizes):
    left, right = (parse(side) for side in pattern.split("->"))
    names, shape = [], []
    for size, group in zip(x.shape, left):
        known = math.prod(sizes[n] for n in group if n in sizes)
        for name in group:
            sizes.setdefault(name, size // known)
            names.append(name)
            shape.append(sizes[name])
    order = [n for group in right for n in group]
    y = x.reshape(shape).permute([names.index(n) for n in order])
    return y.reshape([math.prod(sizes[n] for n in group) for group in right])


@program(args=(T,))
def rearranged_by_a_pattern(x):
    return rearrange(x, "b t (h d) -> b h t d", h=2) * 2, rearrange(x, "b t c -> (b t) c") + 1


@functools.lru_cache(maxsize=8)
def recipe(pattern):
    return tuple(part.strip() for part in pattern.split("->"))


@program(args=(T,))
def pattern_from_a_cache(x):
    left, right = recipe("b t c -> c t b")
    order = [left.split().index(name) for name in right.split()]
    return x.permute(order) + 1


@program(args=(T,))
def einsum_forms(x):
    return (
        torch.einsum("btc,bsc->bts", x, x),
        torch.einsum("btc->bc", x),
        torch.einsum("b t c, c -> b t", x, x[0, 0]),
    )


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Rotary(nn.Module):
    def __init__(self, dim, base=10000):
        super().__init__()
        self.register_buffer(
            "inv_freq", 1.0 / base ** (torch.arange(0, dim, 2).float() / dim), persistent=False
        )
        self.cos_cached = None

    def forward(self, x):
        if self.cos_cached is None or self.cos_cached.shape[0] < x.shape[1]:
            t = torch.arange(x.shape[1], dtype=self.inv_freq.dtype)
            freqs = torch.outer(t, self.inv_freq)
            emb = torch.cat((freqs, freqs), dim=-1)
            self.cos_cached, self.sin_cached = emb.cos(), emb.sin()
        cos, sin = self.cos_cached[: x.shape[1]], self.sin_cached[: x.shape[1]]
        return x * cos + rotate_half(x) * sin


@program(args=lambda: (Rotary(8), T))
def rotary_positions(rotary, x):
    return rotary(x), rotary(x + 1), rotary.cos_cached


@program(args=(T,))
def causal_mask(x):
    n = x.shape[1]
    mask = torch.full((n, n), float("-inf")).triu(1)
    scores = x @ x.transpose(1, 2) / math.sqrt(x.size(-1)) + mask
    return scores.softmax(-1) @ x


class Cache:
    def __init__(self):
        self.keys, self.values = [], []

    def update(self, key, value, layer):
        if len(self.keys) <= layer:
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key], dim=1)
            self.values[layer] = torch.cat([self.values[layer], value], dim=1)
        return self.keys[layer], self.values[layer]

    def __len__(self):
        return self.keys[0].shape[1] if self.keys else 0


@program(args=lambda: (Cache(), T))
def key_value_cache(cache, x):
    for step in range(3):
        k, v = cache.update(x[:, :1] + step, x[:, :1] * step, 0)
    return k.sum(), v, len(cache)


@dataclass
class Output:
    logits: Any = None
    hidden: Any = None

    def to_tuple(self):
        return tuple(v for v in (self.logits, self.hidden) if v is not None)

    def __getitem__(self, key):
        return getattr(self, key) if isinstance(key, str) else self.to_tuple()[key]


@program(args=(T,))
def output_object(x):
    out = Output(logits=x + 1)
    out.hidden = out["logits"] * 2
    return out[0] + out[1], out.to_tuple()[-1], out, len(out.to_tuple())


@program(args=(T,))
def mixture_of_experts_by_masks(x):
    experts = [lambda t: t * 2, lambda t: t + 1, torch.tanh]
    weights, chosen = x[..., :3].softmax(-1).topk(2, dim=-1)
    out = torch.zeros_like(x)
    for i, expert in enumerate(experts):
        mask = (chosen == i).float() * weights
        out = out + expert(x) * mask.sum(-1, keepdim=True)
    return out


@program(args=(T,))
def beam_search_steps(x):
    scores = torch.zeros(2, 2)
    beams = [[(), ()] for _ in range(2)]
    for t in range(3):
        logits = x[:, t].log_softmax(-1)
        total = (scores[:, :, None] + logits[:, None]).flatten(1)
        scores, index = total.topk(2, dim=-1)
        beams = [[(*beam, t) for beam in row] for row in beams]
    return scores, index, beams


@program(args=(T, ["relu", "gelu", None, nn.SiLU()]))
def activation_by_name_or_module(x, names):
    table = {"relu": F.relu, "gelu": functools.partial(F.gelu, approximate="tanh")}
    for name in names:
        if name is None:
            continue
        act = table[name] if isinstance(name, str) else name
        x = act(x)
    return x


class Config:
    def __init__(self, **kwargs):
        self.hidden = kwargs.pop("hidden", 8)
        self.heads = kwargs.pop("heads", 2)
        for key, value in kwargs.items():
            setattr(self, key, value)

    @property
    def head_dim(self):
        return self.hidden // self.heads

    def __getattr__(self, name):
        if name == "dropout":
            return 0.0
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden)
        self.out = nn.Linear(config.hidden, config.hidden)

    def forward(self, x, mask=None, output_attentions=None):
        want = (
            output_attentions
            if output_attentions is not None
            else getattr(self.config, "output_attentions", False)
        )
        b, t, _ = x.shape
        q, k, v = (
            self.qkv(x)
            .view(b, t, 3, self.config.heads, self.config.head_dim)
            .permute(2, 0, 3, 1, 4)
        )
        scores = q @ k.mT * self.config.head_dim**-0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None] == 0, torch.finfo(scores.dtype).min)
        probs = F.dropout(scores.softmax(-1), self.config.dropout, self.training)
        y = self.out((probs @ v).transpose(1, 2).reshape(b, t, -1))
        return (y, probs) if want else (y,)


@program(
    args=lambda: (
        Attention(Config(output_attentions=True)),
        T,
        torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]),
    )
)
def attention_with_a_config(net, x, mask):
    return net(x, mask), net(x, output_attentions=False), hasattr(net.config, "nothing")


@program(args=lambda: (nn.ModuleList(Attention(Config()) for _ in range(3)), T))
def layers_with_all_hidden_states(layers, x):
    states = ()
    for layer in layers:
        states += (x,)
        x = x + layer(x)[0]
    return x, states


@program(args=(T,))
def sinusoidal_positions(x):
    n, d = x.shape[1:]
    position = torch.arange(n).unsqueeze(1)
    div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    pe = torch.zeros(n, d)
    pe[:, 0::2] = torch.sin(position * div)
    pe[:, 1::2] = torch.cos(position * div)
    return x + pe


@program(args=lambda: (torch.ones(3, requires_grad=True), torch.full((3,), 0.5), {}))
def optimizer_step_by_hand(p, g, state):
    if "m" not in state:
        state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
    state["step"] += 1
    state["m"].lerp_(g, 0.1)
    state["v"].mul_(0.999).addcmul_(g, g, value=0.001)
    with torch.no_grad():
        p.addcdiv_(state["m"], state["v"].sqrt().add_(1e-8), value=-0.01)
    return state["step"]


@program(args=(X,))
def tree_of_tensors_mapped(x):
    def tree_map(fn, tree):
        if isinstance(tree, dict):
            return {k: tree_map(fn, v) for k, v in tree.items()}
        if isinstance(tree, list | tuple):
            return type(tree)(tree_map(fn, v) for v in tree)
        return fn(tree) if isinstance(tree, torch.Tensor) else tree

    return tree_map(lambda t: t * 2, {"a": x, "b": [x + 1, (x, 3)], "c": "s"})


@program(args=(T,))
def torch_pytree_used(x):
    from torch.utils import _pytree as pytree

    return pytree.tree_map(lambda t: t + 1, {"a": x, "b": [x, (x,)]}), len(
        pytree.tree_leaves([x, {"k": x}])
    )
