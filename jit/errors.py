"""What can go wrong, as types.  Three failures of capture are told apart and nothing else is caught:

    Break   the graph ends here; this piece runs as plain Python, capture goes on behind it
    Skip    this frame is left to CPython altogether
    others  our own bug: raised in tests and under `fullgraph=True`, else run plainly with one warning

Only the settings are imported.  The catalogue of break kinds is in `capture/interpreter/break_catalogue.py`.
"""

from __future__ import annotations

import opcode
from dataclasses import dataclass

from frameloom.config import config


class FrameloomError(Exception):
    """Base of every error that Frameloom raises on purpose."""


class OptionError(FrameloomError, TypeError, ValueError):
    """A wrong option was given to `jit`; the message says which and what is possible."""


class FullGraphError(FrameloomError, RuntimeError):
    """`fullgraph=True` and the function could not be captured as one graph; the message names the break."""


class BackendError(FrameloomError, RuntimeError):
    """The function given as `backend=` failed; its own exception is the cause."""


class BuildError(FrameloomError, RuntimeError):
    """A generated kernel could not be built (no compiler, full disk, compiler error); carries the compiler's output."""


class KernelError(BuildError):
    """A compiler (C++ or Triton) refused generated code: a bug in Frameloom, or a compiler that lacks what the code needs."""


class VerifyError(FrameloomError, AssertionError):
    """A stage produced IR that breaks the IR's rules, or compiled code does not compute what the loop IR's interpreter does: a bug in Frameloom."""


def first_line(error: BaseException) -> str:
    """Of what it says; it may say nothing."""
    return str(error).partition("\n")[0]


@dataclass(frozen=True)
class Where:
    """A place in the user's program: file, 1-based line, 0-based column range (None when unknown), function name; `inside` names the
    place in a library that was reached from there."""

    file: str
    line: int
    column: int | None = None
    end_column: int | None = None
    function: str = "?"
    inside: str = ""

    def __str__(self) -> str:
        inside = f", inside {self.inside}" if self.inside else ""
        return f"{self.file}:{self.line} in {self.function}{inside}"


class Break(Exception):
    """The graph ends at the current instruction.

    `kind` is an id of the break catalogue, `detail` says what was met (one line, e.g. "print(...)").
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


class Skip(Exception):
    """This frame is not captured; `reason` (one line) goes to the log of breaks."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# Errors that a mistake in our own code has: raised by an instruction of ours itself, not by what it calls or raises on purpose.
MISTAKES = (AttributeError, NameError, KeyError, TypeError, ValueError)
_failures = {"failures": 0}


def let_mistakes_through(error: BaseException) -> None:
    """Called where an exception is taken for what the program or PyTorch has to say.  One that our own code has raised by mistake is none:
    it is raised again under FRAMELOOM_VERIFY=1, and counted otherwise."""
    if not is_mistake(error):
        return
    if config.verify:
        raise error
    _failures["failures"] += 1


def is_mistake(error: BaseException) -> bool:
    place = error.__traceback__
    if place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    module = str(place.tb_frame.f_globals.get("__name__"))
    if module.partition(".")[0] != "frameloom" or module.startswith(
        "frameloom.capture.library.interpreted"
    ):
        return False
    op = opcode.opname[place.tb_frame.f_code.co_code[place.tb_lasti]]
    by_itself = not op.startswith(
        ("CALL", "PRECALL", "RAISE", "RERAISE", "BINARY_OP", "COMPARE_OP")
    )
    return type(error) is AssertionError or (by_itself and isinstance(error, MISTAKES))


def failures() -> int:
    """How many mistakes of our own were passed over."""
    return _failures["failures"]


def forget_failures() -> None:
    _failures["failures"] = 0
