"""Restores the stack of dispatch modes if Ctrl-C ends a capture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _pop_mode


@contextmanager
def modes_kept() -> Iterator[None]:
    """Leaves the dispatch modes that Ctrl-C left active: it may come between entering a mode and the `with`
    that would leave it."""
    depth, grad = torch._C._len_torch_dispatch_stack(), torch.is_grad_enabled()
    try:
        yield
    except KeyboardInterrupt:
        while torch._C._len_torch_dispatch_stack() > depth:
            _pop_mode()
        torch.set_grad_enabled(grad)
        raise
