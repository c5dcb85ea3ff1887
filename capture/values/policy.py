"""Decides which functions are interpreted, recorded, evaluated at once, or break the graph.

In: a function of the program. Out: one of the words of `Verdict`. Functions with rules of their own are in
`builtins.py` and are looked up first.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Literal

import torch
import torch.nn.functional as F

from frameloom.capture.bytecode.instruction import Instr, decode, per_code
from frameloom.capture.values.const import (
    DTYPE_CLASSES,
    NUMPY_FUNCTIONS,
    NUMPY_INFOS,
    NUMPY_REDUCTIONS,
    NUMPY_SCALARS,
)

Verdict = Literal["inline", "record", "evaluate", "state", "break"]

# Parts of the standard library whose Python code is interpreted; any other part breaks.
INTERPRETED_STDLIB = frozenset(
    [
        "collections",
        "functools",
        "contextlib",
        "dataclasses",
        "typing",
        "operator",
        "abc",
        "_collections_abc",
        "types",
        "itertools",
        "numbers",
        "_weakrefset",
        "bisect",
        "heapq",
        "enum",
        "copy",
        "string",
        "os",
        "statistics",
        "fractions",
        "__future__",
        "builtins",
        "__main__",
    ]
)
INTERPRETED_LOGGING = frozenset(
    {f"Logger.{name}" for name in ("debug", "info", "warning", "warn", "error", "critical", "log", "getEffectiveLevel")}
    | {"Manager.disable", "LoggerAdapter.isEnabledFor"}
)  # fmt: skip
INTERPRETED_OS = frozenset(
    {
        "getenv",
        "_Environ.__getitem__",
        "_createenviron.<locals>.encode",
        "_createenviron.<locals>.decode",
    }
)
RECORDED_TORCH = (
    "torch.nn.functional", "torch.functional", "torch._tensor", "torch._jit_internal", "torch.nn.init", "torch._lowrank",
    "torch._linalg_utils", "torch.special", "torch.fft", "torch.linalg", "torch._VF", "torch.nn._reduction", "torch.signal",
    "torch._prims_common", "torch._refs", "torch._decomp", "torch.masked",
)  # fmt: skip
INTERPRETED_TOP_LEVEL = frozenset({
    "is_tensor", "is_storage", "_assert", "_check", "_check_with", "_check_index", "_check_value", "_check_type", "_check_not_implemented",
    "_check_tensor_all", "sym_not", "sym_float", "sym_int", "sym_max", "sym_min", "sym_sum", "sym_ite", "typename", "set_default_dtype",
})  # fmt: skip
INTERPRETED_TORCH = (
    "torch.nn.modules", "torch.nn.utils", "torch.__future__", "torch.nn.parameter", "torch.utils._pytree", "torch.nn.attention",
    "torch.ao.nn", "torch._library.custom_ops", "torch.utils._contextlib", "torch.utils.hooks", "torch.utils._foreach_utils", "torch.autograd.grad_mode", "torch.amp.autocast_mode", "torch.optim", "torch.distributions",
    "torch.fx.graph_module", "torch.ao.quantization.stubs", "torch.autograd.functional",
)  # fmt: skip


FRAME_BUILTINS = frozenset({"locals", "eval", "exec", "vars", "dir"})
ONLY_BARE = frozenset({"vars", "dir", "super"})  # read the frame only without an argument
FRAME_ATTRIBUTES = frozenset({"_getframe", "currentframe"})


def is_called_bare(instrs: list[Instr], at: int) -> bool:
    """Whether the value that was just loaded is called without arguments, or may be called so in code that is
    not visible here."""
    at += 1
    while instrs[at].op in ("PRECALL", "CACHE", "PUSH_NULL"):
        at += 1
    if instrs[at].op == "CALL":
        return instrs[at].arg == 0
    return instrs[at].op.startswith(("STORE_", "POP_", "RETURN_"))


@per_code
def may_inspect_frame(code: CodeType) -> str | None:
    """Returns a name by which the code may read its own frame, or None. New code does not keep the frame's
    layout."""
    if "super" in code.co_names and not code.co_argcount:
        return "super"
    if "__class__" in code.co_freevars and code.co_argcount:  # super() reads the first argument
        for instr in decode(code):
            if instr.op.startswith("DELETE_") and instr.arg in ("__class__", code.co_varnames[0]):
                return "super"
    builtins = FRAME_BUILTINS if "__class__" in code.co_freevars else FRAME_BUILTINS | {"super"}
    if not (builtins | FRAME_ATTRIBUTES).intersection(code.co_names):
        return None
    instrs = decode(code)
    for instr in instrs:
        if instr.arg in ONLY_BARE and not is_called_bare(instrs, instr.index):
            continue
        wanted = builtins if instr.op == "LOAD_GLOBAL" else FRAME_ATTRIBUTES
        if instr.op in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD") and instr.arg in wanted:
            return str(instr.arg)
    return None


# In recorded modules, but they call functions of the program or read data.
INTERPRETED_FUNCTIONS = frozenset(
    getattr(F, name)
    for name in ("gaussian_nll_loss", "triplet_margin_with_distance_loss", "linear_cross_entropy")
    if hasattr(F, name)  # the last one is in PyTorch 2.13 and later
) | {torch.func.functional_call, torch.overrides.is_tensor_like} | {
    vars(owner)[name]
    for owner, names in (
        (torch.overrides, ("_push_mode", "_pop_mode")),
        (torch.overrides.TorchFunctionMode, ("__init__", "__enter__", "__exit__", "__torch_function__")),
        (torch.overrides.BaseTorchFunctionMode, ("__torch_function__",)),
    )
    for name in names
}  # fmt: skip


# The modules of the function transforms of torch.func.
TRANSFORMS = tuple(
    f.__globals__["__name__"]
    for f in (
        torch.func.vmap,
        torch.func.jacrev,
        torch.func.vmap.__globals__["vmap_impl"],
        torch.func.stack_module_state,
    )
)


def function_verdict(function: FunctionType) -> Verdict:
    """Returns what to do with a call of a Python function."""
    module = function.__module__ or ""
    if function.__globals__.get("__name__") in TRANSFORMS:
        return "inline"  # also if it has the name and the module of the function that it transforms
    root = module.partition(".")[0]
    if root == "torch":
        return _torch_verdict(function, module)
    if module == "frameloom.capture.library.interpreted":
        return "inline"
    if root == "numpy" and str(function.__globals__.get("__name__")).startswith(INTERPRETED_NUMPY):
        return "inline"
    if (module, function.__qualname__) == ("numpy.ma.core", "isMaskedArray"):
        return "inline"  # medians ask it of their result
    if root in ("frameloom", "numpy", "scipy", "pandas"):
        return "inline" if module.startswith("frameloom.capture.library.") else "break"
    if root == "inspect" and function.__qualname__.startswith("BoundArguments."):
        return "inline"
    if module.startswith("triton.runtime."):
        return "break"  # it reads the memory of tensors, and launches kernels
    if function in PURE_LIBRARY:
        return "evaluate"
    if root == "logging":
        return "inline" if function.__qualname__ in INTERPRETED_LOGGING else "break"
    if root == "os":
        return "inline" if function.__qualname__ in INTERPRETED_OS else "break"
    if root in sys.stdlib_module_names and root not in INTERPRETED_STDLIB:
        return "break"
    return "inline"


def is_other_compilers(function: FunctionType) -> bool:
    """Whether the function wraps one that `torch.compile` was asked to compile or to leave alone. Such a
    function, with all that it calls, is left to `torch.compile`."""
    return "_torchdynamo_orig_callable" in function.__dict__ and is_torchs(function.__globals__)


def is_compiled(function: FunctionType) -> bool:
    """Whether `torch.compile` made the function. Inside a compiled function, also one of that compiler, the
    original is captured with its caller."""
    marks = function.__dict__
    return "_torchdynamo_inline" in marks and "_torchdynamo_disable" not in marks


def is_torchs_own(function: object) -> bool:
    """Whether PyTorch itself defines the function. There, a mark of `torch.compile` says nothing about the
    program; parts of PyTorch's optimizers have it once that compiler is imported. Functions without a
    source file have a wrapper of that compiler."""
    while isinstance(function, FunctionType) and "__wrapped__" in function.__dict__:
        function = function.__wrapped__  # type: ignore[attr-defined]
    return isinstance(function, FunctionType) and is_torchs(function.__globals__)


def is_torchs(scope: object) -> bool:
    """Whether `scope` is the global namespace of one of PyTorch's modules."""
    return isinstance(scope, dict) and str(scope.get("__name__")).partition(".")[0] == "torch"


