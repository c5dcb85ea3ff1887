"""Compiles functions that only uncaptured Python of a jitted function calls: callbacks of C functions,
functions that a library calls, and those that an instruction which cannot be captured calls.

While such Python runs, the frame hook calls `on_frame` for each function.  Functions that work with tensors
are captured and compiled like jitted functions, with the options of the jitted function that called them.
Their entries are kept with their code objects.  They are used only under a jitted function: elsewhere the
same function runs as plain Python.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from frameloom.capture import _capture
from frameloom.capture.driver.session import session_of
from frameloom.capture.guards.surroundings import builtins_are_replaced, obstacle
from frameloom.capture.resume.resume_function import is_made
from frameloom.capture.values import policy
from frameloom.compiler import Compiler
from frameloom.debug import Trail
from frameloom.errors import NEEDS_GRADIENT

MAX_ENTRIES = 8  # per function
BEFORE_AN_OP = 4  # most frames of PyTorch between an operator and its Python function
LOOKED_AT = 8  # items of a container that are searched for tensors


class FrameCompiler(Compiler):
    """The compiler of one code object."""

    def __init__(self, function: FunctionType, owner: Compiler) -> None:
        super().__init__(function.__qualname__, replace(owner.options, fullgraph=False))
        self._explanation = owner._explanation
        self.entries: list[Any] = []
        self.graphs = 0
        session_of(self).per_code = True

    def entry(self, function: FunctionType, slots: tuple[Any, ...]) -> Any:
        """Returns the entry for this call; None: leave the code alone from now on; False: leave this call
        alone."""
        if len(self.entries) >= MAX_ENTRIES:
            return None
        graphs = self.graphs
        entry = self(Target(function, self), slots)
        if entry is None and self.too_deep:
            return False
        plain = entry is not None and entry.kind == "plain"
        if plain and (
            entry.target.startswith(NEEDS_GRADIENT) or entry.varies
        ):  # other calls may be compiled
            return entry
        return entry if self.graphs > graphs else None

    def add_plain(self, reason: str) -> None:
        """Reports nothing: the user did not ask to compile this function."""

    def compile_graph(self, captured: Any, trail: Trail) -> Any:
        self.graphs += 1
        return super().compile_graph(captured, trail)


class Target:
    """Stands for the jitted function in `capture_call`."""

    def __init__(self, function: FunctionType, compiler: FrameCompiler) -> None:
        self.__wrapped__ = function
        self.__qualname__ = function.__qualname__
        self.entries = compiler.entries
        self.enabled = self.look_inside = True

    def add(self, entry: Any) -> None:
        self.entries.append(entry)

    def clear(self) -> None:
        self.entries.clear()


_compilers: dict[int, tuple[weakref.ref[CodeType], FrameCompiler]] = {}


def on_frame(function: FunctionType, slots: tuple[Any, ...]) -> Any | bool | None:
    """Returns an entry for the frame.  None: leave its code alone from now on; True: also all that it calls;
    False: leave this call alone."""
    if builtins_are_replaced():
        return False
    owner = _capture.hook_owner()
    compiler = owner.on_miss if owner is not None else None
    if not isinstance(compiler, Compiler):
        return False
    if policy.is_other_compilers(function):
        return True
    if not is_worth_it(function, slots) or implements_an_op():
        return None
    if obstacle() is not None or _capture.compile_stance() != "default":
        return False
    return _compiler_of(function, compiler).entry(function, slots)


def is_worth_it(function: FunctionType, slots: tuple[Any, ...]) -> bool:
    """Whether the function is the user's and takes tensors or modules."""
    if is_made(function) or getattr(function, "__frameloom_disable__", False):
        return False
    module = function.__module__ or ""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names - {"__main__"} or (
        root == "torch" and not module.startswith("torch.nn.modules")
    ):
        return False
    return policy.function_verdict(function) == "inline" and any(map(has_tensors, slots))


def implements_an_op() -> bool:
    """Whether the frame implements a custom operator of the program (`torch.library.custom_op`), which the
    graph contains as one op.  There are a few frames of PyTorch between the operator and the function."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(BEFORE_AN_OP):
        if frame is None:
            return False
        if frame.f_globals.get("__name__", "").startswith("torch._library."):
            return True
        frame = frame.f_back
    return False


def has_tensors(value: Any) -> bool:
    """Whether the value is, or contains, a tensor or module.  Looks at types and reads containers with the
    methods of the built-in types: `isinstance` and overridden methods may run code of the program."""
    cls = type(value)
    items: Iterable[Any] = (value,)
    if issubclass(cls, tuple | list):
        items = (tuple if issubclass(cls, tuple) else list).__getitem__(value, slice(LOOKED_AT))
    elif issubclass(cls, dict):
        items = islice(dict.values(value), LOOKED_AT)
    return any(issubclass(type(item), torch.Tensor | torch.nn.Module) for item in items)


def _compiler_of(function: FunctionType, owner: Compiler) -> FrameCompiler:
    code = function.__code__
    cached = _compilers.get(id(code))
    if cached is not None and cached[0]() is code:
        return cached[1]
    compiler, key = FrameCompiler(function, owner), id(code)
    forget = _compilers.pop  # bound now: when Python exits, the names of this module go first
    _compilers[key] = (weakref.ref(code, lambda _: forget(key, None)), compiler)
    return compiler


def forget() -> None:
    """Drops what was compiled for frames."""
    for reference, _ in list(_compilers.values()):
        if (code := reference()) is not None:
            _capture.forget_code(code)
    _compilers.clear()


def watch_frames() -> None:
    _capture.set_frame_callback(on_frame)
