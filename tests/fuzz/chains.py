"""Chains of ops of PyTorch's op database, with views, writes in place and pairs between them: `python -m tests.fuzz.chains --seed S --seconds N --device cpu|cuda`.

A chain is called with several sizes and layouts, plainly and jitted: values, dtypes, strides, the exception's type, and the gradient.  Ops whose value jumps
where numbers are off by their last places are left out.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db

import frameloom

# Parts of names: what draws, jumps, is not unique, or has no strides; `pdist` of nothing ends PyTorch itself.
LEFT_OUT = """empty _refs multinomial fractional linalg svd lstsq qr geqrf householder lu ldl cauchy geometric exponential normal rand bernoulli
    dropout uniform sparse jiterator cdist pdist nonzero argwhere unique sort topk kthvalue mode item allclose equal pca stft cholesky inverse igamma
    rrelu zeta polygamma logit erfinv histc bucketize searchsorted resize set_ gamma ormqr det symeig i0 bessel airy ndtri erfcx polynomial median
    addmm hash floor ceil round trunc frac fmod remainder sign heaviside bitwise arg aminmax reciprocal rsqrt tan log acos asin div pow isclose eq ne
    gt lt ge le gcd lcm matrix_exp nextafter copysign""".split()
SHAPES = [
    (4, 6), (3, 5), (2, 3, 4), (1, 4), (6,), (2, 3, 4, 5), (1, 3, 6, 6), (4, 1), (3, 3), (8, 8), (16,), (2, 1, 5),
]  # fmt: skip
VIEWS: list[Callable[[Any], Any]] = [
    lambda t: t.transpose(0, -1) if t.dim() else t,
    lambda t: t[1:] if t.dim() and len(t) > 1 else t,
    lambda t: t[..., ::2] if t.dim() else t,
    lambda t: t.flatten(),
    lambda t: t.unsqueeze(0),
    lambda t: t.expand(2, *t.shape),
    lambda t: t.reshape(-1, t.shape[-1]) if t.dim() else t,
]
PAIRS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    torch.maximum,
    lambda a, b: torch.where(a > 0.1, a, b),
    lambda a, b: torch.cat([a, b]) if a.dim() else a - b,
    lambda a, b: torch.stack([a, b]),
    lambda a, b: a.sub(b, alpha=2),
    lambda a, b: torch.addcmul(a, a, b),
    lambda a, b: a.sum() - b,
]
LAYOUTS = ("plain", "transposed", "stepped")
TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-3, torch.bfloat16: 1e-1, torch.float16: 3e-2}
ERRORS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AttributeError)
Step = tuple[str, str, Callable[[list[Any]], Any]]  # of the tensors so far


def _ops() -> list[tuple[str, Any, list[Any], Any]]:
    found = []
    for op in op_db:
        if torch.float32 not in op.dtypes or any(part in op.name for part in LEFT_OUT):
            continue
        try:
            samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), 30))
        except Exception:  # of a library that is not there
            continue
        given = [(s.args, s.kwargs) for s in samples if _is_of_one_tensor(s)]
        if given:
            found.append((op.full_name, op.op, given, op.inplace_variant))
    return found


def _is_of_one_tensor(sample: Any) -> bool:
    others = pytree.tree_leaves((sample.args, sample.kwargs))
    return isinstance(sample.input, torch.Tensor) and not any(
        isinstance(a, torch.Tensor) for a in others
    )


def _first_tensor(made: Any) -> Any:
    leaves = [t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
    floats = [t for t in leaves if t.dtype.is_floating_point and t.layout is torch.strided]
    if not floats:
        raise ValueError("nothing to go on with")
    return floats[0]


def _drawn(rnd: random.Random, ops: Sequence[Any]) -> list[Step]:
    steps: list[Step] = []
    for _ in range(rnd.randint(2, 7)):
        name, call, given, in_place = rnd.choice(ops)
        args, kwargs = rnd.choice(given)
        text, kind = f"{name} {args} {kwargs}", rnd.random()
        if kind < 0.62:
            steps.append(("op", text, lambda made, c=call, a=args, k=kwargs: _first_tensor(c(made[-1], *a, **k))))  # fmt: skip
        elif kind < 0.7 and in_place is not None:
            steps.append(("in place", text, lambda made, c=in_place, a=args, k=kwargs: _written(made[-1], c, a, k)))  # fmt: skip
        elif kind < 0.85:
            number = rnd.randrange(len(VIEWS))
            steps.append(("view", str(number), lambda made, n=number: VIEWS[n](made[-1])))
        else:
            number = rnd.randrange(len(PAIRS))
            steps.append(("pair", str(number), lambda made, n=number: _paired(made, PAIRS[n])))
    return steps


def _written(t: Any, call: Any, args: Any, kwargs: Any) -> Any:
    new = t.clone()
    call(new[1:] if new.dim() and len(new) > 1 else new, *args, **kwargs)
    return new


def _paired(made: list[Any], call: Callable[[Any, Any], Any]) -> Any:
    other = next((o for o in reversed(made[:-1]) if o.shape == made[-1].shape), made[-1])
    return call(made[-1], other)


def _program(steps: Sequence[Step]) -> Callable[[Any], Any]:
    calls = [call for _, _, call in steps]

    def fn(x: Any) -> Any:
        made = [x]
        for call in calls:
            made.append(call(made))
        return made[-1], made[len(made) // 2]

    return fn


def _input(shape: tuple[int, ...], layout: str, dtype: Any, device: str, grad: bool) -> Any:
    numbers = torch.Generator().manual_seed(sum(shape))
    t = torch.rand(shape, generator=numbers, dtype=torch.float64) * 1.6 - 0.7
    t = t.to(device, dtype)
    if layout == "transposed":
        t = t.transpose(0, -1).contiguous().transpose(0, -1)
    elif layout == "stepped":
        t = torch.stack([t, t], -1).flatten(-2)[..., ::2]
    return t.detach().requires_grad_(grad)


def _seen(fn: Any, x: Any) -> Any:
    """Results and gradient, or the exception."""
    try:
        results = fn(x)
        of = [t for t in results if t.requires_grad]
        gradient = None
        if of:
            weights = [torch.linspace(0.1, 1, t.numel(), device=t.device).view(t.shape) for t in of]
            total: Any = sum((t.double() * w).sum() for t, w in zip(of, weights, strict=True))
            gradient = torch.autograd.grad(total, x, allow_unused=True)[0]
        if x.is_cuda:
            torch.cuda.synchronize()
    except torch.AcceleratorError:  # after which nothing works
        raise
    except ERRORS as error:
        return type(error), str(error)[:100]
    return (*results, gradient)


def _differ(want: Any, got: Any, dtype: Any) -> str | None:
    if isinstance(want[0], type) or isinstance(got[0], type):
        return None if want[0] is got[0] else f"{want[:2]} and {got[:2]}"
    for n, (a, b) in enumerate(zip(want, got, strict=True)):
        if (a is None) != (b is None):
            return f"{n}: one is None"
        if a is None:
            continue
        facts = [(tuple(t.shape), t.stride(), t.dtype, t.requires_grad) for t in (a, b)]
        if facts[0] != facts[1]:
            return f"{n}: {facts[0]} and {facts[1]}"
        x, y = a.detach().double(), b.detach().double()
        size = float(x.abs().nan_to_num(0, 0, 0).max()) if x.numel() else 0.0
        tolerance = TOLERANCE[dtype]
        if not torch.allclose(x, y, tolerance, tolerance * max(1.0, size), equal_nan=True):
            return f"{n}: values, by up to {float((x - y).abs().max())}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rnd, ops, end = random.Random(options.seed), _ops(), time.monotonic() + options.seconds
    count = wrong = 0
    while time.monotonic() < end:
        steps, dtype, grad = _drawn(rnd, ops), rnd.choice([*TOLERANCE]), rnd.random() < 0.5
        shape = rnd.choice(SHAPES)
        calls = [(shape, rnd.choice(LAYOUTS))]
        for _ in range(2):
            other = list(shape)
            other[rnd.randrange(len(other))] = rnd.choice([0, 1, 2, 3, 5, 7])
            calls.append((tuple(other), rnd.choice(LAYOUTS)))
        dynamic = rnd.choice([None, None, True, False])
        fn = _program(steps)
        given = [(*call, dtype, options.device, grad) for call in calls]
        if isinstance(_seen(fn, _input(*given[0]))[0], type) and rnd.random() < 0.95:
            continue
        count += 1
        frameloom.reset()
        jitted = frameloom.jit(fn, dynamic=dynamic)
        for g in given:
            side = "plain"
            try:
                want, side = _seen(fn, _input(*g)), "jitted"
                differs = _differ(want, _seen(jitted, _input(*g)), dtype)
            except torch.AcceleratorError as error:
                differs = f"{side}: {error}"
            if differs:
                wrong += 1
                print(f"seed {options.seed}, chain {count}, {g}, dynamic={dynamic}: {differs}")
                print(f"    calls {calls}, steps {[s[:2] for s in steps]}", flush=True)
                if "CUDA error" in differs:
                    return 1
                break
    print(f"{count} chains, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
