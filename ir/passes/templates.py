"""Templates of elementwise kernels: the work of a kernel without its buffers, extents and numbers.

A kernel has a `Template` if every store and load either goes through its buffer in memory order (the same
order for all, with any number of dimensions), or reads the same element everywhere.  Kernels with equal
templates differ only in their `KernelInstance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from frameloom.ir.index import terms_of
from frameloom.ir.kernel_list import ALONG, FIRST, HERE, KernelInstance, Template
from frameloom.ir.node import Axis, Node, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind, Step, Store
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.expr import hint_of, may_exceed_1


def template_of(kernel: Step) -> tuple[Template, KernelInstance] | None:
    """Returns the template of a kernel and its instance; None if it has none."""
    if not isinstance(kernel, Kernel):
        return None
    strides = _memory_order(kernel.stores[0])
    if strides is None:
        return None
    builder = _TemplateBuilder(strides, kernel.device)
    stores = []
    for s in kernel.stores:
        if frozenset(s.axes) != frozenset(kernel.stores[0].axes) or s.scatter is not None:
            return None
        at, value = builder.place(s.buffer, s.offset), builder.value(s.value)
        if at is None or value is None or at[1] is not HERE:
            return None
        stores.append(Store(at[0], HERE, value, (ALONG,)))
    extent = math.prod(a.extent for a in strides)
    template = Template(
        tuple(stores), tuple(builder.columns.values()), tuple(builder.numbers.values())
    )
    return template, KernelInstance(
        extent, tuple((b, k) for b, k, _ in builder.columns), tuple(n.arg for n in builder.numbers)
    )


def _memory_order(store: Store) -> dict[Axis, int] | None:
    """Returns the stride of every axis if the store fills memory without gaps, else None."""
    terms, _ = terms_of(store.offset)
    strides = {n.arg: factor for n, factor in terms.items() if n.op is Op.AXIS}
    wanted = [a for a in store.axes if may_exceed_1(a.extent)]
    if len(strides) < len(terms) or not set(wanted) <= set(strides):
        return None
    below = 1
    for a in sorted(wanted, key=lambda a: hint_of(strides[a])):
        if strides[a] != below:
            return None
        below *= a.extent
    return {a: strides[a] for a in wanted}


class _TemplateBuilder:
    """The columns and numbers of one template, in the order of first use."""

    def __init__(self, strides: dict[Axis, int], device: str) -> None:
        self.strides = strides
        self.device = device
        self.columns: dict[tuple[Buffer, int, Node], Buffer] = {}
        self.numbers: dict[Node, Buffer] = {}

    def place(self, buffer: Buffer, offset: Node) -> tuple[Buffer, Node] | None:
        """Returns the column for an access, and the offset in it; None if a template cannot have such an
        access."""
        if buffer.dtype is None:
            return None
        terms, start = terms_of(offset)
        strides = {}
        for n, factor in terms.items():
            if n.op is not Op.AXIS:
                return None
            if may_exceed_1(n.arg.extent):
                strides[n.arg] = factor
        if strides and strides != self.strides:
            return None
        # If there is only one element, every access is an access at the kernel's position.
        at = HERE if strides or not (self.strides or buffer.kind is Kind.NUMBER) else FIRST
        column = self.columns.get((buffer, start, at))
        if column is None:
            number, device = len(self.columns), self.device
            if buffer.kind is Kind.NUMBER:
                column = Buffer(f"n{number}", buffer.dtype, (), (), Kind.NUMBER, device=device)
            else:
                column = Buffer(
                    f"p{number}", buffer.dtype, (ALONG.extent,), (1,), Kind.INPUT, device=device
                )
            self.columns[buffer, start, at] = column
        return column, at

    def value(self, root: Node) -> Node | None:
        """Returns `root` over columns and numbers, or None if a template cannot have it."""
        done: dict[Node, Node | None] = {}
        for n in topological([root]):
            done[n] = self._value(n, done)
        result = done[root]
        return self._number(root) if root.op is Op.CONST else result

    def _value(self, n: Node, done: dict[Node, Node | None]) -> Node | None:
        if n.op is Op.LOAD:
            at = self.place(n.arg, n.srcs[0]) if len(n.srcs) == 1 else None
            return None if at is None else load(*at)
        if n.op is Op.AXIS or n.op is Op.REDUCE or not n.srcs:
            return None
        # Only constants from which a value is computed become numbers; offsets keep their own.
        if any(done[s] is None and s.op is not Op.CONST for s in n.srcs):
            return None
        srcs = [done[s] or self._number(s) for s in n.srcs]
        return Node(n.op, n.dtype, tuple(srcs), n.arg)

    def _number(self, n: Node) -> Node:
        buffer = self.numbers.get(n)
        if buffer is None:
            name = f"c{len(self.numbers)}"
            buffer = Buffer(name, n.dtype, (), (), Kind.INPUT, device=self.device)
            self.numbers[n] = buffer
        return load(buffer, FIRST)


def fold_common_numbers(
    template: Template, instances: Sequence[KernelInstance]
) -> tuple[Template, tuple[KernelInstance, ...]]:
    """Replaces every number that is the same in all instances by a constant; returns the template and the
    instances."""
    same: dict[Buffer, Node] = {}
    distinct: list[int] = []
    for k, buffer in enumerate(template.numbers):
        values = {(type(r.numbers[k]), exact(r.numbers[k])) for r in instances}
        if len(values) == 1:
            same[buffer] = Node(Op.CONST, buffer.dtype, (), instances[0].numbers[k])  # type: ignore[arg-type]
        else:
            distinct.append(k)
    stores = []
    for s in template.stores:
        done: dict[Node, Node] = {}
        for n in topological([s.value]):
            srcs = tuple(done[x] for x in n.srcs)
            known = same.get(n.arg) if n.op is Op.LOAD else None
            done[n] = known or Node(n.op, n.dtype, srcs, n.arg)
        stores.append(Store(s.buffer, s.offset, done[s.value], s.axes))
    numbers = tuple(template.numbers[k] for k in distinct)
    folded = tuple(
        KernelInstance(r.extent, r.columns, tuple(r.numbers[k] for k in distinct))
        for r in instances
    )
    return Template(tuple(stores), template.columns, numbers), folded


def exact(value: bool | int | float) -> str:
    # In Python 0.0 == -0.0, and NaN differs from itself; the text distinguishes constants exactly.
    return value.hex() if isinstance(value, float) else repr(value)
