"""Reductions in C++: accumulators, and how they are combined across copies, lanes, partial sums and chunks.

An accumulator has one copy per unrolled vector. Inside a lane loop over a reduced axis it is a vector whose
lanes are combined after the loop. Inside a lane loop over another axis its lanes are different results.
"""

from __future__ import annotations

from dataclasses import dataclass

from frameloom.codegen.cpp.ops import constant
from frameloom.codegen.cpp.prelude import ELEMENTS
from frameloom.codegen.cpp.rows import RowBuffers
from frameloom.codegen.cpp.value import Value
from frameloom.codegen.operators import INFIX
from frameloom.codegen.schedule.cost import size
from frameloom.codegen.schedule.layout import place_in
from frameloom.codegen.schedule.loop_nest import Accumulate, Fold, Pass, items, passes
from frameloom.codegen.sizes import count_dtype
from frameloom.ir.dtype import DType
from frameloom.ir.ops import Op
from frameloom.ir.reductions import identity
from frameloom.ir.symbolic.expr import Size

MANY = 1 << 40  # assumed steps of a sum of dynamic length
FEW = 8  # elements that are added in their order, as in eager mode; this is as fast as exchanging lanes


@dataclass(frozen=True, slots=True)
class Accumulator:
    """C++ names of the copies. For argmax and argmin, `places` are the names of the positions, of dtype
    `place`."""

    fold: Fold
    names: tuple[str, ...]
    places: tuple[str, ...]
    place: DType
    width: int
    horizontal: bool  # whether the lanes are parts of one result
    ordered: bool = False  # whether positions only increase

    @property
    def dtype(self) -> DType:
        return self.fold.value.dtype


