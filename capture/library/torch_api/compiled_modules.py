"""Modules that `torch.compile` made: the module inside is captured with its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows_kind
from frameloom.capture.interpreter.calls import module_forward
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.function import FunctionValue
from frameloom.capture.values.module import ModuleValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


@knows_kind("OptimizedModule.__call__")
def _call(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    """Calls the original module. The call of one with hooks of its own is left to `torch.compile`."""
    module = t.look(args[0])
    if not isinstance(module, ModuleValue) or (modules := module.own(t, "_modules")) is None:
        return None
    if module_forward(t, torch.nn.Module._call_impl, module) is None:
        return None
    return t.call(modules.getitem(t, ConstValue("_orig_mod")), args[1:], kwargs)
