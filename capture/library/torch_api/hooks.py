"""Registering and removing a hook on a module: the handle that PyTorch makes for it."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from torch.utils.hooks import RemovableHandle

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


class HandleValue(ObjectValue):
    """A handle. It refers weakly to the tables of hooks; if it is needed after the capture, plain Python
    makes it at `site`."""

    def __init__(self, tables: list[Value], site: tuple[CodeType, int]) -> None:
        super().__init__(RemovableHandle)
        self.tables = tables
        self.site = site

    def check_rebuild(self) -> None:
        raise Avoid(self.site)


@knows(RemovableHandle, least=1, most=1, keywords="extra_dict")
def _handle(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Makes a handle. Its number stays reserved, so that no other handle gets it."""
    broken = Break("unknown_call", "RemovableHandle(...)")
    site = t.site_or(broken)
    if t.session.forced:
        raise broken
    tables = [args[0]]
    if "extra_dict" in kwargs:
        extra = t.look(kwargs["extra_dict"])
        if isinstance(extra, DictValue):
            tables.append(extra)
        elif not isinstance(extra, ConstValue):
            tables += t.list_items(extra)
    handle = HandleValue(tables, site)
    handle.attributes["id"] = ConstValue(RemovableHandle.next_id)
    RemovableHandle.next_id += 1
    return handle


@knows(RemovableHandle.remove, least=1, most=1)
def _remove(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    handle = t.look(args[0])
    if not isinstance(handle, HandleValue):
        raise Break("unknown_call", "RemovableHandle.remove(...)")
    number = handle.attributes["id"]
    for table in map(t.look, handle.tables):
        if table.contains(t, number):
            table.delitem(t, number)
