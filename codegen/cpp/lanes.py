"""Loops over lanes in C++, in up to three parts: `unroll` vectors at once, single vectors, and the rest of a
row as a partial vector."""

from __future__ import annotations

from collections.abc import Callable

from frameloom.codegen.cpp.fold import Folds
from frameloom.codegen.cpp.value import Lanes
from frameloom.codegen.schedule.loop_nest import Accumulate, Assign, Pass, is_blocked
from frameloom.ir.symbolic.expr import Size


class LaneLoops(Folds):
    """Adds loops over lanes to accumulators."""

    def block(self, body: list[Pass | Assign | Accumulate]) -> None:
        """See cpp/function.py."""
        raise NotImplementedError

    def end_of_step(self, start: str, step: int, last: int | str) -> str:
        """Declares where a step from `start` ends, at most `last`, and returns the name."""
        end = self.fresh("to")
        self.line(f"const i64 {end} = {start} + {step} < {last} ? {start} + {step} : {last};")
        return end

    def by_lanes(
        self,
        p: Pass,
        start: str,
        end: str | None,
        body: Callable[[Pass], None],
        unroll: int | None = None,
    ) -> None:
        """Runs `body` for the lane positions from `start` to `end`. `unroll` replaces that of the loop
        nest."""
        a, width, unroll = p.vector, p.lanes, unroll or p.unroll
        v = self.fresh("j")
        last = end or str(a.extent)
        self.line(f"i64 {v} = {start};")
        step = width * unroll
        varies = isinstance(a.extent, Size) or is_blocked(p, a)
        if unroll > 1 and (varies or a.extent >= step):
            self.open(f"for (; {v} <= {last} - {step}; {v} += {step})", {a: v})
            self._lane_body(p, Lanes(a, width, unroll, width, v), body)
            self.close()
        whole = 0 if varies else a.extent % step if unroll > 1 else a.extent
        if varies or whole >= width:
            self.open(f"for (; {v} <= {last} - {width}; {v} += {width})", {a: v})
            self._lane_body(p, Lanes(a, width, 1, width, v), body)
            self.close()
        rest = a.extent % width
        if isinstance(rest, Size) or is_blocked(p, a):
            self.open(f"if ({v} < {last})", {a: v})
            count = self.fresh("count")
            self.prelude.function("parts", "", 0)
            self.line(f"const i64 {count} = {last} - {v};")
            self._lane_body(p, Lanes(a, width, 1, count, v), body)
            self.close()
        elif rest:
            self.open(f"if ({v} < {last})" if end else "", {a: v})
            self._lane_body(p, Lanes(a, width, 1, rest, v), body)
            self.close()

    def _lane_body(self, p: Pass, lanes: Lanes, body: Callable[[Pass], None]) -> None:
        self.lanes = lanes
        body(p)
        self.lanes = None
