"""Kernels that differ only in buffers, extents and numbers, as one step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from frameloom.ir.index import linear
from frameloom.ir.node import Axis, Node, axis, const, index, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, StepBase, Store
from frameloom.ir.substitute import loads, space, topological
from frameloom.ir.symbolic.expr import Size, may_exceed_1

ALONG = Axis("x", 1 << 30)  # the axis of a template's stores; an instance has the real extent
HERE, FIRST = axis(ALONG), index(0)


@dataclass(frozen=True, slots=True)
class KernelInstance:
    """The work of one kernel of a list: `extent` elements; for each column a buffer and the offset of its
    first element; and the numbers that differ between the kernels."""

    extent: int
    columns: tuple[tuple[Buffer, int], ...]
    numbers: tuple[bool | int | float, ...]

    @property
    def is_static(self) -> bool:
        """Whether all of its numbers are plain ints or floats, not symbolic sizes: a list's numbers are
        written before it runs."""
        numbers = (self.extent, *(k for _, k in self.columns), *self.numbers)
        return not any(isinstance(n, Size) for n in numbers)


@dataclass(frozen=True, slots=True)
class Template:
    """The work that elementwise kernels share: stores over one axis, and with a placeholder buffer per column
    and number.  A column is loaded at the axis, or at 0 if it is the same element everywhere; a number has no
    dimensions."""

    stores: tuple[Store, ...]
    columns: tuple[Buffer, ...]
    numbers: tuple[Buffer, ...]

    @property
    def key(self) -> tuple[tuple[Node, Node], ...]:
        """A key that is equal for equal templates."""
        return tuple((load(s.buffer, s.offset), s.value) for s in self.stores)

    def kernel(self, instance: KernelInstance, name: str, origin: tuple[str, ...]) -> Kernel:
        """Returns the kernel for an instance, over one axis."""
        axes = space([instance.extent]) if may_exceed_1(instance.extent) else ()
        here = axis(axes[0]) if axes else FIRST
        known: dict[Node, Node] = {
            load(b, FIRST): const(value, b.dtype)  # type: ignore[arg-type]
            for b, value in zip(self.numbers, instance.numbers, strict=True)
        }
        places = dict(zip(self.columns, instance.columns, strict=True))

        def at(column: Buffer, offset: Node) -> tuple[Buffer, Node]:
            buffer, start = places[column]
            moves = [1] if offset is HERE else []
            return buffer, linear([here] * len(moves), moves, start)

        stores = []
        for s in self.stores:
            done: dict[Node, Node] = {}
            for n in topological([s.value]):
                if n in known:
                    done[n] = known[n]
                elif n.op is Op.LOAD:
                    done[n] = load(*at(n.arg, n.srcs[0]))
                elif n.srcs or n.op is not Op.AXIS:
                    done[n] = Node(n.op, n.dtype, tuple(done.get(x, x) for x in n.srcs), n.arg)
            stores.append(Store(*at(s.buffer, s.offset), done[s.value], axes))
        return Kernel(name, tuple(stores), origin)


@dataclass(frozen=True, slots=True)
class KernelList(StepBase):
    """Independent kernels that do the same elementwise work on different buffers and extents.  `instances`
    has one entry per kernel."""

    name: str
    template: Template
    instances: tuple[KernelInstance, ...] = field(compare=False)
    origin: tuple[str, ...] = field(default=(), compare=False)

    @property
    def device(self) -> str:
        return self.instances[0].columns[0][0].device

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(
            self.template.kernel(instance, f"{self.name}_{k}", self.origin)
            for k, instance in enumerate(self.instances)
        )

    @property
    def reads(self) -> list[Buffer]:
        return self._in_columns(n.arg for s in self.template.stores for n in loads([s.value]))

    @property
    def writes(self) -> list[Buffer]:
        return self._in_columns(s.buffer for s in self.template.stores)

    def _in_columns(self, columns: Iterable[Buffer]) -> list[Buffer]:
        wanted = set(columns)
        chosen = [k for k, b in enumerate(self.template.columns) if b in wanted]
        return list(dict.fromkeys(r.columns[k][0] for r in self.instances for k in chosen))
