"""The exception types.  There are four kinds of failures of a capture, and no others are caught:

    Break   the graph ends here; this instruction runs as plain Python, and capture continues behind it
    Avoid   this capture starts again, with a break at another instruction
    Skip    CPython runs the whole frame
    others  our own bug: raised in tests and under `fullgraph=True`, else plain Python runs, with one warning

Only the settings are imported.  The catalogue of break kinds is in `capture/interpreter/break_catalogue.py`.
"""

from __future__ import annotations

import opcode
from collections import Counter
from dataclasses import dataclass
from types import CodeType

from frameloom.config import config


class FrameloomError(Exception):
    """Base of every error that Frameloom raises on purpose."""


class OptionError(FrameloomError, TypeError, ValueError):
    """A wrong option was given to `jit`; the message names it and the accepted values."""


class FullGraphError(FrameloomError, RuntimeError):
    """`fullgraph=True` and the function could not be captured as one graph; the message names the break."""


class RecompileError(FrameloomError, RuntimeError):
    """`torch.compiler.set_stance("fail_on_recompile")` is in force, and a call would be compiled."""


class BackendError(FrameloomError, RuntimeError):
    """The function given as `backend=` failed; its own exception is the cause."""


class BuildError(FrameloomError, RuntimeError):
    """A generated kernel could not be built (no compiler, full disk, compiler error); contains the compiler's
    output."""


class KernelError(BuildError):
    """A compiler (C++ or Triton) rejected generated code: a bug in Frameloom, or a compiler without a needed
    feature."""


class VerifyError(FrameloomError, AssertionError):
    """A bug in Frameloom: a stage produced invalid IR, or compiled code and the loop IR's interpreter
    disagree."""


def first_line(error: BaseException) -> str:
    """Returns the first line of the message, which may be empty."""
    return str(error).partition("\n")[0]


@dataclass(frozen=True)
class Where:
    """A place in the user's program: file, 1-based line, 0-based column range (None when unknown), function
    name.  `inside` names the place in a library that was reached from there."""

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

    `kind` is an id of the break catalogue; `detail` names the cause (one line, e.g. "print(...)").
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


# The reason of a call that runs as plain Python because autograd has to see it.
NEEDS_GRADIENT = "a gradient is needed"


class Skip(Exception):
    """This frame is not captured; `reason` (one line) goes to the log of breaks."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Avoid(Exception):
    """Asks for a new capture with a break at `site`: an object made there cannot be rebuilt."""

    def __init__(self, site: tuple[CodeType, int]) -> None:
        super().__init__(site)
        self.site = site


# Exceptions of mistakes in our own code: an instruction of ours raises them itself, and neither a function
# that it calls nor a `raise` statement does.
MISTAKES = (AttributeError, NameError, KeyError, TypeError, ValueError)
failures: Counter[str] = Counter()  # how many of them were counted instead of raised


def let_mistakes_through(error: BaseException) -> None:
    """Called where an exception counts as one of the program or of PyTorch.  If it is a mistake in our own
    code instead, this raises it again under FRAMELOOM_VERIFY=1, and counts it otherwise."""
    if not is_mistake(error):
        return
    if config.verify:
        raise error
    failures["failures"] += 1


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
