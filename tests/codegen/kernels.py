"""Builds kernels by hand, compiles and runs them, and compares with the reference interpreter."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

from frameloom.codegen.cpp.module import generate
from frameloom.codegen.cpp.vector import ISAS, Isa, host_isa
from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.node import Axis, Node, axis, load
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Store, View
from frameloom.ir.substitute import fold, space
from frameloom.runtime.build.cpp_compiler import Builder

BOTH = [isa for isa in ISAS.values() if isa.bytes > 16 and isa.bytes <= (host_isa() or isa).bytes]


def contiguous(shape) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(strides[::-1])


def tensor_in(name: str, tensor: torch.Tensor) -> Buffer:
    return Buffer(
        name, DType.of(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), Kind.INPUT
    )


def out(name: str, shape, dtype: DType = DType.F32) -> Buffer:
    return Buffer(name, dtype, tuple(shape), contiguous(shape), Kind.OUTPUT)


def read(buffer: Buffer, *positions: Node | Axis, offset: int = 0) -> Node:
    """buffer[positions]; missing leading positions are dimensions of extent 1."""
    nodes = [axis(p) if isinstance(p, Axis) else p for p in positions]
    return load(buffer, linear(nodes, buffer.strides, offset))


def write(buffer: Buffer, axes, value: Node) -> Store:
    return Store(buffer, linear([axis(a) for a in axes], buffer.strides), value, tuple(axes))


@functools.cache
def _library(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def compile_kernel(kernel: Kernel, isa: Isa | None = None):
    """A function from {buffer name: tensor} that runs the kernel."""
    source = generate([kernel], isa)[0]
    entry = source.entries[0]
    function = _library(Builder().build([source])[0])[entry.symbol]

    def call(tensors: dict[str, torch.Tensor]) -> None:
        pointers = (ctypes.c_void_p * len(entry.buffers))(
            *[tensors[b.name].data_ptr() for b in entry.buffers]
        )
        function(pointers, None)

    call.source = source.text
    return call


def check(
    stores, inputs: dict[str, torch.Tensor], isas=BOTH, rtol=2e-6, atol=1e-6, name="kernel"
) -> str:
    """Runs one kernel of `stores` under each instruction set and under the interpreter; returns the last source."""
    buffers = tuple(tensor_in(n, t) for n, t in inputs.items())
    kernel = Kernel(name, tuple(stores))
    results = list(dict.fromkeys(s.buffer for s in stores if s.buffer.kind is not Kind.INPUT))
    views = tuple(View(b, b.shape, b.strides) for b in results)
    expected_inputs = {n: _copy(t) for n, t in inputs.items()}
    expected = interp.run(Program(buffers, (kernel,), views), list(expected_inputs.values()))
    source = ""
    for isa in isas:
        call = compile_kernel(kernel, isa)
        source = call.source
        given = {n: _copy(t) for n, t in inputs.items()}
        made = {b.name: torch.full(b.shape, 7, dtype=b.dtype.to_torch()) for b in results}
        call({**given, **made})
        for b, want in zip(results, expected, strict=True):
            torch.testing.assert_close(
                made[b.name],
                want,
                rtol=rtol,
                atol=atol,
                equal_nan=True,
                msg=lambda m: f"{isa.name}: {m}\n{source}",
            )
        for n, t in given.items():
            torch.testing.assert_close(t, expected_inputs[n], rtol=rtol, atol=atol, equal_nan=True)
    return source


def _copy(t: torch.Tensor) -> torch.Tensor:
    """Same strides, own memory (zero strides kept)."""
    size = 1 + sum((e - 1) * s for e, s in zip(t.shape, t.stride(), strict=True))
    flat = torch.as_strided(t, (size,), (1,), t.storage_offset()).clone()
    return torch.as_strided(flat, t.shape, t.stride())


__all__ = [
    "BOTH",
    "Axis",
    "axis",
    "check",
    "compile_kernel",
    "fold",
    "linear",
    "out",
    "read",
    "space",
    "tensor_in",
    "write",
]
