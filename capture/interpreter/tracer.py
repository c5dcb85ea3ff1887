"""The state of one capture, and what values ask of it.

A `Tracer` holds the recorder, the guards, the roots of all sources and a journal of changes, so that an
instruction that cannot be captured is undone. Its bases: `step_limits.py`, `object_table.py`
and `iteration.py`. Calls are in `calls.py` and `torch_calls.py`, conversions in `convert.py`, comparisons of
two values in `identity.py`, instructions in `opcodes/`. One class, since all of it is freed at once.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.interpreter import (
    calls,
    classes,
    convert,
    identity,
    instance_attributes,
    operators,
    torch_calls,
    torch_function,
)
from frameloom.capture.interpreter import evaluate as evaluation
from frameloom.capture.interpreter.capture_state import BackwardState, Site, Speculation
from frameloom.capture.interpreter.context_managers import Settings
from frameloom.capture.interpreter.iteration import Iteration
from frameloom.capture.speculation.branch_prediction import decide
from frameloom.capture.symbolic.dynamic_index import getter, setter
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import ConstValue, boolean, is_constant
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.exception import ExceptionValue
from frameloom.capture.values.numbers.symbolic import (
    SymbolicNumber,
)
from frameloom.capture.values.numbers.unbacked_items import positions
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Where

if TYPE_CHECKING:
    from frameloom.capture.driver.session import Session
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.generator import GeneratorValue


class Tracer(Iteration):
    """One capture of one call."""

    def __init__(self, function: FunctionType, session: Session) -> None:
        super().__init__(function, session)
        self.speculation, self.backward = Speculation(), BackwardState()
        self.frame: Frame | None = None  # the innermost one
        self.trying = 0  # above 0 while code runs that may be undone (symbolic/branch_relevance.py)
        self.specialized_numbers: list[SymbolicNumber] = []  # in order
        self.asked_compiling = False  # whether the program asked if it is being compiled
        self.settings = Settings(self.recorder.casts)
        self.draws: list[Value] = []  # Python's random draws, in order
        self.arrays: list[Any] = []  # hoisted calls (speculation/hoisting.py)
        self.entered: list[CodeType] = []  # of all frames, in order
        self.has_token_keys = False  # whether an object's identity was used as a key
        self.raised: list[Raised] = []  # all exceptions of the program
        self.generators: list[GeneratorValue] = []  # all that were made
        self.handling: list[Raised] = []  # exceptions of the program whose handlers are running
        self.elements: dict[Any, SymbolicNumber] = {}  # nodes with one element -> their numbers
        self.positions: dict[Any, tuple[Value, Any]] = {}  # nodes with one int -> it and its source

    def report_compiling(self) -> Value:
        """Answers the program's question whether it is being compiled."""
        self.asked_compiling |= self.session.reports_compiling
        return boolean(self.session.reports_compiling)

    def table_of(self, entries: dict[str, Value]) -> DictValue:
        """Returns a new dictionary with these items."""
        table = DictValue()
        for name, value in entries.items():
            table.setitem(self, ConstValue(name), value)
        return table

    # --- what other files of this folder define
    from_python = convert.from_python
    to_torch = convert.to_torch
    index = convert.index
    same_or_equal = identity.same_or_equal
    identical = identity.identical
    is_instance = identity.is_instance
    instance_attribute = instance_attributes.instance_attribute
    evaluate = evaluation.evaluate
    binary = operators.binary
    call = calls.call
    call_builtin = calls.call_builtin
    instantiate = classes.instantiate
    torch_call = torch_calls.torch_call
    overridden = torch_function.overridden
    decide = decide

    def call_method(
        self, cls: type, name: str, args: list[Value], kwargs: dict[str, Value] | None = None
    ) -> Value:
        """Calls a function found in a class, past attributes of instances."""
        function = self.class_function(cls, name, class_attribute(cls, name))
        return self.call(function, args, kwargs or {})

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

    def raise_no_attribute(self, owner: str, name: str) -> NoReturn:
        self.raise_(AttributeError, f"{owner} has no attribute '{name}'")

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
        self.release_objects()
        for raised in self.raised:
            raised.__traceback__ = raised.point = None  # our own frames, which hold the exception
        for kept in (self.raised, self.generators, self.handling, self.backward.deferred_code):
            kept.clear()
        for table in (self.elements, self.positions, self.backward.leaves):
            table.clear()

    # --- the current instruction
    def where(self) -> Where:
        return self.frame.where()  # type: ignore[union-attr]

    @property
    def site(self) -> Site:
        return self.frame.code, self.frame.at.index  # type: ignore[union-attr]

    def site_or(self, otherwise: Exception) -> Site:
        """Returns `site`; raises `otherwise` if an earlier capture found that it must not pass there."""
        if self.session.is_avoided(*self.site):
            raise otherwise
        return self.site
