"""Call cache: replays the recorded ops of an equal call without dispatching.

An optimizer or a model of equal layers makes the same calls hundreds of times, and capture spends most of its
time in them: in PyTorch's dispatch, in sizes, in in-place ops and views. The cache keeps the ops of a call as
a `_Script`, under a key of everything that the call depends on. It keeps nothing for a call that does more
than add ops and write to its arguments."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.node import Node, map_arg

from frameloom.capture.recording.captured_graph import recorded_behind
from frameloom.capture.recording.writes import write_value
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import IDENTITIES, ViewOf, views_in
from frameloom.capture.tensors.schema import fakes_in, properties_of
from frameloom.capture.tensors.transform_levels import are_active
from frameloom.capture.values.numbers.symbolic import SYMBOLS

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

PLAIN = frozenset({
    int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(...),
})  # fmt: skip
# Queries whose answers depend only on the key; they record nothing.
QUESTIONS = frozenset({
    torch.Tensor.dim, torch.Tensor.size, torch.Tensor.stride, torch.Tensor.numel, torch.Tensor.element_size, torch.Tensor.is_complex,
    torch.Tensor.is_floating_point, torch.Tensor.is_contiguous, torch.is_complex, torch.is_floating_point, torch.numel,
})  # fmt: skip
REPLAYABLE_META = {"val", "stack", "grad", "site"}  # of nodes that can be replayed


class _Uncacheable(Exception):
    """The call has something that the key does not cover or a script cannot replay."""


@dataclass(frozen=True, slots=True)
class _Op:
    """A recorded node, as it was at the end of the call."""

    node: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    val: Any


@dataclass(frozen=True, slots=True)
class _NewTensor:
    """A tensor that the call made, as it was at the end of the call."""

    fake: Fake
    node: Node
    version: int
    counted: int
    view_of: ViewOf | None


@dataclass(frozen=True, slots=True)
class _Script:
    """What a call has recorded, in terms of its own nodes and tensors; a replay puts others in their place."""

    given: tuple[Any, ...]  # its tensors and numbers
    reads: dict[Node, int]  # their nodes before the call
    ops: tuple[_Op, ...]
    news: tuple[_NewTensor, ...]
    # argument, its new value, how many writes autograd counts
    writes: tuple[tuple[int, Node, int], ...]
    n_ops: int
    result: Any


class _Arguments:
    """The arguments of one call, and the key of everything that the call depends on."""

    def __init__(self, calls: Calls, fn: Any, args: Any, kwargs: Any) -> None:
        self.calls = calls
        self.given: list[Any] = []  # Fakes and symbols
        self.place: dict[int, int] = {}
        tokens = [self.token(a) for a in args]
        if kwargs:
            tokens += [(k, self.token(v)) for k, v in kwargs.items()]
        self.key = (fn, *tokens, torch.is_grad_enabled())
        # The state before the call; `watch` sets it.
        self.shares = False  # whether two tensors share memory
        self.versions: list[int] = []  # autograd's version counter of each tensor

    @property
    def tensors(self) -> list[Fake]:
        return [a for a in self.given if type(a) is Fake]

    def watch(self) -> None:
        """Notes the state that the call may change; the call is dispatched after it."""
        self.shares = self.has_common_memory()
        self.versions = [a._version for a in self.tensors]

    def has_common_memory(self) -> bool:
        """Whether two of the tensors share memory."""
        fakes = self.tensors
        return len({id(a.memory) for a in fakes}) < len(fakes)

    def token(self, a: Any) -> Hashable:
        cls = type(a)
        if cls is Fake:
            k = self.place.get(id(a))
            if k is None:
                k = self.place[id(a)] = len(self.given)
                self.given.append(a)
                return self.calls.layout_key(a)
            return k
        if cls is float:
            return a.hex()
        if cls in PLAIN:
            return (cls, a)
        if cls in (list, tuple):
            return (cls, *map(self.token, a))
        if cls is slice:
            return (cls, self.token(a.start), self.token(a.stop), self.token(a.step))
        if cls in SYMBOLS and not a.node.number.is_specialized:
            if id(a) not in self.place:
                self.place[id(a)] = len(self.given)
                self.given.append(a)
            return (cls, self.place[id(a)])
        raise _Uncacheable


class Calls:
    """The call cache of one recording."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._scripts: dict[Hashable, _Script | None] = {}
        self._layout_keys: dict[int, tuple[torch.Tensor, Hashable]] = {}

    def arguments(self, fn: Any, args: Any, kwargs: Any) -> _Arguments | None:
        """Returns the arguments with their key, or None for a call that the cache cannot handle."""
        recorder, call = self.recorder, self.recorder.current_call
        if (
            (call.inference or call.relies_on or call.autocast or "out" in kwargs)
            or recorder.shape_env.symbols  # what the call asks about symbolic sizes matters
            or torch.get_default_dtype() is not recorder.modes.default_dtype
            or torch._C._len_torch_function_stack()
            or torch._C._len_torch_dispatch_stack()
            or are_active()
        ):
            return None
        try:
            arguments = _Arguments(self, fn, args, kwargs)
            hash(arguments.key)
        except (_Uncacheable, TypeError):
            return None
        return arguments

    def layout_key(self, fake: Fake) -> Hashable:
        """Returns the key of a recorded tensor: its layout, without its name or value."""
        memory = fake.memory
        if memory is None or fake.version != memory.version or memory.inference:
            raise _Uncacheable
        cached = self._layout_keys.get(id(fake.meta))
        if cached is None:
            meta = fake.meta
            if meta.is_conj() or meta.is_neg():
                raise _Uncacheable
            layout = (tuple(meta.shape), meta.stride(), meta.storage_offset(), meta.dtype)
            cached = self._layout_keys[id(meta)] = (meta, layout)
        return (cached[1], fake.device, fake.requires_grad, _is_whole(fake))

    # --- replay

    def replay(self, given: _Arguments) -> tuple[Any] | None:
        """Replays a recorded call and returns its result in a tuple; None if there is no script."""
        script = self._scripts.get(given.key)
        if script is None or (script.writes and given.has_common_memory()):
            return None
        recorder, call = self.recorder, self.recorder.current_call
        nodes = {node: self._node_of(given.given[k]) for node, k in script.reads.items()}
        news = [Fake(new.fake.meta, new.fake.device) for new in script.news]
        before = (*script.given, *(new.fake for new in script.news))
        values = dict(zip(map(id, before), (*given.given, *news), strict=True))
        for op in script.ops:
            node = recorder.graph.create_node(
                op.node.op, op.node.target, name=_name(op.node.target)
            )
            node.args, kwargs = map_arg((op.args, op.kwargs), nodes.__getitem__)
            if kwargs:
                node.kwargs = kwargs
            node.meta.update(val=_with(values, op.val), stack=call.where, site=call.site)
            if "grad" in op.node.meta:
                node.meta["grad"] = False
            nodes[op.node] = node
        for fake, new in zip(news, script.news, strict=True):
            if new.view_of is None:
                fake.memory = recorder.memory_of(fake)
            else:
                parent = values[id(new.view_of.parent)]
                fake.memory, fake.view_of = parent.memory, replace(new.view_of, parent=parent)
            fake.node, fake.version, fake.counted = nodes[new.node], new.version, new.counted
            fake.memory.version = max(fake.memory.version, new.version)
        recorder.fakes += news
        recorder.n_ops += script.n_ops
        for k, value, count in script.writes:
            target = given.given[k]
            write_value(recorder, target, nodes[value])
            for _ in range(count):
                torch.autograd.graph.increment_version(target)
        return (_with(values, script.result),)

    def _node_of(self, a: Any) -> Any:
        return a.node if type(a) is Fake else self.recorder.node_of(a)

    # --- recording scripts

    def keep(self, given: _Arguments, result: Any, before: tuple[Any, int, int, int]) -> None:
        """Stores what the call has recorded since the snapshot `before`."""
        if given.key in self._scripts:
            return
        try:
            self._scripts[given.key] = self._script(given, result, before)
        except _Uncacheable:
            if not given.shares:
                self._scripts[given.key] = None

    def _script(self, given: _Arguments, result: Any, before: tuple[Any, int, int, int]) -> _Script:
        recorder, call = self.recorder, self.recorder.current_call
        if call.relies_on or call.assumes or recorder.from_data.looks_at_data:
            raise _Uncacheable
        nodes = recorded_behind(before[0])
        news = recorder.fakes[call.old :]
        written = self._written(given, before)
        if written and given.shares:
            raise _Uncacheable  # the key does not cover the result of that
        if not nodes and given.key[0] not in QUESTIONS:
            raise _Uncacheable
        reads: dict[Node, int] = {}
        for k, a in enumerate(given.given):
            node = written[k][0] if k in written else self._node_of(a)
            if type(a) is not Fake and a.node.number.is_specialized:
                raise _Uncacheable
            if not isinstance(node, Node) or node in reads:
                raise _Uncacheable  # it is unclear whose value the node is
            reads[node] = k
        known = {*reads, *nodes}
        used = {n for node in nodes for n in node.all_input_nodes}
        writes = tuple((k, given.given[k].node, count) for k, (_, count) in written.items())
        if not known.issuperset((*used, *(node for _, node, _ in writes))):
            raise _Uncacheable
        if any(type(given.given[k]) is not Fake for node, k in reads.items() if node not in used):
            raise _Uncacheable  # the call read the number itself
        fakes = {id(fake) for fake in (*given.tensors, *news)}
        for node in nodes:
            tags = getattr(node.target, "tags", ())
            if (
                node.op not in ("call_function", "get_attr")
                or not node.meta.keys() <= REPLAYABLE_META
                or torch.Tag.nondeterministic_seeded in tags
                or node.meta.get("val") is None
            ):
                raise _Uncacheable
            _check_value(node.meta["val"], fakes)
        _check_value(result, fakes)
        self._check_new(news, {*nodes}, result)
        return _Script(
            tuple(given.given),
            reads,
            tuple(_Op(n, n.args, n.kwargs, n.meta["val"]) for n in nodes),
            tuple(_NewTensor(f, f.node, f.version, f.counted, f.view_of) for f in news),
            writes,
            recorder.n_ops - before[1],
            _with({}, result),  # the program may change the list that it gets
        )

    def _check_new(self, news: Sequence[Fake], nodes: Collection[Node], result: Any) -> None:
        """Checks that a replay can make such tensors."""
        made = {id(fake) for fake in news}
        reached = {id(fake) for fake in fakes_in((result,))}
        seen: set[int] = set()  # memories of tensors that the program gets
        for fake in news:
            memory, view = fake.memory, fake.view_of
            if memory is None or memory.inference or fake.requires_grad or fake.node not in nodes:
                raise _Uncacheable
            if fake.meta.is_conj() or fake.meta.is_neg():
                raise _Uncacheable
            if id(fake) in reached:
                # Autograd treats views as views, so the program may see at most one of those made here.
                if fake.version != memory.version or id(memory) in seen:
                    raise _Uncacheable
                seen.add(id(memory))
            if view is None and memory.root is not fake:
                raise _Uncacheable
            if view is not None and (not _is_whole(fake) or id(view.parent) not in made):
                raise _Uncacheable

    def _written(self, given: _Arguments, before: Any) -> dict[int, tuple[Any, int]]:
        """Maps each argument that the call has written once to its node before the write and to the number of
        writes that autograd counts."""
        previous: dict[int, tuple[Any, int]] = {}
        own = {id(fake) for fake in self.recorder.fakes[self.recorder.current_call.old :]}
        roots = {id(a.memory.root) for a in given.tensors}
        for was in self.recorder.undo[before[2] :]:
            fake, node, version = was.fake, was.node, was.version
            if id(fake) in own:
                continue
            k = given.place.get(id(fake))
            if k is not None and _is_whole(fake):
                previous.setdefault(k, (node, version))
            elif k is not None or id(fake) not in roots:
                raise _Uncacheable
        result = {}
        for fake, then in zip(given.tensors, given.versions, strict=True):
            k, now = given.place[id(fake)], fake._version
            if (k in previous) != (now != then):
                raise _Uncacheable
            if k in previous:
                node, version = previous[k]
                if fake.version != version + 1 or fake.memory.version != fake.version:
                    raise _Uncacheable
                result[k] = (node, now - then)
        return result


def _is_whole(fake: Fake) -> bool:
    """Whether it is its memory's root or an identity view of it, so that a write to it is a write to the
    root."""
    return all(view.func in IDENTITIES for view in views_in(fake))


def _with(values: Mapping[int, Any], a: Any) -> Any:
    """Returns a structure of tensors with others in their place, which `values` has by identity."""
    if type(a) in (list, tuple):
        return type(a)([_with(values, part) for part in a])
    return values.get(id(a), a)


def _check_value(a: Any, fakes: Collection[int]) -> None:
    """Checks that a replay can make such a value."""
    if type(a) in (list, tuple):
        for part in a:
            _check_value(part, fakes)
    elif id(a) not in fakes and (type(a) not in PLAIN or type(a) is str):
        raise _Uncacheable


def _name(target: Any) -> str | None:
    return properties_of(target).name if isinstance(target, torch._ops.OpOverload) else None
