"""Loop tree -> the text of one C++ function.

Lane loops come in up to three parts: `unroll` vectors at once, single vectors, and the rest of a row as a part of a
vector whose size is known.  Accumulators of a pass are declared before it and combined after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from frameloom.codegen.cost import size
from frameloom.codegen.cpp_fold import Folds
from frameloom.codegen.cpp_scatter import write_scatter
from frameloom.codegen.cpp_value import Lanes, Value
from frameloom.codegen.layout import stride
from frameloom.codegen.looptree import SPAN, SQUARES, Accumulate, Assign, Pass, Tree
from frameloom.codegen.prelude import ELEMENTS, Prelude
from frameloom.codegen.threads import CHUNKS
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, axis
from frameloom.ir.program import Buffer, Kernel
from frameloom.ir.substitute import loads

PRAGMA = "#pragma omp parallel for schedule(static)\n"
TERM = 256  # longest plain float sum; longer ones are sums of sums


def write(kernel: Kernel, tree: Tree, symbol: str, prelude: Prelude) -> str:
    """The function `symbol(void *const *buffers, const long *sizes)`."""
    writer = Loops(prelude)
    for i, buffer in enumerate(tree.buffers):
        name = f"p{i}"
        element = ELEMENTS[buffer.dtype]
        writer.line(f"{element} *const {name} = ({element} *)buffers[{i}];  // {buffer.name}")
        writer.pointers[buffer] = name
    memory = writer.scratch(tree.scratch)
    writer.block(tree.body)
    if memory:
        writer.line(f"__builtin_free({memory});")
    notes = "".join(f"// {line}\n" for text in kernel.origin for line in text.splitlines())
    head = f'extern "C" void {symbol}(void *const *buffers, const long *) {{\n'
    return notes + head + "\n".join(writer.scopes[0].lines) + "\n}\n"


class Loops(Folds):
    """Writes blocks and passes."""

    def block(self, body: list[Pass | Assign | Accumulate]) -> None:
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
            total += -(-math.prod(buffer.shape) * buffer.dtype.bytes // 64) * 64
        self.line(f"char *const {memory} = (char *)__builtin_malloc({total});")
        for buffer, start in at.items():
            name, element = self.fresh("p_"), ELEMENTS[buffer.dtype]
            self.line(f"{element} *const {name} = ({element} *)({memory} + {start});")
            self.pointers[buffer] = name
        return memory

    # --- threads

    def _range(self, p: Pass) -> int:
        total = size(p.axes[: p.split])
        return total * -(-p.vector.extent // p.block) if p.block else total

    def _rows(self, p: Pass) -> None:
        self._work_items(p, "0", str(self._range(p)), PRAGMA)

    def _work_items(self, p: Pass, first: str, last: str, pragma: str = "") -> None:
        """The loop over work items, each some positions of the leading axes and a block of the lane axis."""
        item = self.fresh("w")
        leading = p.axes[: p.split]
        names = {a: self.fresh("n") for a in leading}
        self.open(f"{pragma}for (i64 {item} = {first}; {item} < {last}; {item}++)", names)
        rest = item
        start, end = "0", None
        if p.block:
            blocks = -(-p.vector.extent // p.block)
            number = item if not leading else f"{item} % {blocks}"
            start = self.fresh("from")
            self.line(f"const i64 {start} = ({number}) * {p.block};")
            end = self._end_of_step(start, p.block, p.vector.extent)
            rest = f"{item} / {blocks}"
        for at, a in enumerate(leading):
            below = size(leading[at + 1 :])
            text = f"({rest})" if below == 1 else f"({rest}) / {below}"
            self.line(f"const i64 {names[a]} = {text if at == 0 else f'{text} % {a.extent}'};")
        self._loops(p, p.axes[p.split :], start, end)
        self.close()

    def _chunks(self, p: Pass) -> None:
        total = self._range(p)
        chunks = min(total, CHUNKS)
        partial = self.declare_partial(p, chunks)
        c = self.fresh("c")
        self.open(f"{PRAGMA}for (i64 {c} = 0; {c} < {chunks}; {c}++)")
        self.start_folds(p)
        self._work_items(p, f"{c} * {total} / {chunks}", f"({c} + 1) * {total} / {chunks}")
        self.store_partial(p, partial, c)
        self.close()
        self.combine_partial(p, partial, chunks)

    # --- loops

    def _end_of_step(self, start: str, step: int, last: int | str) -> str:
        """The name of where a step from `start` on ends, which is `last` at the latest."""
        end = self.fresh("to")
        self.line(f"const i64 {end} = {start} + {step} < {last} ? {start} + {step} : {last};")
        return end

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
        limit = self._end_of_step(outer, cut, last)
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
            self._squares(p, start, end)
        else:
            self._by_lanes(p, start, end, self._body)

    def _by_lanes(self, p: Pass, start: str, end: str | None, body: Callable[[Pass], None]) -> None:
        a, width, unroll = p.vector, p.lanes, p.unroll
        v = self.fresh("j")
        last = end or str(a.extent)
        self.line(f"i64 {v} = {start};")
        step = width * unroll
        if unroll > 1 and a.extent >= step:
            self.open(f"for (; {v} <= {last} - {step}; {v} += {step})", {a: v})
            self._lane_body(p, Lanes(a, width, unroll, width, v), body)
            self.close()
        whole = a.extent % step if unroll > 1 else a.extent
        if whole >= width:
            self.open(f"for (; {v} <= {last} - {width}; {v} += {width})", {a: v})
            self._lane_body(p, Lanes(a, width, 1, width, v), body)
            self.close()
        rest = a.extent % width
        if rest:
            self.open(f"if ({v} < {last})" if end else "", {a: v})
            self._lane_body(p, Lanes(a, width, 1, rest, v), body)
            self.close()

    def _lane_body(self, p: Pass, lanes: Lanes, body: Callable[[Pass], None]) -> None:
        self.lanes = lanes
        body(p)
        self.lanes = None

    def _body(self, p: Pass) -> None:
        for row in p.reads:
            self.read_row(row)
        self.block(p.body)
        for row in p.keeps:
            self.write_row(row)

    # --- transposed loads

    def _squares(self, p: Pass, start: str, end: str | None) -> None:
        """The squares of one block: SPAN lane positions of a row of squares, then of the next.  Along the lanes what is
        stored goes forward, away from what is loaded; below one another, squares whose rows are a power of two apart
        would have the same place in the cache, and loads would wait for stores."""
        plan = p.transposed
        extent = plan.axis.extent
        span = self.fresh("span")
        lanes_end = end or str(p.vector.extent)
        self.open(f"for (i64 {span} = {start}; {span} < {lanes_end}; {span} += {SPAN})")
        limit = self._end_of_step(span, SPAN, lanes_end)
        first = self.fresh("n")
        self.line(f"i64 {first} = {self.value(axis(plan.block)).texts[0]} * {SQUARES};")
        last = self._end_of_step(first, SQUARES, extent)
        if extent >= p.lanes:
            self.open(f"for (; {first} <= {last} - {p.lanes}; {first} += {p.lanes})")
            self._by_lanes(p, span, limit, lambda p: self._square(p, first, p.lanes))
            self.close()
        if rest := extent % p.lanes:
            self.open(f"if ({first} < {last})")
            self._by_lanes(p, span, limit, lambda p: self._square(p, first, rest))
            self.close()
        self.close()

    def _square(self, p: Pass, first: str, count: int) -> None:
        """`count` positions of the other axis from `first` on, times the present lanes."""
        plan, lanes = p.transposed, self.lanes
        names = []
        for load in plan.loads:
            element = "u8" if load.dtype is DType.BOOL else ELEMENTS[load.dtype]
            v = self.prelude.vector(element, lanes.width)
            call = self.prelude.function("transpose", element, lanes.width)
            step, rest = stride(load.srcs[0], lanes.axis)
            _, rest = stride(rest, plan.axis)
            name = self.fresh("t")
            pointer = f"(const {element} *){self.pointers[load.arg]}"
            at = f"{pointer} + {self.value(rest).texts[0]} + {first} + {step} * {lanes.variable}"
            self.line(f"{v} {name}[{lanes.width}];")
            self.line(f"{call}<{lanes.count}, {count}>({name}, {at}, {step});")
            names.append(name)
        i = self.fresh("n")
        # Unrolled, the square stays in registers.
        head = (
            f"#pragma GCC unroll {p.lanes}\nfor (i64 {i} = {first}; {i} < {first} + {count}; {i}++)"
        )
        self.open(head, {plan.axis: i})
        for load, name in zip(plan.loads, names, strict=True):
            text = f"{name}[{i} - {first}]"
            if load.dtype is DType.BOOL:
                text = "-" + self.converted(text, self.prelude.mask(lanes.width))
            self.bind(load, Value((text,), load.dtype, True))
        self.block(p.body)
        self.close()
