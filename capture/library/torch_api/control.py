"""`torch.cond`, `torch.while_loop`, `frameloom.cond` on unknown data: the branches are in the graph.

recording/branches.py defines these calls. A branch must only compute new tensors. If it does more (it changes
something, draws random numbers, checks data, needs gradients, depends on dynamic sizes), it is not cut out:
then `capture/library/torch_api/cond.py` is interpreted in place of the call, and the graph breaks where that
reads the data.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.interpreter import calls
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs, knows
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.library.torch_api import cond
from frameloom.capture.library.torch_api.watched import Watched
from frameloom.capture.recording.branches import Choice, Loop, Part
from frameloom.capture.recording.captured_graph import Layout, graph_of, recorded_behind
from frameloom.capture.tensors.constant_folding import known_value
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.schema import draws, may_raise
from frameloom.capture.tensors.sized import SizedFake, specialized
from frameloom.capture.values.base import NotConstant, Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import FunctionValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


class Unfit(Exception):
    """A branch cannot be a part of the graph."""


def _instead(
    t: Tracer, plain: Any, captured: Any, args: Args, kwargs: Kwargs, has_gradients: bool = False
) -> Value:
    """`has_gradients`: the function has gradients of its own, where a graph with parts has none."""
    mark, site = t.mark(), t.site
    names = plain.__code__.co_varnames[: plain.__code__.co_argcount]
    given = dict(zip(names, args, strict=False))
    fits = not t.session.is_avoided(*site) and len(args) <= len(names)
    needed = False
    if fits and kwargs.keys() <= set(names) - given.keys():
        try:
            made = captured(t, **given, **kwargs)
            t.recorder.parts.append((t.recorder.graph._root.prev, site))
            return made  # type: ignore[no-any-return]
        except (Unfit, Break, Raised, NotConstant, Avoid, TypeError):
            needed = _needs_gradients(t)
            t.take_back(mark)
    if has_gradients and (needed or _needs_gradients(t)):
        pred = args[0] if args else kwargs.get("pred")
        if pred is not None and isinstance(t.look(pred), TensorValue):
            raise Break("library_call", "torch.cond(...) with gradients")
    function = FunctionValue(plain, t.roots.object(plain))
    return calls.inline(t, function, args, kwargs, resumable=True)


def _needs_gradients(t: Tracer) -> bool:
    return torch.is_grad_enabled() and any(f.requires_grad for f in t.recorder.fakes)


@knows(cond.cond, keywords="*")
def _cond(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _instead(t, cond.cond, _choice, args, kwargs)


def _torch_cond(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Its gradients are zeros for what only the other branch reads."""
    return _instead(t, cond.cond, _choice, args, kwargs, has_gradients=True)


