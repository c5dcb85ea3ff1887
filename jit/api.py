"""The public API: `jit`, `explain`, `disable`, `graph_break`, `is_compiling`, `reset`, `stats`,
`list_backends`."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack, overload

import torch

from frameloom.capture import _capture
from frameloom.config import config
from frameloom.debug import notice
from frameloom.errors import OptionError
from frameloom.loading import load_compiler, reset
from frameloom.options import NAMED_BACKENDS, Backend, JitOptions, Options, check_options
from frameloom.report import Explanation, stats

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "disable", "explain", "graph_break", "is_compiling", "jit", "list_backends", "reset", "stats",
]  # fmt: skip


@overload
def jit(fn: F, **options: Unpack[JitOptions]) -> F: ...
@overload
def jit(fn: None = None, **options: Unpack[JitOptions]) -> Callable[[F], F]: ...
def jit(
    fn: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    backend: str | Backend | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compiles a function, method or `nn.Module` for the tensors it is called with.

    The first call with new shapes, dtypes or values is captured and compiled; later calls run the result.
    Parts that cannot be captured run as plain Python in between.  A module is compiled in place and returned.

    fullgraph: raise FullGraphError instead of breaking the graph.
    dynamic: None: if a Python int or float, or a size of a tensor, has another value in a later call, it is
        symbolic in the next entry.  True: sizes are symbolic from the start.  False: each number and each
        shape has an entry of its own.  For one tensor, use `frameloom.mark_dynamic` and
        `frameloom.mark_static`.  A list, tuple or dict is compiled for two lengths.  Calls with a third
        length run as plain Python until this length comes again, so a list that grows with each call causes
        two compiles (False: each length has an entry).  `FRAMELOOM_LOGS=recompiles` shows this.
    mode: None or "default"; for GPUs also "max-autotune-no-cudagraphs" (times several launch configurations
        of each kernel and uses the fastest; once per machine), "reduce-overhead" (calls replay a CUDA graph
        where that is safe), and "max-autotune" (both).  On the CPU they change nothing.
    backend: None (ours), "eager" (run the captured graph as it is), or a function
        `(gm: torch.fx.GraphModule, example_inputs: list[Tensor]) -> callable`, called once per captured graph.
    options: a dict; {"numerics": "eager"} (round where eager rounds) is the default.  {"freezing": True}
        takes parameters and buffers of modules in evaluation mode (`module.eval()`) as constants if no
        gradient is recorded: values that depend only on them are computed once, batch norms become part of
        the convolutions before them (which rounds differently), and weights on the CPU are packed.  The next
        call notices a change of them that autograd counts (in place, by `load_state_dict`, by another
        tensor), but not a write through `p.data` or a NumPy array.
    Raises OptionError for anything else.
    """
    checked = check_options(fullgraph, dynamic, mode, backend, options)
    if fn is None:
        return functools.partial(_jit, checked)
    return _jit(checked, fn)


def _jit(options: Options, fn: Any) -> Any:
    if config.disable:
        return fn
    if _unsupported():
        return fn
    jitted = _compiled(fn, options)
    if isinstance(fn, torch.nn.Module):
        # A copy of the module's dictionary has a method that is bound to the original: the copy runs as plain
        # Python.
        jitted.__func__.called_by = torch.nn.Module._wrapped_call_impl.__code__
        fn._compiled_call_impl = jitted
        return fn
    return jitted


def _unsupported() -> str | None:
    """Returns why this interpreter compiles nothing, and says so once; None if it does."""
    reason = _capture.supported()
    if reason is not None:
        notice("python", f"{reason}; functions run as plain Python")
    return reason


def _compiled(fn: Any, options: Options) -> Any:
    """Returns what runs in place of calls of `fn`."""
    if isinstance(fn, torch.nn.Module):
        return types.MethodType(_wrap(type(fn)._call_impl, options), fn)
    return _wrap_callable(fn, options)