# What these modules define in Python consists of calls of other functions of NumPy.
INTERPRETED_NUMPY = (
    "numpy.lib._", "numpy.linalg._linalg", "numpy.fft._", "numpy._core.fromnumeric", "numpy._core.numeric", "numpy._core.shape_base", "numpy._core._methods",
)  # fmt: skip
ONNX_QUESTIONS = ("is_in_onnx_export", "in_onnx_export")
# Text functions that the standard library has in Python.
PURE_LIBRARY = frozenset(
    [getattr(os.path, name) for name in ("join", "basename", "dirname", "split", "splitext", "normpath", "isabs", "commonpath")]
    + [re.match, re.search, re.fullmatch, re.sub, re.subn, re.split, re.findall, re.escape, re.compile, json.loads, json.dumps]
)  # fmt: skip


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in packages)


def _torch_verdict(function: FunctionType, module: str) -> Verdict:
    if _is_in(module, INTERPRETED_TORCH) or function in INTERPRETED_FUNCTIONS:
        return "inline"
    if function in PURE_TORCH:
        return "evaluate"
    if function in STATE_READERS:
        return "state"
    if _is_in(module, RECORDED_TORCH):
        return "record"
    if (
        module.startswith("torch.backends")
        or function.__name__ in ONNX_QUESTIONS
        or (module == "torch" and function.__name__.startswith(("is_", "are_", "get_")))
    ):
        return "inline"  # questions about settings, in Python around C
    if module == "torch.jit" or (module == "torch" and function.__name__ in INTERPRETED_TOP_LEVEL):
        return "inline"
    return "break"


