"""Call cache: replays the recorded ops of an equal call without dispatching.

An optimizer or a model of equal layers makes the same calls hundreds of times, and capture spends most of its
time in them: in PyTorch's dispatch, in sizes, in in-place ops and views. The cache keeps the ops of a call as
a `_Script`, under a key of everything that the call depends on. It keeps nothing for a call that does more
than add ops and write to its arguments."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import IDENTITIES, write
from frameloom.capture.tensors.schema import fakes_in, properties_of
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
class _InputRef:
    """The k-th tensor or number among the arguments."""

    k: int


@dataclass(frozen=True, slots=True)
class _LocalRef:
    """The k-th op of the call, or the k-th tensor that it made."""

    k: int


@dataclass(frozen=True, slots=True)
class _Op:
    op: str
    target: Any
    name: str | None
    grad: bool  # whether it is marked as not followed by autograd
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    val: Any


@dataclass(frozen=True, slots=True)
class _NewTensor:
    """A tensor that the call made: its layout and its node at the end. `alias`: how it is a view of the
    `parent`-th tensor."""

    meta: torch.Tensor
    device: torch.device
    node: int
    version: int
    parent: int = 0
    alias: Any = None


@dataclass(frozen=True, slots=True)
class _Script:
    ops: tuple[_Op, ...]
    news: tuple[_NewTensor, ...]
    # argument, its new value, how many writes autograd counts
    writes: tuple[tuple[int, Any, int], ...]
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

    def watch(self) -> None:
        """Notes the state that the call may change; the call is dispatched after it."""
        self.shares = self.has_common_memory()
        self.versions = [a._version for a in self.given if type(a) is Fake]

    def has_common_memory(self) -> bool:
        """Whether two of the tensors share memory."""
        fakes = [a for a in self.given if type(a) is Fake]
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
        if (
            self.recorder.current_call.inference
            # symbolic sizes: what the call asks about them matters
            or self.recorder.shape_env.symbols
            or self.recorder.current_call.relies_on
            or "out" in kwargs
            or torch.get_default_dtype() is not self.recorder.modes.default_dtype
            or self.recorder.current_call.autocast
            or torch._C._len_torch_function_stack()
            or torch._C._len_torch_dispatch_stack()
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
        recorder, fakes = self.recorder, given.given
        news = [Fake(new.meta, new.device) for new in script.news]
        nodes: list[torch.fx.Node] = []
        grad = torch.is_grad_enabled()

        def node_of(a: Any) -> Any:
            cls = type(a)
            if cls is _InputRef:
                argument = fakes[a.k]
                return argument.node if type(argument) is Fake else recorder.node_of(argument)
            if cls is _LocalRef:
                return nodes[a.k]
            if cls in (list, tuple):
                return cls(map(node_of, a))
            return a

        def value_of(a: Any) -> Any:
            cls = type(a)
            if cls is _InputRef:
                return fakes[a.k]
            if cls is _LocalRef:
                return news[a.k]
            if cls in (list, tuple):
                return cls(map(value_of, a))
            return a

        for op in script.ops:
            node = recorder.graph.create_node(op.op, op.target, name=op.name)
            node.args = tuple(map(node_of, op.args))
            if op.kwargs:
                node.kwargs = {name: node_of(a) for name, a in op.kwargs.items()}
            node.meta["val"] = value_of(op.val)
            node.meta["stack"], node.meta["site"] = (
                recorder.current_call.where,
                recorder.current_call.site,
            )
            if op.grad:
                node.meta["grad"] = False
            nodes.append(node)
        for fake, new in zip(news, script.news, strict=True):
            if new.alias is None:
                fake.memory = recorder.memory_of(fake)
            else:
                parent = news[new.parent]
                fake.memory, fake.view_of = parent.memory, replace(new.alias, parent=parent)
            fake.node = nodes[new.node]
            fake.version = new.version
            fake.memory.version = max(fake.memory.version, new.version)
        recorder.fakes += news
        recorder.n_ops += script.n_ops
        for k, value, count in script.writes:
            target = fakes[k]
            if target.memory.root.requires_grad and not (target.requires_grad and grad):
                recorder.history.hidden_writes = True
            write(target, node_of(value), recorder)
            for _ in range(count):
                torch.autograd.graph.increment_version(target)
        return (value_of(script.result),)

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
        recorder = self.recorder
        if (
            recorder.current_call.relies_on
            or recorder.current_call.assumes
            or recorder.from_data.looks_at_data
        ):
            raise _Uncacheable
        nodes = list(_since(recorder.graph, before[0]))
        place = {node: k for k, node in enumerate(nodes)}
        news = recorder.fakes[recorder.current_call.old :]
        made = {id(fake): k for k, fake in enumerate(news)}
        fakes = given.given
        numbers = {}
        for k, a in enumerate(fakes):
            if type(a) is not Fake:
                node = recorder.node_of(a)
                if a.node.number.is_specialized or not isinstance(node, torch.fx.Node):
                    raise _Uncacheable
                if node in numbers:
                    raise _Uncacheable
                numbers[node] = k
        written = self._written(given, before)
        if written and given.shares:
            raise _Uncacheable  # the key does not cover the result of that
        earlier = {node: k for k, (node, _) in written.items()}
        if len(earlier) < len(written) or not (nodes or given.key[0] in QUESTIONS):
            raise _Uncacheable
        for k, a in enumerate(fakes):
            if type(a) is Fake and k not in written:
                if a.node in earlier:
                    raise _Uncacheable  # it is unclear whose value the node is
                earlier[a.node] = k
        used: set[int] = set()

        def node_token(a: Any) -> Any:
            if isinstance(a, torch.fx.Node):
                if (k := place.get(a)) is not None:
                    return _LocalRef(k)
                k = earlier.get(a, numbers.get(a))
                if k is None:
                    raise _Uncacheable
                used.add(k)
                return _InputRef(k)
            if isinstance(a, list | tuple):
                if type(a) not in (list, tuple, torch.fx.immutable_collections.immutable_list):
                    raise _Uncacheable
                return (tuple if type(a) is tuple else list)(map(node_token, a))
            if isinstance(a, (torch.Tensor, dict, *SYMBOLS)):
                raise _Uncacheable
            return a

        def value_token(a: Any) -> Any:
            if isinstance(a, Fake):
                if (k := made.get(id(a))) is not None:
                    return _LocalRef(k)
                if (k := given.place.get(id(a))) is not None:
                    return _InputRef(k)
                raise _Uncacheable
            if type(a) in (list, tuple):
                return type(a)(map(value_token, a))
            if type(a) in PLAIN and type(a) is not str:
                return a
            raise _Uncacheable

        ops = []
        for node in nodes:
            tags = getattr(node.target, "tags", ())
            if (
                node.op not in ("call_function", "get_attr")
                or not node.meta.keys() <= REPLAYABLE_META
            ):
                raise _Uncacheable
            if torch.Tag.nondeterministic_seeded in tags or node.meta.get("val") is None:
                raise _Uncacheable
            ops.append(
                _Op(
                    node.op,
                    node.target,
                    _name(node.target),
                    "grad" in node.meta,
                    tuple(map(node_token, node.args)),
                    {k: node_token(v) for k, v in node.kwargs.items()},
                    value_token(node.meta["val"]),
                )
            )
        if not set(numbers.values()) <= used:
            raise _Uncacheable  # the call read the number itself
        described = []
        reached = {id(fake) for fake in fakes_in((result,))}
        of_memory: dict[int, int] = {}  # how many tensors with this memory the program gets
        for fake in news:
            memory = fake.memory
            if memory is None or memory.inference or fake.requires_grad or fake.node not in place:
                raise _Uncacheable
            if fake.meta.is_conj() or fake.meta.is_neg():
                raise _Uncacheable
            parent, alias = 0, fake.view_of
            if id(fake) in reached:
                of_memory[id(memory)] = of_memory.get(id(memory), 0) + 1
                if fake.version != memory.version:
                    raise _Uncacheable
            if alias is not None:
                # Autograd treats views as views, so the program may see at most one of those made here.
                if not _is_whole(fake) or id(alias.parent) not in made:
                    raise _Uncacheable
                parent, alias = made[id(alias.parent)], replace(alias, parent=None)
            elif memory.root is not fake:
                raise _Uncacheable
            described.append(
                _NewTensor(fake.meta, fake.device, place[fake.node], fake.version, parent, alias)
            )
        if max(of_memory.values(), default=0) > 1:
            raise _Uncacheable
        writes = []
        for k, (_, count) in written.items():
            value = node_token(fakes[k].node)
            writes.append((k, value, count))
        return _Script(
            tuple(ops),
            tuple(described),
            tuple(writes),
            recorder.n_ops - before[1],
            value_token(result),
        )

    def _written(self, given: _Arguments, before: Any) -> dict[int, tuple[Any, int]]:
        """Maps each argument that the call has written once to its node before the write and to the number of
        writes that autograd counts."""
        previous: dict[int, tuple[Any, int]] = {}
        own = {id(fake) for fake in self.recorder.fakes[self.recorder.current_call.old :]}
        roots = {id(a.memory.root) for a in given.given if type(a) is Fake}
        for was in self.recorder.undo[before[2] :]:
            fake, node, version = was.fake, was.node, was.version
            if id(fake) in own:
                continue
            k = given.place.get(id(fake))
            if k is not None and _is_whole(fake):
                previous.setdefault(k, (node, version))
            elif k is not None or id(fake) not in roots:
                raise _Uncacheable
        counts = [a._version for a in given.given if type(a) is Fake]
        result = {}
        tensors = [k for k, a in enumerate(given.given) if type(a) is Fake]
        for k, now, then in zip(tensors, counts, given.versions, strict=True):
            if (k in previous) != (now != then):
                raise _Uncacheable
            if k in previous:
                node, version = previous[k]
                fake = given.given[k]
                if fake.version != version + 1 or fake.memory.version != fake.version:
                    raise _Uncacheable
                result[k] = (node, now - then)
        return result


def _is_whole(fake: Fake) -> bool:
    """Whether it is its memory's root or an identity view of it, so that a write to it is a write to the
    root."""
    while fake.view_of is not None:
        if fake.view_of.func not in IDENTITIES:
            return False
        fake = fake.view_of.parent
    return True


def _since(graph: torch.fx.Graph, last: Any) -> Iterator[torch.fx.Node]:
    nodes = []
    for node in reversed(graph.nodes):
        if node is last:
            break
        nodes.append(node)
    return reversed(nodes)


def _name(target: Any) -> str | None:
    return properties_of(target).name if isinstance(target, torch._ops.OpOverload) else None
