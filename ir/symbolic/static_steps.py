"""The steps of a program in one call: symbolic sizes are replaced by ints.

In: the inputs of the call, and the results of library calls that decide sizes.  Out: steps, buffers and
outputs without symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from frameloom.ir.kernel_list import KernelInstance, KernelList
from frameloom.ir.node import Axis, Node, Reduce
from frameloom.ir.ops import Op
from frameloom.ir.program import (
    Buffer,
    Check,
    Extern,
    Kind,
    Program,
    Step,
    Store,
    View,
    map_leaves,
)
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.atoms import evaluated, lone_symbol
from frameloom.ir.symbolic.expr import Int, Size, Symbol, hint_of


class Unknown(Exception):
    """No input or result gives the size."""


class KnownSizes:
    """The values of symbols in a call; it learns more values while the call runs."""

    def __init__(self) -> None:
        self._known: dict[Symbol, int] = {}
        self._nodes: dict[Node, Node] = {}

    def given(self, program: Program, inputs: Sequence[Any], numbers: dict[Buffer, Any]) -> None:
        """Learns sizes from the inputs.  `numbers`: the values of buffers that are numbers."""
        for symbol, buffer in program.symbols:
            self._known.setdefault(symbol, int(numbers[buffer]))
        for buffer, tensor in zip(program.inputs, inputs, strict=True):
            if buffer.kind is Kind.INPUT and hasattr(tensor, "stride"):
                self.seen(buffer, tensor)

    def seen(self, buffer: Buffer, tensor: Any) -> None:
        """Learns the sizes of a buffer from its tensor."""
        self._learn((*buffer.shape, *buffer.strides), (*tensor.shape, *tensor.stride()))

    def read(self, buffer: Buffer | None, vector: Any) -> None:
        """Learns the sizes of a buffer from the elements of a vector."""
        assert buffer is not None
        self._learn(buffer.shape, vector.tolist())

    def _learn(self, sizes: Sequence[Int], values: Sequence[int]) -> None:
        for n, value in zip(sizes, values, strict=True):
            symbol = lone_symbol(n)
            if symbol is not None:
                self._known.setdefault(symbol, value)

    def _symbol(self, symbol: Symbol) -> int:
        if symbol not in self._known:
            raise Unknown(f"nothing tells {symbol}")
        return self._known[symbol]

    def of(self, n: Int) -> int:
        if not isinstance(n, Size):
            return n  # type: ignore[no-any-return]
        try:
            return evaluated(n, self._symbol)
        except Unknown:
            return evaluated(n.shape_env.resolved(n), self._symbol)

    def ints(self, sizes: Sequence[Int]) -> tuple[int, ...]:
        return tuple(map(self.of, sizes))

    def step(self, step: Step) -> Step:
        """Returns the step with ints.  Sizes of a library call's results stay symbolic: the call decides
        them."""
        if isinstance(step, Extern):
            return replace(step, args=self.value(step.args), kwargs=self.value(step.kwargs))
        if isinstance(step, Check):
            return replace(step, buffer=self.buffer(step.buffer))
        if isinstance(step, KernelList):
            return replace(step, instances=tuple(map(self._instance, step.instances)))
        return step.with_stores(lambda stores: map(self._store, stores))

    def _instance(self, instance: KernelInstance) -> KernelInstance:
        columns = tuple((self.buffer(b), self.of(start)) for b, start in instance.columns)
        numbers = tuple(n if type(n) in (bool, float) else self.of(n) for n in instance.numbers)
        return KernelInstance(self.of(instance.extent), columns, numbers)

    def value(self, value: Any) -> Any:
        """Returns an argument of a library call, or an output, with ints."""
        return map_leaves(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Size):
            return self.of(value)
        if isinstance(value, Buffer):
            return self.buffer(value)
        if isinstance(value, View):
            return replace(
                value,
                buffer=self.buffer(value.buffer),
                shape=self.ints(value.shape),
                strides=self.ints(value.strides),
                offset=self.of(value.offset),
            )
        return value

    def buffer(self, buffer: Buffer) -> Buffer:
        if not any(isinstance(n, Size) for n in (*buffer.shape, *buffer.strides)):
            return buffer
        return replace(buffer, shape=self.ints(buffer.shape), strides=self.ints(buffer.strides))

    def _store(self, store: Store) -> Store:
        scatter = store.scatter
        return replace(
            store,
            buffer=self.buffer(store.buffer),
            offset=self.node(store.offset),
            value=self.node(store.value),
            axes=self._axes(store.axes),
            scatter=scatter and replace(scatter, along=self._axes(scatter.along)),
        )

    def _axes(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, self.of(a.extent)) for a in axes)

    def node(self, root: Node) -> Node:
        """Returns the node with ints; it is not simplified."""
        done = self._nodes
        for n in topological([root]):
            if n in done:
                continue
            arg = n.arg
            if n.op is Op.AXIS:
                (arg,) = self._axes((arg,))
            elif n.op is Op.REDUCE:
                arg = Reduce(arg.kind, self._axes(arg.axes))
            elif n.op is Op.LOAD:
                arg = self.buffer(arg)
            elif n.op is Op.CONST and isinstance(arg, Size):
                arg = self.of(arg)
            done[n] = Node(n.op, n.dtype, tuple(done[s] for s in n.srcs), arg)
        return done[root]


class CapturedSizes(KnownSizes):
    """The values of symbols in the captured call."""

    def of(self, n: Int) -> int:
        return hint_of(n)
