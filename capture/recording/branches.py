"""Parts of a program that run only if data decides so, as steps of its graph.

    Part      the nodes that a function has recorded, as a graph of its own; and the outer nodes it reads
    Choice    a call in the graph: runs one of two parts, as its first argument decides
    Loop      a call in the graph: repeats a part while another part returns true

In a plan such a call is a library call, made by Python. The parts are compiled as graphs are (`compile`);
otherwise their operations run one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from frameloom.capture.recording.captured_graph import CapturedGraph, function_of

_numbers = itertools.count()


@dataclass(eq=False)
class Part:
    graph: torch.fx.Graph
    constants: torch.nn.Module
    reads: list[torch.fx.Node]  # after those that the caller passes
    n_ops: int
    run: Callable[..., Any] | None = None

    def compile(self, compiled: Callable[[CapturedGraph], Callable[..., Any]]) -> None:
        self.run = compiled(
            CapturedGraph(
                graph=self.graph,
                constants=self.constants,
                inputs=(),
                examples=(),
                mutated=(),
                n_ops=self.n_ops,
            )
        )

    def __call__(self, *given: Any) -> Any:
        if self.run is None:
            self.run = function_of(self.constants, self.graph)
        return self.run(*given)


class Call:
    """A callable that takes tensors and returns a tuple of tensors."""

    def __init__(self, parts: tuple[Part, Part], n_own: int = 1) -> None:
        """`n_own`: how many arguments come before what the parts read."""
        self.__name__ = f"{type(self).__name__.lower()}_{next(_numbers)}"
        self.parts = parts
        self.n_own = n_own
        self.reads = list(dict.fromkeys(n for p in parts for n in p.reads))
        self._places = [[n_own + self.reads.index(n) for n in p.reads] for p in parts]

    def read_by_parts(self, tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Returns, per part, which of the arguments it reads."""
        return [[tensors[k] for k in places] for places in self._places]

    def __str__(self) -> str:
        return self.__name__


class Choice(Call):
    """Its arguments: (truth, *what both parts read)"""

    def __call__(self, *tensors: torch.Tensor) -> Any:
        which = 0 if tensors[0] else 1
        return self.parts[which](*self.read_by_parts(tensors)[which])


class Loop(Call):
    """Its arguments: (*the loop state, *what the parts read)"""

    def __call__(self, *tensors: torch.Tensor) -> Any:
        condition, body = self.parts
        first, second = self.read_by_parts(tensors)
        loop_variables: Sequence[Any] = tensors[: self.n_own]
        while condition(*loop_variables, *first)[0]:
            loop_variables = body(*loop_variables, *second)
        given = {id(t) for t in tensors}
        return tuple(t.clone() if id(t) in given else t for t in loop_variables)


def calls_in(graph: torch.fx.Graph) -> list[Call]:
    """Returns the calls in the graph and, before each, those in its parts."""
    calls = [n.target for n in graph.nodes if isinstance(n.target, Call)]
    inner = [c for call in calls for part in call.parts for c in calls_in(part.graph)]
    return [*inner, *calls]
