"""`with warnings.catch_warnings():` around captured code, with filters that ignore warnings.

Recorded operations do not warn, so the filters need not change. What remains of a block is that Python forgets
which warnings it has shown. If the graph breaks inside of a block, plain Python enters the block instead.
"""

from __future__ import annotations

import re
import warnings
from types import CodeType
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.values.base import Effect, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import ClassValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


class BlockValue(ObjectValue):
    """A context manager that the captured code makes, and that changes nothing there. If it is needed after the
    capture, plain Python makes it at `site`."""

    mutable = ("attributes", "is_open", "was_open")

    def __init__(self, cls: type, site: tuple[CodeType, int]) -> None:
        super().__init__(cls)
        self.site = site
        self.is_open = self.was_open = False

    def check_rebuild(self) -> None:
        raise Avoid(self.site)


class FiltersValue(BlockValue):
    """A `catch_warnings`."""

    @property
    def is_shared_with_caller(self) -> bool:
        return self.was_open

    def effects(self, t: Tracer) -> list[Effect]:
        return [Effect(t.pinned(warnings), forget_shown)] if self.was_open else []


def forget_shown(module: Any) -> None:
    """Called from new code."""
    module._filters_mutated()


def open_blocks(t: Tracer) -> list[BlockValue]:
    return [v for v in t.changed.values() if isinstance(v, BlockValue) and v.is_open]


@knows(warnings.catch_warnings, most=0, keywords="record module action category lineno append")
def _made(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    refused = Break("library_call", "warnings.catch_warnings(...)")
    named = dict(kwargs)
    record = t.look(named.pop("record", ConstValue(False)))
    if "module" in named or not isinstance(record, ConstValue) or record.real is not False:
        raise refused
    if named and not _only_ignores(t, named):
        raise refused
    return FiltersValue(warnings.catch_warnings, t.site_or(refused))


@knows(warnings.catch_warnings.__enter__, least=1, most=1)
def enter_block(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    block = t.look(args[0])
    if not isinstance(block, BlockValue) or block.was_open:
        raise Break("context_manager", f"with {block.describe()}")
    t.change(block)
    block.is_open = block.was_open = True


@knows(warnings.catch_warnings.__exit__, least=1)
def leave_block(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    block = t.look(args[0])
    if not isinstance(block, BlockValue) or [block] != open_blocks(t)[-1:]:
        raise Break("context_manager", f"the end of {block.describe()}")
    t.change(block)
    block.is_open = False


@knows(warnings.simplefilter, warnings.filterwarnings, least=1, keywords="*")
def _add_filter(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    named = dict(kwargs)
    if len(args) > 1:  # what a position means is different for the two
        named["more"] = args[1]
    is_open = any(isinstance(block, FiltersValue) for block in open_blocks(t))
    if not is_open or not _only_ignores(t, {"action": args[0], **named}):
        raise Break("library_call", "a change of the warning filters")


def _only_ignores(t: Tracer, given: Kwargs) -> bool:
    """Whether these arguments make a filter that ignores warnings, and are surely right."""
    category = t.look(given.pop("category", t.pinned(Warning)))
    known = {name: t.look(value) for name, value in given.items()}
    if not isinstance(category, ClassValue) or not issubclass(category.real, Warning):
        return False
    if not all(isinstance(value, ConstValue) for value in known.values()):
        return False
    plain = {name: value.constant() for name, value in known.items()}
    texts = [plain.pop(name, "") for name in ("message", "module")]
    rest = plain.pop("action", None), plain.pop("append", False), plain.pop("lineno", 0)
    return (
        not plain
        and rest in (("ignore", True, 0), ("ignore", False, 0))
        and all(map(is_pattern, texts))
    )


def is_pattern(text: object) -> bool:
    try:
        return type(text) is str and bool(re.compile(text))
    except re.error:
        return False
