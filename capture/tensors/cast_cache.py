"""Casts of weights that autocast keeps until its region ends: the program sees them where it changes a weight
inside of a region.

A region that begins and ends in one graph is recorded as it is. For others there are two ways.

Kept: when the graph is called, PyTorch's own function makes a cast, or finds it in the cache, and the graph
gets the result. This is used for graphs before and after a break, where plain Python always enters the
region.

Own: a function that is one graph, called inside of a region, makes its casts itself, which costs less. That
is right while weights do not change before the region ends. So each call notes the write counts of the
weights, and the first calls let autocast make its casts, too. If a call finds a changed weight, it runs as
plain Python, and everything called in regions is compiled the other way from then on."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.source import SOURCE_KINDS, Origin, SourceKind
from frameloom.capture.tensors.schema import fakes_in
from frameloom.config import config
from frameloom.debug import log
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.emitter import CodeBuilder
    from frameloom.capture.driver.session import Session
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.captured_graph import CapturedGraph
    from frameloom.capture.recording.recorder import Recorder
    from frameloom.capture.tensors.fake import Fake

# arguments: tensor, code of a dtype, code of a kind of device
Cast = Callable[[torch.Tensor, int, int], Any]
DTYPES = {torch.float16: 5, torch.bfloat16: 15}
DEVICES = {"cpu": 0, "cuda": 1}
WORDS = struct.Struct("3q")
FIRST = 3  # number of calls that let autocast keep its casts, too
# Casts that the program asks for.
BY_NAME = {torch.Tensor.to, torch.Tensor.bfloat16, torch.Tensor.half, torch.Tensor.type, torch.Tensor.type_as}  # fmt: skip


class KeepsCasts(Exception):
    """This function has to use the casts that autocast keeps; `opens`: plain Python also has to enter its
    regions."""

    def __init__(self, opens: bool = False) -> None:
        self.opens = opens


class Region:
    """The current region, in this process, in which graphs with casts of their own are called; `changes`:
    whether the program has changed a weight in a region."""

    def __init__(self) -> None:
        self.changes = False
        self._seen: list[bytes] = []  # notes of calls about weights that were cast
        self._known: dict[int, list[int]] | None = None  # the same, per weight
        self._mark: Any = None
        self._marked: torch.Tensor | None = None

    def is_new(self, cast: Cast) -> bool:
        """Whether autocast has dropped its casts since the last call."""
        dtype = DTYPES.get(torch.get_autocast_dtype("cpu"))
        if self._marked is None:
            with torch.inference_mode(False):
                self._marked = torch.zeros((), dtype=torch.float32, device="cpu").requires_grad_()
        mark = None if dtype is None else cast(self._marked, dtype, 0)
        if mark is not None and mark is self._mark:
            return False
        self._mark, self._seen, self._known = mark, [], None
        return True

    def differ(self, inputs: tuple[Any, ...], places: tuple[int, ...], cast: Cast) -> bool:
        """Whether one of these weights was changed since it was cast in this region; they are cast now."""
        now = _capture.tensors_written(inputs, places)
        if self.is_new(cast):
            self._seen.append(now)
        elif now not in self._seen:
            self._compare(now)
            self._seen.append(now)
        return self.changes

    def _compare(self, now: bytes) -> None:
        if self._known is None:
            self._known = {w: rest for w, *rest in WORDS.iter_unpack(b"".join(self._seen))}
        if any(self._known.setdefault(w, rest) != rest for w, *rest in WORDS.iter_unpack(now)):
            self.note_change()

    def look_at(self, weight: torch.Tensor, cast: Cast) -> None:
        """Checks a weight whose cast autocast makes or finds now."""
        if self._seen and not self.is_new(cast):
            self._compare(_capture.tensors_written((weight,), (0,)))

    def note_change(self) -> None:
        self.changes = True
        if "recompiles" in config.logs:
            log("recompiles", "a weight is changed inside of an autocast region: casts are those that autocast keeps")  # fmt: skip


REGION = Region()


class PrecedingCast:
    """A cast before a graph, and its result during capture; `bails_out`: whether the call can bail out to plain
    Python."""

    def __init__(self, cast: Cast, grad: bool, sample: torch.Tensor, bails_out: bool) -> None:
        self.cast = cast
        self.grad = grad
        self.dtype, self.follows = sample.dtype, sample.requires_grad
        self.codes = DTYPES[sample.dtype], DEVICES[sample.device.type]
        self.bails_out = bails_out

    def __call__(self, weight: torch.Tensor) -> torch.Tensor:
        """Called from new code."""
        REGION.look_at(weight, self.cast)
        with torch.set_grad_enabled(self.grad):
            made = self.cast(weight, *self.codes)
        # The cast may be from a time before the weight got other memory, or from another mode.
        same = made.dtype is self.dtype and made.requires_grad is self.follows
        if same and made.shape == weight.shape:
            return made  # type: ignore[no-any-return]
        if self.bails_out:
            raise _capture.RunPlainly
        with torch.set_grad_enabled(self.follows):
            return weight.to(self.dtype)


def _load_cast(origin: Origin, code: CodeBuilder) -> None:
    code.call_const_after(origin.key)


def _path_of_weight(origin: Origin) -> str:
    assert origin.base is not None
    return origin.base.path()


SOURCE_KINDS["cast"] = SourceKind("", _load_cast, _path_of_weight)  # no guard loads it


class Casts:
    """The casts of one capture. `kept`: whether the first way is used; `opens`: whether plain Python enters
    regions; `function`: PyTorch's own, None if there is none."""

    def __init__(self) -> None:
        self.function: Cast | None = None
        self.kept = self.opens = self.restarts = False
        self.left = False  # whether a region was left that began outside
        # whether the cache setting matters
        self._keeps, self._asks = torch.is_autocast_cache_enabled(), False
        self._depth = depth()
        self._dtypes = {k: torch.get_autocast_dtype(k) for k in DEVICES if torch.is_autocast_enabled(k)}  # fmt: skip
        self.outside = bool(self._depth or self._dtypes)  # whether a region has begun outside
        self._given: dict[int, Fake] = {}  # by the identity of the weight's Fake
        # Number of the input; whether in a region from outside; whether the graph has changed the input
        # before.
        self._own: list[tuple[int, bool, bool]] = []

    def begin(self, session: Session, function: Cast | None) -> None:
        self.function, self.restarts = function, not session.per_code
        self.kept = function is not None and (session.keeps_casts or REGION.changes)
        self.opens = session.opens_autocast

    # ---- regions (interpreter/context_managers.py)

    def enter(self) -> None:
        if depth() == 0 and (self.opens or self.left):
            raise Break("autograd", "autocast entered, and left open at a break")

    def clear(self) -> None:
        """Makes autocast drop its casts; the casts from before the capture stay until the captured call
        reaches this point."""
        if not self.outside:
            torch.clear_autocast_cache()
        elif self._depth and not depth():
            self.left = True
        elif not self.left:
            raise Break("autograd", "torch.clear_autocast_cache()")

    @property
    def is_outer(self) -> bool:
        """Whether a region is open that began outside."""
        return self.outside and not self.left

    # ---- ops (recording/recorder.py)

    def before(self, recorder: Recorder, args: Any, kwargs: Any) -> None:
        for fake in fakes_in((args, kwargs)):
            number = fake.memory.input if fake.memory is not None else None
            if number is None or recorder.inputs[number][2] is not fake:
                continue
            if not (fake.requires_grad and fake.is_leaf and fake.dtype is torch.float32):
                continue
            if not _is_weight(recorder.inputs[number][1]):
                if fake.memory.version:  # a Fake is a leaf, and its cast would be kept
                    raise Break("autograd", "a tensor with a history, changed under autocast")
            elif self.is_outer:
                self._asks = True
                if self.kept:
                    self._give(recorder, fake, number)

    def _give(self, recorder: Recorder, fake: Fake, number: int) -> None:
        """Makes the cast of a weight an input."""
        kind = fake.device.type
        if kind not in recorder.current_call.autocast or not torch.is_autocast_cache_enabled():
            return
        given = self._given.get(id(fake))
        if given is not None:
            if fake.memory.version and not given.node.users:
                raise Break("autograd", "a weight changed under autocast, before it is cast")
            return
        dtype = torch.get_autocast_dtype(kind)
        if fake.memory.version or self._dtypes.get(kind) is not dtype or dtype not in DTYPES:
            raise Break("autograd", "a weight that is cast in another region")
        assert self.function is not None
        origin, real, _ = recorder.inputs[number]
        with recorder:
            made = self.function(fake, DTYPES[dtype], DEVICES[kind])
        node = made.node
        follows = made.requires_grad
        with torch.set_grad_enabled(follows):
            sample = real.to(dtype)
        # From now on, the capture finds it in autocast's own cache, without a history.
        made.detach_().requires_grad_(follows)
        how = PrecedingCast(self.function, torch.is_grad_enabled(), sample, self.restarts)
        recorder.give(made, sample, origin.child("cast", how))
        recorder.graph.erase_node(node)
        recorder.n_ops -= 1
        self._given[id(fake)] = made

    def of_operand(self, value: Any) -> Any:
        """Returns what autocast makes of an operand of a function that it runs in its own dtype."""
        if not isinstance(value, torch.Tensor):
            return value
        kind = value.device.type
        if kind not in DEVICES or not torch.is_autocast_enabled(kind):
            return value
        dtype = torch.get_autocast_dtype(kind)
        if self.function is not None and dtype in DTYPES:
            return self.function(value, DTYPES[dtype], DEVICES[kind])
        wide = value.dtype is torch.float64 or not value.is_floating_point()
        return value if wide else value.to(dtype)

    def has_given(self, fake: Fake) -> bool:
        return any(given is fake for given in self._given.values())

    def note(self, recorder: Recorder, fake: Fake) -> None:
        """Notes that a cast is recorded."""
        number = fake.memory.input
        if (
            number is None
            or recorder.inputs[number][2] is not fake
            or recorder.current_call.function in BY_NAME
        ):
            return
        if not torch.is_autocast_cache_enabled() or (self.kept and self.is_outer):
            return
        if fake.dtype is torch.float32 and _is_weight(recorder.inputs[number][1]):
            self._own.append((number, self.is_outer, bool(fake.memory.version)))

    # ---- the end of a capture (rewrite.py)

    def own(self, t: Tracer, is_whole: bool) -> list[Origin]:
        """Returns the weights whose casts autocast would keep beyond the graph that makes them. `is_whole`:
        whether the graph is the whole function. Raises KeepsCasts where the graph must not make them."""
        if self._asks:
            t.guards.returns(torch.is_autocast_cache_enabled, (), self._keeps)
        is_open = t.settings.leaves_autocast_open
        beyond = [(n, changed) for n, outer, changed in self._own if outer or is_open]
        if not beyond or self.function is None:
            return []
        if is_open or not is_whole or t.session.per_code or any(changed for _, changed in beyond):
            raise KeepsCasts(is_open)
        return [t.recorder.inputs[n][0] for n in dict.fromkeys(n for n, _ in beyond)]


