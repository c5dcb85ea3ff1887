"""Loop tree -> the text of one C++ function.

Accumulators of a pass are declared before it and combined after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from frameloom.codegen.cost import size
from frameloom.codegen.cpp_scatter import write_scatter
from frameloom.codegen.cpp_squares import Squares
from frameloom.codegen.cpp_strips import TERM, Strips
from frameloom.codegen.looptree import Accumulate, Assign, Pass, Tree
from frameloom.codegen.prelude import ELEMENTS, Prelude
from frameloom.codegen.sizes import SIZE, named
from frameloom.codegen.threads import CHUNKS
from frameloom.ir.node import Axis
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.size import Int, Size
from frameloom.ir.substitute import loads

PRAGMA = "#pragma omp parallel for schedule(static){}\n"


def write(
    kernel: Kernel, tree: Tree, symbol: str, prelude: Prelude
) -> tuple[str, tuple[Size, ...]]:
    """The function `symbol(void *const *buffers, const long *sizes)`, and those sizes."""
    writer = Loops(prelude)
    for i, buffer in enumerate(tree.buffers):
        name = f"p{i}"
        element = ELEMENTS[buffer.dtype]
        place = f"&buffers[{i}]" if buffer.kind is Kind.NUMBER else f"buffers[{i}]"
        writer.line(f"{element} *const {name} = ({element} *){place};  // {buffer.name}")
        writer.pointers[buffer] = name
    memory = writer.scratch(tree.scratch)
    writer.block(tree.body)
    if memory:
        writer.line(f"__builtin_free({memory});")
    notes = "".join(f"// {line}\n" for text in kernel.origin for line in text.splitlines())
    head = f'extern "C" void {symbol}(void *const *buffers, const long *sizes) {{\n'
    body, sizes = named("\n".join(writer.scopes[0].lines))
    given = "".join(f"  const i64 {SIZE}{k} = sizes[{k}];\n" for k in range(len(sizes)))
    return notes + head + given + body + "\n}\n", sizes


class Loops(Strips, Squares):
    """Writes blocks and passes."""

    def block(self, body: list[Pass | Assign | Accumulate], scan: bool = False) -> None:
        stores = [i for i in body if isinstance(i, Assign)]
        written = {i.buffer for i in stores}
        # What several read and one overwrites (elementwise.py) is read first.
        if any(n.arg in written and n.arg != i.buffer for i in stores for n in loads([i.value])):
            for item in stores:
                self.value(item.value)
        for item in body:
            if isinstance(item, Assign) and item.scatter is not None:
                write_scatter(self, item)
            elif isinstance(item, Assign):
                self.store(item.buffer, item.offset, item.value)
            elif isinstance(item, Accumulate) and scan:
                self.scan(item.fold)
            elif isinstance(item, Accumulate):
                self.accumulate(item.fold)
            elif item.parallel and item.folds:
                self._chunks(item)
            elif item.parallel:
                self._rows(item)
            else:
                self._plain(item)

    def _plain(self, p: Pass) -> None:
        for row in p.keeps:
            self.declare_row(row, p)
        self.start_folds(p)
        self._loops(p, p.axes, "0", None)
        self.finish_folds(p)

    def scratch(self, buffers: Sequence[Buffer]) -> str | None:
        """One block of memory for all; its name."""
        if not buffers:
            return None
        memory, total = self.fresh("memory"), 0
        at = {}
        for buffer in buffers:
            at[buffer] = total
            total += (math.prod(buffer.shape) * buffer.dtype.bytes + 63) // 64 * 64
        self.line(f"char *const {memory} = (char *)__builtin_malloc({total});")
        for buffer, start in at.items():
            name, element = self.fresh("p_"), ELEMENTS[buffer.dtype]
            self.line(f"{element} *const {name} = ({element} *)({memory} + {start});")
            self.pointers[buffer] = name
        return memory

    # --- threads

    def _range(self, p: Pass) -> Int:
        total = size(p.axes[: p.split])
        return total * -(-p.vector.extent // p.block) if p.block else total

    def _when(self, p: Pass) -> str:
        return f" if({p.enough[0]} >= {p.enough[1]})" if p.enough is not None else ""

    def _rows(self, p: Pass) -> None:
        if p.strip and p.block:
            self._runs(p)
        else:
            self._work_items(p, "0", str(self._range(p)), PRAGMA.format(self._when(p)))

    def _runs(self, p: Pass) -> None:
        """Every thread takes neighbouring blocks of the lane axis as one, however many threads there are."""
        self.prelude.function("threads", "", 0)
        blocks, total = -(-p.vector.extent // p.block), self._range(p)
        item, last, after = self.fresh("w"), self.fresh("last"), self.fresh("after")
        self.open(f"#pragma omp parallel{self._when(p)}\n")
        number, count = "omp_get_thread_num()", "omp_get_num_threads()"
        self.line(f"const i64 {last} = {total} * ({number} + 1l) / {count};")
        leading = p.axes[: p.split]
        names = {a: self.fresh("n") for a in leading}
        head = f"for (i64 {item} = (i64){total} * {number} / {count}, {after}; {item} < {last}; {item} = {after})"
        self.open(head, names)
        row_end = f"({item} / {blocks} + 1) * {blocks}"
        self.line(f"{after} = {row_end} < {last} ? {row_end} : {last};")
        start, end = self.fresh("from"), self.fresh("to")
        self.line(f"const i64 {start} = {item} % {blocks} * {p.block};")
        self.line(f"const i64 {end}_ = {start} + ({after} - {item}) * {p.block};")
        self.line(f"const i64 {end} = {end}_ < {p.vector.extent} ? {end}_ : {p.vector.extent};")
        self._leading_positions(leading, names, f"{item} / {blocks}")
        self._loops(p, p.axes[p.split :], start, end)
        self.close()
        self.close()

    def _work_items(self, p: Pass, first: str, last: str, pragma: str = "") -> None:
        """The loop over work items, each some positions of the leading axes and a block of the lane axis."""
        item = self.fresh("w")
        leading = p.axes[: p.split]
        names = {a: self.fresh("n") for a in leading}
        loop = f"for (i64 {item} = {first}; {item} < {last}; {item}++)"
        if pragma and p.enough is not None:
            # Starting threads takes time even where there is one: few items are better a plain loop.
            work = self.fresh("work")
            self.open(f"const auto {work} = [&](const i64 {item}) __attribute__((noinline))", names)
            self._work_item(p, leading, names, item)
            self.close()
            self.line(";")
            self.line(f"if ({p.enough[0]} >= {p.enough[1]}) {{")
            self.line(f"{PRAGMA.format('')}{loop} {work}({item});")
            self.line(f"}} else {loop} {work}({item});")
            return
        self.open(f"{pragma}{loop}", names)
        self._work_item(p, leading, names, item)
        self.close()

    def _work_item(
        self, p: Pass, leading: tuple[Axis, ...], names: dict[Axis, str], item: str
    ) -> None:
        rest = item
        start, end = "0", None
        if p.block:
            blocks = -(-p.vector.extent // p.block)
            number = item if not leading else f"{item} % {blocks}"
            start = self.fresh("from")
            self.line(f"const i64 {start} = ({number}) * {p.block};")
            end = self.end_of_step(start, p.block, p.vector.extent)
            rest = f"{item} / {blocks}"
        self._leading_positions(leading, names, rest)
        self._loops(p, p.axes[p.split :], start, end)

    def _leading_positions(
        self, leading: tuple[Axis, ...], names: dict[Axis, str], number: str
    ) -> None:
        """The positions of the leading axes that make the work item `number`."""
        for at, a in enumerate(leading):
            below = size(leading[at + 1 :])
            text = f"({number})" if below == 1 else f"({number}) / {below}"
            self.line(f"const i64 {names[a]} = {text if at == 0 else f'{text} % {a.extent}'};")

    def _chunks(self, p: Pass) -> None:
        total = self._range(p)
        chunks: int | str = CHUNKS if isinstance(total, Size) else min(total, CHUNKS)
        partial = self.declare_partial(p, chunks)
        if p.enough is not None:
            wanted, chunks = chunks, self.fresh("chunks")
            self.line(f"const i64 {chunks} = {p.enough[0]} >= {p.enough[1]} ? {wanted} : 1;")
        c = self.fresh("c")
        self.open(f"{PRAGMA.format(self._when(p))}for (i64 {c} = 0; {c} < {chunks}; {c}++)")
        self.start_folds(p)
        self._work_items(p, f"{c} * {total} / {chunks}", f"({c} + 1) * {total} / {chunks}")
        self.store_partial(p, partial, c)
        self.close()
        self.combine_partial(p, partial, chunks)

    # --- loops

    def _loops(self, p: Pass, axes: tuple[Axis, ...], start: str, end: str | None) -> None:
        """Loops over `axes`; `start` and `end` bound the lane axis."""
        if not axes:
            self._body(p)
            return
        # A long sum is cut at the axis where about TERM steps are inside.
        cut = self.cut(p, axes, TERM)
        a, inner = axes[0], axes[1:]
        lanes = a == p.vector
        if cut is None:
            if lanes:
                self._lane_loop(p, start, end)
            else:
                name = self.fresh("n")
                self.open(f"for (i64 {name} = 0; {name} < {a.extent}; {name}++)", {a: name})
                self._loops(p, inner, start, end)
                self.close()
            return
        outer = self.fresh("cut")
        last = end or str(a.extent)
        self.open(
            f"for (i64 {outer} = {start if lanes else 0}; {outer} < {last}; {outer} += {cut})"
        )
        limit = self.end_of_step(outer, cut, last)
        self.start_terms(p)
        if lanes:
            self._lane_loop(p, outer, limit)
        else:
            name = self.fresh("n")
            self.open(f"for (i64 {name} = {outer}; {name} < {limit}; {name}++)", {a: name})
            self._loops(p, inner, start, end)
            self.close()
        self.finish_terms(p)
        self.close()

    def _lane_loop(self, p: Pass, start: str, end: str | None) -> None:
        if p.transposed is not None:
            self.squares(p, start, end, self._body)
        elif p.strip:
            self.strips(p, start, end)
        else:
            self.by_lanes(p, start, end, self._body)

    def _body(self, p: Pass) -> None:
        for row in p.reads:
            self.read_row(row)
        self.block(p.body, p.scan)
        for row in p.keeps:
            self.write_row(row)
