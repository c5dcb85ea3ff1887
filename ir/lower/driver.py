"""`lower`: translates a captured graph of ATen ops into a Program, op by op.

Views become geometry over their base's buffer (from the node's `meta["val"]`; no view op needs a rule).  Ops
with an entry in TABLE become one Kernel per result; all other ops become library calls.  Writes to inputs
(`aten.copy_` at the end of the graph) become stores into INPUT buffers, after all steps that read them.  (One
class: all kinds of nodes share the same few tables.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from frameloom.ir import node as ir
from frameloom.ir.dtype import DType
from frameloom.ir.library import CALLS, OUT_FORMS, READ
from frameloom.ir.lower import lazy
from frameloom.ir.lower.geometry import (
    WRITE_BACK,
    arguments_of,
    base_of,
    devices_of,
    is_tensor,
    is_view,
    origin,
    sizes_in,
    torch_dtype_of,
    unbacked_sizes_in,
    used_results,
    view_of,
)
from frameloom.ir.lower.graph_passes.repeats import Repeats, Unfit
from frameloom.ir.lower.layout import channels_last, convolution, onednn
from frameloom.ir.lower.layout.onednn import OneDnn
from frameloom.ir.lower.layout.relayout import as_returned, is_restrided, with_visible_strides
from frameloom.ir.lower.loops import loops
from frameloom.ir.lower.numbers import Numbers, Scalar
from frameloom.ir.lower.outputs import NotATensor, returned, write_back, write_cpu_inputs
from frameloom.ir.lower.state import Layouts, Writes
from frameloom.ir.lower.table import TABLE, Decline, Ref, read
from frameloom.ir.node import Node
from frameloom.ir.numbers import is_number
from frameloom.ir.passes.batch import can_expand
from frameloom.ir.passes.dependence import fails_behind_writes
from frameloom.ir.philox import Generator
from frameloom.ir.program import (
    BAIL_OUT_MESSAGES,
    Buffer,
    Check,
    Extern,
    IsomorphicParts,
    Kernel,
    Kind,
    Program,
    Store,
    View,
    is_cuda,
    leaves,
)
from frameloom.ir.substitute import fold, loads
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import require
from frameloom.ir.symbolic.expr import Size, number
from frameloom.ir.symbolic.unbacked import defined, forget

ASSERTION = "aten._assert_async.msg"
NO_ONEDNN = OneDnn()


def lower(
    graph: torch.fx.Graph,
    constants: torch.nn.Module,
    onednn: OneDnn = NO_ONEDNN,
    generator_of: Callable[[str], Generator | None] = lambda device: None,
    visible: int | None = None,
) -> Program:
    """Returns the Program of a functional ATen graph; the package's docstring describes the graph.

    `generator_of` a device: how its random numbers are drawn, if our kernels can draw them.  `visible`: how
    many of the first outputs the program sees (None: all); the others may have any layout."""

    def attempt(deduplicate: bool) -> Program:
        lowering = Lowering(graph, constants, onednn, generator_of, visible)
        program = lowering.run(deduplicate, early=True)
        if not lowering.writes.wrote_early or not fails_behind_writes(program):
            return program
        return Lowering(graph, constants, onednn, generator_of, visible).run(
            deduplicate, early=False
        )

    try:
        program = attempt(deduplicate=True)
        if can_expand(program):
            return program
    except Unfit:
        pass
    return attempt(deduplicate=False)


class Lowering:
    def __init__(
        self,
        graph: torch.fx.Graph,
        constants: torch.nn.Module,
        onednn: OneDnn,
        generator_of: Callable[[str], Generator | None],
        visible: int | None = None,
    ) -> None:
        self.graph = graph
        self.n_visible = visible
        self.onednn = onednn
        self.holder = constants
        self.generator_of = generator_of
        self.on_gpu = any(is_cuda(d) for n in graph.nodes for d in devices_of(n.meta.get("val")))
        self.values: dict[torch.fx.Node, Any] = {}  # Ref, list of Refs, or a plain constant
        # The position of the buffer's first element in its storage, in elements.
        self.base_offset: dict[Buffer, int] = {}
        self.inputs: list[Buffer] = []
        self.constants: dict[Buffer, Any] = {}
        self.steps: list[Kernel | Extern | Check] = []
        self.layouts, self.writes = Layouts(), Writes()
        self.returned: set[tuple[torch.fx.Node, int]] = (
            set()
        )  # results whose buffers outlive the call
        self.visible: set[tuple[torch.fx.Node, int]] = set()  # those of them that the program sees
        self.bails_out = False  # whether the call may bail out because of data
        self.numbers = Numbers(self)
        sizes = (n for node in graph.nodes for n in sizes_in(node.meta.get("val")))
        self.shape_env = next((n.shape_env for n in sizes), None)
        self.names: dict[str, int] = {}  # how many kernels each op has
        self.repeats = Repeats()

    def run(self, deduplicate: bool, early: bool) -> Program:
        """Lowers the graph.  `deduplicate`: isomorphic parts are lowered once (repeats.py), or Unfit is
        raised.  `early`: scatters into inputs may run where the program does them (in_place.py)."""
        nodes = list(self.graph.nodes)
        unbacked = {n.shape_env for node in nodes for n in unbacked_sizes_in(node.meta.get("val"))}
        bail_out_args = {(text,) for text in BAIL_OUT_MESSAGES}
        self.bails_out = (
            not early or bool(unbacked) or any(n.args[1:] in bail_out_args for n in nodes)
        )
        forget(s for shape_env in unbacked for s in shape_env.symbols)
        ends = nodes[-1].args[0]
        self.returned = {base_of(n) for n in leaves(ends) if isinstance(n, torch.fx.Node)}
        seen = leaves(ends if self.n_visible is None else ends[: self.n_visible])
        self.visible = {base_of(n) for n in seen if isinstance(n, torch.fx.Node)}
        self.layouts.channels_last = channels_last.chosen(nodes, self.onednn.convolutions)
        self.layouts.has_internal_layouts = bool(self.layouts.channels_last) or any(
            channels_last.ACTUAL_STRIDES in n.meta for n in nodes
        )
        outputs: tuple[View | int | tuple[Any], ...] = ()
        isomorphic_parts: tuple[IsomorphicParts, ...] = ()
        if deduplicate and not self.layouts.has_internal_layouts:
            self.repeats = Repeats.of(nodes, self.holder, self.visible)
        for node in nodes:
            if node in self.repeats.left_out:
                self.values[node] = None
            elif node.op == "placeholder":
                self.placeholder(node)
            elif node.op == "get_attr":
                self.constant(node)
            elif node.op == "call_function":
                precomputed = self.layouts.precomputed.get(node)
                self.values[node] = self.call(node) if precomputed is None else precomputed
            else:
                assert node.op == "output", f"unexpected {node.op} in a captured graph"
                write_cpu_inputs(self)
                isomorphic_parts = self.repeats.record_isomorphic_parts(self, ends)
                outputs = tuple(returned(self, n) for n in leaves(node.args[0]))
        return Program(
            tuple(self.inputs), tuple(self.steps), outputs, tuple(self.constants.items()),
            tuple(self.numbers.steps), isomorphic_parts, tuple(self.numbers.symbols.items()),
        )  # fmt: skip

    # --- leaves

    def placeholder(self, node: torch.fx.Node) -> None:
        val = node.meta.get("val")
        if is_number(node):
            self.values[node] = self.numbers.placeholder(node)
            return
        if isinstance(val, Size):
            self.numbers.note_size(node)
            self.values[node] = val
            return
        if not is_tensor(val):
            self.inputs.append(Buffer(node.name, None, (), (), Kind.INPUT))
            self.values[node] = NotATensor(len(self.inputs) - 1)
            return
        if channels_last.ACTUAL_STRIDES in node.meta:
            val = channels_last.RestridedTensor(val, node.meta[channels_last.ACTUAL_STRIDES])
        buffer = self.buffer(node.name, val, Kind.INPUT)
        self.inputs.append(buffer)
        self.values[node] = self.ref(buffer, val)

    def constant(self, node: torch.fx.Node) -> None:
        tensor = operator.attrgetter(str(node.target))(self.holder)
        buffer = self.buffer(node.name, tensor, Kind.CONSTANT)
        self.constants[buffer] = tensor
        self.values[node] = self.ref(buffer, tensor)

    def buffer(self, name: str, val: Any, kind: Kind) -> Buffer:
        dtype = DType.of(val.dtype)
        torch_dtype = val.dtype if dtype is None else None
        shape, strides = tuple(map(number, val.shape)), tuple(map(number, val.stride()))
        buffer = Buffer(name, dtype, shape, strides, kind, torch_dtype, str(val.device))
        self.base_offset[buffer] = number(val.storage_offset())
        return buffer

    def ref(self, buffer: Buffer, val: Any) -> Ref:
        own = torch_dtype_of(buffer)
        base = self.base_offset[buffer]
        dtype = DType.of(val.dtype)
        if val.dtype != own:
            base_bytes = base * own.itemsize
            if base_bytes % val.dtype.itemsize:
                raise Decline
            base, dtype = base_bytes // val.dtype.itemsize, None
        shape, strides = tuple(map(number, val.shape)), tuple(map(number, val.stride()))
        return Ref(buffer, shape, strides, number(val.storage_offset()) - base, dtype, val.dtype)

    def fresh(
        self, name: str, like: Ref, shape: tuple[int, ...], strides: tuple[int, ...],
        kind: Kind = Kind.TEMP,
    ) -> Ref:  # fmt: skip
        """Returns a new tensor with the dtype and the device of `like`."""
        torch_dtype = like.torch_dtype if like.dtype is None else None
        buffer = Buffer(name, like.dtype, shape, strides, kind, torch_dtype, like.buffer.device)
        self.base_offset[buffer] = 0
        return Ref(buffer, shape, strides, 0, like.dtype, like.torch_dtype)

    def kind_of(self, node: torch.fx.Node, k: int = 0) -> Kind:
        """Returns the kind of the buffer in which the k-th result of a node is computed."""
        return Kind.OUTPUT if (node, k) in self.returned else Kind.TEMP

    def tensor(self, view: View) -> torch.Tensor:
        """Returns the elements that a view of a constant shows."""
        tensor = self.constants[view.buffer]
        place = int(tensor.storage_offset()) + view.offset
        elements: torch.Tensor = tensor.as_strided(view.shape, view.strides, place)
        return elements

    # --- calls

    def call(self, node: torch.fx.Node) -> Any:
        target: Any = node.target
        if target is torch.Tensor.tolist:
            return self.read(node)
        if isinstance(node.meta.get("val"), Size):
            self.numbers.note_size(node)
            return node.meta["val"]
        if target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]  # type: ignore[index]
        if is_number(node):
            return self.numbers.computed(node)
        name = str(target)
        if not isinstance(target, torch._ops.OpOverload):
            CALLS[name] = target
            return self.library_call(node, name)
        arguments = arguments_of(target, node.args, node.kwargs)
        if name == WRITE_BACK:
            return write_back(self, node, *arguments[:2])
        if name == ASSERTION:
            holds = read(self.values[arguments[0]], [])
            bad = (~holds).node
            return self.check(node.name, bad, "RuntimeError", arguments[1], node, waits=True)
        val = node.meta.get("val")
        if is_view(target):
            try:
                if node.args[0] in self.layouts.raw or lazy.bits_of(val):
                    return lazy.view(self, node, val)
                return self.view(node, target, val)
            except Decline:
                return self.library_call(node, name)
        if node in self.layouts.channels_last:
            return convolution.lowered(self, node, arguments)
        function = TABLE.get(name)
        if function is not None:
            try:
                return loops(self, node, name, function, arguments)
            except Decline:
                if node in self.repeats.items:
                    raise Unfit from None
        return self.library_call(node, name)

    def read(self, node: torch.fx.Node) -> None:
        """Lowers a read of the ints of a vector, which become sizes."""
        (vector,) = node.all_input_nodes
        view = self.plain(vector)
        sizes = {n.args[1]: n.meta["val"] for n in node.users}
        shape = tuple(sizes.get(k, 0) for k in range(view.shape[0]))
        require(view == View(view.buffer, view.buffer.shape, (1,)), "sizes must be a whole vector")
        result = Buffer(node.name, DType.I64, shape, shape, Kind.EXTERN)
        defined([result])
        self.steps.append(Extern(READ, (view,), (), (result,), origin(node)))

    def view(self, node: torch.fx.Node, target: Any, val: Any) -> Any:
        """Lowers a view.  If the base has another layout than the program sees, it makes a view of the actual
        layout, or of a copy with the layout that the program sees."""
        several = isinstance(val, (list, tuple))
        base: Ref = self.values[node.args[0]]  # type: ignore[index]
        if is_restrided(self, node.args[0], base):
            views = channels_last.replay_view(target, base, node.args[1:], node.kwargs)
            if views is not None:
                refs = [replace(base, shape=s, strides=t, offset=o) for s, t, o in views]
                return refs if several else refs[0]
            base = with_visible_strides(self, node.args[0])
        return [self.ref(base.buffer, v) for v in val] if several else self.ref(base.buffer, val)

    def kernel(self, target: str, store: Store, node: torch.fx.Node) -> Kernel:
        """Returns a kernel of one store, named after the op."""
        word = target.split(".")[1].strip("_")
        number = self.names[word] = self.names.get(word, -1) + 1
        return Kernel(f"{word}_{number}", (store,), origin(node))

    def check(
        self,
        name: str,
        bad: Node,
        exception: str,
        message: str,
        node: torch.fx.Node,
        waits: bool = False,
    ) -> None:
        """Raises if `bad` holds anywhere.  On a GPU the kernel fails, as eager's kernels do; but if `waits`,
        the call waits for the result."""
        device = next((n.arg.device for n in loads([bad])), "cpu")
        flag = Buffer(name, DType.BOOL, (), (), Kind.TEMP, device=device)
        axes = sorted(bad.free, key=lambda a: a.name)
        value = fold("any", axes, bad) if axes else bad
        store = Store(flag, ir.index(0), value, ())
        self.steps.append(self.kernel("aten.check", store, node))
        if waits and is_cuda(device):
            seen = Buffer(f"{name}_seen", DType.BOOL, (), (), Kind.EXTERN)
            cpu = (("device", torch.device("cpu")),)
            copy = Extern(
                "aten._to_copy.default", (View(flag, (), ()),), cpu, (seen,), origin(node)
            )
            self.steps.append(copy)
            flag = seen
        self.steps.append(Check(flag, exception, message))

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            operand = self.values[value]
            if isinstance(operand, NotATensor):
                raise Decline
            return operand
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        if isinstance(value, complex):
            raise Decline
        return value

    def library_call(self, node: torch.fx.Node, name: str) -> Any:
        val = node.meta.get("val")
        several = isinstance(val, (list, tuple)) or val is None
        metas = list(val or ()) if several else [val]
        given = (node.args, tuple(node.kwargs.items()))
        value_of = None
        if self.layouts.has_internal_layouts:
            keeps = name in channels_last.LAYOUT_PRESERVING
            if not keeps and name not in OUT_FORMS and name != WRITE_BACK:
                value_of = partial(with_visible_strides, self)
            elif keeps:
                operands = [self.values[n] for n in leaves(given) if isinstance(n, torch.fx.Node)]
                metas = [channels_last.layout(v, operands) if is_tensor(v) else v for v in metas]
        args, kwargs = self.plain(given, value_of)
        if (
            self.onednn.products
            and (product_call := onednn.product(name, args, kwargs)) is not None
        ):
            name, args = onednn.packed_product(self, product_call)
        return self.extern(node, name, args, kwargs, metas, several)

    def extern(
        self, node: torch.fx.Node, name: str, args: Any, kwargs: Any, metas: Any, several: bool
    ) -> Any:
        """Adds a library call whose results have the geometry of `metas`."""
        used = used_results(node) if several else {0}
        refs: list[Ref | None] = []
        results: list[Buffer | None] = []
        for k, v in enumerate(metas):
            if not is_tensor(v):
                refs.append(None)
                results.append(None)
                continue
            kind = self.kind_of(node, k) if name in OUT_FORMS else Kind.EXTERN
            buffer = self.buffer(f"{node.name}_{k}" if several else node.name, v, kind)
            refs.append(self.ref(buffer, v))
            # A call that decides a size has to report it, even if the size must be a known number.
            if kind is Kind.EXTERN and any(
                n.shape_env.resolved(n) is not n for n in unbacked_sizes_in(v)
            ):
                buffer = replace(buffer, shape=v.own_shape, strides=v.own_strides)
            results.append(buffer if k in used or any(map(unbacked_in, buffer.shape)) else None)
        defined(results, self.numbers.symbols)
        self.steps.append(Extern(name, args, kwargs, tuple(results), origin(node)))
        refs = [ref and as_returned(self, node, ref, k) for k, ref in enumerate(refs)]
        return refs if several else refs[0]

    def plain(self, value: Any, value_of: Callable[[torch.fx.Node], Any] | None = None) -> Any:
        """Returns the argument of a library call.  `value_of` a node: its value, if not the usual one."""
        if isinstance(value, torch.fx.Node):
            return self.plain(self.values[value] if value_of is None else value_of(value))
        if isinstance(value, Ref):
            return view_of(value)
        if isinstance(value, Scalar):
            return value.buffer
        if isinstance(value, (list, tuple)):
            return tuple(self.plain(v, value_of) for v in value)
        assert not isinstance(value, NotATensor), "a library call on an input that is no tensor"
        return value