def _wrap_callable(fn: Any, options: Options) -> Any:
    if isinstance(fn, _capture.JitFunction):
        return _wrap(fn.__wrapped__, options)
    if isinstance(fn, types.FunctionType):
        return _wrap(load_compiler().captured_as(fn, _in_python), options)
    if isinstance(fn, types.MethodType):
        return types.MethodType(_wrap_callable(fn.__func__, options), fn.__self__)
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(_wrap_callable(fn.__func__, options))
    if isinstance(fn, functools.partial):
        jitted_partial = functools.partial(_wrap_callable(fn.func, options))
        # Both partials share the dictionary itself, so that they see the same changes.
        jitted_partial.__setstate__((jitted_partial.func, fn.args, fn.keywords, None))  # type: ignore[attr-defined]
        return jitted_partial
    if isinstance(fn, type):
        raise OptionError(
            f"jit takes functions, methods and modules, not the class {fn.__qualname__}; decorate its methods"
        )
    call = getattr(type(fn), "__call__", None)  # noqa: B004 (its Python function is wanted)
    is_op = isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    if isinstance(call, types.FunctionType) and not is_op:
        jitted = _wrap(call, options)
        jitted.is_call = True
        return types.MethodType(jitted, fn)
    if callable(fn):  # written in C, such as torch.sin, or called through C
        return _wrap(_in_python(fn), options)
    raise OptionError(f"jit takes functions, methods and modules, not {type(fn).__name__} ({fn!r})")


def _in_python(fn: Any) -> Any:
    """Returns a Python function that calls a callable whose own code is not captured."""

    @functools.wraps(fn, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def _wrap(function: Any, options: Options) -> Any:
    compiler = load_compiler()
    jitted = _capture.JitFunction(function, compiler.Compiler(function.__qualname__, options))
    compiler.jitted_functions.add(jitted)
    return jitted


def explain(fn: Callable[..., Any], **options: Unpack[JitOptions]) -> Callable[..., Explanation]:
    """`explain(fn)(*args)` compiles fn again, calls it once and returns an Explanation: graphs, breaks,
    guards, kernels with their source.  `options` are those of `jit`."""
    for name in options.keys() - JitOptions.__annotations__.keys():
        raise OptionError(f"explain: unknown option {name!r}")
    checked = check_options(**options)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        if reason := _unsupported():
            name = getattr(fn, "__qualname__", type(fn).__qualname__)
            return Explanation(name, plain=[reason], result=fn(*args, **kwargs))
        target: Any = _compiled(fn, checked)
        jitted: Any = target
        while not isinstance(jitted, _capture.JitFunction):
            jitted = jitted.func if isinstance(jitted, functools.partial) else jitted.__func__
        compiler: Any = jitted.on_miss
        explanation: Explanation = compiler.explanation
        explanation.result = target(*args, **kwargs)
        return explanation

    return explained


class disable:
    """Excludes code from compilation: `@disable` on a function (a call breaks the graph, and the body runs as
    plain Python), or `with disable():` around calls (jitted functions run as plain Python inside, in this
    thread)."""

    _previous: list[bool]

    def __new__(cls, fn: Any = None) -> Any:
        if fn is None:
            self = super().__new__(cls)
            self._previous = []
            return self
        if isinstance(fn, _capture.JitFunction):
            fn = fn.__wrapped__
        if not callable(fn):
            raise OptionError(f"disable takes a function, not {type(fn).__name__}")

        @functools.wraps(fn)
        def plain(*args: Any, **kwargs: Any) -> Any:
            with disable():
                return fn(*args, **kwargs)

        plain.__frameloom_disable__ = True  # type: ignore[attr-defined]
        return plain

    def __call__(self, fn: Any) -> Any:
        return disable(fn)

    def __enter__(self) -> disable:
        self._previous.append(_capture.calls_suspend(True))
        return self

    def __exit__(self, *exc: object) -> None:
        _capture.calls_suspend(self._previous.pop())


def graph_break(reason: str = "") -> None:
    """Ends the current graph here.  Does nothing in plain Python."""


def is_compiling() -> bool:
    """Whether the calling code is being captured or is compiled code; False in plain Python."""
    return False


def list_backends() -> list[str]:
    """Returns the names that `jit(backend=...)` accepts; it also accepts a function."""
    return list(NAMED_BACKENDS)