def autocast_devices() -> list[str]:
    """Returns the kinds of devices under autocast here."""
    if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
        return []  # the most frequent case
    return [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]


@contextmanager
def without_autocast() -> Iterator[None]:
    """Turns autocast off: a backward pass runs outside of the autocast blocks of its forward pass."""
    kinds = autocast_devices()
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)


@contextmanager
def without_cache(wanted: Any) -> Iterator[None]:
    was = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(was and not wanted)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(was)


def depth() -> int:
    """Returns the nesting depth of autocast blocks here."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()  # type: ignore[no-any-return]


def _is_weight(real: torch.Tensor) -> bool:
    try:
        return real.requires_grad and real.is_leaf and not real._is_view()
    except RuntimeError:  # a view that was written to
        return False


def is_cast(origin: Any) -> bool:
    return getattr(origin, "kind", None) == "cast"


def made_casts(recorder: Recorder) -> list[Origin]:
    """Returns the casts of weights that the region keeps from then on, even if no result depends on them."""
    return [origin for origin, _, fake in recorder.inputs if is_cast(origin) and fake.node.users]


def watching(
    t: Tracer, graph: CapturedGraph, compiled: Callable[..., Any], weights: Sequence[Origin]
) -> Callable[..., Any]:
    """Returns the graph with a check of the weights that it casts itself."""
    session, cast = t.session, t.recorder.casts.function
    if not weights or cast is None:
        return compiled
    places = tuple(graph.inputs.index(w) for w in weights if w in graph.inputs)
    jitted, left = session.capturing, FIRST
    codes = {k: (DTYPES.get(torch.get_autocast_dtype(kind)), DEVICES[kind]) for kind in DEVICES for k in places if graph.examples[k].device.type == kind}  # fmt: skip

    def run(*inputs: Any) -> Any:
        nonlocal left
        if REGION.changes or REGION.differ(inputs, places, cast):
            _forget(session, jitted)
            raise _capture.RunPlainly
        if left:
            left -= 1
            for k, (dtype, device) in codes.items():
                if dtype is not None:
                    cast(inputs[k], dtype, device)
        return compiled(*inputs)

    return run


def _forget(session: Session, jitted: weakref.ref[Any] | None) -> None:
    session.keeps_casts = True
    owner = jitted() if jitted is not None else None
    if owner is not None:
        owner.clear()