OPS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def is_recorded(fn: Any) -> bool:
    """Whether a callable written in C is one of PyTorch's tensor functions."""
    if isinstance(fn, OPS):
        return True
    module, owner = getattr(fn, "__module__", None), getattr(fn, "__self__", None)
    if module == "torch" and owner is None:
        return fn not in NOT_RECORDED and fn not in PURE_TORCH
    if isinstance(owner, ModuleType):
        return owner.__name__ in (
            "torch._C._nn",
            "torch._C._special",
            "torch._C._fft",
            "torch._C._linalg",
            "torch._C._sparse",
        )
    return getattr(fn, "__objclass__", None) is torch._C.TensorBase


def is_torchs_builtin(fn: Any) -> bool:
    """Whether PyTorch defines a class or a callable written in C."""
    owner = getattr(fn, "__objclass__", None) or getattr(fn, "__self__", None)
    module = getattr(fn, "__module__", None) or getattr(owner, "__module__", None)
    return str(module).partition(".")[0] == "torch"


def is_pure(fn: Any) -> bool:
    """Whether a C callable depends only on its arguments, so that it may be called on constants during the
    capture."""
    if isinstance(fn, NUMPY_FUNCTIONS) and fn not in NUMPY_REDUCTIONS:
        return type(fn) is NUMPY_FUNCTIONS[0]
    try:
        if fn in NUMPY_REDUCTIONS or fn in PURE or fn in PURE_TORCH:
            return True
    except TypeError:
        return False
    if isinstance(fn, type) and issubclass(fn, (*NUMPY_SCALARS, *NUMPY_INFOS, *DTYPE_CLASSES)):
        return True
    owner = getattr(fn, "__objclass__", None) or getattr(fn, "__self__", None)
    if isinstance(owner, type):
        if owner.__module__ == "numpy":
            return fn.__name__ in NUMPY_METHODS
        return owner in PURE_TYPES
    return isinstance(owner, PURE_INSTANCES) and not isinstance(owner, ModuleType)


def reads_state(fn: Any) -> bool:
    """Whether a C callable only returns a setting of PyTorch, which may be different at the next call."""
    if not isinstance(fn, BuiltinFunctionType) or getattr(fn.__self__, "__name__", "") not in (
        "torch._C",
        "torch",
        "torch._C._VariableFunctions",
    ):
        return fn in SETTINGS
    return fn.__name__.startswith(SETTING_NAMES) or fn in SETTINGS


SETTING_NAMES = ("_get_cudnn", "_get_cublas", "_get_mkldnn", "_get_onednn", "_get_flash", "_get_mem_efficient", "_get_math", "_get_sdp",
                 "_get_float32", "_get_warn", "_get_deterministic", "_get_nnpack", "_get_qengine", "_get_fp32", "_get_mha", "_get_overrideable",
                 "_get_default_mobile", "_get_privateuse1", "_is_mkldnn", "_is_any_autocast", "_is_flash", "_is_fwd_grad", "_is_multithreading")  # fmt: skip
SETTINGS = frozenset(
    {torch.get_autocast_dtype, torch.is_autocast_cache_enabled, torch.is_anomaly_enabled, torch.get_num_threads, torch.is_anomaly_check_nan_enabled}
)  # fmt: skip


