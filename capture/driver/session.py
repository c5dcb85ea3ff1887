"""What the captures of one jitted function share: resume functions, and places that need a break.

In: requests from `resume/resume_function.py` and `driver/capture_call.py`. Out: the same resume function for
the same place, so that its entries are found again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from frameloom.capture import _capture
from frameloom.capture.symbolic.dynamic_policy import DynamicPolicy

if TYPE_CHECKING:
    from frameloom.capture.resume.resume_function import ResumeSpec

MAX_REGIONS = 128  # of one jitted function; code behind later breaks runs as plain Python


class Compiler(Protocol):
    """The part of the front end that capture talks to."""

    options: Any

    def compile_graph(self, captured: Any, trail: Any) -> Any: ...
    def compile_part(self, captured: Any, trail: Any) -> Any: ...
    def add_break(self, report: Any) -> None: ...
    def add_plain(self, reason: str) -> None: ...
    def add_guards(self, guards: Any) -> None: ...
    def __call__(self, jitted: Any, slots: tuple[Any, ...]) -> Any: ...


class Session:
    """One per compiler; `resumes` owns the resume functions, which new code holds only weakly."""

    # Entries belong to a code object, which several functions may share. The frame hook runs them, and no
    # JitFunction can bail out of such a call.
    per_code = False
    forced = False  # for tests: code without tensor operations is rewritten too

    def __init__(self) -> None:
        self.resumes: dict[Any, tuple[ResumeSpec, Any]] = {}
        self.dynamic_policy = DynamicPolicy()
        # Casts that autocast keeps are inputs, and plain Python enters the regions
        # (graph_passes/cast_cache.py).
        self.keeps_casts = self.opens_autocast = False
        # Whether a program that asks gets the answer that it is being compiled; not if it then fails.
        self.reports_compiling = True
        self.refers_weakly = False  # whether code left to Python makes weak references
        self._avoided: set[tuple[int, int]] = set()
        self._certain: set[tuple[int, int]] = set()
        self.capturing: weakref.ref[Any] | None = None  # the jitted function
        self._functions: list[FunctionType] = []
        self._codes: list[CodeType] = []  # keeps the ids in `_avoided` valid

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]

    def avoid(self, code: CodeType, index: int) -> None:
        """Breaks the graph at this instruction from now on. If this is called twice for it, conditions used
        there as numbers are not speculated either."""
        self._codes.append(code)
        key = (id(code), index)
        if key in self._avoided:
            self._certain.add(key)
        self._avoided.add(key)

    def is_certain(self, code: CodeType, index: int) -> bool:
        return (id(code), index) in self._certain

    def is_avoided(self, code: CodeType, index: int) -> bool:
        return (id(code), index) in self._avoided

    def keep(self, function: FunctionType) -> None:
        """Owns a break function, which new code holds only weakly."""
        self._functions.append(function)

    def resume(self, spec: ResumeSpec, make: Callable[[], FunctionType], compiler: Compiler) -> Any:
        known = self.resumes.get(spec.key)
        if known is None:
            made = _capture.JitFunction(make(), compiler, takes_state=True)
            made.enabled = len(self.resumes) < MAX_REGIONS
            # keeps the objects alive whose ids are in the key
            known = self.resumes[spec.key] = spec, made
        return known[1]


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def session_of(compiler: Any) -> Session:
    """Returns the compiler's session. The compiler owns it: resume functions refer to the compiler, so no
    other owner is allowed."""
    session: Session | None = getattr(compiler, "capture_session", None)
    if session is None:
        session = compiler.capture_session = Session()
        _sessions.add(session)
    return session


def forget_sessions() -> None:
    for session in list(_sessions):
        session.forget()
