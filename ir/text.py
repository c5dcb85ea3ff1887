"""The text form of programs, and its parser: `parse(show(program)) == program`.

The text has Python's syntax, so that Python's own parser reads it:

    x: input.f32((4, 6), (6, 1))
    y: output.f32((4, 6), (6, 1))
    with kernel("softmax"):
        v0 = max.f32(x[i0x4 * 6 + r0x6], over=(r0x6,))
        y[i0x4 * 6 + i1x6, (i0x4, i1x6)] = exp.f32(sub.f32(x[i0x4 * 6 + i1x6], v0))
    return (view(y, (4, 6), (6, 1), 0),)

A scatter has two more fields: `y[x[i0x4], (i0x4,), 'sum', (i0x4,)] = ...`.  A value that is used more than
once, and every reduction, has a line of its own.  Index sums are infix.  The extent of an axis is part of its
name; other axes are written `axis("name", extent)`.  A list of kernels is shown as its kernels, after a
comment.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.kernel_list import KernelList
from frameloom.ir.node import Axis, Node, Reduce
from frameloom.ir.ops import Op
from frameloom.ir.philox import Stream
from frameloom.ir.program import (
    Buffer,
    Check,
    Extern,
    Kernel,
    Kind,
    Program,
    Scatter,
    Store,
    View,
)
from frameloom.ir.substitute import topological

_INFIX = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.FLOORDIV: "//", Op.MOD: "%"}
_KEYWORDS = {"and", "or", "not"}
_NAMED_AXIS = re.compile(r"[a-z]+\d+x(\d+)$")


def show(thing: Program | Kernel | Store | Node) -> str:
    """Returns the readable text of a program or any part of it."""
    if isinstance(thing, Program):
        return _show_program(thing)
    if isinstance(thing, Kernel):
        return "\n".join(_show_kernel(thing))
    if isinstance(thing, Store):
        return "\n".join(_show_kernel(Kernel("store", (thing,)))[1:])
    lines, names = _values([thing])
    return "\n".join([*lines, _node(thing, names)])


def _show_program(program: Program) -> str:
    buffers: dict[Buffer, None] = dict.fromkeys(program.inputs)
    buffers.update(dict.fromkeys(b for b, _ in program.constants))
    for step in program.steps:
        buffers.update(dict.fromkeys(step.buffers))
    buffers.update(dict.fromkeys(program.returned))
    lines = [_show_buffer(b) for b in buffers]
    for n in program.numbers:
        lines.append(f"# {n.result} = {n.op}({', '.join(map(str, n.operands))})")
    for step in program.steps:
        if isinstance(step, Extern):
            lines.append(_show_extern(step))
        elif isinstance(step, Check):
            lines.append(f"check({step.buffer.name}, {step.exception!r}, {step.message!r})")
        elif isinstance(step, KernelList):
            lines.append(f"# one launch, {step.name!r}, for {len(step.instances)} kernels")
        for kernel in step.kernels:
            lines += _show_kernel(kernel)
    outs = "".join(
        f"const({_plain(o[0])}), " if isinstance(o, tuple) else f"{_plain(o)}, "
        for o in program.outputs
    )
    return "\n".join([*lines, f"return ({outs.rstrip()})"]) + "\n"


def _show_buffer(b: Buffer) -> str:
    dtype = b.dtype.text if b.dtype else str(b.torch_dtype or "object").removeprefix("torch.")
    device = "" if b.device == "cpu" else f", {b.device!r}"
    return f"{b.name}: {b.kind.value}.{dtype}({b.shape}, {b.strides}{device})"


def _show_kernel(kernel: Kernel) -> list[str]:
    lines = [f"    # {line}" for line in kernel.origin]
    values, names = _values([r for s in kernel.stores for r in (s.offset, s.value)])
    lines += [f"    {line}" for line in values]
    for s in kernel.stores:
        where = f"({_axes(s.axes)})"
        if s.scatter is not None:
            where += f", {s.scatter.kind!r}, ({_axes(s.scatter.along)})"
        lines.append(
            f"    {s.buffer.name}[{_node(s.offset, names)}, {where}] = {_node(s.value, names)}"
        )
    return [f"with kernel({kernel.name!r}):", *lines]


def _show_extern(step: Extern) -> str:
    results = ", ".join("_" if b is None else b.name for b in step.results)
    args = [
        repr(step.target),
        *map(_plain, step.args),
        *(f"{k}={_plain(v)}" for k, v in step.kwargs),
    ]
    return f"[{results}] = extern({', '.join(args)})"


def _plain(value: Any) -> str:
    if isinstance(value, View):
        dtype = f", {value.torch_dtype!r}" if value.torch_dtype is not None else ""
        return f"view({value.buffer.name}, {value.shape}, {value.strides}, {value.offset}{dtype})"
    if isinstance(value, (tuple, list)):
        inside = "".join(f"{_plain(v)}, " for v in value).rstrip()
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    return repr(value)


def _values(roots: Sequence[Node]) -> tuple[list[str], dict[Node, str]]:
    """Returns lines for shared values and reductions, and their names."""
    order = topological(roots)
    uses: dict[Node, int] = {}
    for used in [s for n in order for s in n.srcs] + list(roots):
        uses[used] = uses.get(used, 0) + 1
    lines: list[str] = []
    names: dict[Node, str] = {}
    for n in order:
        if n.srcs and not _is_index(n) and (uses[n] > 1 or n.op is Op.REDUCE):
            text = _node(n, names)
            names[n] = f"v{len(names)}"
            lines.append(f"{names[n]} = {text}")
    return lines, names


def _is_index(n: Node) -> bool:
    return n.dtype is DType.I64 and n.op in _INFIX


def _node(root: Node, names: dict[Node, str]) -> str:
    done: dict[Node, str] = {}
    stack = [root]
    while stack:
        n = stack[-1]
        if n in names and n is not root:
            done[n] = names[n]
        waiting = [s for s in n.srcs if s not in done] if n not in done else []
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if n not in done:
            done[n] = names[n] if n in names else _one(n, [done[s] for s in n.srcs])
    return done[root]


def _one(n: Node, srcs: Sequence[str]) -> str:
    if n.op is Op.CONST:
        return str(n.arg) if n.dtype is DType.I64 else f"{n.dtype.text}({n.arg!r})"
    if n.op is Op.AXIS:
        return _axis(n.arg)
    if n.op is Op.LOAD:
        return f"{n.arg.name}[{', '.join(srcs)}]"
    if _is_index(n):
        first, second = n.srcs
        left = f"({srcs[0]})" if _is_index(first) and n.op is not Op.ADD else srcs[0]
        right = f"({srcs[1]})" if _is_index(second) or srcs[1].startswith("-") else srcs[1]
        left = f"({left})" if left.startswith("-") else left
        return f"{left} {_INFIX[n.op]} {right}"
    if n.op is Op.REDUCE:
        return f"{n.arg.kind}.{n.dtype.text}({srcs[0]}, over=({_axes(n.arg.axes)}))"
    if n.op is Op.RANDOM:
        of = f"of=({n.arg.threads}, {n.arg.width})"
        return f"random.{n.dtype.text}({', '.join(srcs)}, {of})"
    name = n.op.value + "_" * (n.op.value in _KEYWORDS)
    return f"{name}.{n.dtype.text}({', '.join(srcs)})"


def _axes(axes: Iterable[Axis]) -> str:
    return "".join(f"{_axis(a)}, " for a in axes).rstrip()


def _axis(a: Axis) -> str:
    named = _NAMED_AXIS.match(a.name)
    return a.name if named and int(named[1]) == a.extent else f"axis({a.name!r}, {a.extent})"


# --- parsing

_DTYPES = {d.text: d for d in DType}
_OPS = {op.value + "_" * (op.value in _KEYWORDS): op for op in Op}
_OPERATORS = {
    ast.Add: Op.ADD,
    ast.Sub: Op.SUB,
    ast.Mult: Op.MUL,
    ast.FloorDiv: Op.FLOORDIV,
    ast.Mod: Op.MOD,
}


def parse(text: str) -> Program:
    """Returns the program that `show` printed as `text` (without the tensors of constants, which the text
    lacks)."""
    return _Parser().program(ast.parse(text))


class _Parser:
    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.values: dict[str, Node] = {}

    def program(self, tree: ast.Module) -> Program:
        steps: list[Kernel | Extern | Check] = []
        outputs: tuple[Any, ...] = ()
        for line in tree.body:
            match line:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Call() as call):
                    self.buffers[name] = self.buffer(name, call)
                case ast.With(
                    items=[ast.withitem(context_expr=ast.Call(args=[name_node]))], body=body
                ):
                    steps.append(self.kernel(ast.literal_eval(name_node), body))
                case ast.Assign(targets=[ast.List(elts=results)], value=ast.Call() as call):
                    steps.append(self.extern(results, call))
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Name(id="check"), args=[ast.Name(id=flag), kind, message]
                    )
                ):
                    literal = ast.literal_eval
                    steps.append(Check(self.buffers[flag], literal(kind), literal(message)))
                case ast.Return(value=ast.Tuple(elts=elements)):
                    outputs = tuple(self.plain(e) for e in elements)
                case _:
                    raise SyntaxError(
                        f"line {line.lineno}: not part of a program: {ast.unparse(line)}"
                    )
        of_kind = {k: [b for b in self.buffers.values() if b.kind is k] for k in Kind}
        constants = tuple((b, None) for b in of_kind[Kind.CONSTANT])
        return Program(tuple(of_kind[Kind.INPUT]), tuple(steps), outputs, constants)

    def buffer(self, name: str, call: ast.Call) -> Buffer:
        assert isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        shape, strides, *device = map(ast.literal_eval, call.args)
        dtype = _DTYPES.get(call.func.attr)
        torch_dtype = (
            None if dtype or call.func.attr == "object" else getattr(torch, call.func.attr)
        )
        return Buffer(name, dtype, shape, strides, Kind(call.func.value.id), torch_dtype, *device)

    def kernel(self, name: str, body: Iterable[ast.stmt]) -> Kernel:
        self.values = {}
        stores = []
        for line in body:
            match line:
                case ast.Assign(targets=[ast.Name(id=value_name)], value=value):
                    self.values[value_name] = self.node(value)
                case ast.Assign(
                    targets=[
                        ast.Subscript(
                            value=ast.Name(id=to),
                            slice=ast.Tuple(elts=[offset, ast.Tuple(elts=axes), *more]),
                        )
                    ],
                    value=value,
                ):
                    where = tuple(self.axis(a) for a in axes)
                    nodes = self.node(offset), self.node(value)
                    stores.append(Store(self.buffers[to], *nodes, where, self.scatter(more)))
                case _:
                    raise SyntaxError(
                        f"line {line.lineno}: not part of a kernel: {ast.unparse(line)}"
                    )
        return Kernel(name, tuple(stores))

    def scatter(self, parts: list[ast.expr]) -> Scatter | None:
        if not parts:
            return None
        kind, along = parts
        assert isinstance(along, ast.Tuple)
        return Scatter(ast.literal_eval(kind), tuple(map(self.axis, along.elts)))

    def extern(self, results: Sequence[ast.expr], call: ast.Call) -> Extern:
        target, *args = map(self.plain, call.args)
        kwargs = tuple((str(k.arg), self.plain(k.value)) for k in call.keywords)
        buffers = tuple(
            self.buffers.get(r.id) if isinstance(r, ast.Name) else None for r in results
        )
        return Extern(target, tuple(args), kwargs, buffers)

    def plain(self, tree: ast.expr) -> Any:
        match tree:
            case ast.Call(func=ast.Name(id="view"), args=[ast.Name(id=name), *rest]):
                return View(self.buffers[name], *map(self.plain, rest))
            case ast.Call(func=ast.Name(id="const"), args=[value]):
                return (self.plain(value),)
            case ast.Call(func=ast.Name(id="device"), keywords=keywords):
                parts = {k.arg: ast.literal_eval(k.value) for k in keywords}
                return torch.device(":".join(map(str, parts.values())))
            case ast.Attribute(value=ast.Name(id="torch"), attr=attr):
                return getattr(torch, attr)
            case ast.Tuple(elts=elements):
                return tuple(map(self.plain, elements))
            case ast.List(elts=elements):
                return list(map(self.plain, elements))
            case ast.Name() | ast.UnaryOp(operand=ast.Name()):
                return self.number(tree)
        return ast.literal_eval(tree)

    def number(self, tree: ast.expr) -> bool | int | float:
        match tree:
            case ast.Name(id="inf"):
                return math.inf
            case ast.Name(id="nan"):
                return math.nan
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
        value: bool | int | float = ast.literal_eval(tree)
        return value

    def axis(self, tree: ast.expr) -> Axis:
        match tree:
            case ast.Name(id=name) if named := _NAMED_AXIS.match(name):
                return Axis(name, int(named[1]))
            case ast.Call(func=ast.Name(id="axis"), args=[name_node, extent]):
                return Axis(ast.literal_eval(name_node), ast.literal_eval(extent))
        raise SyntaxError(f"not an axis: {ast.unparse(tree)}")

    def node(self, tree: ast.expr) -> Node:
        # Shared values have lines of their own, so the recursion is only as deep as one printed line nests.
        match tree:
            case ast.Name(id=name) if name in self.values:
                return self.values[name]
            case ast.Name() | ast.Call(func=ast.Name(id="axis")):
                return Node(Op.AXIS, DType.I64, (), self.axis(tree))
            case ast.Constant() | ast.UnaryOp():
                return Node(Op.CONST, DType.I64, (), self.number(tree))
            case ast.BinOp(left=left, op=operator, right=right):
                op = _OPERATORS[type(operator)]
                return Node(op, DType.I64, (self.node(left), self.node(right)))
            case ast.Subscript(value=ast.Name(id=name), slice=inside):
                parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                buffer = self.buffers[name]
                assert buffer.dtype is not None
                return Node(Op.LOAD, buffer.dtype, tuple(map(self.node, parts)), buffer)
            case ast.Call(func=ast.Name(id=name), args=[value]):
                return Node(Op.CONST, _DTYPES[name], (), self.number(value))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr=dtype), args=args, keywords=[]
            ):
                return Node(_OPS[name], _DTYPES[dtype], tuple(map(self.node, args)))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="random"), attr=dtype),
                args=args,
                keywords=[of],
            ):
                stream = Stream(*ast.literal_eval(of.value))
                return Node(Op.RANDOM, _DTYPES[dtype], tuple(map(self.node, args)), stream)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=kind), attr=dtype),
                args=[value],
                keywords=[over],
            ):
                assert isinstance(over.value, ast.Tuple)
                axes = tuple(map(self.axis, over.value.elts))
                return Node(Op.REDUCE, _DTYPES[dtype], (self.node(value),), Reduce(kind, axes))
        raise SyntaxError(f"not a value: {ast.unparse(tree)}")
