"""Python code that autograd runs in the backward pass: a checkpointed function's second run, and `backward`
of the program's autograd Functions.

It is interpreted where the program passes it to autograd, and the recorded ops are taken as those of the
pass. That is right as long as the objects that it reads do not change: closure cells, items, attributes,
globals. If the program has changed any of these, the code is interpreted again before a pass and at the end
of the capture. If that records anything else, the program is captured again, with a graph break at the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch.fx

from frameloom.capture.bytecode.instruction import Instr, decode
from frameloom.capture.values.base import LazyValue, NotConstant, Raised, Value
from frameloom.capture.values.containers.container import ListValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.containers.sets import SetValue
from frameloom.capture.values.function import CellValue, FunctionValue
from frameloom.errors import Avoid, Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import Broken, Frame, FrameState
    from frameloom.capture.interpreter.tracer import Tracer

Node = torch.fx.Node
CONTAINERS = (ListValue, DictValue, SetValue)
Site = tuple[CodeType, int]
# Kinds of graph breaks at calls that change the shape or memory of a tensor.
RESHAPES = ("metadata_mutation", "data_pointer")
# Names of functions and methods that change items, attributes, or anything that they are asked to.
CHANGES_ITEMS = frozenset({
    "append", "appendleft", "extend", "insert", "pop", "popleft", "popitem", "remove", "clear", "update", "setdefault", "add", "discard", "sort", "reverse",
})  # fmt: skip
CHANGES_NAMES = {"train": ("training",), "eval": ("training",)}
CHANGES_ANY = frozenset(["globals", "vars", "setattr", "delattr", "__dict__", "__setattr__"])
# No instruction has such an index: other calls are avoided at the instruction itself.
BEFORE_INSTRUCTIONS = -(1 << 30)


def site_of(frame: Frame) -> Site:
    """Returns the place under which a session stores that the code passed there is left to Python."""
    return _site(Place.of(frame))


def _site(place: Place) -> Site:
    return place.frame.code, BEFORE_INSTRUCTIONS - place.at.index


@dataclass(frozen=True)
class Place:
    """The state of a frame at one instruction."""

    frame: Frame
    at: Instr
    stack: list[Value]

    @classmethod
    def of(cls, frame: Frame) -> Place:
        return cls(frame, frame.at, [*frame.stack])

    def restore(self) -> None:
        self.frame.at = self.at
        self.frame.stack[:] = self.stack


@dataclass
class DeferredCode:
    """One such piece of code. `replay`: interprets it again and returns whether that records the same."""

    frames: tuple[Place, ...]  # where it was passed, the innermost first
    mark: int  # of the journal, at the time of interpretation
    settings: Mapping[Any, Any]
    reads: frozenset[int]  # identities of the values that it may reach
    names: frozenset[str]  # of globals and attributes, in its code and in all code that it calls
    has_containers: bool  # whether it may reach items of a list, a dictionary or a set
    replay: Callable[[], bool]


def hand_over(t: Tracer, given: Iterable[Value], entered: int, replay: Callable[[], bool]) -> None:
    """Notes code that was just interpreted. `given`: the function and its arguments; `entered`: how many
    frames were entered before."""
    frames, frame = [], t.frame
    while frame is not None:
        frames.append(Place.of(frame))
        frame = frame.parent
    reached = _reached(t, given)
    t.backward.deferred_code.append(
        DeferredCode(
            frames=tuple(frames),
            mark=t.mark(),
            settings=t.settings.states(),
            reads=frozenset(reached),
            names=frozenset().union(*(code.co_names for code in t.entered[entered:])),
            has_containers=any(isinstance(v, CONTAINERS) for v in reached.values()),
            replay=replay,
        )
    )
    t.on_undo(t.backward.deferred_code.pop)


def check_deferred_code(t: Tracer, end: Value | Broken | Skip | None = None) -> None:
    """Checks the noted code before a pass, or at the `end` of the capture."""
    states: Sequence[FrameState] = getattr(end, "states", ())
    reshaped = _reached(t, states[-1].stack) if states and end.cause.kind in RESHAPES else {}  # type: ignore[union-attr]
    for deferred in [*t.backward.deferred_code]:
        if (
            (_has_changed(t, deferred) and not _is_same(t, deferred))
            or any(_may_change(state, deferred) for state in states)
            or not deferred.reads.isdisjoint(reshaped)
        ):
            raise Avoid(_site(deferred.frames[0]))


def _reached(t: Tracer, values: Iterable[Value]) -> dict[int, Value]:
    """Returns, by identity, the values that code with these arguments may reach; of objects from before the
    call, only these values themselves."""
    seen: dict[int, Value] = {}
    stack = [*values]
    while stack:
        value = stack.pop()
        if isinstance(value, LazyValue):
            if value.realized is None:
                continue
            value = value.realized
        if id(value) in seen:
            continue
        seen[id(value)] = value
        stack += value.parts()
        if isinstance(value, FunctionValue):
            stack += value.closure(t)
    return seen


def _has_changed(t: Tracer, deferred: DeferredCode) -> bool:
    """Whether any value that it may reach was changed since. Which objects from before the call it reaches is
    not known."""
    changed = t.changed_since(deferred.mark)
    return any(v.origin is not None or id(v) in deferred.reads for v in changed)


def _is_same(t: Tracer, deferred: DeferredCode) -> bool:
    if t.settings.have_changed(deferred.settings, apart_from=(t.settings.GRAD,)):
        return False
    outer, mark = t.frame, t.mark()
    now = [Place.of(place.frame) for place in deferred.frames]
    t.frame = deferred.frames[0].frame
    for place in deferred.frames:
        place.restore()
    try:
        with suppress(Break, Skip, Raised, NotConstant, Avoid):
            return deferred.replay()
        return False
    finally:
        t.take_back(mark)
        t.frame = outer
        for place in now:
            place.restore()


def _may_change(state: FrameState, deferred: DeferredCode) -> bool:
    """Whether the frame, continued in Python, may change what that code reads; judged by the frame's own
    instructions and those of functions defined in it."""
    stores = Stores(state.code, state.at.index)
    cells = {
        n for n, v in state.slots.items() if isinstance(v, CellValue) and id(v) in deferred.reads
    }
    if not cells.isdisjoint(stores.cells) or not deferred.names.isdisjoint(stores.names):
        return True
    return stores.any or (deferred.has_containers and stores.items)


class Stores:
    """What the instructions of a code object write, from one instruction on."""

    def __init__(self, code: CodeType, start: int = 0) -> None:
        self.cells: set[str] = set()
        self.names: set[str] = set()  # of globals and attributes
        self.items = False  # whether they may change items of containers
        self.any = False  # whether they may write anything
        instrs, waiting, passed = decode(code), [start], set()
        while waiting:
            index = waiting.pop()
            if index in passed or index >= len(instrs):
                continue
            passed.add(index)
            self._note(instrs[index])
            others = (instrs[index].target, getattr(instrs[index].handler, "target", None))
            waiting += [index + 1, *(other.index for other in others if other is not None)]
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                inner_stores = Stores(inner)
                self.cells |= inner_stores.cells & {*inner.co_freevars}
                self.names |= inner_stores.names
                self.items |= inner_stores.items
                self.any |= inner_stores.any

    def _note(self, at: Instr) -> None:
        verb, _, what = at.op.partition("_")
        if verb in ("STORE", "DELETE"):
            if what == "DEREF":
                self.cells.add(at.arg)
            elif what in ("GLOBAL", "ATTR", "NAME"):
                self.names.add(at.arg)
            self.items |= what == "SUBSCR"
        elif at.op in ("LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL"):
            self.items |= at.arg in CHANGES_ITEMS
            self.any |= at.arg in CHANGES_ANY
            self.names.update(CHANGES_NAMES.get(at.arg, ()))


def same_nodes(a: Sequence[Node], b: Sequence[Node]) -> bool:
    """Whether both compute the same from the same outer nodes."""
    twins: dict[Node, Node] = {}
    for one, other in zip(a, b, strict=False):
        if one.op != other.op or (one.op != "placeholder" and one.target != other.target):
            return False
        if _arguments(one, twins) != _arguments(other, {}):
            return False
        twins[one] = other
    return len(a) == len(b)


def _arguments(node: Node, twins: Mapping[Node, Node]) -> str:
    """Returns a text that only equal arguments have: unlike values, it distinguishes -0.0 and 0.0."""
    given = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: f"node {id(twins.get(n, n))}")  # type: ignore[arg-type, return-value]
    return repr(given)
