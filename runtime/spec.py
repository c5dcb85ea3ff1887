"""What the native plan executes: plain data, written by jit/pipeline.py, read by runtime/*.cpp.

Buffers are numbered.  Inputs come first, in order: buffer i < n_inputs is input i.

Where an int may differ from call to call, a SizeRef stands for it: in shapes, strides and offsets, in the arguments of library
calls at any depth, in grids, in `bytes_moved` and `arena_bytes`, and as an output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SizeRef:
    """The `index`-th of PlanSpec.sizes, in place of an int."""

    index: int


@dataclass(frozen=True, slots=True)
class SizeCall:
    """An int of 64 bits that a call knows when it begins.  `op` says what the operands are:

    "dim", "stride": (input buffer, dimension); "offset": (input buffer,), the storage offset in elements; "number": (buffer of
    kind "number",), an int; "const": (value,); "add", "sub", "mul", "floordiv", "mod", "max", "min", "neg": indices of earlier
    sizes, with Python's meaning.
    "after": (step, buffer, dimension), of a result of this library call: known once that step has run.  What depends on it, and is
    not the call itself, comes behind that step; scratch memory does not.
    "item": (step, buffer, index), an element of the int64 vector that this step, a ReadCall, reads: known once it has.

    What does not fit into 64 bits, a division by 0, a negative extent, a grid that the GPU cannot have: such a call is refused."""

    op: str
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """kind: "input", "output" (a fresh tensor per call), "arena" (offset in bytes into the scratch memory of its device),
    "transient" (a tensor from the first step that uses it to the last), "extern"
    (the tensor that a library call returns), "constant" (`constant` is the tensor), "number" (no tensor but an int64 or float64:
    kernels are given the 64 bits themselves; an input is a Python int or float), "table" (of a ListCall).
    Shape and strides in elements; dtype is a torch.dtype, device a torch.device."""

    kind: str
    shape: tuple[int | SizeRef, ...]
    strides: tuple[int | SizeRef, ...]
    dtype: Any
    device: Any
    offset: int | SizeRef = 0
    constant: Any = None


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """A strided tensor over a buffer; offset in elements of `dtype`, counted from the buffer's first element."""

    buffer: int
    shape: tuple[int | SizeRef, ...]
    strides: tuple[int | SizeRef, ...]
    offset: int | SizeRef
    dtype: Any


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Calls `void kernel(void *const *buffers, const int64_t *sizes)` at `address`: pointers to the first elements of `buffers`
    (a buffer's data_ptr), in order, and the values of `sizes` (indices), null where there are none.  The GIL is released when
    `bytes_moved` is large."""

    address: int
    buffers: tuple[int, ...]
    bytes_moved: int | SizeRef = 0
    name: str = ""
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """Launches a kernel on the GPU: `function` is a handle of _runtime.load_cubin, which knows the device, and takes the
    pointers to the first elements of `buffers`, in order.  It is compiled for pointers that are multiples of 16; where one
    is not, `unaligned()` gives the handle of a function for any pointers (asked once; None: `function` takes any).
    `sizes` are parameters behind the pointers: index, and "i32" or "i64".  `function` wants those of `even`, indices as well, to be multiples of 16,
    too.  `limit` is an index and the most that `function` takes of that size: beyond, `longer()` gives the function for any (asked once), and what `unaligned`
    gives takes any as well.  Where the grid has no blocks, nothing is launched."""

    function: int
    buffers: tuple[int, ...]
    grid: tuple[int | SizeRef, int | SizeRef, int | SizeRef]
    unaligned: Callable[[], int] | None = None
    name: str = ""
    sizes: tuple[tuple[int, str], ...] = ()
    even: tuple[int, ...] = ()
    limit: tuple[int, int] | None = None
    longer: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True)
class ListCall:
    """Launches a kernel of codegen/triton/list_text.py with the buffers `table`, `fixed` and `blocks`.  The table, of kind "table"
    and int64, gets the address of each of `places`, row by row: (buffer, bytes behind its first element)."""

    function: int
    table: int
    fixed: int
    blocks: int
    places: tuple[tuple[int, int], ...]
    columns: int
    grid: tuple[int, int, int]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ExternCall:
    """Calls a library op.  `target` "aten.addmm.default" is run by the C interface where runtime/shims has it, else by
    `function` (a Python callable, e.g. torch.ops.aten.addmm.default).  In args/kwargs a ViewSpec stands for a tensor.

    results: buffer number per tensor result, or None if unused.  `out_form`: results are passed as `out=` (buffers of kind
    output or arena) instead of being returned.
    """

    target: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int | None, ...]
    out_form: bool = False


@dataclass(frozen=True, slots=True)
class InputSpec:
    """In ExternCall.args: the `index`-th input object itself (not a view of it)."""

    index: int


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """In ExternCall.args: the Python number in a buffer of kind "number"."""

    buffer: int


@dataclass(frozen=True, slots=True)
class NumberCall:
    """Computes a number before any step: `op` is one of runtime/plan/numbers.cpp's.  `operands` are buffers of kind "number", for "read_..." the tensor;
    ~k stands for the k-th of `constants`."""

    op: str
    result: int
    operands: tuple[int, ...]
    constants: tuple[int | float, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckCall:
    """Raises `exception(message)` if the first byte of `buffer`, in the CPU's memory, is not 0: a kernel found an index out
    of range."""

    buffer: int
    exception: type[Exception]
    message: str


@dataclass(frozen=True, slots=True)
class DrawCall:
    """Takes random numbers: the buffers `seed` and `offset`, of kind "number", become what the generator says, and its offset
    goes on by `increment`.  Not possible while work on `device` is being recorded, or where the input `aligned` is not at
    a multiple of 32: a call for which that holds does not begin."""

    get_seed: Callable[[], int]
    get_offset: Callable[[], int]
    set_offset: Callable[[int], object]
    increment: int
    seed: int
    offset: int
    device: int = -1
    aligned: int | None = None


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Takes sizes (`SizeCall` "item") out of `buffer`, a vector of int64 in the CPU's memory."""

    buffer: int


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """`numbers` are computed first, then `sizes`.  outputs: a ViewSpec, an int (that input object itself), or a 1-tuple (that constant;
    an int for a SizeRef).  A ViewSpec of the whole of an
    "output" or "extern" buffer returns that tensor itself; any other makes a view on its storage.

    `owned`: calls hand over what they give (Plan.consume), so that there is room where an input was used for the last time.
    `otherwise` is called with the inputs, and its result returned, where a draw is not possible (DrawCall)."""

    n_inputs: int
    buffers: tuple[BufferSpec, ...]
    steps: tuple[
        KernelCall | LaunchCall | ListCall | ExternCall | CheckCall | DrawCall | ReadCall, ...
    ]
    outputs: tuple[Any, ...]
    arena_bytes: int | SizeRef  # of all devices
    otherwise: Callable[..., tuple[Any, ...]] | None = None
    numbers: tuple[NumberCall, ...] = ()
    refused: type[BaseException] | None = (
        None  # raised before anything is done, where a number or size cannot be computed
    )
    # A call that fails in one of the first `restarting` steps has changed nothing: `restart` is called with the exception and with what `remember`
    # has returned before the steps, and raises another exception.
    restarting: int = 0
    restart: Callable[[Exception, Any], object] | None = None
    remember: Callable[[], Any] | None = None
    owned: bool = False
    # The outputs that are made in the caller's gradient mode where they are views.
    recorded_views: frozenset[int] = frozenset()
    views: frozenset[int] = frozenset()  # the outputs that are views also where they are alone
    # What is called with outputs before they are returned, one after the other: views that are conjugated or negated when they are read.
    lazy: Mapping[int, tuple[Callable[[Any], Any], ...]] = field(default_factory=dict)
    # Outputs that are the object of an earlier one.
    repeated: Mapping[int, int] = field(default_factory=dict)
    sizes: tuple[SizeCall, ...] = ()
    keys: tuple[int, ...] = ()  # those of `sizes` that decide the others
    # Called once, with the plan and the values of `keys`, when the same come often; Plan.settle takes what is made of that.
    steady: Callable[[Any, tuple[int, ...]], object] | None = None
    keep: tuple[Any, ...] = ()  # objects that must live as long as the plan (loaded libraries)
