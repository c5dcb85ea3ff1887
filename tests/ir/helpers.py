"""Graphs for tests without the capture half: make_fx records eager calls as ATen nodes, functionalized."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from frameloom.ir import interp
from frameloom.ir.lower import lower
from frameloom.ir.program import Extern, Kernel


def graph_of(function, *inputs, functional=False):
    """The functional ATen graph of `function(*inputs)`, with meta["val"] on every node."""
    f = torch.func.functionalize(function, remove="mutations") if functional else function
    gm = make_fx(lambda *args: f(*args), tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    # make_fx keeps no storage offsets of inputs: take them from the tensors themselves.
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, given in zip(places, inputs, strict=True):
        if isinstance(given, torch.Tensor):
            node.meta["val"] = Geometry(given)
    return gm


class Geometry:
    """What lowering asks of a meta value, taken from a real tensor."""

    def __init__(self, t):
        self.shape, self.dtype, self.device = tuple(t.shape), t.dtype, t.device
        self._stride, self._offset = t.stride(), t.storage_offset()

    def stride(self):
        return self._stride

    def storage_offset(self):
        return self._offset


def clones(inputs):
    """Copies with the same geometry over storages of their own."""
    result = []
    for t in inputs:
        if isinstance(t, torch.Tensor):
            storage = t.untyped_storage().clone()
            t = torch.empty(0, dtype=t.dtype).set_(storage, t.storage_offset(), t.shape, t.stride())
        result.append(t)
    return result


def flat(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def assert_same(got, expected, tolerance=None):
    """Values, dtypes, shapes and strides are the same; floats to within rounding."""
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        if not isinstance(e, torch.Tensor):
            assert g == e or (g is None and e is None)
            continue
        assert g.dtype == e.dtype and g.shape == e.shape
        assert g.stride() == e.stride() or e.numel() <= 1, (g.stride(), e.stride())
        rtol, atol = tolerance or {
            torch.float64: (1e-10, 1e-12), torch.float32: (2e-6, 2e-6), torch.float16: (1e-3, 1e-4),
            torch.bfloat16: (8e-3, 1e-4),
        }.get(e.dtype, (0, 0))  # fmt: skip
        torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)


def check(function, *inputs, passes=(), lowered=True, tolerance=None, functional=False):
    """`function` in eager and in the interpreter after `passes`; returns the last Program.

    With `lowered` nothing may have become a library call.
    """
    gm = graph_of(function, *inputs, functional=functional)
    before = clones(inputs)
    expected = flat(gm(*before))
    program = lower(gm.graph, gm)
    if lowered:
        calls = [s.target for s in program.steps if isinstance(s, Extern)]
        assert not calls, f"library calls: {calls}"
    for step in (lambda p: p, *passes):
        program = step(program)
        after = clones(inputs)
        assert_same(interp.run(program, after), expected, tolerance)
        assert_same(after, before, tolerance)
    return program


def kernels(program):
    return [s for s in program.steps if isinstance(s, Kernel)]
