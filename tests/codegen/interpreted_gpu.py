"""Programs as a GPU gets them, run on the CPU: captured on CPU tensors, lowered and compiled as if those lay on a GPU, their Triton texts interpreted.

`on_a_gpu()` is a context in which jitted functions are compiled so.  It yields a list that has the texts of every graph; with `compiled`, Triton
has made machine code of them.
"""

from __future__ import annotations

import contextlib
import math
import struct
from dataclasses import replace
from unittest import mock

import torch

import frameloom
from frameloom import pipeline
from frameloom.capture.tensors.fake import Fake
from frameloom.ir import interp
from frameloom.ir.kernel_list import KernelList
from frameloom.ir.library import overload
from frameloom.ir.lower.layout.onednn import OneDnn
from frameloom.ir.numbers import MEANING
from frameloom.ir.program import Buffer, Check, Extern, Kernel, Kind, View
from frameloom.ir.symbolic.atoms import atoms_of, evaluated
from frameloom.ir.symbolic.expr import Size
from frameloom.runtime.build import triton_compiler as triton_build
from tests.codegen.triton_kernels import load

GPU = torch.device("cuda", 0)
ROOM = 64  # elements around every tensor of ours that nothing may write to
SENTINEL = 113


@contextlib.contextmanager
def on_a_gpu(compiled=False):
    sources: list = []
    stages = list(pipeline.PROGRAM_STAGES)
    name, lower, file = stages[0]
    stages[0] = (name, lambda captured: lower(relocated(captured)), file)
    generate = pipeline.generate_all

    def generate_all(program, *_):
        texts = generate(program)
        sources.append([s for _, some in texts.launches for s in some])
        return texts

    def built(texts):
        found = [s for _, some in texts.launches for s in some]
        if compiled and found:
            general = [replace(s, text=s.general) for s in found if s.general]
            triton_build.build([*found, *general], 90)
        return found

    with (
        mock.patch.object(pipeline, "PROGRAM_STAGES", tuple(stages)),
        mock.patch.object(pipeline, "generate_all", generate_all),
        mock.patch.object(pipeline, "build_all", built),
        mock.patch.object(pipeline, "assemble", InterpretedPlan),
        mock.patch.object(pipeline, "onednn", OneDnn),
    ):
        yield sources


