"""The state of one capture, and the values of the program's objects.

A `Tracer` holds the recorder, the guards, the roots of all sources and a journal of changes, so that an
instruction that cannot be captured is undone. `wrap` makes a lazy value; `look` finds its kind (`wrap.py`)
and adds guards. Calls are in `calls.py` and `torch_calls.py`, conversions in `convert.py`, comparisons of
two values in `identity.py`, instructions in `opcodes/`. One class, since all of it is freed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.class_lookup import (
    class_attribute,
)
from frameloom.capture.guards.guard_set import GuardSet
from frameloom.capture.guards.source import Origin, Roots
from frameloom.capture.interpreter import calls, convert, identity, instance_attributes, torch_calls
from frameloom.capture.interpreter.context_managers import Settings
from frameloom.capture.interpreter.evaluate import evaluate
from frameloom.capture.interpreter.journal import Journal
from frameloom.capture.interpreter.wrap import realize
from frameloom.capture.recording.recorder import Recorder
from frameloom.capture.speculation.decide import decide
from frameloom.capture.symbolic.dynamic_index import getter, setter
from frameloom.capture.symbolic.dynamic_policy import NoElements, Pattern
from frameloom.capture.symbolic.unbacked_items import positions
from frameloom.capture.values.base import LazyValue, Raised, Value
from frameloom.capture.values.const import ConstValue, boolean, is_constant
from frameloom.capture.values.containers.container import (
    SequenceValue,
    TupleValue,
)
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.containers.iterator import IteratorValue, SequenceIterator
from frameloom.capture.values.exception import ExceptionValue
from frameloom.capture.values.function import (
    BuiltinValue,
    CellValue,
    FunctionValue,
    PartialValue,
)
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.numbers.symbolic import (
    SymbolicNumber,
)
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.capture.values.static import ClassValue, PyModuleValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break, Skip, Where

if TYPE_CHECKING:
    from frameloom.capture.autograd.backward_python import DeferredCode
    from frameloom.capture.driver.session import Session
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.generator import GeneratorValue

MAX_STEPS = 500_000  # of one capture
STEPS_PER_TENSOR = 100
MAX_IDLE_STEPS = 50_000  # without a tensor operation: running such code is faster than following it
MAX_TORCH_CALLS = 20_000
MAX_TENSORS = 100_000
MAX_DEPTH = 60


class Tracer(Journal):
    """One capture of one call."""

    def __init__(self, function: FunctionType, session: Session) -> None:
        super().__init__()
        self.session = session
        self.recorder = Recorder()
        self.roots = Roots(function)
        self.guards = GuardSet(self.roots)
        self.frame: Frame | None = None  # the innermost one
        self.depth = 0
        self.steps = 0
        self.torch_calls = 0
        self.step_limit = MAX_IDLE_STEPS
        self.trying = 0  # above 0 while code runs that may be undone (symbolic/branch_relevance.py)
        self.specialized_numbers: list[SymbolicNumber] = []  # specialized ones, in order
        # Sites that need calls which can bail out: those with an assumption, and those that may raise behind
        # a change or inside a `try` that handles it.
        self.rerun_sites: list[tuple[Any, int]] = []
        self.fallible_sites: list[tuple[Any, int]] = []
        # Torch calls whose exceptions the program handles: refused ones break if no call can bail out.
        self.handled_sites: set[tuple[Any, int]] = set()
        self.asked_compiling = False  # whether the program asked if it is being compiled
        self.follows_iterators = False  # whether existing iterators are followed
        self.follows_numbers = False  # whether dynamic numbers become inputs
        self.follows_lengths = False  # whether calls with new container lengths may run plainly
        self.follows_elements = False  # whether numbers in CPU tensors become inputs
        self.may_speculate = False  # whether branch speculation is allowed
        self.speculated: list[Any] = []  # branches taken so (speculation/branch_speculation.py)
        self.resumed = False  # the captured function is a resume function
        self.settings = Settings(self.recorder.casts)
        self.draws: list[Value] = []  # Python's random draws, in order
        self.arrays: list[Any] = []  # hoisted calls (speculation/hoisting.py)
        self.choices: dict[Any, bool] = {}  # of branches on random numbers (branch_prediction.py)
        self.chance = 1.0  # estimated probability that all of them are predicted right
        self.regions: list[bool] = []  # checkpointed regions around this point: whether reentrant
        self.entered: list[CodeType] = []  # of all frames, in order
        self.deferred_code: list[DeferredCode] = []  # code that autograd runs in the backward pass
        self.has_token_keys = False  # whether an object's identity was used as a key
        self.raised: list[Raised] = []  # all exceptions of the program
        self.generators: list[GeneratorValue] = []  # all that were made
        self.handling: list[Raised] = []  # exceptions of the program whose handlers are running
        self._wrapped: dict[int, LazyValue] = {}
        self._known: dict[int, Value] = {}  # by id of the object, where identity matters
        self.tensors: dict[int, TensorValue] = {}  # by id of the fake
        self._cells: dict[int, CellValue] = {}
        self._globals: dict[int, DictValue] = {}
        self._pins: dict[int, Any] = {}
        self._patterns: dict[int, Pattern | None] = {}  # by id of an input
        self.last_backward = 0  # sequence number of autograd's next node after it; 0 without one
        self.last_backward_site: Any = None  # the site of that call
        self.gradients_set: set[int] = set()  # fakes that became a tensor's `.grad`
        self.leaves: dict[int, Any] = {}  # leaf tensors of autograd made here (leaves.py)
        self.elements: dict[Any, SymbolicNumber] = {}  # nodes with one element -> their numbers
        self.positions: dict[Any, tuple[Value, Any]] = {}  # nodes with one int -> it and its source

    # --- objects of the program
    def wrap(self, obj: Any, origin: Origin) -> Value:
        """Returns a lazy value for the object at `origin`, without guards."""
        wrapped = self._wrapped.get(id(origin))
        if wrapped is None:
            wrapped = self._wrapped[id(origin)] = LazyValue(obj, origin)
        return wrapped

    def look(self, value: Value) -> Value:
        """Returns the value behind a lazy one, and guards what it is."""
        if not isinstance(value, LazyValue):
            return value
        if value.realized is None:
            value.realized = self._realize(value.real, value.origin)
        return value.realized

    def _realize(self, obj: Any, origin: Origin) -> Value:
        known = self._known.get(id(obj)) or self._globals.get(id(obj))
        if known is not None:
            if known.origin is not None and known.origin is not origin:
                self.guards.add(origin, "same", known.origin)
            return known
        value = realize(self, obj, origin)
        if value.origin is not None and not isinstance(
            value, ConstValue | BuiltinValue | FunctionValue | ClassValue | PyModuleValue
        ):
            self._known[id(obj)] = value
        return value

    def known(self, obj: Any) -> Value | None:
        """Returns the value of an object that was looked at and whose identity matters."""
        return self._known.get(id(obj))

    def know(self, obj: Any, value: Value) -> Value:
        """Returns the value of an object; sets it to `value` if there is none."""
        return self._known.setdefault(id(obj), value)

    def known_modules(self) -> list[ModuleValue]:
        """Returns the values of all existing `nn.Module` objects that were looked at."""
        return [value for value in self._known.values() if isinstance(value, ModuleValue)]

    def known_objects(self, cls: type) -> list[Value]:
        """Returns the values of all existing objects of that class that were looked at."""
        return [value for value in self._known.values() if type(value.real) is cls]

    def pinned(self, obj: Any) -> Value:
        """Returns a value for an object that no source leads to: the guards hold the object."""
        return self.look(self.wrap(obj, self.roots.object(obj)))

    def pin(self, owner: Any, obj: Any) -> Any:
        """Returns the same tuple of keys for the same dictionary, so that its check is noted once."""
        return self._pins.setdefault(id(owner), obj)

    def class_origin(self, cls: type, after: type | None = None) -> Origin:
        return self.roots.object(cls)

    def class_function(
        self, cls: type, name: str, raw: Any, after: type | None = None
    ) -> FunctionValue:
        """Returns a function found in a class, guarded by the look-up that found it."""
        if after is not None:
            order = cls.__mro__
            cls = next(base for base in order[order.index(after) + 1 :] if name in base.__dict__)
        class_attribute(cls, name)
        origin = self.roots.object(cls).child("attr", name)
        if self.is_jitted(raw):
            raw = raw.__wrapped__
            return FunctionValue(raw, self.roots.object(raw))
        return FunctionValue(raw, origin)

    def is_jitted(self, obj: Any) -> bool:
        return isinstance(obj, _capture.JitFunction)

    def globals_of(self, function: FunctionType, origin: Origin | None) -> DictValue:
        return self.globals_table(function.__globals__, origin)

    def globals_table(self, table: dict[str, Any], origin: Origin | None) -> DictValue:
        """Returns the globals of a function at `origin`."""
        globals_value = self._globals.get(id(table))
        if globals_value is None and isinstance(known := self._known.get(id(table)), DictValue):
            # It was reached as a dictionary before.
            globals_value = self._globals[id(table)] = known
        if globals_value is None:
            if table is self.roots.function.__globals__:
                place = self.roots.globals
            else:
                place = (
                    origin.child("func_globals") if origin is not None else self.roots.object(table)
                )
            globals_value = self._globals[id(table)] = DictValue(table, place)
        return globals_value

    def written_global(self, table: dict[str, Any], name: str) -> Value | None:
        """Returns what the capture stored under a global name: `DELETED` if deleted, None if nothing."""
        globals_value = self._globals.get(id(table)) or self._known.get(id(table))
        written = globals_value.written.get(name) if isinstance(globals_value, DictValue) else None
        return None if written is None else written[1]

    def cell(
        self,
        cell: CellType,
        origin: Origin | None,
        content: Origin | None = None,
        slot: str | None = None,
    ) -> CellValue:
        """Returns the value of an existing cell. `content`: source of its content, by default a child."""
        cell_value = self._cells.get(id(cell))
        if cell_value is None:
            if content is None:
                assert origin is not None
                content = origin.child("cell_contents")
            try:
                inside: Value | None = self.wrap(cell.cell_contents, content)
            except ValueError:
                inside = None
            cell_value = self._cells[id(cell)] = CellValue(inside, cell, origin, slot, content)
        return cell_value

    def tensor(self, real: torch.Tensor, origin: Origin) -> TensorValue:
        """Makes a tensor from before the call an input of the graph."""
        pattern = self._patterns.get(id(real))
        if pattern is None and self.follows_numbers:
            code = self.roots.function.__code__
            pattern = self._patterns[id(real)] = self.session.dynamic_policy.pattern(
                code, origin, real
            )
        if pattern is not None and 0 in real.shape:
            self.guards.add_tensor(origin, pattern.guard(real))
            raise NoElements(f"{origin.path()}, of which sizes vary, has no elements")
        fake = self.recorder.input(real, origin, pattern)
        self.guards.add_tensor(origin, real if pattern is None else pattern.guard(real))
        value = TensorValue(fake, real, origin)
        self.tensors[id(fake)] = value
        return value

    def tensor_of(self, fake: Any) -> TensorValue | None:
        """Returns the value that stands for a Fake of the recorder."""
        return self.tensors.get(id(fake))

    def report_compiling(self) -> Value:
        """Answers the program's question whether it is being compiled."""
        self.asked_compiling |= self.session.reports_compiling
        return boolean(self.session.reports_compiling)

    def from_python(self, obj: Any) -> Value:
        return convert.from_python(self, obj)

    def table_of(self, entries: dict[str, Value]) -> DictValue:
        """Returns a new dictionary with these items."""
        table = DictValue()
        for name, value in entries.items():
            table.setitem(self, ConstValue(name), value)
        return table

    # --- answers about values
    def items(self, value: Value) -> list[Value]:
        """Returns the items of a known sequence without copying."""
        if isinstance(value, SequenceValue):
            return value.items
        payload = getattr(value, "payload", None)
        if isinstance(payload, SequenceValue):
            return payload.items
        raise Break("opaque_iterable", f"items of {value.describe()}")

    def drain(self, value: Value) -> list[Value]:
        """Returns all items of an iterable, which is used up."""
        return self._drained(self.look(value).iterate(self))

    def _drained(self, iterator: Value) -> list[Value]:
        if isinstance(iterator, IteratorValue):
            return iterator.drain(self)
        items = []
        while (item := iterator.step(self)) is not None:  # type: ignore[attr-defined]
            items.append(item)
            self.count_step()
        return items

    def each(self, value: Value) -> Iterator[Value]:
        """Yields the items one by one: the caller handles one item before the next is made."""
        iterator = self.look(value).iterate(self)
        while (item := iterator.step(self)) is not None:  # type: ignore[attr-defined]
            yield item
            self.count_step()

    def batches(self, value: Value) -> Iterator[list[Value]]:
        """Yields the items of an iterable for a container that takes them in: one by one if code of the
        program makes them, since it may look at the container in between."""
        iterator = self.look(value).iterate(self)
        if isinstance(iterator, SequenceIterator) and not iterator.asks_program:
            yield self._drained(iterator)
            return
        while (item := iterator.step(self)) is not None:  # type: ignore[attr-defined]
            yield [item]
            self.count_step()

    def list_items(self, value: Value) -> list[Value]:
        return list(self.drain(value))

    def sized_items(self, value: Value) -> list[Value]:
        """Like `list_items`, for places where CPython also reads the object's length hint."""
        value = self.look(value)
        iterator = value.iterate(self)
        value.length_hint(self)
        return list(self._drained(iterator))

    def tuple_of(self, value: Value) -> TupleValue:
        return TupleValue(self.list_items(value))

    def index(
        self, value: Value, fault: str = "'{}' object cannot be interpreted as an integer"
    ) -> int:
        return convert.index(self, value, fault)

    def same_or_equal(self, a: Value, b: Value) -> bool:
        return identity.same_or_equal(self, a, b)

    def identical(self, a: Value, b: Value) -> bool:
        return identity.identical(self, a, b)

    def is_instance(self, value: Value, classes: Value) -> bool:
        return identity.is_instance(self, value, classes)

    # --- computing
    def evaluate(
        self, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
    ) -> Value:
        return evaluate(self, fn, args, kwargs)

    def torch_call(
        self, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
    ) -> Value:
        return torch_calls.torch_call(self, fn, args, kwargs)

    def to_torch(self, value: Value, fn: Any = None) -> Any:
        return convert.to_torch(self, value, fn)

    def call(self, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return calls.call(self, callee, args, kwargs)

    def call_builtin(self, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return calls.call_builtin(self, fn, args, kwargs)

    def instantiate(self, cls: ClassValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from frameloom.capture.library.classes import instantiate

        return instantiate(self, cls, args, kwargs)

    def instance_attribute(self, value: Value, name: str) -> Value:
        return instance_attributes.instance_attribute(self, value, name)

    def decide(self, condition: TensorValue) -> bool:
        return decide(self, condition)

    def tensor_item(self, tensor: TensorValue, key: Value) -> Value:
        key = positions(self, key)
        return self.torch_call(getter(self, key), [tensor, key], {})

    def set_tensor_item(self, tensor: TensorValue, key: Value, value: Value) -> None:
        key = positions(self, key)
        self.torch_call(setter(self, key), [tensor, key, value], {})

    # --- exceptions of the program
    def raise_(self, cls: type[BaseException], *args: Any) -> NoReturn:
        raise Raised(
            ExceptionValue(
                cls, [self.from_python(a) if is_constant(a) else ConstValue(str(a)) for a in args]
            )
        )

    def raise_unworded(self, cls: type[BaseException], what: str) -> NoReturn:
        """Raises an exception whose text only Python knows: reading it breaks the graph there."""
        raise Raised(ExceptionValue(cls, None, what))

    def raise_value(self, cls: type[BaseException], args: list[Value]) -> NoReturn:
        raise Raised(ExceptionValue(cls, args))

    def refusable(self, number: SymbolicNumber) -> bool:
        """Whether a call may bail out where Python would raise while it computes the number."""
        if self.session.per_code:
            return False
        self.recorder.numbers.checked.append(number)
        self.on_undo(self.recorder.numbers.checked.pop)
        return True

    def release(self) -> None:
        """Frees everything that is part of reference cycles, at the end of the capture."""
        self.roots.release()
        self.guards.release()
        self.recorder.release()
        for table in (
            self._wrapped,
            self._known,
            self.tensors,
            self._cells,
            self._globals,
            self.changed,
        ):
            for value in table.values():
                value.__dict__.clear()
            table.clear()
        for raised in self.raised:
            raised.__traceback__ = raised.point = None  # our own frames, which hold the exception
        self.elements.clear()
        self.positions.clear()
        self._journal.clear()
        self.leaves.clear()
        self.raised.clear()
        self.generators.clear()
        self.handling.clear()
        self.deferred_code.clear()

    # --- lengths of containers
    def note_length(self, origin: Origin, kind: type, length: int) -> Any:
        """Notes that the capture will depend on the length of the container at `origin`."""
        if not self.follows_lengths:
            return None
        return self.session.dynamic_policy.lengths.note(self, origin, kind, length)

    def guard_length(self, origin: Origin, kind: type, length: int) -> None:
        """Guards the length of the container at `origin`, and nothing else of it."""
        seen_lengths = self.note_length(origin, kind, length)
        self.guards.add(
            origin, "length", length if seen_lengths is None else (length, seen_lengths)
        )

    def is_opaque_list(self, origin: Origin) -> bool:
        """Whether the list at `origin` is opaque, since it grows with each call."""
        return self.session.dynamic_policy.lengths.is_opaque_list(
            self.roots.function.__code__, origin
        )

    # --- where we are
    def count_torch_call(self) -> None:
        self.torch_calls += 1
        if self.torch_calls > MAX_TORCH_CALLS:
            self._too_large(f"more than {MAX_TORCH_CALLS} calls of PyTorch")
        if len(self.recorder.fakes) > MAX_TENSORS:  # one call may return thousands of tensors
            self._too_large(f"more than {MAX_TENSORS} tensors")
        self.step_limit = min(MAX_STEPS, self.steps + MAX_IDLE_STEPS)

    def count_step(self) -> None:
        """Counts one instruction, or one item of a loop inside a builtin."""
        self.steps += 1
        if self.steps > self.step_limit:
            if self.steps > MAX_STEPS:
                self._too_large(f"more than {MAX_STEPS} instructions")
            # Lists of many tensors need more steps.
            n_tensors = self.recorder.n_inputs
            if self.steps > self.step_limit + STEPS_PER_TENSOR * n_tensors:
                self._too_large(f"{MAX_IDLE_STEPS} instructions without a tensor operation")

    def _too_large(self, what: str) -> NoReturn:
        """Leaves the code to Python: compiling so large a graph takes longer than it can save."""
        raise Skip(
            f"too large to follow: {what}, at {self.where()}; "
            "try: jit the function that the loop calls, and leave the loop outside"
        )

    def where(self) -> Where:
        assert self.frame is not None
        return self.frame.where()


__all__ = ["OpaqueValue", "PartialValue", "Tracer"]
