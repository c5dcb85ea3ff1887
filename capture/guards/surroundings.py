"""Whether something around a call watches or changes PyTorch's functions; then nothing is captured.

A graph of these functions would behave differently there.

In: the state of this thread. Out: the reason why a call cannot be captured now, or None. The guards of
compiled entries compare the same state (`global_state.c`), so a compiled call is not used there either.
"""

from __future__ import annotations

import _operator
import builtins
import operator
from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


BUILTINS = builtins.__dict__
# Tools replace these, and compiling does not need them.
NOT_NEEDED = frozenset({"print", "input", "open", "help", "exit", "quit", "breakpoint", "display", "copyright", "credits", "license", "__import__"})  # fmt: skip
OWN_BUILTINS = {
    name: fn for name, fn in BUILTINS.items() if callable(fn) and name not in NOT_NEEDED
}


OPERATORS = {name: fn for name, fn in vars(_operator).items() if name in operator.__all__}


def operators_are_replaced() -> bool:
    return any(operator.__dict__.get(name) is not fn for name, fn in OPERATORS.items())


# Tables of operators are made when modules are imported.
REPLACED_EARLY = operators_are_replaced()


def builtins_are_replaced() -> bool:
    """Whether the program has replaced built-in functions of Python, which compiling would call. Calls none
    of them itself."""
    for name in OWN_BUILTINS:
        if BUILTINS.get(name) is not OWN_BUILTINS[name]:
            return True
    return REPLACED_EARLY or operators_are_replaced()


saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks
LAYOUT = frozenset(
    {"shape", "dtype", "device", "layout", "size", "stride", "ndim", "requires_grad"}
)


def obstacle() -> str | None:
    """Returns why calls in this thread run as plain Python now; None if they can be captured."""
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python):
        return "dispatch to Python is turned off"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "inside a function transform (vmap, grad, functionalize, ...)"
    if not torch.Tensor.__dict__.keys().isdisjoint(LAYOUT):
        return "torch.Tensor's shape or type is computed by a function of the program"
    if torch._C._get_tracing_state() is not None:
        return "inside torch.jit.trace"
    if forward_ad._current_level >= 0:
        return "inside a forward-mode AD level"
    if torch._C._len_torch_dispatch_stack():
        mode = torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)
        return f"the dispatch mode {type(mode).__qualname__} is active"
    for key in torch._C._TorchDispatchModeKey.__members__.values():
        if (infra := torch._C._get_dispatch_mode(key)) is not None:
            return f"the dispatch mode {type(infra).__qualname__} is active"
    # The program may turn gradient mode on.
    if torch.is_anomaly_enabled():
        return "autograd's anomaly mode is on"
    if saved_tensors_hooks(True) is not None:
        return "hooks for saved tensors are set"
    for i in range(torch._C._len_torch_function_stack()):
        mode = torch._C._get_function_stack_at(i)
        if type(mode) is not DeviceContext:
            return f"the torch function mode {type(mode).__qualname__} is active"
    return None


def watch(t: Tracer) -> None:
    """Adds guards for what the C state of the thread does not show."""
    level = t.roots.object(forward_ad).child("dict").child("key", "_current_level")
    t.guards.add(level, "equal", forward_ad._current_level)


def watch_autograd(t: Tracer) -> None:
    """Does the same for what matters only if gradients are needed."""
    t.guards.returns(torch.is_anomaly_enabled, (), False)
    t.guards.returns(saved_tensors_hooks, (True,), None)
