"""The specification of a native plan, written by jit/backend/assemble.py, read by runtime/plan/*.cpp.

It is plain data: another process can load its bytes (pickle).  A Name stands for what is no data; link.py
replaces it before the plan is built.

Buffers are numbered.  Inputs come first, in order: buffer i < n_inputs is input i.

A SizeRef replaces an int that may differ from call to call: in shapes, strides and offsets, in the arguments
of library calls at any depth, in grids, in `bytes_moved` and `arena_bytes`, and as an output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Name:
    """Stands for an address, a handle, a callable, a class or a tensor.  `kind` says where it is looked up,
    and `key` which one it is (jit/backend/plan_objects.py)."""

    kind: str
    key: Any = None


@dataclass(frozen=True, slots=True)
class SizeRef:
    """Replaces an int by the `index`-th entry of PlanSpec.sizes."""

    index: int


@dataclass(frozen=True, slots=True)
class SizeCall:
    """A 64-bit int that is known when a call begins, or after a step.  `op` says what the operands are:

    "dim", "stride": (input buffer, dimension); "offset": (input buffer,), the storage offset in elements;
    "number": (buffer of kind "number",), an int; "const": (value,); "add", "sub", "mul", "floordiv", "mod",
    "max", "min", "neg": indices of earlier sizes, with Python's meaning.
    "after": (step, buffer, dimension), a size of a result of this library call, known after that step.  Later
    steps may depend on it, but scratch memory may not.
    "item": (step, buffer, index), an element of the int64 vector that this step, a ReadCall, reads; known
    after it.

    A call is refused if a size does not fit into 64 bits, divides by 0, or gives a negative extent or a grid
    that the GPU does not allow."""

    op: str
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer.  Its kind is "input", "output" (a fresh tensor per call), "arena" (offset in bytes into the
    scratch memory of its device), "transient" (a tensor that is allocated from the first step that uses it to
    the last), "extern" (the tensor that a library call returns), "constant" (`constant` is the tensor),
    "number" (an int64 or float64 instead of a tensor: kernels get the 64 bits themselves; an input is a
    Python int or float), or "table" (of a ListCall).  Shape and strides are in elements; dtype is a
    torch.dtype, device a torch.device."""

    kind: str
    shape: tuple[int | SizeRef, ...]
    strides: tuple[int | SizeRef, ...]
    dtype: Any
    device: Any
    offset: int | SizeRef = 0
    constant: Any = None


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """A strided view of a buffer; offset in elements of `dtype` from the buffer's first element."""

    buffer: int
    shape: tuple[int | SizeRef, ...]
    strides: tuple[int | SizeRef, ...]
    offset: int | SizeRef
    dtype: Any


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Calls `int kernel(void *const *buffers, const int64_t *sizes)` at `address`.  It gets pointers to the
    first elements of `buffers` (a buffer's data_ptr), in order, and the values of `sizes` (indices), null if
    there are none.  The GIL is released if `bytes_moved` is large."""

    address: int | Name
    buffers: tuple[int, ...]
    bytes_moved: int | SizeRef = 0
    name: str = ""
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """Launches a kernel on the GPU.  `function` is a handle of _runtime.load_cubin, which knows the device.
    It takes the pointers to the first elements of `buffers`, in order, and then the `sizes`: pairs of an
    index and "i32" or "i64".

    `function` is compiled for pointers, and sizes in `even` (indices), that are multiples of 16.  If one is
    not, `unaligned()` returns the handle of a function for any pointers and sizes (called once; None:
    `function` takes any).  `limit` is an index and the largest value of that size for `function`.  For larger
    ones, `longer()` returns a function (called once); the function of `unaligned` takes any.  If the grid has
    no blocks, nothing is launched."""

    function: int | Name
    buffers: tuple[int, ...]
    grid: tuple[int | SizeRef, int | SizeRef, int | SizeRef]
    unaligned: Callable[[], int] | Name | None = None
    name: str = ""
    sizes: tuple[tuple[int, str], ...] = ()
    even: tuple[int, ...] = ()
    limit: tuple[int, int] | None = None
    longer: Callable[[], int] | Name | None = None


@dataclass(frozen=True, slots=True)
class ListCall:
    """Launches a kernel of codegen/triton/list_text.py with the buffers `table`, `fixed` and `blocks`.  The
    table, of kind "table" and int64, gets the address of each of `places`, row by row: (buffer, bytes after
    its first element)."""

    function: int | Name
    table: int
    fixed: int
    blocks: int
    places: tuple[tuple[int, int], ...]
    columns: int
    grid: tuple[int, int, int]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ExternCall:
    """Calls a library op.  `target`, e.g. "aten.addmm.default", runs through the C interface if
    runtime/executor/shims.cpp has it, else through `function` (a Python callable, e.g.
    torch.ops.aten.addmm.default).  In args/kwargs a ViewSpec replaces a tensor.

    results: buffer number per tensor result, or None if unused.  `out_form`: results are passed as `out=`
    (buffers of kind output or arena) instead of being returned.
    """

    target: str
    function: Callable[..., Any] | Name
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int | None, ...]
    out_form: bool = False


@dataclass(frozen=True, slots=True)
class InputSpec:
    """In ExternCall.args: the `index`-th input object itself, not a view of it."""

    index: int


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """In ExternCall.args: the Python number in a buffer of kind "number"."""

    buffer: int


@dataclass(frozen=True, slots=True)
class NumberCall:
    """Computes a number before the steps: `op` is one of runtime/executor/numbers.cpp.  `operands` are buffers of
    kind "number", or the tensor for "read_..."; ~k means the k-th of `constants`."""

    op: str
    result: int
    operands: tuple[int, ...]
    constants: tuple[int | float, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckCall:
    """Raises `exception(message)` if the first byte of `buffer`, in the CPU's memory, is not 0: a kernel
    found an index out of range."""

    buffer: int
    exception: type[Exception] | Name
    message: str


@dataclass(frozen=True, slots=True)
class DrawCall:
    """Reserves random numbers: the buffers `seed` and `offset`, of kind "number", get the values of the
    generator, and its offset grows by `increment`.  Not possible while work on `device` is being recorded, or
    if the address of the input `aligned` is not a multiple of 32: the plan does not start such a call (see
    PlanSpec.otherwise)."""

    get_seed: Callable[[], int] | Name
    get_offset: Callable[[], int] | Name
    set_offset: Callable[[int], object] | Name
    increment: int
    seed: int
    offset: int
    device: int = -1
    aligned: int | None = None


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Reads sizes (`SizeCall` "item") from `buffer`, a vector of int64 in the CPU's memory."""

    buffer: int


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """A plan.  `numbers` are computed first, then `sizes`, then the steps run.  An output is a ViewSpec, an
    int (the input object with this number), or a 1-tuple (this constant; an int for a SizeRef).  A ViewSpec
    of a whole "output" or "extern" buffer returns that tensor itself; any other makes a view of its storage.
    A pair of a ViewSpec and an int is an output to which the program wrote: autograd counts so many writes.

    `owned`: calls hand over their inputs (Plan.consume), which are freed after their last use.
    `otherwise` is called with the inputs, and its result returned, if a draw is not possible (DrawCall)."""

    n_inputs: int
    buffers: tuple[BufferSpec, ...]
    steps: tuple[
        KernelCall | LaunchCall | ListCall | ExternCall | CheckCall | DrawCall | ReadCall, ...
    ]
    outputs: tuple[Any, ...]
    arena_bytes: int | SizeRef  # of all devices
    otherwise: Callable[..., tuple[Any, ...]] | Name | None = None
    numbers: tuple[NumberCall, ...] = ()
    # Raised before any step, if a number or size cannot be computed.
    refused: type[BaseException] | Name | None = None
    # A call that fails in one of the first `restarting` steps has changed nothing: `restart` is called with
    # the exception and with the result of `remember`, which is called before the steps; it raises another
    # exception.
    restarting: int = 0
    restart: Callable[[Exception, Any], object] | Name | None = None
    remember: Callable[[], Any] | Name | None = None
    owned: bool = False
    # The outputs that, if they are views, are made in the caller's gradient mode.
    recorded_views: frozenset[int] = frozenset()
    # The outputs that are views even if no other output shares their memory.
    views: frozenset[int] = frozenset()
    # Functions that are applied to outputs, in order, before they are returned: they make views that are
    # conjugated or negated when they are read.
    lazy: Mapping[int, tuple[Callable[[Any], Any] | Name, ...]] = field(default_factory=dict)
    # Outputs that are the same object as an earlier one.
    repeated: Mapping[int, int] = field(default_factory=dict)
    sizes: tuple[SizeCall, ...] = ()
    keys: tuple[int, ...] = ()  # those of `sizes` that decide the others
    # Called once with the plan and values of `keys` that come often; Plan.specialize takes the plan that is
    # compiled for them.
    steady: Callable[[Any, tuple[int, ...]], object] | Name | None = None
    keep: tuple[Any, ...] = ()  # what must live as long as the plan (loaded libraries)
