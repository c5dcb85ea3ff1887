"""Registering a hook on a module: the handle that PyTorch makes for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.hooks import RemovableHandle

from frameloom.capture.builtins import Args, Kwargs, knows
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer


class HandleValue(ObjectValue):
    """It refers weakly to the table of hooks, so it is of no use but for its number."""

    def check_rebuild(self) -> None:
        raise Break("cannot_rebuild", "the handle of a hook")


@knows(RemovableHandle, least=1, most=1, keywords="extra_dict")
def _handle(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The number is taken for good, so that nobody else gets it."""
    handle = HandleValue(RemovableHandle)
    handle.attributes["id"] = ConstValue(RemovableHandle.next_id)
    RemovableHandle.next_id += 1
    return handle