def relocated(captured):
    """The graph with its tensors on a GPU."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(captured.graph, {}))
    for node in graph.nodes:
        node.meta = {**node.meta, "val": _moved(node.meta.get("val"))}
        node.args, node.kwargs = (
            torch.fx.node.map_aggregate(x, _device) for x in (node.args, node.kwargs)
        )
    return replace(captured, graph=graph)


def _moved(val):
    if isinstance(val, list | tuple):
        return type(val)(map(_moved, val))
    return Fake(val.meta, GPU, val.requires_grad) if isinstance(val, Fake) else val


def _device(value):
    return GPU if isinstance(value, torch.device) else value


class InterpretedPlan:
    """In the place of the native plan."""

    def __init__(self, captured, program, memory, sources, *_, room=ROOM):
        self.program, self.room = program, room
        self.sources = {e.name: (s, e) for s in sources for e in s.entries}
        numbers = dict(program.symbols)
        sizes = [n for b in program.inputs for n in (*b.shape, *b.strides)]
        for source in sources:
            sizes += [*source.grid, *(n for n, _ in source.sizes)]
        # Where each call has them; what they come from is forgotten behind the capture.
        self.leaves = {
            a: ("number", numbers[a], 0)
            if a in numbers
            else (a.source.kind, captured.inputs.index(a.source.origin), a.source.dim)
            for a in {*numbers, *(a for n in sizes for a in atoms_of(n))}
        }

    @frameloom.disable
    @torch.no_grad()
    def __call__(self, *inputs):
        def value(symbol):
            kind, place, dim = self.leaves[symbol]
            if kind == "number":
                return int(memory.tensors[place])
            return inputs[place].shape[dim] if kind == "dim" else inputs[place].stride(dim)

        def known(x):
            if isinstance(x, Size):
                return evaluated(x, value)
            if isinstance(x, torch.device):
                return torch.device("cpu")
            if isinstance(x, View):
                return _seen(memory, x, known)
            return type(x)(map(known, x)) if isinstance(x, list | tuple) else x

        memory = _Memory(known, self.room)
        program = self.program
        for buffer, given in zip(program.inputs, inputs, strict=True):
            memory.tensors[buffer] = given
        memory.tensors.update(program.constants)
        for n in program.numbers:
            given = [memory.tensors[x] if isinstance(x, Buffer) else x for x in n.operands]
            memory.tensors[n.result] = MEANING[n.op](*given)
        for step in program.steps:
            if isinstance(step, KernelList):
                for kernel in step.kernels:
                    touched = {b: memory[b] for b in kernel.buffers}
                    numbers = {b: x for b, x in touched.items() if b.kind is Kind.NUMBER}
                    touched.update(
                        (b, torch.tensor(x, dtype=b.dtype.to_torch())) for b, x in numbers.items()
                    )
                    interp.run_kernel(kernel, touched)
            elif isinstance(step, Kernel):
                source, entry = self.sources[step.name]
                if source.limit is not None and known(source.limit[0]) > source.limit[1]:
                    source = replace(source, text=source.general)
                grid = known(source.grid)
                if math.prod(grid):
                    sizes = [evaluated(n, value) for n, _ in source.sizes]
                    given = [
                        _bits(memory.tensors[b]) if b.kind is Kind.NUMBER else memory.flat(b)
                        for b in entry.buffers
                    ]
                    load(source)[grid](*given, *sizes)
            elif isinstance(step, Extern):
                result = overload(step.target)(
                    *known(step.args), **{k: known(v) for k, v in step.kwargs}
                )
                for b, t in zip(step.results, interp.flatten(result), strict=True):
                    if b is None:
                        continue
                    assert tuple(t.shape) == known(b.shape), f"{step.target}: {b}"
                    memory[b].copy_(t)
            else:
                assert isinstance(step, Check)
        memory.check()
        return tuple(
            inputs[o] if type(o) is int
            else known(o) if isinstance(o, View)
            else known(o[0])
            for o in program.outputs
        )  # fmt: skip


class _Memory(dict):
    def __init__(self, known, room):
        super().__init__()
        self.known, self.room = known, room
        self.tensors, self.rooms = {}, []

    def __missing__(self, b):
        if b not in self.tensors:
            shape, strides = self.known(b.shape), self.known(b.strides)
            dtype = b.dtype.to_torch() if b.dtype else b.torch_dtype
            count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            count = 0 if 0 in shape else count
            flat = torch.full((count + 2 * self.room,), SENTINEL, dtype=dtype)
            self.rooms.append((b, flat, count))
            self.tensors[b] = flat.as_strided(shape, strides, self.room)
        return self.tensors[b]

    def flat(self, b):
        t = self[b]
        room = t.untyped_storage().nbytes() // t.element_size() - t.storage_offset()
        return t.as_strided((max(room, 0),), (1,))

    def check(self):
        for b, flat, count in self.rooms:
            around = torch.cat([flat[: self.room], flat[self.room + count :]])
            assert bool((around == torch.full((), SENTINEL, dtype=flat.dtype)).all()), (
                f"written around {b}"
            )


def _seen(memory, v, known):
    base = memory[v.buffer]
    if v.torch_dtype is not None:
        base = base.view(v.torch_dtype)
    return base.as_strided(
        known(v.shape), known(v.strides), known(v.offset) + base.storage_offset()
    )


def _bits(number):
    """As a kernel gets it."""
    return struct.unpack("<q", struct.pack("<d", number))[0] if type(number) is float else number
