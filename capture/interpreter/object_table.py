"""The objects of the program that a capture has reached, and their values.

`wrap` makes a lazy value; `look` finds its kind (`wrap.py`) and adds guards.
"""

from __future__ import annotations

from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.guards.guard_set import GuardSet
from frameloom.capture.guards.source import Origin, Roots
from frameloom.capture.interpreter.capture_state import CaptureOptions
from frameloom.capture.interpreter.step_limits import StepLimits
from frameloom.capture.interpreter.wrap import realize
from frameloom.capture.recording.recorder import Recorder
from frameloom.capture.symbolic.dynamic_policy import NoElements, Pattern
from frameloom.capture.values.base import LazyValue, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import BuiltinValue, CellValue, FunctionValue
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.static import ClassValue, PyModuleValue
from frameloom.capture.values.subclass import SubclassValue
from frameloom.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from frameloom.capture.driver.session import Session


class ObjectTable(StepLimits):
    """The values of objects, and the guards on them."""

    def __init__(self, function: FunctionType, session: Session) -> None:
        super().__init__()
        self.session = session
        self.recorder = Recorder()
        self.roots = Roots(function)
        self.guards = GuardSet(self.roots)
        self.options = CaptureOptions()
        self._wrapped: dict[int, LazyValue] = {}
        self._known: dict[int, Value] = {}  # by id of the object, where identity matters
        self.tensors: dict[int, TensorValue] = {}  # by id of the fake
        self._cells: dict[int, CellValue] = {}
        self._globals: dict[int, DictValue] = {}
        self._pins: dict[int, Any] = {}  # by id of a source
        self.whole: set[CodeType] = set()  # codes of functions that were jitted with fullgraph=True
        self._patterns: dict[int, Pattern | None] = {}  # by id of an input

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

    def pin(self, origin: Origin, obj: Any) -> Any:
        """Returns the same tuple of keys for the same dictionary, so that its check is noted once."""
        return self._pins.setdefault(id(origin), obj)

    def class_origin(self, cls: type) -> Origin:
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
        return self.inside_jitted(raw) if self.is_jitted(raw) else FunctionValue(raw, origin)

    def inside_jitted(self, jitted: Any) -> FunctionValue:
        """Returns the function as written."""
        function = jitted.__wrapped__
        options = getattr(jitted.on_miss, "options", None)
        if options is not None and options.fullgraph:
            self.whole.add(function.__code__)
        return FunctionValue(function, self.roots.object(function))

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
        if pattern is None and self.options.follows_numbers:
            code = self.roots.function.__code__
            pattern = self._patterns[id(real)] = self.session.dynamic_policy.pattern(
                code, origin, real
            )
        if pattern is not None and 0 in real.shape:
            self.guards.add_tensor(origin, pattern.guard(real))
            raise NoElements(f"{origin.path()}, of which sizes vary, has no elements")
        fake = self.recorder.input(real, origin, pattern)
        self.guards.add_tensor(origin, real if pattern is None else pattern.guard(real))
        is_plain = type(real) in (torch.Tensor, torch.nn.Parameter)
        value = TensorValue(fake, real, origin) if is_plain else SubclassValue(fake, real, origin)
        self.tensors[id(fake)] = value
        return value

    def tensor_of(self, fake: Any) -> TensorValue | None:
        """Returns the value that stands for a Fake of the recorder."""
        return self.tensors.get(id(fake))

    # --- lengths of containers
    def note_length(self, origin: Origin, kind: type, length: int) -> Any:
        """Notes that the capture will depend on the length of the container at `origin`."""
        if not self.options.follows_lengths:
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

    def release_objects(self) -> None:
        """Frees everything that is part of reference cycles."""
        self.roots.release()
        self.guards.release()
        self.recorder.release()
        tables = self._wrapped, self._known, self.tensors, self._cells, self._globals, self.changed
        for table in tables:
            for value in table.values():
                value.__dict__.clear()
            table.clear()
        self._journal.clear()
