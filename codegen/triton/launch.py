"""What the Triton generator writes, as plain data: source texts and the kernels of the program that use them.

The texts go to runtime/build/triton_compiler.py, which knows of no IR; the entries go to jit/backend/assemble.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from frameloom.ir.program import Buffer
from frameloom.ir.symbolic.expr import Int, Size


@dataclass(frozen=True, slots=True)
class LaunchEntry:
    """A kernel of the program that a LaunchSource computes; `buffers` in the order of the function's parameters."""

    name: str
    buffers: tuple[Buffer, ...]
    bytes_moved: int
    code: str


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A list of kernels that a LaunchSource computes, whose parameters are then a table of addresses, one of words that
    never change, and the blocks (codegen/triton/list_text.py).  Per row: `columns`, a buffer and the element of it that the
    address is of, and `words`, of which the first is the number of elements; a block takes `block` of them."""

    name: str
    columns: tuple[tuple[tuple[Buffer, int], ...], ...]
    words: tuple[tuple[int, ...], ...]
    block: int
    bytes_moved: int
    code: str


@dataclass(frozen=True, slots=True)
class LaunchSource:
    """One Triton kernel to compile.

    `text` is a Python module that imports only triton and defines the @triton.jit function `symbol`.  Its parameters are
    all pointers, in order, and then `sizes`, those that vary, each as "i32" or "i64"; every other size and stride is a literal in the
    text.  `signature` has their Triton types: "*bf16", "*fp32", "*i64", "*i1" (bool), ...  A size is "i32!" there if it is a multiple of 16, and "i32?" if
    it was in the captured call.  With `debug`, tl.device_assert is compiled in.

    With a `limit`, the text is for that size up to that number, and `general` one with the same parameters for any.
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
