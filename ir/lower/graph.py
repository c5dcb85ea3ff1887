"""`lower`: a captured graph of ATen ops becomes a Program, op by op.

Views become geometry over their base's buffer (from the node's `meta["val"]`, no rule per view op); ops with an entry in
TABLE become a Kernel per result; everything else becomes a library call.  Writes to inputs (`aten.copy_` at the end of
the graph) become stores into INPUT buffers, after everything that reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from frameloom.ir import node as ir
from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.library import OUT_FORMS
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.table import TABLE, Call, Decline, Ref, Result, positions, read
from frameloom.ir.node import Node
from frameloom.ir.program import (
    Buffer,
    Check,
    Extern,
    Kernel,
    Kind,
    Program,
    Store,
    View,
    is_cuda,
)
from frameloom.ir.substitute import fold, loads, space

# Views whose schema does not say so, and ops whose schema says "may be a view" but that copy when they are recorded.
VIEWS = frozenset({"aten._unsafe_view.default"})
COPIES = frozenset({"aten.contiguous.default"})
WRITE_BACK = "aten.copy_.default"
ASSERTION = "aten._assert_async.msg"


def lower(graph: torch.fx.Graph, constants: torch.nn.Module) -> Program:
    """The Program of a functional ATen graph; see the package's text for what the graph looks like."""
    return _Graph(graph, constants).run()


