"""`python -m tests.sweeps [NAME ...] [--device cuda]`: says what differs from eager; exit status 1 if anything does.

elementwise   functions of one and of two elements, of special values of every dtype
halves        the same, of every 16-bit float, to the last digit
reductions    of matrices with ties, infinities, NaN, one element and none
refused       every op of PyTorch's op database, on each dtype that it refuses
draws         ops that draw random numbers, on tensors of all layouts
gradients     gradients of inputs where those of results come in all layouts
casts         programs under autocast that change their weights
passes        backward passes from several results of one graph
writes        the same of programs that write to views
strides       results and gradients of drawn programs whose sizes vary and come to 0 and 1
images        the same, of ops on images and rows of samples
layouts       functions called with drawn layouts, one after the other
sizes         functions of numbers that decide sizes, which vary and come to 0 and 1
modes         tensors made in one mode and used in another, with graph breaks
arguments     single calls with drawn arguments, on tensors of few elements
shared        results that share memory, and later writes to them
later         code that autograd calls in the backward pass, when what it reads has changed
iterated      loops over containers that change meanwhile
exceptions    PyTorch's settings, and the program's handlers, behind whatever raises
numpy         functions of NumPy's main namespace, of arrays of several dtypes and layouts
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from frameloom import jit
from tests.fuzz.interpret import interpreted
from tests.sweeps import elementwise, reductions
from tests.sweeps.arguments import sweep_arguments
from tests.sweeps.casts import sweep_casts
from tests.sweeps.draws import sweep_draws
from tests.sweeps.exceptions import sweep_exceptions
from tests.sweeps.gradients import sweep_gradients
from tests.sweeps.images import sweep_images
from tests.sweeps.iterated import sweep_iterated
from tests.sweeps.later import sweep_later
from tests.sweeps.layouts import sweep_layouts
from tests.sweeps.modes import sweep_modes
from tests.sweeps.numpy_calls import sweep_numpy_calls
from tests.sweeps.passes import sweep_passes
from tests.sweeps.shared import sweep_shared
from tests.sweeps.sizes import sweep_sizes
from tests.sweeps.strides import sweep_strides
from tests.sweeps.values import DTYPES, difference, matrices, special

TOGETHER = 40  # functions of one graph


def compared(
    table: elementwise.Table, args: Sequence[torch.Tensor], steps: float, scaled: bool = False
) -> Iterator[tuple[str, str]]:
    wanted = {}
    for name, fn in table.items():
        try:
            wanted[name] = fn(*args)
        except (RuntimeError, TypeError, IndexError):
            continue  # not for such arguments
    names = list(wanted)
    for start in range(0, len(names), TOGETHER):
        some = names[start : start + TOGETHER]
        given = jit(lambda *args, some=some: [table[n](*args) for n in some])(*args)
        for name, result in zip(some, given, strict=True):
            for a, b in zip(*map(pytree.tree_leaves, (result, wanted[name])), strict=True):
                if found := difference(a, b, steps, scaled):
                    yield name, found


def sweep_elementwise(device: str) -> Iterator[str]:
    own = elementwise.EAGERS_OWN
    if device == "cuda":
        own = own | elementwise.EAGERS_OWN_ON_GPU
    checked = {k: v for k, v in elementwise.TWO.items() if k not in own}
    for dtype in DTYPES:
        values = special(dtype).to(device)
        one = {k: v for k, v in elementwise.ONE.items() if k not in elementwise.EAGERS_OWN}
        for name, found in compared(one, (values,), 16):
            yield f"{name} of {dtype}: {found}"
        pair = [v.contiguous() for v in torch.broadcast_tensors(values[:, None], values)]
        two = checked
        if not dtype.is_floating_point:
            two = {k: v for k, v in checked.items() if k not in elementwise.TRAPS}
        for name, found in compared(two, pair, 64):
            yield f"{name} of {dtype}: {found}"


def sweep_halves(device: str) -> Iterator[str]:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32, device=device).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        values = every.view(dtype)[every.view(dtype).isfinite()]
        near = torch.randn(len(values), generator=torch.Generator().manual_seed(0)) * 3
        near = near.to(device, dtype)
        for table, args in ((elementwise.ONE, (values,)), (elementwise.TWO, (values, near))):
            exact = {k: v for k, v in table.items() if k not in elementwise.EAGERS_OWN}
            for name, found in compared(exact, args, 1):
                yield f"{name} of {dtype}: {found}"


def sweep_reductions(device: str) -> Iterator[str]:
    for dtype in DTYPES:
        for k, x in enumerate(matrices(dtype)):
            for name, found in compared(reductions.TABLE, (x.to(device),), 64, scaled=True):
                yield f"{name} of {dtype}, matrix {k}: {found}"


def sweep_refused(device: str) -> Iterator[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        taken = op.supported_dtypes(torch.device(device).type)
        sample = next(
            (s for d in (torch.float32, torch.int64) if d in taken for s in op.sample_inputs(device, d)), None
        )  # fmt: skip
        for dtype in DTYPES:
            if sample is None or dtype in taken:
                continue

            def turned(a: Any, dtype: Any = dtype, sample: Any = sample) -> Any:
                if not isinstance(a, torch.Tensor):
                    return a
                return (
                    (a.detach() * 3).to(dtype) if a is sample.input or a.is_floating_point() else a
                )

            args, kwargs = pytree.tree_map(turned, ((sample.input, *sample.args), sample.kwargs))
            expected = error_of(op.op, args, kwargs)
            found = expected and error_of(jit(lambda *a, op=op.op, **k: op(*a, **k)), args, kwargs)
            if found != expected:
                yield f"{op.name} of {dtype}: {found}, eager {expected}"


def error_of(fn: Callable[..., Any], args: Any, kwargs: Any) -> str | None:
    try:
        fn(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return None


SWEEPS = {
    "elementwise": sweep_elementwise, "halves": sweep_halves, "reductions": sweep_reductions, "refused": sweep_refused,
    "draws": lambda device: sweep_draws(), "gradients": lambda device: sweep_gradients(),  # on the CPU alone
    "passes": lambda device: sweep_passes(), "writes": lambda device: sweep_passes(writes=True), "casts": lambda device: sweep_casts(range(300)),
    "strides": lambda device: sweep_strides(),
    "images": lambda device: sweep_images(), "exceptions": lambda device: sweep_exceptions(),
    "arguments": lambda device: sweep_arguments(), "layouts": lambda device: sweep_layouts(),
    "modes": lambda device: sweep_modes(), "shared": lambda device: sweep_shared(),
    "sizes": lambda device: sweep_sizes(), "later": lambda device: sweep_later(),
    "iterated": lambda device: sweep_iterated(), "numpy": lambda device: sweep_numpy_calls(),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sweeps", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="sweep", help=", ".join(SWEEPS))
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SWEEPS):
        parser.error(f"no sweep {', '.join(sorted(unknown))}; there are {', '.join(SWEEPS)}")
    warnings.simplefilter("ignore")
    differ = 0
    with torch.no_grad():
        for name in options.names or SWEEPS:
            # Nothing is computed there, so that no kernels are needed.
            without_kernels = name in ("casts", "numpy") or (
                name == "refused" and options.device == "cpu"
            )
            with interpreted() if without_kernels else contextlib.nullcontext():
                found: list[Any] = list(SWEEPS[name](options.device))
            print(*found, f"{name}: {len(found)} differ", sep="\n", flush=True)
            differ += len(found)
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
