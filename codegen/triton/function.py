"""Turns a launch into the text of one Triton kernel.

A value is defined once: before the loops if it does not depend on the inner dimension, else in the loop that
needs it. Tiles of two dimensions are [outer, inner]; a value that spans only one of them has length 1 along
the other. (One class, because the lines of a kernel have one order and one set of names.)
"""

from __future__ import annotations

from collections.abc import Callable

from frameloom.codegen.operators import is_plain_division
from frameloom.codegen.schedule.layout import is_index, row_major
from frameloom.codegen.schedule.row_patterns import aligned_rows, online_sums, tolerant
from frameloom.codegen.schedule.tile_gpu import Dimension, Launch, is_result
from frameloom.codegen.sizes import count_dtype, fits_i32, index_fits_i32
from frameloom.codegen.triton.folds import fold_at_once, fold_pass
from frameloom.codegen.triton.ops import TYPES, Ops, full, literal
from frameloom.codegen.triton.random_numbers import operands_of, random_number
from frameloom.codegen.triton.scatter import write_scatter
from frameloom.codegen.triton.scope import Scope, Value
from frameloom.ir.dtype import DType
from frameloom.ir.index import sum_of, terms_of
from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import COMPARES, Op
from frameloom.ir.program import Buffer, Kind, Store
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.expr import Int, Size

HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice
"""
Dims = frozenset[str]


class Writer(Ops):
    """Writes one launch."""

    def __init__(
        self,
        launch: Launch,
        pointers: dict[Buffer, str],
        checks: frozenset[Buffer] = frozenset(),
        named: int = 0,
    ) -> None:
        super().__init__()
        self.launch, self.pointers, self.checks = launch, pointers, checks
        self.top = Scope(1)
        self.loop: Scope | None = None
        self.dims = [*launch.parallel, *([launch.inner] if launch.inner else [])]
        self.tile = [d for d in self.dims if d.block > 1]
        self.of_axis = {a: d.name for d in self.dims for a in d.axes}
        self.names = {d.name: d.name for d in self.dims}
        self.starts: dict[str, str] = {}  # dimension -> position at which the tile begins
        self.masks: dict[str, str] = {}  # dimension -> name of the mask of the positions inside
        self.named = named  # number of names so far
        self.short = tolerant(launch)
        self.aligned = aligned_rows(launch)
        self.lane = ""  # the inner position counted from where rows are aligned

    # --- the whole kernel

    def body(self) -> list[str]:
        self._positions()
        launch = self.launch
        inside = [s for s in launch.stores if self._spans_inner(s.offset)]
        outside = [s for s in launch.stores if not self._spans_inner(s.offset)]
        if launch.inner is None:
            self._loads_first()
            # A store may overwrite what other stores read, and the compiler does not move loads over stores.
            for s in launch.stores:
                self.value(s.value)
            for s in launch.stores:
                self._store(s)
            return self.top.lines
        if launch.persistent:
            self._align()
            self._inner_positions("0", self.aligned is not None, not launch.inner.exact)
            self._loads_first()
            for f in sorted(launch.folds, key=lambda f: f.stage):
                fold_at_once(self, f)
            for s in launch.stores:
                self._store(s)
            return self.top.lines
        self._align()
        online = online_sums(launch.folds)
        for stage in sorted({f.stage for f in launch.folds}):
            now = [f for f in launch.folds if f.stage == stage and f not in online.values()]
            if now:
                fold_pass(self, now, online)
        if inside:
            self.pass_over(lambda: [self._store(s) for s in inside])
        for s in outside:
            self._store(s)
        return self.top.lines

    def _spans_inner(self, n: Node) -> bool:
        return self.launch.inner is not None and not n.free.isdisjoint(self.launch.inner.axes)

    def _loads_first(self) -> None:
        """Defines loads that span the whole tile first. So they are in flight while the rest is computed for
        parts of the tile, such as rows, columns and blocks of random numbers. Threads exchange these parts
        and wait for each other."""
        roots = [*(f.value for f in self.launch.folds), *(s.value for s in self.launch.stores)]
        values = topological(roots)
        draws = any(n.op is Op.RANDOM for n in values)
        if not draws and (len(self.tile) < 2 or self.launch.folds):
            return
        whole = frozenset(d.name for d in self.tile)
        for n in values:
            if n.op is not Op.LOAD or is_result(n) or self.dims_of(n) != whole:
                continue
            if not any(other.op is Op.LOAD for other in topological(n.srcs)):
                self.value(n)

    # --- positions

    def line(self, text: str, scope: Scope | None = None) -> None:
        scope = scope or self.loop or self.top
        scope.lines.append("    " * scope.indent + text)

    def fresh(self, stem: str = "v") -> str:
        self.named += 1
        return f"{stem}{self.named}"

    def spread(self, text: str, d: Dimension) -> str:
        """Returns the text of a range along `d` as a part of the tile."""
        if len(self.tile) < 2:
            return text
        return f"({text})[:, None]" if d is self.tile[0] else f"({text})[None, :]"

    def _positions(self) -> None:
        """Writes the positions of the parallel dimensions."""
        number = "tl.program_id(0)"
        if any(not fits_i32(d.extent + d.block) for d in self.launch.parallel):
            number += ".to(tl.int64)"
        self.line(f"pid = {number}")
        rest = "pid"
        for d in reversed(self.launch.parallel):
            last = d is self.launch.parallel[0]
            block = rest if last else f"({rest} % {d.blocks})"
            rest = f"({rest} // {d.blocks})"
            if d.block == 1:
                self.line(f"{d.name} = {block}")
            else:
                start = self.starts[d.name] = f"{block} * {d.block}"
                self.line(f"{d.name} = {self.spread(f'{start} + tl.arange(0, {d.block})', d)}")
            if not d.exact:
                self.line(f"{d.name}_in = {d.name} < {d.extent}")
                self.masks[d.name] = f"{d.name}_in"

    def _inner_positions(self, start: str, low: bool, high: bool) -> None:
        """Writes the positions of the inner dimension from `start` on. They may be before its first (`low`)
        or after its last position (`high`)."""
        d = self.launch.inner
        assert d is not None
        # A new name in every loop: Triton carries a name that is assigned twice from one iteration to the
        # next.
        name = self.names[d.name] = self.fresh(d.name)
        self.starts[d.name] = start
        text = f"tl.arange(0, {d.block})" if d.block > 1 else "0"
        if not fits_i32(d.extent + d.block):
            text = f"{text}.to(tl.int64)" if d.block > 1 else "tl.zeros((), tl.int64)"
        if d.block > 1:
            text = self.spread(text, d)
        if start != "0":
            text = f"{start} + {text}"
        if self.aligned is not None:
            self.lane = f"{name}_lane"
            self.line(f"{self.lane} = {text}")
            text = f"{self.lane} - shift"
        self.line(f"{name} = {text}")
        tests = [f"({name} >= 0)"] * low + [f"({name} < {d.extent})"] * high
        self.masks.pop(d.name, None)
        if tests:
            self.line(f"{name}_in = {' & '.join(tests)}")
            self.masks[d.name] = f"{name}_in"

    def _axis(self, a: Axis) -> str:
        """Returns the position along one axis of a dimension."""
        d = next(d for d in self.dims if a in d.axes)
        name = self.names[d.name]
        if len(d.axes) == 1:
            return name
        scope = self.scope(frozenset((d.name,)))
        position = scope.axes.get(a)
        if position is None:
            below = row_major(d.axes)[d.axes.index(a)]
            text = name if below == 1 else f"{name} // {below}"
            if a is not d.axes[0]:
                text = f"({text}) % {a.extent}" if below > 1 else f"{text} % {a.extent}"
            position = scope.axes[a] = self.fresh("i")
            self.line(f"{position} = {text}", scope)
        return position

    # --- loops over the inner dimension

    def _align(self) -> None:
        """If rows may start at any element, counts positions from the last aligned element before the row."""
        if self.aligned is not None:
            start = self.value(self.aligned.start).text
            self.line(f"start = {start} // {self.aligned.width} * {self.aligned.width}")
            self.line(f"shift = {start} - start")

    def pass_over(self, work: Callable[[], object]) -> None:
        """Runs `work` for each step of a loop over the inner dimension; full steps need no mask."""
        d = self.launch.inner
        assert d is not None
        low, end, last = 0, d.extent // d.block * d.block, d.extent
        if isinstance(last, Size):
            if self.aligned is not None:
                self._step("0", True, True, work)
                self._loop(d.block, end, work)
                self.line(f"tail = tl.maximum({end}, {d.block})")
                self._step("tail", False, True, work)
                self._step(f"tail + {d.block}", False, True, work)
            else:
                self._loop(0, end, work)
                if not d.exact:
                    self._step(str(end), False, True, work)
            self.masks.pop(d.name, None)
            return
        if self.aligned is not None:
            low, last = d.block, d.extent + self.aligned.width - 1
            self._step("0", True, d.block > d.extent, work)
        if low < end:
            self._loop(low, end, work)
        for start in range(max(low, end), last, d.block):
            self._step(str(start), False, True, work)
        self.masks.pop(d.name, None)

    def _loop(self, low: int, end: Int, work: Callable[[], object]) -> None:
        """Runs `work` for the steps from `low` to `end`, which are full."""
        assert self.launch.inner is not None
        self.loop = Scope(2)
        self._inner_positions("at", False, False)
        work()
        lines, self.loop = self.loop.lines, None
        ahead = f", num_stages={self.launch.stages}" if self.launch.stages > 1 else ""
        self.line(f"for at in tl.range({low}, {end}, {self.launch.inner.block}{ahead}):")
        self.top.lines += lines

    def _step(self, start: str, low: bool, high: bool, work: Callable[[], object]) -> None:
        self.loop = Scope(1)
        self._inner_positions(start, low, high)
        work()
        lines, self.loop = self.loop.lines, None
        self.top.lines += lines

    def shape(self) -> str:
        return "(" + "".join(f"{d.block}, " for d in self.tile).rstrip() + ")"

    # --- values

    def dims_of(self, n: Node) -> Dims:
        """Returns the dimensions of the tile that the value of `n` spans."""
        names = {self.of_axis[a] for a in n.free if a in self.of_axis}
        return frozenset(d.name for d in self.tile if d.name in names)

    def scope(self, dims: Dims) -> Scope:
        inner = self.launch.inner
        if self.loop is not None and inner is not None and inner.name in dims:
            return self.loop
        return self.top

    def _find(self, n: Node) -> Value | None:
        value = self.loop.names.get(n) if self.loop is not None else None
        return value or self.top.names.get(n)

    def value(self, node: Node) -> Value:
        """Returns the node's value; defines it now if it is not yet defined."""
        stack = [node]
        while stack:
            n = stack[-1]
            if self._find(n) is not None:
                stack.pop()
                continue
            waiting = [s for s in self._operands(n) if self._find(s) is None]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            self._define(n)
        value = self._find(node)
        assert value is not None
        return value

    def _operands(self, n: Node) -> list[Node]:
        if n.op is Op.RANDOM:
            return operands_of(self, n)
        if n.op is Op.LOAD:
            return [*self.parts(n.srcs[0]), *n.srcs[1:]]
        return list(n.srcs)

    def operand(self, n: Node, dtype: DType) -> str:
        """Returns the text of `n` as `dtype`, which differs from the dtype of `n` only for narrow indices."""
        value = self.value(n)
        if value.dtype is dtype or value.literal:
            return value.text
        return f"{value.text}.to({TYPES[dtype]})"

    def typed(self, n: Node) -> str:
        """Returns the text of `n` in its own dtype. A bare literal has no dtype: alone or with other
        operands, Triton reads it as int32 or float32."""
        return full(n.arg, n.dtype) if self.value(n).literal else self.operand(n, n.dtype)

    def _define(self, n: Node) -> None:
        scope = self.scope(frozenset(self.of_axis[a] for a in n.free if a in self.of_axis))
        if isinstance(n.arg, Size) and n.op is Op.CONST:
            self.top.names[n] = Value(str(n.arg), count_dtype(n.arg))
            return
        if n.op is Op.CONST:
            self.top.names[n] = Value(literal(n.arg, n.dtype), n.dtype, True)
            return
        if n.op is Op.AXIS:
            scope.names[n] = Value(self._axis(n.arg), DType.I32 if index_fits_i32(n) else DType.I64)
            return
        if n.op is Op.LOAD:
            dtype, text = n.dtype, self._load(n)
        elif n.op is Op.RANDOM:
            dtype, text = n.dtype, random_number(self, n, scope)
        else:
            dtype, text = self._computed(n)
        name = self.fresh()
        self.line(f"{name} = {text}", scope)
        scope.names[n] = Value(name, dtype)

    def _computed(self, n: Node) -> tuple[DType, str]:
        values = [self.value(s) for s in n.srcs]
        narrow = (
            is_index(n)
            and index_fits_i32(n)
            and all(v.literal or v.dtype is DType.I32 for v in values)
        )
        compared = n.op in COMPARES and n.srcs[0].dtype is DType.I64
        narrow |= compared and all(v.literal or v.dtype is DType.I32 for v in values)
        args = []
        for s, v in zip(n.srcs, values, strict=True):
            own = DType.I32 if narrow and s.dtype is DType.I64 else s.dtype
            args.append(v.text if v.literal or v.dtype is own else f"{v.text}.to({TYPES[own]})")
        data = 1 if n.op is Op.WHERE else 0
        if all(v.literal for v in values[data:]):
            of = DType.I32 if narrow else n.srcs[data].dtype
            args[data] = full(n.srcs[data].arg, of)
        if is_index(n) and is_plain_division(n):
            sign = "//" if n.op is Op.FLOORDIV else "%"
            return (DType.I32 if narrow else n.dtype), f"{args[0]} {sign} {args[1]}"
        dtype = DType.I32 if narrow and n.dtype is DType.I64 else n.dtype
        return dtype, self.op_text(n, args, n.srcs[data].dtype, n in self.short)

    # --- memory

    def parts(self, offset: Node) -> list[Node]:
        """Returns the summands of an offset, grouped by the dimensions that they span. The one that is the
        same for a whole tile is first."""
        terms, constant = terms_of(offset)
        groups: dict[Dims, dict[Node, int]] = {}
        for term, factor in terms.items():
            groups.setdefault(self.dims_of(term), {})[term] = factor
        parts = sorted(groups.items(), key=lambda item: (len(item[0]), sorted(item[0])))
        first, *others = [g for _, g in parts] or [{}]
        return [sum_of(first, constant), *(sum_of(g, 0) for g in others)]

    def _place_of(self, buffer: Buffer, offset: Node, mask: Node | None) -> tuple[str, str]:
        """Returns the pointer and the mask of an access."""
        texts = [self.pointers[buffer]]
        if self.aligned is not None and offset in self.aligned.offsets:
            texts += ["start", self.lane]
        else:
            for part in self.parts(offset):
                value = self.value(part)
                if value.text != "0":
                    texts.append(value.text)
        dims = self.dims_of(offset)
        masks = [self.masks[d] for d in self.masks if d in dims]
        if mask is not None:
            masks.append(self.value(mask).text)
            if not self.dims_of(mask) <= dims:
                texts.append(f"tl.zeros({self.shape()}, tl.int32)")
                masks += [self.masks[d] for d in self.masks if d not in dims]
        return " + ".join(texts), " & ".join(masks)

    def _load(self, n: Node) -> str:
        assert not is_result(n), "folds are bound before their users"
        if n.arg.kind is Kind.NUMBER:
            return number_text(self.pointers[n.arg], n.dtype)
        place, mask = self._place_of(n.arg, n.srcs[0], n.srcs[1] if len(n.srcs) == 2 else None)
        return f"tl.load({place}, {mask}, other=0)" if mask else f"tl.load({place})"

    def _store(self, s: Store) -> None:
        if s.scatter is not None:
            return write_scatter(self, s)
        text = self.typed(s.value)
        place, mask = self._place_of(s.buffer, s.offset, None)
        if s.buffer in self.checks:
            outside = f" | ({mask} == 0)" if mask else ""
            self.line(f'tl.device_assert(({text} == 0){outside}, "an index is out of range")')
            return
        self.line(f"tl.store({place}, {text}{', ' + mask if mask else ''})")


def number_text(bits: str, dtype: DType) -> str:
    """Returns the text of the number whose bits the 64-bit integer `bits` has."""
    return f"{bits}.to(tl.float64, bitcast=True)" if dtype is DType.F64 else bits