class _Graph:
    def __init__(self, graph: torch.fx.Graph, constants: torch.nn.Module) -> None:
        self.graph = graph
        self.holder = constants
        self.on_gpu = any(is_cuda(d) for n in graph.nodes for d in _devices(n.meta.get("val")))
        self.values: dict[torch.fx.Node, Any] = {}  # Ref, list of Refs, or a plain constant
        self.base_offset: dict[
            Buffer, int
        ] = {}  # of the buffer's first element in its storage, in elements
        self.inputs: list[Buffer] = []
        self.constants: list[tuple[Buffer, Any]] = []
        self.steps: list[Kernel | Extern | Check] = []
        self.written: set[Buffer] = set()
        self.returned: set[tuple[torch.fx.Node, int]] = (
            set()
        )  # results whose buffers outlive the call
        self.names: dict[str, int] = {}  # how many kernels each op has

    def run(self) -> Program:
        nodes = list(self.graph.nodes)
        self.returned = {
            _base(n) for n in _flatten(nodes[-1].args[0]) if isinstance(n, torch.fx.Node)
        }
        outputs: tuple[View | int | tuple[Any], ...] = ()
        for node in nodes:
            if node.op == "placeholder":
                self.placeholder(node)
            elif node.op == "get_attr":
                self.constant(node)
            elif node.op == "call_function":
                self.values[node] = self.call(node)
            else:
                assert node.op == "output", f"unexpected {node.op} in a captured graph"
                outputs = tuple(self.output(n) for n in _flatten(node.args[0]))
        return Program(tuple(self.inputs), tuple(self.steps), outputs, tuple(self.constants))

    # --- leaves

    def placeholder(self, node: torch.fx.Node) -> None:
        val = node.meta.get("val")
        if not _is_tensor(val):
            self.inputs.append(Buffer(node.name, None, (), (), Kind.INPUT))
            self.values[node] = _NotATensor(len(self.inputs) - 1)
            return
        buffer = self.buffer(node.name, val, Kind.INPUT)
        self.inputs.append(buffer)
        self.values[node] = self.ref(buffer, val)

    def constant(self, node: torch.fx.Node) -> None:
        tensor: Any = self.holder
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        buffer = self.buffer(node.name, tensor, Kind.CONSTANT)
        self.constants.append((buffer, tensor))
        self.values[node] = self.ref(buffer, tensor)

    def buffer(self, name: str, val: Any, kind: Kind) -> Buffer:
        dtype = DType.of(val.dtype)
        torch_dtype = val.dtype if dtype is None else None
        shape, strides = tuple(map(int, val.shape)), tuple(map(int, val.stride()))
        buffer = Buffer(name, dtype, shape, strides, kind, torch_dtype, str(val.device))
        self.base_offset[buffer] = int(val.storage_offset())
        return buffer

    def ref(self, buffer: Buffer, val: Any) -> Ref:
        own = _torch_dtype(buffer)
        base = self.base_offset[buffer]
        dtype = DType.of(val.dtype)
        if val.dtype != own:
            base_bytes = base * own.itemsize
            if base_bytes % val.dtype.itemsize:
                raise Decline
            base, dtype = base_bytes // val.dtype.itemsize, None
        shape, strides = tuple(map(int, val.shape)), tuple(map(int, val.stride()))
        return Ref(buffer, shape, strides, int(val.storage_offset()) - base, dtype, val.dtype)

    # --- calls

    def call(self, node: torch.fx.Node) -> Any:
        target: Any = node.target
        if target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]  # type: ignore[index]
        name = str(target)
        arguments = _arguments(target, node.args, node.kwargs)
        if name == WRITE_BACK:
            return self.write_back(node, *arguments[:2])
        if name == ASSERTION:
            holds = read(self.values[arguments[0]], [])
            bad = (~holds).node
            return self.check(node.name, bad, "RuntimeError", arguments[1], node, waits=True)
        val = node.meta.get("val")
        if (is_view(target) and name not in COPIES) or name in VIEWS:
            buffer = self.values[node.args[0]].buffer  # type: ignore[index]
            try:
                return (
                    [self.ref(buffer, v) for v in val]
                    if isinstance(val, (list, tuple))
                    else self.ref(buffer, val)
                )
            except Decline:
                return self.library_call(node, name)
        found = TABLE.get(name)
        if found is not None:
            try:
                return self.loops(node, name, found, arguments)
            except Decline:
                pass
        return self.library_call(node, name)

    def loops(self, node: torch.fx.Node, name: str, function: Any, arguments: list[Any]) -> Any:
        val: Any = node.meta.get("val")
        several = isinstance(val, (list, tuple))
        metas = list(val) if several else [val]
        results = tuple(_result(v) for v in metas)
        device = str(metas[0].device)
        if any(str(v.device) != device for v in metas) or (self.on_gpu and not is_cuda(device)):
            raise Decline  # on the CPU beside a GPU: a few numbers, not worth a compiler's run
        names = tuple(a.name for a in node.target._schema.arguments)  # type: ignore[union-attr]
        given = [self.argument(a) for a in arguments]
        if any(ref.buffer.device != device for ref in _flatten(given) if isinstance(ref, Ref)):
            raise Decline  # a number in the CPU's memory is given to the GPU by the library call
        call = Call(name, names, results)
        empty = all(0 in r.shape for r in results)
        values = [None] * len(metas) if empty else function(call, *given)
        refs: list[Ref | None] = []
        steps = []
        for k, (v, value) in enumerate(
            zip(metas, values if several or empty else [values], strict=True)
        ):
            own_name = f"{node.name}_{k}" if several else node.name
            kind = Kind.OUTPUT if (node, k) in self.returned else Kind.TEMP
            buffer = self.buffer(own_name, v, kind)
            refs.append(self.ref(buffer, v))
            if value is not None and 0 not in buffer.shape:
                stored = _store(refs[-1], value)
                steps.append(self.kernel(name, stored, node))
        self.steps += steps
        for k, (bad, exception, message) in enumerate(call.checks):
            self.check(f"{node.name}_check{k}", bad, exception, message, node)
        return refs if several else refs[0]

    def kernel(self, target: str, store: Store, node: torch.fx.Node) -> Kernel:
        """A kernel of one store, named after the op."""
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
        """Raise if `bad` holds anywhere.  On a GPU the kernel fails, as eager's do, unless the program `waits` to see it."""
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
            found = self.values[value]
            if isinstance(found, _NotATensor):
                raise Decline
            return found
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        if isinstance(value, complex):
            raise Decline
        return value

    def library_call(self, node: torch.fx.Node, name: str) -> Any:
        val = node.meta.get("val")
        several = isinstance(val, (list, tuple)) or val is None
        used = _used(node) if several else {0}
        refs: list[Ref | None] = []
        results: list[Buffer | None] = []
        for k, v in enumerate((val or ()) if several else [val]):
            if not _is_tensor(v):
                refs.append(None)
                results.append(None)
                continue
            kind = Kind.EXTERN
            if name in OUT_FORMS:
                kind = Kind.OUTPUT if (node, k) in self.returned else Kind.TEMP
            buffer = self.buffer(f"{node.name}_{k}" if several else node.name, v, kind)
            refs.append(self.ref(buffer, v))
            results.append(buffer if k in used else None)
        args = tuple(self.plain(a) for a in node.args)
        kwargs = tuple((k, self.plain(v)) for k, v in node.kwargs.items())
        self.steps.append(Extern(name, args, kwargs, tuple(results), origin(node)))
        return refs if several else refs[0]

    def plain(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.plain(self.values[value])
        if isinstance(value, Ref):
            return _view(value)
        if isinstance(value, (list, tuple)):
            return tuple(self.plain(v) for v in value)
        assert not isinstance(value, _NotATensor), "a library call on an input that is no tensor"
        return value

    # --- the end of the graph

    def write_back(self, node: torch.fx.Node, target: torch.fx.Node, source: Any) -> Ref:
        into: Ref = self.values[target]
        value = self.values[source] if isinstance(source, torch.fx.Node) else source
        assert into.buffer.kind is Kind.INPUT, f"{node} writes to {into.buffer}, which is no input"
        if isinstance(value, Ref) and value.buffer.kind is Kind.INPUT and value != into:
            value = self.copied_early(node, value)
        beside_gpu = self.on_gpu and not is_cuda(into.buffer.device)
        if isinstance(value, Ref) and (value.dtype is None or into.dtype is None or beside_gpu):
            self.steps.append(
                Extern(WRITE_BACK, (_view(into), _view(value)), (), (None,), origin(node))
            )
        elif 0 not in into.shape:
            at = positions(into.shape)
            element = read(value, at) if isinstance(value, Ref) else None
            assert into.dtype is not None
            stored = element or Expr(ir.const(value, into.dtype))
            self.steps.append(self.kernel(WRITE_BACK, _store(into, stored), node))
        self.written.add(into.buffer)
        return into

    def copied_early(self, node: torch.fx.Node, value: Ref) -> Ref:
        """A copy of an input's old value, made before any input is written."""
        if value.dtype is None:
            return value
        kept = Buffer(
            f"{node.name}_old", value.dtype, value.shape, _contiguous(value.shape), Kind.TEMP,
            device=value.buffer.device,
        )  # fmt: skip
        self.base_offset[kept] = 0
        ref = Ref(kept, value.shape, kept.strides, 0, value.dtype, value.torch_dtype)
        if 0 not in value.shape:
            store = _store(ref, read(value, positions(value.shape)))
            first_write = next(
                (
                    k
                    for k, s in enumerate(self.steps)
                    if isinstance(s, Kernel) and s.stores[0].buffer in self.written
                ),
                len(self.steps),
            )
            self.steps.insert(first_write, self.kernel("aten.clone", store, node))
        return ref

    def output(self, value: Any) -> View | int | tuple[Any]:
        if not isinstance(value, torch.fx.Node):
            return (value,)
        found = self.values[value]
        if isinstance(found, _NotATensor):
            return found.position
        if not isinstance(found, Ref):
            return (found,)
        itself: Any = value
        while str(itself.target) == WRITE_BACK:
            itself = itself.args[0]
        return self.inputs.index(found.buffer) if itself.op == "placeholder" else _view(found)


class _NotATensor:
    """The value of a placeholder that is no tensor: it can only be passed through."""

    def __init__(self, position: int) -> None:
        self.position = position


def origin(node: torch.fx.Node) -> tuple[str, ...]:
    """The graph node and the user's line, for names and comments."""
    line = f"{node.name} = {node.target}"
    stack = node.meta.get("stack")
    return (f"{line}  # {stack}",) if stack else (line,)


_IS_VIEW: dict[Any, bool] = {}


def is_view(target: Any) -> bool:
    """Whether the op's schema says that it returns a view of its first argument."""
    if target not in _IS_VIEW:
        schema = target._schema
        returned = [r.alias_info for r in schema.returns]
        first = schema.arguments[0].alias_info if schema.arguments else None
        _IS_VIEW[target] = bool(
            returned and returned[0] is not None and not returned[0].is_write and first is not None
        )
    return _IS_VIEW[target]


_SIGNATURES: dict[Any, list[tuple[str, bool, Any]]] = {}


def _arguments(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments in the order of the schema, defaults filled in."""
    signature = _SIGNATURES.get(target)
    if signature is None:
        signature = [(a.name, a.kwarg_only, a.default_value) for a in target._schema.arguments]
        _SIGNATURES[target] = signature
    found = list(args)
    for name, _, default in signature[len(args) :]:
        found.append(kwargs.get(name, default))
    return found


def _result(val: Any) -> Result:
    if not _is_tensor(val):
        raise Decline
    dtype = DType.of(val.dtype)
    shape, strides = tuple(map(int, val.shape)), tuple(map(int, val.stride()))
    if dtype is None or any(s == 0 and e > 1 for e, s in zip(shape, strides, strict=True)):
        raise Decline
    return Result(shape, strides, dtype, val.dtype)


def _store(into: Ref | None, value: Expr) -> Store:
    assert into is not None and into.dtype is not None
    offset = linear(positions(into.shape), into.strides, into.offset)
    axes = space([extent for extent in into.shape if extent != 1])
    return Store(into.buffer, offset, value.cast(into.dtype).node, axes)


def _view(ref: Ref) -> View:
    retyped = ref.torch_dtype if ref.torch_dtype != _torch_dtype(ref.buffer) else None
    return View(ref.buffer, ref.shape, ref.strides, ref.offset, retyped)


def _torch_dtype(buffer: Buffer) -> Any:
    return buffer.torch_dtype if buffer.dtype is None else buffer.dtype.to_torch()


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _devices(val: Any) -> Iterator[str]:
    for v in _flatten(val):
        if _is_tensor(v):
            yield str(v.device)


def _is_tensor(val: Any) -> bool:
    return hasattr(val, "storage_offset")


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _flatten(v)
    else:
        yield value


def _used(node: torch.fx.Node) -> set[int]:
    """Which results are looked at."""
    return {int(u.args[1]) for u in node.users if u.target is operator.getitem}  # type: ignore[arg-type]


def _base(node: torch.fx.Node) -> tuple[torch.fx.Node, int]:
    """The node, and which of its results, whose buffer `node` is a view of."""
    result = 0
    while node.op == "call_function":
        target: Any = node.target
        if target is operator.getitem:
            result = int(node.args[1])  # type: ignore[arg-type]
        elif not (
            (is_view(target) and str(target) not in COPIES) or str(target) in VIEWS | {WRITE_BACK}
        ):
            break
        else:
            result = 0
        node = node.args[0]  # type: ignore[assignment]
    return node, result
