"""Reports of compiles, as data: `explain` returns them, tests read them, `stats` counts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from frameloom.errors import Where, failures

# Counts the calls of plans that FRAMELOOM_VERIFY=1 compared with the loop IR's interpreter, and those it
# could not compare.
verified: Counter[str] = Counter()
counts = {"graphs": 0, "breaks": 0, "recompiles": 0, "plain": 0}


def stats() -> dict[str, int]:
    """Returns counts since the last reset: compiled graphs, graph breaks, recompiles, cases left to plain
    Python, and, if not 0, mistakes of Frameloom that were passed over, verified calls and calls that could
    not be verified."""
    return {**counts, **failures, **verified}


def forget_counts() -> None:
    verified.clear()
    failures.clear()
    counts.update(dict.fromkeys(counts, 0))


@dataclass(frozen=True)
class KernelReport:
    """One generated kernel: name, C++ or Triton text, the graph nodes and user lines that it computes."""

    name: str
    source: str
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class GraphReport:
    """One captured graph and what it was compiled to."""

    captured: Any  # capture.recording.captured_graph.CapturedGraph
    kernels: tuple[KernelReport, ...] = ()
    library_calls: tuple[str, ...] = ()
    lowered: Any = None  # ir.program.Program before fusion, and after
    fused: Any = None
    seconds: dict[str, float] = field(default_factory=dict)
    # The backward graphs: compiled at the first backward pass, one for each set of outputs that get a
    # gradient.
    backward: list[GraphReport] = field(default_factory=list)

    @property
    def gm(self) -> Any:
        """The graph as a torch.fx.GraphModule."""
        return self.captured.gm

    @property
    def n_ops(self) -> int:
        """The number of ATen ops without views."""
        return int(self.captured.n_ops)

    @property
    def loops_before(self) -> str:
        """The loop IR as lowered, one kernel per op, as text."""
        return _show(self.lowered)

    @property
    def loops_after(self) -> str:
        """The loop IR after fusion, as text."""
        return _show(self.fused)


def _show(program: Any) -> str:
    from frameloom.ir.text import show  # `jit` alone does not need the loop IR

    return "" if program is None else show(program)


def bytecode_text(entry: Any) -> str:
    """Returns what an entry runs, as text: the new code as the `bytecode` package lists it, or a note that
    there is none."""
    if entry.kind != "code":
        return {
            "direct": "no bytecode: the call runs the plan and builds its result in C",
            "plain": f"the original bytecode, unchanged ({entry.target})",
        }[entry.kind]
    import bytecode  # only who reads the listing waits for it

    code = getattr(entry.target, "__code__", entry.target)
    return bytecode.format_bytecode(bytecode.Bytecode.from_code(code), lineno=True)


@dataclass(frozen=True)
class BreakReport:
    """One place where capture ended: catalogue id, place, and the message of at most six lines."""

    kind: str
    where: Where | None
    text: str


@dataclass
class Explanation:
    """What calls of one jitted function captured.  `result` is the value that the explained call returned."""

    name: str
    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[BreakReport] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)  # reasons why cases run as plain Python
    seconds: dict[str, float] = field(default_factory=dict)
    result: Any = None

    @property
    def kernels(self) -> list[KernelReport]:
        """The kernels of all graphs, and of the backward graphs that are compiled so far."""
        return [k for g in self.graphs for part in (g, *g.backward) for k in part.kernels]

    @property
    def n_ops(self) -> int:
        return sum(g.n_ops for g in self.graphs)

    def __str__(self) -> str:
        calls = sum(len(part.library_calls) for g in self.graphs for part in (g, *g.backward))
        lines = [
            f"{self.name}: {len(self.graphs)} graph(s), {self.n_ops} ops, {len(self.breaks)} break(s), "
            f"{len(self.kernels)} kernel(s), {calls} library call(s), "
            f"{len(self.guards)} guards, compiled in {sum(self.seconds.values()):.3f} s"
        ]
        for i, graph in enumerate(self.graphs):
            lines += [f"graph {i}: {graph.n_ops} ops", *_launched(graph)]
            for backward in graph.backward:
                lines += [f"backward of graph {i}: {backward.n_ops} ops", *_launched(backward)]
        for text, times in Counter(b.text for b in self.breaks).items():
            lines.append(text if times == 1 else f"{times} times: {text}")
        for reason, times in Counter(self.plain).items():
            lines.append(f"plain: {reason}" + (f" ({times} times)" if times > 1 else ""))
        return "\n".join(lines)


def _launched(graph: GraphReport) -> list[str]:
    lines = [f"  kernel {k.name}" for k in graph.kernels]
    for name, times in Counter(graph.library_calls).items():
        lines.append(f"  library {name}" + (f" ({times} times)" if times > 1 else ""))
    return lines
