"""Reductions of neighbouring columns in C++, row by row: a strip of lane positions has its accumulators in an
array that stays in the cache.

As registers, only few neighbours fit at once. Each row of a large matrix would be visited for a few cache
lines, then again for the next ones, and each visit would look up the row's page again. A strip reads long
runs of each row once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from frameloom.codegen.cpp.fold import Accumulator
from frameloom.codegen.cpp.lanes import LaneLoops
from frameloom.codegen.cpp.value import Value
from frameloom.codegen.schedule.loop_nest import Fold, Pass, nodes
from frameloom.ir.node import Axis
from frameloom.ir.ops import Op
from frameloom.ir.symbolic.expr import Size

ROWS = 4  # rows that are added to an accumulator between its load and its store
TERM = 256  # rows of the longest plain float sum; longer ones are sums of partial sums


@dataclass(frozen=True, slots=True)
class Strip:
    """Lane positions of `p` from `start` to `end`, which are names of C++ variables."""

    p: Pass
    start: str
    end: str


class AccumulatorStrips(LaneLoops):
    """Adds loop nests whose inner loop nests are reductions by strips."""

    def accumulator_strips(self, p: Pass, start: str, end: str | None) -> None:
        at = self.fresh("strip")
        last = end or str(p.vector.extent)
        self.open(f"for (i64 {at} = {start}; {at} < {last}; {at} += {p.strip})")
        strip = Strip(p, at, self.end_of_step(at, p.strip, last))
        arrays: dict[Fold, str] = {}
        for inner in p.body:
            if isinstance(inner, Pass):
                own_arrays = {fold: self._array(strip, fold) for fold in inner.folds}
                self._positions(strip, inner, inner.axes, own_arrays, arrays)
                arrays |= own_arrays

        def rest(p: Pass) -> None:
            self._bind_done(strip, p, arrays)
            self.block([i for i in p.body if not isinstance(i, Pass)])

        self.by_lanes(p, strip.start, strip.end, rest)
        self.close()

    # --- arrays of accumulators

    def _array(self, strip: Strip, fold: Fold) -> str:
        """Declares an array of accumulators, sets them to the neutral element, and returns its name."""
        p, name = strip.p, self.fresh("sums")
        v = self.type_of(fold.value.dtype, p.lanes)
        self.line(f"{v} {name}[{p.strip // p.lanes}];")
        self.line(
            f"for (i64 i = 0; i < {p.strip // p.lanes}; i++) {name}[i] = {self.identity_text(fold, p.lanes)};"
        )
        return name

    def _places(self, strip: Strip, array: str) -> tuple[str, ...]:
        """Returns the array elements for the current lanes."""
        lanes = self.lanes
        first = f"({lanes.variable} - {strip.start}) / {lanes.width}"
        return tuple(f"{array}[{first} + {u}]" for u in range(lanes.unroll))

    def _bind_done(self, strip: Strip, p: Pass, arrays: dict[Fold, str]) -> None:
        """Gives finished reductions that `p` uses their values for the current lanes."""
        used = {
            n for n in nodes([i for i in p.body if not isinstance(i, Pass)]) if n.op is Op.REDUCE
        }
        for fold, array in arrays.items():
            if fold.node in used:
                texts = self._places(strip, array)
                self.bind(fold.node, Value(texts, fold.node.dtype, True))

    # --- positions that are reduced

    def _positions(
        self,
        strip: Strip,
        inner: Pass,
        axes: tuple[Axis, ...],
        arrays: dict[Fold, str],
        done: dict[Fold, str],
        terms: bool = False,
    ) -> None:
        """Loops over `axes` of `inner` and accumulates into `arrays`. `terms`: for long sums, the arrays
        already are those of partial sums."""
        cut = None if terms else self.cut(inner, axes, TERM)
        if cut is None:
            self._axis(strip, inner, axes, "0", axes[0].extent, arrays, done, terms)
            return
        a, at = axes[0], self.fresh("cut")
        self.open(f"for (i64 {at} = 0; {at} < {a.extent}; {at} += {cut})")
        limit = self.end_of_step(at, cut, a.extent)
        term_arrays = {fold: self._array(strip, fold) for fold in self.long_folds(inner)}
        whole = a.extent % ROWS == 0 and cut % ROWS == 0
        self._axis(strip, inner, axes, at, limit, arrays | term_arrays, done, True, whole)
        for fold, term in term_arrays.items():
            i = self.fresh("i")
            self.open(f"for (i64 {i} = 0; {i} < {strip.p.strip // strip.p.lanes}; {i}++)")
            sums = self._accumulator(fold, strip.p, (f"{arrays[fold]}[{i}]",))
            self.merge(sums, replace(sums, names=(f"{term}[{i}]",)))
            self.close()
        self.close()

    def _axis(
        self,
        strip: Strip,
        inner: Pass,
        axes: tuple[Axis, ...],
        first: str,
        last: int | str,
        arrays: dict[Fold, str],
        done: dict[Fold, str],
        terms: bool,
        whole: bool | None = None,
    ) -> None:
        a, n = axes[0], self.fresh("n")
        if len(axes) > 1:
            self.open(f"for (i64 {n} = {first}; {n} < {last}; {n}++)", {a: n})
            self._positions(strip, inner, axes[1:], arrays, done, terms)
            self.close()
            return
        self.line(f"i64 {n} = {first};")
        if isinstance(a.extent, Size) or a.extent >= ROWS:
            self.open(f"for (; {n} <= {last} - {ROWS}; {n} += {ROWS})")
            self._rows_of(strip, inner, [f"({n} + {r})" for r in range(ROWS)], arrays, done)
            self.close()
        if not (a.extent % ROWS == 0 if whole is None else whole):
            self.open(f"for (; {n} < {last}; {n}++)")
            self._rows_of(strip, inner, [n], arrays, done)
            self.close()

    def _rows_of(
        self,
        strip: Strip,
        inner: Pass,
        rows: list[str],
        arrays: dict[Fold, str],
        done: dict[Fold, str],
    ) -> None:
        """Accumulates these positions of the innermost axis, for all lanes of the strip."""

        def body(p: Pass) -> None:
            self._bind_done(strip, inner, done)
            opened = {}
            for fold in inner.folds:
                names = tuple(self.fresh("a") for _ in range(self.lanes.unroll))
                v = self.type_of(fold.value.dtype, self.lanes.width)
                for name, place in zip(names, self._places(strip, arrays[fold]), strict=True):
                    self.line(f"{v} {name} = {place};")
                opened[fold] = self._accumulator(fold, p, names)
            for row in rows:
                self.open("", {inner.axes[-1]: row})
                for accumulator in opened.values():
                    self.accumulate_into(accumulator)
                self.close()
            for fold, accumulator in opened.items():
                places = self._places(strip, arrays[fold])
                for name, place in zip(accumulator.names, places, strict=True):
                    self.line(f"{place} = {name};")

        self.by_lanes(strip.p, strip.start, strip.end, body)

    def _accumulator(self, fold: Fold, p: Pass, names: tuple[str, ...]) -> Accumulator:
        return Accumulator(fold, names, (), fold.value.dtype, p.lanes, False)