PURE_TYPES = frozenset({
    str, bytes, int, float, bool, complex, tuple, range, frozenset, slice, type(None), object, torch.dtype, torch.device,
    CodeType, torch.finfo, torch.iinfo, re.Pattern, re.Match,
})  # fmt: skip
NUMPY_METHODS = frozenset(
    {"item", "tolist", "is_integer", "round", "conjugate", "as_integer_ratio", "astype"}
)
PURE_INSTANCES = (str, bytes, int, float, complex, tuple, range, frozenset)
PURE = frozenset(
    {v for v in vars(math).values() if callable(v)}
    | {v for name, v in vars(operator).items() if callable(v) and not name.startswith(("_", "i", "set", "del", "attr", "item", "method", "call"))}
    | {operator.index, operator.inv, operator.invert, operator.is_, operator.is_not, operator.indexOf}
    | {str.maketrans, bytes.maketrans, type(None), type(Ellipsis)}
    | {abs, round, divmod, pow, chr, ord, hex, oct, bin, format, repr, ascii, hash, int, float, bool, str, complex, bytes, range, slice}
)  # fmt: skip
PURE_TORCH = frozenset(
    fn
    for fn in (
        torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype, torch.is_autocast_enabled,
        torch.is_autocast_cpu_enabled, torch._C._get_tracing_state,
        torch.jit.is_scripting,  # type: ignore[attr-defined]
        torch.jit.is_tracing,  # type: ignore[attr-defined]
        torch.cuda.is_available, torch.finfo, torch.iinfo, torch.device,
        torch.broadcast_shapes, torch.promote_types, torch.can_cast, torch.are_deterministic_algorithms_enabled,
        torch.get_default_device, torch._C._is_torch_function_enabled, torch._C._is_torch_function_mode_enabled, torch.compiler.is_exporting,
        torch.Size, torch.cuda.device_count, torch.accelerator.current_accelerator,
        torch._C._jit_get_profiling_executor if hasattr(torch._C, "_jit_get_profiling_executor") else None,
    )
    if fn is not None
) | {
    # What the processor can do.
    fn for module in (torch.cpu, torch._C._cpu) for name, fn in vars(module).items() if name.startswith("_is_") and name.endswith("_supported")
}  # fmt: skip
# Functions that return a state -> the C functions below them, which guards can call without running Python.
STATE_READERS = {
    function: reader
    for function, reader in (
        (torch.cuda.is_current_stream_capturing, getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)),
        (torch.cuda.current_device, getattr(torch._C, "_cuda_getDevice", None)),
    )
    if isinstance(reader, BuiltinFunctionType)
}  # fmt: skip
NOT_RECORDED = frozenset({torch.from_numpy, torch.frombuffer, torch.from_file})


_disabled: Any = torch._C.DisableTorchFunctionSubclass  # PyTorch declares the class as a function
# Functions of PyTorch with rules of their own, or that read a state, which function modes do not see.
UNSEEN = frozenset({
    torch._C._set_default_dtype, torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled,
    torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache,
    torch.inference_mode.__enter__, torch.inference_mode.__exit__, torch.autocast.__enter__, torch.autocast.__exit__,
    _disabled.__enter__, _disabled.__exit__,
    torch.device.__exit__, torch.nn.Module.__setattr__, torch.from_numpy, torch._C._log_api_usage_once,
    torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack, torch.Size, torch.Size.numel,
    torch.is_grad_enabled, torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic,
    torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch.are_deterministic_algorithms_enabled,
})  # fmt: skip


# PyTorch functions written in C that use a number only as an operand: the ops they run do not depend on its
# value.
NUMERIC = frozenset([
    "add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide", "floor_divide", "remainder", "fmod", "pow",
    "float_power", "clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum", "where", "lerp", "addcmul", "addcdiv", "eq", "ne", "lt",
    "le", "gt", "ge", "fill", "masked_fill", "full_like", "scalar_tensor", "copysign", "atan2", "xlogy", "heaviside",
    "truediv", "floordiv", "mod", "radd", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rdiv", "iadd", "isub", "imul", "itruediv",
    "ifloordiv", "imod", "ipow", "idiv", "addmm", "baddbmm", "addmv", "leaky_relu", "elu", "threshold", "hardshrink", "softshrink",
    "softplus",
])  # fmt: skip
# For these, only floats are operands; ints may be sizes or positions.
NUMERIC_FLOATS = frozenset(["full", "new_full", "setitem"])


# Modules whose functions with these names pass numbers on.
THIN = ("torch._tensor", "torch.nn.functional")


def may_be_given_numbers(fn: Any, cls: type) -> bool:
    """Whether a recorded function may be called with torch.SymInt and SymFloat for dynamic numbers of that
    type."""
    name = str(getattr(fn, "__name__", ""))
    if isinstance(fn, FunctionType) and fn.__module__ not in THIN:
        return False
    name = name.strip("_")
    return (
        name in NUMERIC or (cls is float and name in NUMERIC_FLOATS) or name.startswith("foreach_")
    )
