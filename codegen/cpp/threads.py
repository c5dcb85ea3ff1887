"""Loop nests that the thread pool runs, in C++: loops over work items. A work item is some positions of the
leading axes and a block of the lane axis.

With dynamic sizes, only the run time knows whether threads pay. So a function handles the items of a range.
Threads call it for their parts, or the kernel calls it for all, because starting a parallel region costs time
even with one thread. The function counts the leading positions up from item to item, because a division by a
number that is unknown at compile time takes longer than many rows do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from frameloom.codegen.cpp.accumulator_strips import AccumulatorStrips
from frameloom.codegen.schedule.cost import size
from frameloom.codegen.schedule.loop_nest import Pass
from frameloom.codegen.schedule.threads import CHUNKS
from frameloom.ir.node import Axis
from frameloom.ir.symbolic.expr import Int, Size

PRAGMA = "#pragma omp parallel for schedule(static)"
_DECLARATION = re.compile(r"\s*(const \w+|\w+ \*const) (\w+) = .*")
_REPEATED = re.compile(r"= splat<\w+>\(\(\w+\)\([\w.+-]+\)\);$")


class Threads(AccumulatorStrips):
    """Adds loop nests that threads share."""

    def _loops(self, p: Pass, axes: tuple[Axis, ...], start: str, end: str | None) -> None:
        """See cpp/function.py."""
        raise NotImplementedError

    def rows(self, p: Pass) -> None:
        """Writes a parallel loop whose work items are independent."""
        if p.strip and p.block:
            self._runs(p)
        elif p.enough is None:
            self._work_items(p, "0", str(_items(p)), f"{PRAGMA}\n")
        else:
            self._items_as_function(p, p.enough)

    def chunks(self, p: Pass) -> None:
        """Writes partial reductions of some work items each, and their combination."""
        total = _items(p)
        chunks: int | str = CHUNKS if isinstance(total, Size) else min(total, CHUNKS)
        partial = self.declare_partial(p, chunks)
        if p.enough is not None:
            wanted, chunks = chunks, self.fresh("chunks")
            self.line(f"const i64 {chunks} = {p.enough[0]} >= {p.enough[1]} ? {wanted} : 1;")
        c = self.fresh("c")
        self.open(f"{PRAGMA}{_when(p)}\nfor (i64 {c} = 0; {c} < {chunks}; {c}++)")
        self.start_folds(p)
        self._work_items(p, f"{c} * {total} / {chunks}", f"({c} + 1) * {total} / {chunks}")
        self.store_partial(partial, c)
        self.close()
        self.combine_partial(partial, chunks)

    def _runs(self, p: Pass) -> None:
        """Writes a loop in which each thread takes neighbouring blocks of the lane axis as one, for any
        number of threads."""
        self.prelude.function("threads", "", 0)
        blocks, total = _blocks(p), _items(p)
        item, last, after = self.fresh("w"), self.fresh("last"), self.fresh("after")
        self.open(f"#pragma omp parallel{_when(p)}\n")
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

    # --- work items

    def _items_as_function(self, p: Pass, enough: tuple[Int, int]) -> None:
        self.prelude.function("threads", "", 0)
        function, first, last = self.fresh("items"), self.fresh("first"), self.fresh("last")
        self.open("")
        if p.block and not p.split:
            self._blocks_as_one(p, first, last)
        else:
            self._work_items(p, first, last)
        captures = self._captures()
        parameters = ", ".join(f"{type_} {name}" for name, type_ in captures.items())
        self.scopes[-1].head = (
            f"const auto {function} = [&](const i64 {first}, const i64 {last}"
            f"{parameters and ', '}{parameters}) __attribute__((noinline))"
        )
        self.close()
        self.line(";")
        more = "".join(f", {name}" for name in captures)
        total = _items(p)
        self.line(f"if ({enough[0]} >= {enough[1]}) {{")
        self.line("#pragma omp parallel\n{")
        self.line("const i64 thread = omp_get_thread_num(), threads = omp_get_num_threads();")
        self.line(
            f"{function}({total} * thread / threads, {total} * (thread + 1) / threads{more});"
        )
        self.line(f"}}\n}} else {function}(0, {total}{more});")

    def _captures(self) -> dict[str, str]:
        """Returns the names of enclosing scopes that the current scope uses, with their types, as parameters.
        Captured names would be loaded again after each store. Vectors that repeat a number are made again
        inside: calls with vector arguments leave registers in a state that slows down the code after them."""
        scope = self.scopes[-1]
        around = [line for outer in self.scopes[:-1] for line in outer.lines]
        declared = {m[2]: m for line in around if (m := _DECLARATION.match(line))}
        words = dict.fromkeys(re.findall(r"\w+", "\n".join(scope.lines)))
        splats = [m[0] for name in words if (m := declared.get(name)) and _REPEATED.search(m[0])]
        scope.lines[:0] = [f"  {line}" for line in splats]
        words = dict.fromkeys(re.findall(r"\w+", "\n".join(scope.lines)))
        captures: dict[str, str] = {}
        for name in words:
            if re.fullmatch(r"z\d+", name):
                captures[name] = "const i64"
            elif name in declared and not re.search(r"\dx\d", declared[name][1]):
                captures[name] = declared[name][1]
        return captures

    def _blocks_as_one(self, p: Pass, first: str, last: str) -> None:
        """Writes the loop for work items that are only blocks of the lane axis."""
        start, end = self.fresh("from"), self.fresh("to")
        self.line(f"const i64 {start} = {first} * {p.block};")
        after = f"{last} * {p.block}"
        self.line(f"const i64 {end} = {after} < {p.vector.extent} ? {after} : {p.vector.extent};")
        self._loops(p, p.axes, start, end)

    def _work_items(self, p: Pass, first: str, last: str, pragma: str = "") -> None:
        """Writes the loop over the work items from `first` to `last`."""
        item = self.fresh("w")
        leading = p.axes[: p.split]
        names = {a: self.fresh("n") for a in leading}
        counted = isinstance(_items(p), Size) and not pragma
        start, end = "0", None
        block = self.fresh("block") if p.block else ""
        digits = [(names[a], a.extent) for a in leading] + ([(block, _blocks(p))] if block else [])
        if counted:
            self.open(f"if ({first} < {last})")
            self._digits(digits, first)
        self.open(f"{pragma}for (i64 {item} = {first}; {item} < {last}; {item}++)", names)
        if not counted:
            number = f"{item} / {_blocks(p)}" if block else item
            if block:
                blocks = f" % {_blocks(p)}" if leading else ""
                self.line(f"const i64 {block} = {item}{blocks};")
            self._leading_positions(leading, names, number)
        if block:
            start = self.fresh("from")
            self.line(f"const i64 {start} = {block} * {p.block};")
            end = self.end_of_step(start, p.block, p.vector.extent)
        self._loops(p, p.axes[p.split :], start, end)
        if counted:
            self._count_up(digits)
            self.close()
        self.close()

    def _digits(self, digits: Sequence[tuple[str, Int]], number: str) -> None:
        """Writes variables for the digits of `number`; each digit is less than its extent, and the last one
        varies fastest."""
        rest = number
        for name, extent in reversed(digits[1:]):
            before = self.fresh("number")
            self.line(f"const i64 {before} = {rest};")
            self.line(f"i64 {name} = {before} % {extent};")
            rest = f"{before} / {extent}"
        if digits:
            self.line(f"i64 {digits[0][0]} = {rest};")

    def _count_up(self, digits: Sequence[tuple[str, Int]]) -> None:
        text = "".join(f"{name}++;" for name, _ in digits[:1])
        for name, extent in digits[1:]:
            text = f"if (++{name} == {extent}) {{ {name} = 0; {text} }}"
        self.line(text)

    def _leading_positions(
        self, leading: tuple[Axis, ...], names: dict[Axis, str], number: str
    ) -> None:
        """Writes the positions of the leading axes for the work item `number`."""
        for at, a in enumerate(leading):
            below = size(leading[at + 1 :])
            text = f"({number})" if below == 1 else f"({number}) / {below}"
            self.line(f"const i64 {names[a]} = {text if at == 0 else f'{text} % {a.extent}'};")


def _blocks(p: Pass) -> Int:
    return -(-p.vector.extent // p.block)


def _items(p: Pass) -> Int:
    total = size(p.axes[: p.split])
    return total * _blocks(p) if p.block else total


def _when(p: Pass) -> str:
    return f" if({p.enough[0]} >= {p.enough[1]})" if p.enough is not None else ""
