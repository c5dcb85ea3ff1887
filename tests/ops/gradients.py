"""Tries the gradients of every differentiable op:  python -m tests.ops.gradients [--only add,sort] [--compiled] [--samples 4] [--jobs 2]

In float64, jitted and plain: outputs, which gradients there are, their values, and those of gradients of gradients.  Without --compiled, the
recorded graphs run as they are, which is much faster.  Each op runs in a process of its own.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import sys
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import frameloom
from frameloom.autograd.op_by_op import DoubleBackwardError

DTYPE = torch.float64


def leaves_of(structure: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(structure) if isinstance(t, torch.Tensor)]


def fresh(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The sample's arguments with tensors of their own."""

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    arguments: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(
        copy, ((sample.input, *sample.args), sample.kwargs)
    )
    return arguments


def gradients(outputs: list[torch.Tensor], inputs: list[torch.Tensor], create: bool) -> list[Any]:
    weights = [
        torch.linspace(0.5, 1.5, o.numel(), dtype=DTYPE).view(o.shape).to(o.dtype) for o in outputs
    ]
    return list(
        torch.autograd.grad(outputs, inputs, weights, create_graph=create, allow_unused=True)
    )


def observed(fn: Any, sample: Any, twice: bool) -> list[Any]:
    """Outputs, gradients, and gradients of those; an exception in place of what raises it."""
    args, kwargs = fresh(sample)
    inputs = [t for t in leaves_of((args, kwargs)) if t.requires_grad]
    torch.manual_seed(0)
    seen: list[Any] = []
    try:
        outputs = leaves_of(fn(*args, **kwargs))
        seen.append([(o, o.requires_grad) for o in outputs])
        wanted = [o for o in outputs if o.requires_grad]
        if not wanted or not inputs:
            return seen
        seen.append(gradients(wanted, inputs, False) if not twice else None)
        if twice:
            found = gradients(wanted, inputs, True)
            seen.append([g if g is None else g.detach() for g in found])
            again = [g for g in found if g is not None and g.requires_grad]
            if again:
                seen.append(gradients(again, inputs, False))
    except DoubleBackwardError as error:
        seen.append(f"no gradient of a gradient: {error}")
    except Exception as error:
        seen.append(type(error))
        seen.append(str(error).splitlines()[0][:100] if str(error) else "")
    return seen


def difference(got: Any, want: Any) -> str | None:
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(got) != len(want):
        return f"{len(got)} parts instead of {len(want)}: {[g for g in got if not isinstance(g, torch.Tensor)]}"[
            :200
        ]
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor) and isinstance(g, torch.Tensor):
            try:
                torch.testing.assert_close(
                    g.detach(), w.detach(), rtol=1e-7, atol=1e-7, equal_nan=True
                )
            except AssertionError as error:
                return " ".join(str(error).split())[:200]
        elif isinstance(w, str) and isinstance(g, str):
            continue  # texts of exceptions
        elif g is not w and g != w:
            return f"{g!r} instead of {w!r}"[:200]
    return None


def try_op(op: Any, options: Any) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    samples = []
    for sample in op.sample_inputs("cpu", DTYPE, requires_grad=True):
        samples.append(sample)
        if len(samples) == options.samples:
            break
    for number, sample in enumerate(samples):
        for twice in (False, True) if op.supports_gradgrad else (False,):
            function = op.op
            want = observed(function, sample, twice)
            frameloom.reset()
            backend = None if options.compiled else "eager"
            jitted = frameloom.jit(lambda *a, **k: function(*a, **k), backend=backend)
            found["cases"] += 1
            for _ in range(2):
                torch.manual_seed(0)
                text = difference(observed(jitted, sample, twice), want)
                if text is not None:
                    order = "second order" if twice else "first order"
                    found[f"wrong: case {number}, {order}: {text}"] += 1
                    break
            stats = frameloom.stats()
            found["in one graph"] += stats["graphs"] == 1 and not stats["plain"] + stats["breaks"]
    return found


def child(op: Any, options: Any, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    try:
        found = try_op(op, options)
    except Exception as error:
        found = collections.Counter(
            {f"wrong: crashed: {type(error).__name__}: {str(error)[:150]}": 1}
        )
    pipe.send(found)
    pipe.close()
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120)
    options = parser.parse_args()
    from frameloom.loading import load_compiler

    load_compiler()
    names = set(filter(None, options.only.split(",")))
    waiting = [
        op
        for op in op_db
        if op.supports_autograd and DTYPE in op.supported_dtypes("cpu") and op.op is not None
        and (not names or op.full_name in names)
    ]  # fmt: skip
    total: collections.Counter[str] = collections.Counter()
    running: list[tuple[Any, Any, Any, float]] = []
    context = multiprocessing.get_context("fork")
    while waiting or running:
        while waiting and len(running) < options.jobs:
            op = waiting.pop(0)
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=child, args=(op, options, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((op, process, ours, time.monotonic() + options.timeout))
        for trial in list(running):
            op, process, pipe, deadline = trial
            if pipe.poll(0.02):
                try:
                    found = pipe.recv()
                except EOFError:
                    found = {"wrong: the process died": 1}
            elif time.monotonic() > deadline:
                found = {"wrong: the time is up": 1}
            else:
                continue
            process.kill()
            process.join()
            running.remove(trial)
            wrong = [text for text in found if text.startswith("wrong")]
            total.update(ops=1, ops_wrong=bool(wrong))
            total.update({k: found.get(k, 0) for k in ("cases", "in one graph")})
            for text in wrong:
                print(f"{op.full_name}: {text}", flush=True)
    print(dict(total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
