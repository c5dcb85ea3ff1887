"""One case tried in its ways, and what came of it.

`Trial(case)` runs it plainly, `capture` captures it and checks the graph as recorded, `check_loops` as loops.  `compile_all(trials)` builds
the kernels of many at once, then `check_compiled` runs each natively.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from frameloom.backend.assemble import assemble
from frameloom.backend.plan_objects import Built
from frameloom.backend.targets import generate_all
from frameloom.capture import _capture
from frameloom.capture.driver.capture_call import capture_call
from frameloom.capture.speculation.assume import restarting
from frameloom.ir import interp
from frameloom.ir.passes.memory import plan_memory
from frameloom.ir.program import Extern, Kernel, Program
from frameloom.ir.text import show
from frameloom.ir.verify import verify
from frameloom.options import Options
from frameloom.pipeline import PROGRAM_STAGES
from frameloom.runtime.build.cpp_compiler import load
from tests.ops.cases import Case, in_precision
from tests.ops.compare import Run, difference
from tests.ops.undefined import undefined_leaves

NO_GRAPH = "no tensor operations"


class Internal(BaseException):
    """The compiler itself failed."""


@dataclass
class Piece:
    """One captured graph in the forms that can run it."""

    captured: Any
    program: Program | None = None
    plan: Any = None

    def lowered(self) -> Program:
        if self.program is None:
            program: Any = self.captured
            for name, stage, _ in PROGRAM_STAGES:
                program = stage(program)
                verify(program, blame=name)
            self.program = program
        return self.program


class Runner:
    """Stands in for the compiler: keeps the graphs, and runs them in the way that is being checked."""

    def __init__(self) -> None:
        self.options = Options()
        self.way = "recorded"
        self.pieces: list[Piece] = []
        self.breaks: list[Any] = []
        self.plain: list[str] = []

    def compile_graph(self, graph: Any, trail: Any) -> Callable[..., Any]:
        piece = Piece(graph)
        self.pieces.append(piece)
        made = functools.partial(self._called, piece)
        return restarting(made) if graph.restarts else made

    def _called(self, piece: Piece, *inputs: Any) -> Any:
        return self.run(piece, inputs)

    def run(self, piece: Piece, inputs: tuple[Any, ...]) -> Any:
        if self.way == "loops":
            return interp.run(piece.lowered(), inputs)
        if self.way == "compiled" and piece.plan is not None:
            return piece.plan(*inputs)
        with torch.no_grad():
            return piece.captured.gm.forward(*inputs)

    def add_break(self, report: Any) -> None:
        self.breaks.append(report)

    def add_plain(self, reason: str) -> None:
        self.plain.append(reason)

    def add_guards(self, guards: Any) -> None:
        pass

    def __call__(self, jitted: Any, slots: Any) -> Any:
        if len(jitted.entries) >= 16:
            return None
        try:
            return capture_call(jitted, slots, self, None)
        except Exception as error:
            raise Internal from error


@dataclass
class Outcome:
    """What is kept of a trial."""

    refused: bool = False  # eager raises
    undefined: bool = False  # eager leaves elements undefined, which were not compared
    whole: bool = False  # captured as one graph, or nothing to capture
    why: str = ""  # not whole
    ways: list[str] = field(default_factory=list)  # in which it was checked
    wrong: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    kernels: int = 0
    library: tuple[str, ...] = ()


class Trial:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.outcome = Outcome()
        self.runner = Runner()
        self.target = _capture.JitFunction(case.call, self.runner)
        self.want = Run(case.call, case.fresh())
        self._in_precision: dict[torch.dtype, Run] = {}
        self._undefined: list[torch.Tensor] | None = None
        self._looked_for_undefined = False
        self.outcome.refused = self.want.error is not None

    def capture(self) -> None:
        self._check("recorded")
        self._sum_up()

    def check_loops(self) -> None:
        if self.lower():
            self._check("loops")

    def in_precision(self, real: torch.dtype) -> Run:
        """The plain call in another precision."""
        if real not in self._in_precision:
            given = in_precision(self.case.arguments, real)
            self._in_precision[real] = Run(self.case.call, given)
        return self._in_precision[real]

    def undefined(self) -> list[torch.Tensor] | None:
        """Of every leaf, what eager leaves undefined."""
        if not self._looked_for_undefined:
            self._looked_for_undefined = True
            self._undefined = undefined_leaves(self.case.call, self.case.fresh)
            self.outcome.undefined = self._undefined is not None
        return self._undefined

    def _check(self, way: str) -> None:
        self.runner.way = way
        try:
            got = Run(self.target, self.case.fresh())
            found = difference(got, self.want, self.in_precision, self.undefined)
        except Internal as error:
            self.outcome.crashed.append(f"{way}: {_innermost(error.__cause__)}")
            return
        except AssertionError as error:
            self.outcome.crashed.append(f"{way}: {_innermost(error)}")
            return
        self.outcome.ways.append(way)
        if found is not None:
            where = f" [{_innermost(got.error)}]" if got.error is not None else ""
            self.outcome.wrong.append(f"{way}: {found}{where}")

    def _sum_up(self) -> None:
        runner, outcome = self.runner, self.outcome
        nothing = not runner.pieces and all(NO_GRAPH in p for p in runner.plain)
        one = len(runner.pieces) == 1 and not runner.plain
        outcome.whole = not runner.breaks and (nothing or one)
        if not outcome.whole:
            told = [b.text.splitlines()[0].removeprefix("graph break ") for b in runner.breaks]
            outcome.why = (told or [p.partition(": ")[2] for p in runner.plain] or [f"{len(runner.pieces)} graphs"])[0][:200]  # fmt: skip

    def lower(self) -> bool:
        """Lower now, so that what fails there is told apart.  Whether there is any program to check."""
        if not self.runner.pieces or self.outcome.crashed:
            return False
        try:
            programs = [piece.lowered() for piece in self.runner.pieces]
        except Exception as error:
            self.outcome.crashed.append(f"lowering: {_innermost(error)}")
            return False
        steps = [s for p in programs for s in p.steps]
        self.outcome.kernels = sum(isinstance(s, Kernel) for s in steps)
        self.outcome.library = tuple(s.target for s in steps if isinstance(s, Extern))
        return True

    def text(self) -> str:
        """Of the loops: equal for trials whose kernels would be the same."""
        return "\n".join(show(p.lowered()) for p in self.runner.pieces)

    def check_compiled(self) -> None:
        self._check("compiled")


def compile_all(trials: Sequence[Trial]) -> None:
    """Native plans for all of them, their kernels in common sources."""
    pieces = [piece for t in trials for piece in t.runner.pieces]
    renamed = []
    for number, piece in enumerate(pieces):
        steps = tuple(
            replace(s, name=f"p{number}_{s.name}") if isinstance(s, Kernel) else s
            for s in piece.lowered().steps
        )
        renamed.append(replace(piece.lowered(), steps=steps))
    kernels = [s for p in renamed for s in p.steps if isinstance(s, Kernel)]
    libraries: list[Any] = []
    if kernels:
        texts = generate_all(Program((), tuple(kernels), (), ()))
        libraries = list(zip(texts.files, load(texts.files), strict=True))
    for piece, program in zip(pieces, renamed, strict=True):
        piece.plan = assemble(piece.captured, program, plan_memory(program), Built(libraries))


def _innermost(error: BaseException | None) -> str:
    """The error and where it was raised."""
    assert error is not None
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}{at}"
