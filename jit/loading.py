"""Imports the compiler at the first use of `jit`, so that a program that only imports `jit` starts fast."""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from frameloom.capture import _capture
from frameloom.collector import collector_off
from frameloom.config import config
from frameloom.debug import forget_notices
from frameloom.report import forget_counts


def load_compiler() -> ModuleType:
    """Returns `frameloom.compiler`, with all that a compile needs: the first call of a jitted function is not
    delayed by imports."""
    from frameloom.runtime.build.triton_compiler import prewarm  # at the first use, as all of these

    prewarm()  # first: it runs in parallel with the imports below
    # Function modes of the program, such as `with torch.device(...)`, see nothing of it.
    with collector_off(), torch._C.DisableTorchFunction():
        from frameloom import compiler, frames

        # Not at the first call: it may be in inference mode, whose tensors do not count writes.
        with torch.inference_mode(False), torch.enable_grad(), torch._C._DisableTorchDispatch():
            _capture.calibrate()
        if config.frames:
            frames.watch_frames()
    return compiler


def reset() -> None:
    """Forgets all compiled code and all counts; the next calls compile again.  The kernel cache on disk
    stays."""
    if (frames := sys.modules.get("frameloom.frames")) is not None:
        frames.forget()
    if (compiler := sys.modules.get("frameloom.compiler")) is not None:
        compiler.forget_compiled()
    forget_notices()
    forget_counts()