class Folds(RowBuffers):
    """The accumulators of the open loop nests."""

    def __init__(self, prelude) -> None:
        super().__init__(prelude)
        self._open: dict[Fold, list[Accumulator]] = {}
        self._in_terms = False

    # --- life of an accumulator

    def _declare(self, fold: Fold, p: Pass | None) -> Accumulator:
        value = fold.value
        if p is not None and p.vector is not None:
            width, copies, horizontal = p.lanes, p.unroll, True
        elif self.is_vector(value):
            width, copies, horizontal = self.lanes.width, self.lanes.unroll, False
        else:
            width, copies, horizontal = 1, 1, False
        stem = self.fresh("a")
        names = tuple(f"{stem}_{u}" if copies > 1 else stem for u in range(copies))
        type_ = self.type_of(value.dtype, width)
        start = self.identity_text(fold, width)
        for name in names:
            self.line(f"{type_} {name} = {start};")
        places: tuple[str, ...] = ()
        place = DType.I64
        if fold.node.arg.row.position:
            place = count_dtype(size(fold.axes))
            places = tuple(f"{name}_at" for name in names)
            for name in places:
                self.line(f"{self.type_of(place, width)} {name} = {{}};")
        ordered = p is not None and p.axes == fold.axes
        return Accumulator(fold, names, places, place, width, horizontal, ordered)

    def identity_text(self, fold: Fold, width: int) -> str:
        kind, dtype = fold.node.arg.kind, fold.value.dtype
        if dtype is DType.BOOL:
            true = identity(kind, dtype)
            return (
                ("true" if true else "false")
                if width == 1
                else f"{self.type_of(dtype, width)}{{}} - {int(true)}"
            )
        text = constant(identity(kind, dtype), dtype)
        if width == 1:
            return f"{ELEMENTS[dtype]}({text})"
        return f"splat<{self.type_of(dtype, width)}>({ELEMENTS[dtype]}({text}))"

    def start_folds(self, p: Pass) -> None:
        """Declares the accumulators of the loop nest, in the current scope."""
        for fold in p.folds:
            self._open.setdefault(fold, []).append(self._declare(fold, p))
        for fold in _outer_folds(p):
            self._open[fold].append(self._declare(fold, p))

    def finish_folds(self, p: Pass) -> None:
        """Gives the reductions of the loop nest their values, in the current scope."""
        if p.scan:
            for fold in p.folds:
                self._open[fold].pop()
            return
        for fold in _outer_folds(p):
            done = self._combined(self._open[fold].pop())
            self.merge(self._open[fold][-1], done)
        for fold in p.folds:
            done = self._combined(self._open[fold].pop())
            texts = done.places or done.names
            if done.places and done.place is not fold.node.dtype:
                if done.width > 1:
                    v = self.prelude.vector(fold.node.dtype, done.width)
                    texts = tuple(self.converted(t, v) for t in texts)
                else:
                    texts = tuple(f"(i64){t}" for t in texts)
            self.bind(fold.node, Value(texts, fold.node.dtype, done.width > 1))

    def _combined(self, a: Accumulator) -> Accumulator:
        """Combines the copies and lanes of `a` to one result, unless the lanes are results themselves."""
        if not a.horizontal:
            return a
        for u in range(1, len(a.names)):
            self._combine(a, 0, a.names[u], a.places[u] if a.places else "", a.width)
        name = self.fresh("r")
        if a.places:
            at = f"{name}_at"
            op = a.fold.node.arg.row.op
            call = self.prelude.function(f"horizontal_place_{op.value}", a.dtype, a.width)
            place = self.prelude.vector(DType.I64, a.width)
            self.line(f"i64 {at};")
            self.line(
                f"{ELEMENTS[a.dtype]} {name} = {call}({a.names[0]}, {self.converted(a.places[0], place)}, &{at});"
            )
            return Accumulator(a.fold, (name,), (at,), DType.I64, 1, False)
        element = (
            a.dtype if a.dtype is not DType.BOOL else f"i{self.prelude.isa.bytes * 8 // a.width}"
        )
        op, few = a.fold.node.arg.op(a.dtype), size(a.fold.axes)
        in_turn = op in (Op.ADD, Op.MUL) and not isinstance(few, Size) and few <= min(FEW, a.width)
        how = f"first_{few}" if in_turn else "horizontal"
        call = self.prelude.function(f"{how}_{op.value}", element, a.width)
        self.line(f"{ELEMENTS[a.dtype]} {name} = {call}({a.names[0]});")
        return Accumulator(a.fold, (name,), (), a.place, 1, False)

    def merge(self, into: Accumulator, other: Accumulator) -> None:
        for u, name in enumerate(other.names):
            self._combine(into, u, name, other.places[u] if other.places else "", into.width)

    def _combine(self, a: Accumulator, u: int, x: str, at: str, width: int) -> None:
        """Writes: copy u of `a` = its combination with x (at position `at`)."""
        name = a.names[u]
        if a.places:
            self._combine_place(a, u, x, at, width, later=False)
            return
        op = a.fold.node.arg.op(a.dtype)
        if op in INFIX:
            cast = f"({ELEMENTS[a.dtype]})" if width == 1 else ""
            text = f"{cast}({name} {INFIX[op]} {x})"
        else:
            text = f"{self.prelude.function(op.value, a.dtype, width)}({name}, {x})"
        self.line(f"{name} = {text};")

    def _combine_place(
        self, a: Accumulator, u: int, x: str, at: str, width: int, later: bool
    ) -> None:
        """Writes argmax or argmin of copy u and x. `later`: positions only increase, so an equal value never
        replaces the current one."""
        b, b_at = a.names[u], a.places[u]
        sign = INFIX[a.fold.node.arg.row.replaces]
        better = f"({x} {sign} {b}) | (({x} != {x}) & ({b} == {b}))"
        if not later:
            same = f"(({x} == {b}) | (({x} != {x}) & ({b} != {b})))"
            before = f"({at} < {b_at})"
            if width > 1 and a.place.bits != a.dtype.bits:
                bits = self.prelude.vector(f"i{a.dtype.bits}", width)
                before = self.converted(before, bits)
            better = f"({better}) | ({same} & {before})"
        m = self.fresh("m")
        kind = "b8" if width == 1 else self.prelude.vector(f"i{a.dtype.bits}", width)
        self.line(f"const {kind} {m} = {better};")
        self.line(f"{b} = {m} ? {x} : {b};")
        wide = m
        if width > 1 and a.place.bits != a.dtype.bits:
            wide = self.converted(m, self.prelude.vector(f"i{a.place.bits}", width))
        self.line(f"{b_at} = {wide} ? {at} : {b_at};")

    def accumulate(self, fold: Fold) -> None:
        """Accumulates the current value."""
        self.accumulate_into(self._open[fold][-1])

    def accumulate_into(self, a: Accumulator) -> None:
        fold = a.fold
        value = self.value(fold.value)
        if a.width > 1:
            value = self.as_dtype(self.vector(fold.value), fold.value.dtype)
        at = None
        if a.places:
            place = place_in(fold.axes)
            at = self.value(place) if a.width == 1 else self.vector(place)
            if a.width > 1:
                at = self.as_dtype(at, a.place)
        count = self.lanes.count if self.lanes is not None else 1
        for u in range(1 if a.width == 1 else self.lanes.unroll):
            text = value.texts[u]
            if a.horizontal and (isinstance(count, str) or count < a.width):
                text = self._only_first(text, count, a)
            if at is not None:
                self._combine_place(a, u, text, at.texts[u], a.width, a.ordered)
            else:
                self._combine(a, u, text, "", a.width)

    def scan(self, fold: Fold) -> None:
        """Accumulates the current value and binds the reduction to its running value here."""
        a = self._open[fold][-1]
        if not a.horizontal:
            self.accumulate_into(a)
            self.bind(fold.node, Value(a.names, fold.node.dtype, a.width > 1))
            return
        value = self.as_dtype(self.vector(fold.value), fold.value.dtype)
        call = self.prelude.function(
            f"inclusive_scan_{fold.node.arg.op(a.dtype).value}", a.dtype, a.width
        )
        name, neutral = self.fresh("y"), self.identity_text(fold, a.width)
        type_ = self.type_of(a.dtype, a.width)
        self.line(f"const {type_} {name} = {call}({value.texts[0]}, {neutral}, &{a.names[0]});")
        self.bind(fold.node, Value((name,), fold.node.dtype, True))

    def _only_first(self, text: str, count: int | str, a: Accumulator) -> str:
        """Returns `text` with the lanes from `count` on replaced by the neutral element."""
        bits = self.prelude.isa.bytes * 8 // a.width if a.dtype is DType.BOOL else a.dtype.bits
        mask = self.prelude.vector(f"i{bits}", a.width)
        if isinstance(count, str):
            numbers = ", ".join(map(str, range(a.width)))
            in_use = f"(({mask}){{{numbers}}} < splat<{mask}>((i{bits}){count}))"
        else:
            in_use = f"({mask}){{{', '.join('-1' if i < count else '0' for i in range(a.width))}}}"
        name = self.fresh("x")
        self.line(
            f"const {self.type_of(a.dtype, a.width)} {name} = {in_use} ? {text} : {self.identity_text(a.fold, a.width)};"
        )
        return name

    # --- sums of partial sums

    def cut(self, p: Pass, axes, longest: int) -> int | None:
        """Returns the positions of axes[0] in one partial sum of the float sums of `p`; None if they need no
        partial sums."""
        if self._in_terms or p.scan or not self.long_folds(p):
            return None

        def steps(axes) -> int:
            total = 1
            for a in axes:
                total *= -(-a.extent // (p.lanes * p.unroll)) if a == p.vector else a.extent
            return MANY if isinstance(total, Size) else total

        inside = steps(axes[1:])
        unit = p.lanes * p.unroll if axes[0] == p.vector else 1
        if steps(p.axes) <= 2 * longest or inside > longest:
            return None
        positions = max(longest // inside, 1) * unit
        whole = axes[0].extent
        return positions if isinstance(whole, Size) or positions < whole else None

    def long_folds(self, p: Pass) -> list[Fold]:
        return [
            f
            for f in [*p.folds, *_outer_folds(p)]
            if f.node.arg.row.op is Op.ADD and f.value.dtype.is_float
        ]

    def start_terms(self, p: Pass) -> None:
        self._in_terms = True
        for fold in self.long_folds(p):
            self._open[fold].append(self._declare(fold, p))

    def finish_terms(self, p: Pass) -> None:
        self._in_terms = False
        for fold in self.long_folds(p):
            term = self._open[fold].pop()
            self.merge(self._open[fold][-1], term)

    # --- chunks

    def declare_partial(self, p: Pass, chunks: int | str) -> list[Accumulator]:
        """Declares arrays for the results of the chunks of a parallel loop nest.  In the names, `{c}` stands
        for the number of a chunk."""
        partials = []
        for fold in p.folds:
            inside = self.is_vector(fold.value) and p.vector is None
            width = self.lanes.width if inside else 1
            copies = self.lanes.unroll if inside else 1
            names = self.fresh("part")
            self.line(f"{self.type_of(fold.value.dtype, width)} {names}[{chunks}][{copies}];")
            places = ""
            if fold.node.arg.row.position:
                places = f"{names}_at"
                self.line(f"{self.type_of(DType.I64, width)} {places}[{chunks}][{copies}];")
            copies_of = tuple(f"{names}[{{c}}][{u}]" for u in range(copies))
            places_of = tuple(f"{places}[{{c}}][{u}]" for u in range(copies)) if places else ()
            partials.append(Accumulator(fold, copies_of, places_of, DType.I64, width, False))
        return partials

    def store_partial(self, partial: list[Accumulator], chunk: str) -> None:
        for part in partial:
            done = self._combined(self._open[part.fold].pop())
            for to, name in zip(part.names, done.names, strict=True):
                self.line(f"{to.format(c=chunk)} = {name};")
            for to, name in zip(part.places, done.places, strict=True):
                v = self.type_of(DType.I64, done.width)
                wide = name if done.width == 1 else self.converted(name, v)
                self.line(f"{to.format(c=chunk)} = {wide};")

    def combine_partial(self, partial: list[Accumulator], chunks: int | str) -> None:
        """Combines the chunks' results in order and gives the reductions their values."""
        for a in partial:
            stem = self.fresh("r")
            names = tuple(f"{stem}_{u}" for u in range(len(a.names)))
            places = tuple(f"{n}_at" for n in names) if a.places else ()
            for to, name in zip((*names, *places), (*a.names, *a.places), strict=True):
                dtype = DType.I64 if to in places else a.dtype
                self.line(f"{self.type_of(dtype, a.width)} {to} = {name.format(c=0)};")
            total = Accumulator(a.fold, names, places, DType.I64, a.width, False)
            c = self.fresh("c")
            self.open(f"for (i64 {c} = 1; {c} < {chunks}; {c}++)")
            for u, name in enumerate(a.names):
                at = a.places[u].format(c=c) if a.places else ""
                self._combine(total, u, name.format(c=c), at, a.width)
            self.close()
            self.bind(a.fold.node, Value(places or names, a.fold.node.dtype, a.width > 1))


def _outer_folds(p: Pass) -> list[Fold]:
    """Returns folds of enclosing loop nests that a lane loop accumulates into, also in inner loops. The lane
    loop needs vector accumulators of its own for them."""
    if p.vector is None:
        return []
    own = {f for inner in passes([p]) for f in inner.folds}
    added = (i.fold for i in items(p.body) if isinstance(i, Accumulate))
    return list(dict.fromkeys(f for f in added if f not in own))