def _while_loop(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _instead(t, cond.while_loop, _loop, args, kwargs)


for _name, _handler in (("cond", _torch_cond), ("while_loop", _while_loop)):
    if hasattr(torch, _name):
        FUNCTIONS[getattr(torch, _name)] = _handler


def _interpreted(helper: Any) -> Any:
    return lambda t, args, kwargs: interpret(t, helper, args, kwargs)


for _helper in (cond._of_tensors, cond._copied):
    FUNCTIONS[_helper] = _interpreted(_helper)


# --- capturing the calls


def _choice(
    t: Tracer, pred: Value, true_fn: Value, false_fn: Value, operands: Value | None = None
) -> Value:
    truth = t.look(pred)
    if not isinstance(truth, TensorValue) or truth.fake.numel() != 1 or not _is_plain(truth.fake):
        raise Unfit
    if known_value(truth.fake, t.recorder) is not None:  # type: ignore[arg-type]
        raise Unfit
    given = [] if operands is None else list(t.items(t.look(operands)))
    branches = [_Outlined(t, fn, given) for fn in (true_fn, false_fn)]
    if branches[0].structure != branches[1].structure or branches[0].layouts != branches[1].layouts:
        raise Unfit
    call = Choice((branches[0].part, branches[1].part))
    made = _called(t, call, [truth.fake], branches[0].fakes)
    return t.from_python(_filled(branches[0].structure, made))


def _loop(t: Tracer, cond_fn: Value, body_fn: Value, carried_inputs: Value) -> Value:
    """The result has the structure that the body returns; its tensors are matched in order."""
    start = t.look(carried_inputs)
    fakes: list[Any] = []
    structure = _structure(t, start, fakes, is_given=True)
    if not fakes or isinstance(structure, int) or not all(map(_is_plain, fakes)):
        raise Unfit
    condition = _Outlined(t, cond_fn, fakes, structure)
    body = _Outlined(t, body_fn, fakes, structure)
    (truth,) = condition.fakes if len(condition.fakes) == 1 else (None,)
    if truth is None or truth.dtype is not torch.bool or truth.shape or condition.structure != 0:
        raise Unfit
    if body.layouts != [Layout.of(f) for f in fakes]:
        raise Unfit
    call = Loop((condition.part, body.part), len(fakes))
    return t.from_python(_filled(body.structure, _called(t, call, fakes, body.fakes)))


def _structure(t: Tracer, value: Value, fakes: list[Any], is_given: bool = False) -> Any:
    """Returns the containers of a value, with a number in place of each tensor, which is added to `fakes`.
    What a part returns must be made in it; what it gets is copied (`is_given`)."""
    value = t.look(value)
    if isinstance(value, TensorValue):
        fakes.append(value.fake)
        return len(fakes) - 1
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(_structure(t, v, fakes, is_given) for v in value.items)
    if isinstance(value, ListValue) and value.type() is list:
        return [_structure(t, v, fakes, is_given) for v in value.items]
    if type(value) is DictValue and value.cls is dict and (is_given or value.origin is None):
        entries = value.entries(t).values()
        return {_key(t, k): _structure(t, v, fakes, is_given) for k, v in entries}
    raise Unfit


def _filled(structure: Any, fakes: list[Any]) -> Any:
    """Returns the containers with these tensors."""
    if isinstance(structure, int):
        return fakes[structure]
    if isinstance(structure, dict):
        return {key: _filled(part, fakes) for key, part in structure.items()}
    return type(structure)(_filled(part, fakes) for part in structure)


def _is_plain(fake: Any) -> bool:
    """Whether a tensor is one of the graph, is on the CPU, and needs no gradient.  Its sizes become constants:
    each of their values gets an entry of its own."""
    needed = fake.requires_grad and torch.is_grad_enabled()
    if not isinstance(fake, Fake) or fake.device.type != "cpu" or needed:
        return False
    if isinstance(fake, SizedFake):
        specialized(fake.meta)
    return True


class _Outlined:
    """The ops that a call of `fn` records, cut out of the graph."""

    def __init__(self, t: Tracer, fn: Value, given: list[Any], structure: Any = None) -> None:
        """`given`: the arguments; or with `structure`, the containers around its tensors: at each run of the
        part, these tensors have other values."""
        self.t, recorder = t, t.recorder
        mark, sites, unbacked = (
            t.mark(),
            len(t.speculation.rerun_sites),
            len(recorder.from_data.unbacked),
        )
        functions, n_ops = len(recorder.history.functions), recorder.n_ops
        last = recorder.graph._root.prev
        others: list[Any] = []
        if structure is not None:
            stands: list[Any] = [t.torch_call(_like, [t.from_python(f)], {}) for f in given]
            others = [value.fake for value in stands]
            given = [t.from_python(_filled(part, others)) for part in structure]
        before = {id(f.memory) for f in recorder.fakes if f.memory is not None}
        watched = Watched(t, [fn, *given])
        result = t.look(calls.call(t, fn, given, {}))
        if watched.changed() is not None or len(t.speculation.rerun_sites) != sites:
            raise Unfit
        if (
            len(recorder.from_data.unbacked) != unbacked
            or len(recorder.history.functions) != functions
        ):
            raise Unfit
        self.fakes: list[Any] = []
        self.structure = _structure(t, result, self.fakes)
        own = set(map(id, others))
        memories = []
        for fake in self.fakes:
            if not _is_plain(fake) or (id(fake.memory) in before and id(fake) not in own):
                raise Unfit
            memories.append(id(fake.memory))
        if len(set(memories)) != len(memories):
            raise Unfit
        self.layouts = [Layout.of(f) for f in self.fakes]
        ends = [current(f, recorder) for f in self.fakes]
        starts = [current(fake, recorder) for fake in others]
        self.part = self._cut(last, starts, ends, recorder.n_ops - n_ops)
        t.take_back(mark)

    def _cut(
        self,
        last: torch.fx.Node,
        starts: list[torch.fx.Node],
        ends: list[torch.fx.Node],
        n_ops: int,
    ) -> Part:
        inside = dict.fromkeys(recorded_behind(last))
        wanted = set(ends)
        for node in reversed(inside):
            if node in wanted and node not in starts:
                wanted.update(node.all_input_nodes)
            elif node not in starts and (draws(node) or may_raise(node)):
                wanted.add(node)
        own = [n for n in inside if n in wanted and n not in starts]
        reads = list(dict.fromkeys(a for n in (*own, *ends) for a in _read(n, own) if a not in inside))  # fmt: skip
        for n in (*own, *reads):
            val = n.meta.get("val")
            parts = val if isinstance(val, tuple) else (val,)
            if draws(n) or may_raise(n) or any(isinstance(p, Fake) and not _is_plain(p) for p in parts):  # fmt: skip
                raise Unfit
            if not any(isinstance(p, Fake) for p in parts):
                raise Unfit  # a number
        graph = graph_of((*starts, *reads), own, ends)
        return Part(graph, self.t.recorder.constants, reads, n_ops)


def _read(node: torch.fx.Node, own: list[torch.fx.Node]) -> list[torch.fx.Node]:
    return node.all_input_nodes if node in own else [node]


def _key(t: Tracer, key: Value) -> Any:
    key = t.look(key)
    if not isinstance(key, ConstValue):
        raise Unfit
    return key.real


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _called(t: Tracer, call: Any, first: list[Any], like: list[Any]) -> list[Any]:
    """Adds the call to the graph; its results have the layouts of `like`."""
    recorder = t.recorder
    nodes = [current(fake, recorder) for fake in first]
    t.on_undo(functools.partial(recorder.restore, recorder.snapshot()))
    node = recorder.graph.create_node("call_function", call, name=call.__name__)
    node.args = (*nodes, *call.reads)
    made = [Fake(f.meta, f.device) for f in like]
    node.meta.update(val=tuple(made), stack=t.where())
    for k, fake in enumerate(made):
        item = recorder.graph.create_node("call_function", operator.getitem, (node, k))
        item.meta.update(val=fake, stack=t.where())
        recorder.adopt(fake, item)
    recorder.n_ops += 1 + sum(p.n_ops for p in call.parts)
    return made
