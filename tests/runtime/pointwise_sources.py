"""Triton sources written by hand, for tests and benchmarks of what comes after the code generator."""

import math

import torch

from frameloom.codegen.triton.launch import LaunchSource
from frameloom.runtime import _runtime
from frameloom.runtime.build.launch import load
from frameloom.runtime.build.triton_compiler import build, unaligned
from frameloom.runtime.spec import BufferSpec, LaunchCall, PlanSpec, ViewSpec

BLOCK = 1024
TEXT = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def {symbol}({parameters}):
    i = tl.program_id(0) * {block} + tl.arange(0, {block})
{loads}
    tl.store(out + i, {value}, mask=i < {n})
"""


def source(symbol, value, n, inputs=1, debug=False, before=""):
    """out[i] = value, of the float32 inputs a, b, ..., each of n elements."""
    names = "abcdefgh"[:inputs]
    loads = "".join(f"    {x} = tl.load({x}_ + i, mask=i < {n}, other=0)\n" for x in names)
    text = TEXT.format(
        symbol=symbol, parameters=", ".join([f"{x}_" for x in names] + ["out"]), block=BLOCK,
        loads=loads + before, value=value, n=n,
    )  # fmt: skip
    grid = (-(-n // BLOCK), 1, 1)
    return LaunchSource(text, symbol, ("*fp32",) * (inputs + 1), grid, warps=4, debug=debug)


def arch():
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def launch(made, buffers, device=0):
    """The step of a plan: `made` compiled and loaded."""
    (cubin,) = build([made], arch())
    other = lambda: load(unaligned(made, arch()), device)
    return LaunchCall(load(cubin, device), buffers, made.grid, other, made.symbol)


def plan(n, inputs, kinds, steps, outputs, device=0, shape=None):
    """A plan over float32 tensors of n elements, vectors if no shape is given; arena buffers lie one behind the other."""
    buffers, end, shape = [], 0, shape or (n,)
    strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    for kind in ["input"] * inputs + kinds:
        offset = end if kind == "arena" else 0
        where = torch.device("cuda", device)
        buffers.append(BufferSpec(kind, shape, strides, torch.float32, where, offset))
        end += -(-4 * n // 64) * 64 if kind == "arena" else 0
    views = tuple(ViewSpec(b, shape, strides, 0, torch.float32) for b in outputs)
    return _runtime.Plan(PlanSpec(inputs, tuple(buffers), tuple(steps), views, end))
