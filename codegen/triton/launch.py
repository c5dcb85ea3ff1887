"""What the Triton writer produces, as plain data: source texts and the kernels of the program that use them.

The texts go to runtime/build/triton_compiler.py, which does not use the IR; the entries go to
jit/backend/assemble.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from frameloom.ir.program import Buffer
from frameloom.ir.symbolic.expr import Int, Size


@dataclass(frozen=True, slots=True)
class LaunchEntry:
    """A kernel of the program that a LaunchSource computes; `buffers` in the order of the function's
    parameters."""

    name: str
    buffers: tuple[Buffer, ...]
    bytes_moved: int
    code: str


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A list of kernels that a LaunchSource computes. The parameters of the source are then a table of
    addresses, a table of constant words, and the blocks (codegen/triton/list_text.py). Per row, `columns` has
    the buffer and element number that each address points to, and `words` starts with the number of elements.
    A block takes `block` elements."""

    name: str
    columns: tuple[tuple[tuple[Buffer, int], ...], ...]
    words: tuple[tuple[int, ...], ...]
    block: int
    bytes_moved: int
    code: str


@dataclass(frozen=True, slots=True)
class LaunchSource:
    """One Triton kernel to compile.

    `text` is a Python module that imports only triton and defines the @triton.jit function `symbol`. Its
    parameters are all pointers, in order, and then `sizes`: the dynamic ones, each as "i32" or "i64". Every
    other size and stride is a literal in the text. `signature` has the parameters' Triton types: "*bf16",
    "*fp32", "*i64", "*i1" (bool), ... The type of a size is "i32!" if it is always a multiple of 16, and
    "i32?" if it was one in the captured call. With `debug`, tl.device_assert is compiled in.

    With a `limit` (a size and a number), `text` is only right while the size does not exceed the number.
    `general` is a text with the same parameters that is right for any size.
    """

    text: str
    symbol: str
    signature: tuple[str, ...]
    grid: tuple[Int, Int, Int]
    warps: int
    stages: int = 1
    debug: bool = False
    sizes: tuple[tuple[Size, str], ...] = ()
    limit: tuple[Size, int] | None = None
    general: str = ""
    entries: tuple[LaunchEntry | ListEntry, ...] = ()
