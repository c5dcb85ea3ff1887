"""Functions and modules that are timed side by side, with arguments; `CASES` by name.

Each takes a device and a dtype and returns (callable, arguments).  `seed_*`: short programs as users write them; `k_*`: kernels bound by memory;
`o_*`: calls so small that only overhead counts.  Sizes are larger on a GPU.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def seed_matmul_softmax(dev, dt):
    def simple_fn(x, y):
        z = torch.matmul(x, y)
        return F.softmax(z, dim=1)

    return simple_fn, (torch.randn(100, 100, device=dev), torch.randn(100, 100, device=dev))


def seed_mul_bias_relu_scale(dev, dt):
    def fn(x, w, bias, scale):
        y = x @ w
        y = y + bias
        y = torch.relu(y)
        return y * scale

    n = 4096 if dev == "cuda" else 512
    return fn, (
        torch.randn(n, n, device=dev, dtype=dt),
        torch.randn(n, n, device=dev, dtype=dt),
        torch.randn(n, device=dev, dtype=dt),
        torch.randn(n, device=dev, dtype=dt),
    )


def seed_mul_add_sigmoid(dev, dt):
    def fn(x, y, z):
        return torch.sigmoid(x * y + z)

    n = 2**27 if dev == "cuda" else 2**22
    return fn, tuple(torch.randn(n, device=dev, dtype=dt) for _ in range(3))


def seed_sin_cos_exp_sum(dev, dt):
    def fn(x):
        return torch.exp(torch.cos(torch.sin(x))).sum()

    n = 10000 if dev == "cuda" else 3000
    return fn, (torch.randn(n, n, device=dev),)


def seed_matmul_rowsum(dev, dt):
    def fn(x, y):
        return x.matmul(y) + x.sum(dim=1, keepdim=True)

    return fn, (torch.randn(1000, 1000, device=dev), torch.randn(1000, 1000, device=dev))


class ResNetBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return torch.relu(out)


def seed_resnet_block(dev, dt):
    m = ResNetBlock(64, 64).to(dev).to(dt).eval()
    b = 32 if dev == "cuda" else 2
    return m, (torch.randn(b, 64, 56, 56, device=dev, dtype=dt),)


class MultiHeadAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.dk = h, d // h
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d) for _ in range(4))

    def forward(self, q, k, v):
        b = q.size(0)
        q = self.wq(q).view(b, -1, self.h, self.dk).transpose(1, 2)
        k = self.wk(k).view(b, -1, self.h, self.dk).transpose(1, 2)
        v = self.wv(v).view(b, -1, self.h, self.dk).transpose(1, 2)
        s = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.dk)
        a = F.softmax(s, dim=-1)
        o = torch.matmul(a, v).transpose(1, 2).contiguous().view(b, -1, self.h * self.dk)
        return self.wo(o)


def seed_mha(dev, dt):
    m = MultiHeadAttention(512, 8).to(dev).to(dt).eval()
    s = 1024 if dev == "cuda" else 128
    b = 32 if dev == "cuda" else 2
    x = torch.randn(b, s, 512, device=dev, dtype=dt)
    return m, (x, x, x)


# ---- memory-bound kernels ----------------------------------------------------
def k_softmax(dev, dt):
    n, m = (16384, 4096) if dev == "cuda" else (2048, 1024)
    return (lambda x: F.softmax(x, -1)), (torch.randn(n, m, device=dev, dtype=dt),)


def k_layernorm_gelu(dev, dt):
    n, m = (16384, 4096) if dev == "cuda" else (2048, 1024)
    w, b = torch.randn(m, device=dev, dtype=dt), torch.randn(m, device=dev, dtype=dt)

    def fn(x, r):
        h = x + r
        return F.gelu(F.layer_norm(h, (m,), w, b)), h

    return fn, (torch.randn(n, m, device=dev, dtype=dt), torch.randn(n, m, device=dev, dtype=dt))


def k_rmsnorm(dev, dt):
    n, m = (16384, 4096) if dev == "cuda" else (2048, 1024)
    w = torch.randn(m, device=dev, dtype=dt)

    def fn(x):
        v = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(v + 1e-6)).to(x.dtype) * w

    return fn, (torch.randn(n, m, device=dev, dtype=dt),)


def k_cross_entropy(dev, dt):
    n, m = (8192, 50257) if dev == "cuda" else (128, 8000)
    return (lambda x, t: F.cross_entropy(x.float(), t)), (
        torch.randn(n, m, device=dev, dtype=dt),
        torch.randint(0, m, (n,), device=dev),
    )


def k_rope(dev, dt):
    b, h, s, d = (8, 32, 4096, 128) if dev == "cuda" else (1, 8, 256, 64)

    def fn(q, c, sn):
        q1, q2 = q[..., : d // 2], q[..., d // 2 :]
        return q * c + torch.cat((-q2, q1), -1) * sn

    return fn, (
        torch.randn(b, h, s, d, device=dev, dtype=dt),
        torch.randn(s, d, device=dev, dtype=dt),
        torch.randn(s, d, device=dev, dtype=dt),
    )


def k_transpose_add(dev, dt):
    n = 8192 if dev == "cuda" else 1024
    return (lambda a, b: a.t() + b), (
        torch.randn(n, n, device=dev, dtype=dt),
        torch.randn(n, n, device=dev, dtype=dt),
    )


def k_swiglu(dev, dt):
    n, m = (16384, 8192) if dev == "cuda" else (1024, 1024)
    return (lambda a, b: F.silu(a) * b), (
        torch.randn(n, m, device=dev, dtype=dt),
        torch.randn(n, m, device=dev, dtype=dt),
    )


def k_batchnorm_train(dev, dt):
    bn = nn.BatchNorm2d(64).to(dev).train()
    b = 64 if dev == "cuda" else 4
    return (lambda x: F.relu(bn(x))), (torch.randn(b, 64, 112, 112, device=dev),)


def k_column_sum(dev, dt):
    n = 16384 if dev == "cuda" else 2048
    return (lambda x: (x * 2).sum(0)), (torch.randn(n, n, device=dev, dtype=dt),)


# ---- small calls: overhead ---------------------------------------------------
def o_tiny_pointwise(dev, dt):
    return (lambda x, y: torch.relu(x + y) * 2), (
        torch.randn(16, device=dev),
        torch.randn(16, device=dev),
    )


def o_tiny_mlp(dev, dt):
    m = (
        nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
        .to(dev)
        .eval()
    )
    return m, (torch.randn(4, 32, device=dev),)


CASES = {k: v for k, v in list(globals().items()) if k[:2] in ("k_", "o_") or k.startswith("seed_")}
