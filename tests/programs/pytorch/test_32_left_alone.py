"""Tensor subclasses, torch-function and dispatch modes: never ignored.

PYTEST_DONT_REWRITE
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.programs.program import X, program

SEEN = []


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


class Silent(torch.Tensor):
    pass


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.add:
            return result * 2
        return result


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        SEEN.append(str(func))
        return func(*args, **(kwargs or {}))


@program(
    args=lambda: (X, X.as_subclass(Tagged)),
    before=SEEN.clear,
    state=lambda: list(SEEN),
)
def subclass_argument(x, t):
    y = x + 1
    z = torch.add(y, t)
    return type(z), y * 2, torch.sum(z)


@program(args=lambda: (X, X.as_subclass(Silent)))
def plain_subclass_argument(x, t):
    y = x + 1
    z = torch.add(y, t)
    return type(z), y * 2


@program()
def subclass_made_inside(x):
    y = x + 1
    t = y.as_subclass(Silent)
    return type(t), y * 2


@program()
def function_mode_inside(x):
    y = x + 1
    with Doubling():
        z = torch.add(y, 1)
    return z, y * 3


@program(
    before=SEEN.clear,
    state=lambda: list(SEEN),
    graphs=1,
    breaks="library_call library_call",
    plain=True,
)
def dispatch_mode_inside(x):
    y = x + 1
    with Counting():
        z = y * 2
    return z


@program(args=lambda: (X.to_sparse(),), graphs=1, breaks="unsupported_tensor unknown_call")
def sparse_argument(s):
    return s.to_dense() + 1


@program(
    args=lambda: (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),),
    graphs=1,
    breaks="unsupported_tensor unknown_call",
)
def quantized_argument(q):
    return q.dequantize() * 2


@program(graphs=2, breaks="unsupported_tensor unsupported_tensor unknown_call")
def quantized_inside(x):
    q = torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8)
    return q.dequantize() + 1


@program(args=lambda: (X.to("meta"),), graphs=0, breaks="unsupported_tensor", plain=False)
def meta_argument(m):
    return m + 1


@program(args=lambda: (torch.complex(X, X).conj(),), graphs=0, breaks="unsupported_tensor")
def lazily_conjugated_argument(c):
    return c * 2


HAS_NAMES = hasattr(torch.Tensor, "rename")  # up to PyTorch 2.11
if HAS_NAMES:
    torch.ones(1).rename("warns_once")


@program(graphs=1, breaks="unsupported_tensor unsupported_tensor" if HAS_NAMES else "")
def named_dimensions(x):
    if not HAS_NAMES:
        return x + 1
    named = (x * 2).rename("rows", "columns")
    return named.names


@program(graphs=1)
def what_is_done_while_compiling_fails(x):
    if torch.compiler.is_compiling():
        return x + torch.ones(7)
    return x + 1
