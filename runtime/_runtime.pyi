"""The native plan: a flat program over tensors, run from C++ without Python in between where possible."""

from typing import Any

class Plan:
    """Built once per compiled graph from `runtime/spec.py`'s PlanSpec; `plan(*inputs) -> tuple` by vectorcall.

    inputs: tensors (and objects that are only passed through).  Returns the outputs in order.  Re-entrant: a second call while the
    arena is in use gets an arena of its own.  GC-tracked.
    """

    def __init__(self, spec: Any) -> None: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...
    def consume(self, inputs: list[Any]) -> tuple[Any, ...]:
        """A call with the inputs in a list, which is emptied: each input is let go of after its last use."""
    calls: int
    arena_bytes: int
    spec: Any

class Library:
    """A loaded library (a capsule); it is unloaded with the object."""

def load_library(path: str) -> Library:
    """dlopen (RTLD_LOCAL | RTLD_NOW) a generated library.  OSError with dlerror's text if it fails."""

def symbol(library: Library, name: str) -> int:
    """Address of an exported function; AttributeError if there is none."""

def torch_symbol(name: str) -> int:
    """Address of a function exported by the loaded PyTorch libraries, 0 if there is none."""

def cached_cast(tensor: Any, dtype: int, device: int) -> Any:
    """The tensor as autocast's own ops get it, kept until a region ends if it is a weight; `dtype` and the kind of device by PyTorch's
    codes.  None where PyTorch has no such function."""

def load_cubin(data: bytes, symbol: str, shared: int, extra: int, threads: int, device: int) -> int:
    """A handle of the kernel `symbol` on this device, for LaunchCall."""

def shim_names() -> list[str]:
    """ATen overloads that ExternCall runs through PyTorch's stable C interface, without Python."""
