"""Frameloom: a just-in-time compiler for Python programs that use PyTorch.

    from frameloom import jit

    @jit
    def f(x, y): ...

Names are imported at their first use, so that `import frameloom` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from frameloom.api import (
        disable,
        explain,
        graph_break,
        is_compiling,
        jit,
        list_backends,
        reset,
        stats,
    )
    from frameloom.capture.library.torch_api.cond import cond
    from frameloom.capture.symbolic.marks import mark_dynamic, mark_static
    from frameloom.errors import (
        BackendError,
        BuildError,
        FrameloomError,
        FullGraphError,
        OptionError,
        VerifyError,
    )
    from frameloom.report import Explanation
    from frameloom.torch_compile import compile

_HOMES = {
    "jit": "api", "explain": "api", "disable": "api", "graph_break": "api", "is_compiling": "api",
    "reset": "api", "stats": "api", "list_backends": "api", "cond": "capture.library.torch_api.cond", "mark_dynamic": "capture.symbolic.marks", "mark_static": "capture.symbolic.marks",
    "FrameloomError": "errors", "FullGraphError": "errors", "OptionError": "errors", "BackendError": "errors", "BuildError": "errors",
    "VerifyError": "errors", "Explanation": "report", "compile": "torch_compile",
}  # fmt: skip
__all__ = [
    "BackendError", "BuildError", "Explanation", "FrameloomError", "FullGraphError", "OptionError", "VerifyError", "compile", "cond", "disable",
    "explain", "graph_break", "is_compiling", "jit", "list_backends", "mark_dynamic", "mark_static", "reset", "stats",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'frameloom' has no attribute {name!r}")
    value = getattr(import_module(f"frameloom.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
