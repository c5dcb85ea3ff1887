"""Graphs for tests without the capture half: a dispatch mode notes the ATen ops of eager calls as nodes."""

import operator

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from frameloom.ir import interp
from frameloom.ir.lower import lower
from frameloom.ir.program import Extern, Kernel


class _Recording(TorchDispatchMode):
    """Notes every ATen op that runs as a node of a graph, with its result as meta["val"]."""

    def __init__(self, inputs):
        super().__init__()
        self.graph, self.constants = torch.fx.Graph(), torch.nn.Module()
        self.nodes = {}  # of tensors, by id
        self.alive = []
        for number, given in enumerate(inputs):
            node = self.graph.placeholder(f"arg{number}_1")
            node.meta["val"] = given
            if isinstance(given, torch.Tensor):
                self._is_made_by(given, node)

    def _is_made_by(self, tensor, node):
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)

    def node_of(self, value):
        """The node of a tensor; numbers and other arguments stay as they are."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.nodes:
            name = f"constant_{len(self.alive)}"
            self.constants.register_buffer(name, value)
            node = self.graph.get_attr(name)
            node.meta["val"] = value
            self._is_made_by(value, node)
        return self.nodes[id(value)]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if (
            func is torch.ops.aten.lift_fresh.default
        ):  # each run of the graph needs a tensor of its own
            func = torch.ops.aten.lift_fresh_copy.default
        given = tree_map(self.node_of, (args, kwargs))
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        node = self.graph.create_node("call_function", func, *given, name=name)
        node.meta["val"] = result
        if isinstance(result, torch.Tensor):
            self._is_made_by(result, node)
        elif isinstance(result, (tuple, list)):
            for k, part in enumerate(result):
                item = self.graph.call_function(operator.getitem, (node, k))
                item.meta["val"] = part
                if isinstance(part, torch.Tensor):
                    self._is_made_by(part, item)
        return result


def graph_of(function, *inputs, functional=False):
    """The functional ATen graph of `function(*inputs)`, with meta["val"] on every node."""
    f = torch.func.functionalize(function, remove="mutations") if functional else function
    given = clones(inputs)
    recording = _Recording(given)
    with recording:
        result = f(*given)
    recording.graph.output(tree_map(recording.node_of, result))
    # What reads an input gets the geometry of the tensor itself.
    for node, tensor in zip(recording.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if isinstance(tensor, torch.Tensor):
            node.meta["val"] = Geometry(tensor)
    recording.graph.eliminate_dead_code()
    return torch.fx.GraphModule(recording.constants, recording.graph)


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
