"""The front door: `jit`, `explain`, `disable`, `graph_break`, `is_compiling`, `reset`, `stats`, `list_backends`."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from frameloom.capture import _capture
from frameloom.compiler import (
    Compiler,
    compilers,
    load_compiler,
    reset,
    stats,
    unsupported_reason,
)
from frameloom.config import config
from frameloom.debug import notice
from frameloom.errors import OptionError
from frameloom.options import NAMED_BACKENDS, Backend, Options, check_options
from frameloom.report import Explanation

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "disable", "explain", "graph_break", "is_compiling", "jit", "list_backends", "reset", "stats",
]  # fmt: skip


@overload
def jit(
    fn: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    backend: str | Backend | None = ...,
    options: Mapping[str, Any] | None = ...,
) -> F: ...
@overload
def jit(
    fn: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    backend: str | Backend | None = ...,
    options: Mapping[str, Any] | None = ...,
) -> Callable[[F], F]: ...
def jit(
    fn: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    backend: str | Backend | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a function, method or `nn.Module` for the tensors it is called with.

    The first call with new shapes, dtypes or values is captured and compiled; later ones run the result.  What cannot be
    captured runs as plain Python in between.  A module is compiled in place and returned.

    fullgraph: raise FullGraphError instead of breaking the graph.
    dynamic: None: a Python int or float, and a size of a tensor, that differs from what it was is left open in the next entry.
        True: sizes are from the start.  False: each number and each shape has an entry of its own.  Advice about one
        tensor: `frameloom.mark_dynamic`, `frameloom.mark_static`.  A list, tuple or dict is compiled for two lengths; calls
        with a third one run as plain Python until it comes back or stays, so that one that grows with each call makes two
        compiles (False: each length has an entry).  `FRAMELOOM_LOGS=recompiles` tells.
    mode: None or "default"; for GPUs also "max-autotune-no-cudagraphs" (kernels are launched in the way that is fastest
        when tried; found once per machine), "reduce-overhead" (calls replay a CUDA graph where that is safe), and
        "max-autotune" (both).  On the CPU they change nothing.
    backend: None (ours), "eager" (run the captured graph as it is), or a function
        `(gm: torch.fx.GraphModule, example_inputs: list[Tensor]) -> callable`, called once per captured graph.
    options: a dict; {"numerics": "eager"} (round where eager rounds) is the default.  {"freezing": True} takes parameters
        and buffers of modules in evaluation (`module.eval()`) as constants where no gradient is recorded: what is computed
        from them alone is computed once, batch norms become part of the convolutions before them (which rounds otherwise),
        and the CPU's weights are packed.  A change of them that autograd counts (in place, by `load_state_dict`, by
        another tensor) is noticed at the next call; writes through `p.data` or a NumPy array are not.
    Raises OptionError for anything else.
    """
    checked = check_options(fullgraph, dynamic, mode, backend, options)
    if fn is None:
        return functools.partial(_jit, checked)
    return _jit(checked, fn)


def _jit(options: Options, fn: Any) -> Any:
    if config.disable:
        return fn
    if (reason := unsupported_reason()) is not None:
        notice("python", f"{reason}; functions run as plain Python")
        return fn
    module = _as_module(fn)
    if module is not None:
        import torch

        call = _wrap(type(module)._call_impl, options)
        # Who copies the module's dictionary copies the method that is bound to it: the copy runs as plain Python.
        call.called_by = torch.nn.Module._wrapped_call_impl.__code__
        module._compiled_call_impl = types.MethodType(call, module)
        return module
    return _wrap_callable(fn, options)


def _as_module(fn: Any) -> Any:
    import torch

    return fn if isinstance(fn, torch.nn.Module) else None


def _wrap_callable(fn: Any, options: Options) -> Any:
    if isinstance(fn, _capture.JitFunction):
        return _wrap(fn.__wrapped__, options)
    if isinstance(fn, types.FunctionType):
        return _wrap(fn, options)
    if isinstance(fn, types.MethodType):
        return types.MethodType(_wrap_callable(fn.__func__, options), fn.__self__)
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(_wrap_callable(fn.__func__, options))
    if isinstance(fn, functools.partial):
        made = functools.partial(_wrap_callable(fn.func, options))
        # The dictionary itself: what is changed there counts for both.
        made.__setstate__((made.func, fn.args, fn.keywords, None))  # type: ignore[attr-defined]
        return made
    if isinstance(fn, type):
        raise OptionError(
            f"jit takes functions, methods and modules, not the class {fn.__qualname__}; decorate its methods"
        )
    call = getattr(type(fn), "__call__", None)  # noqa: B004 (its Python function is wanted)
    if isinstance(call, types.FunctionType):
        jitted = _wrap(call, options)
        jitted.is_call = True
        return types.MethodType(jitted, fn)
    raise OptionError(
        f"jit takes Python functions, methods and modules, not {type(fn).__name__} ({fn!r})"
    )


def _wrap(function: Any, options: Options) -> Any:
    load_compiler()
    compiler = Compiler(function.__qualname__, options)
    jitted = _capture.JitFunction(function, compiler)
    compilers[jitted] = compiler
    return jitted


def explain(fn: Callable[..., Any], **options: Any) -> Callable[..., Explanation]:
    """`explain(fn)(*args)` compiles fn afresh, calls it once and returns an Explanation: graphs, breaks, guards, kernels with
    their source.  `options` are those of `jit`."""
    checked = check_options(
        options.pop("fullgraph", False), options.pop("dynamic", None), options.pop("mode", None),
        options.pop("backend", None), options.pop("options", None),
    )  # fmt: skip
    if options:
        raise OptionError(f"explain: unknown option {next(iter(options))!r}")

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        module = _as_module(fn)
        if module is not None:
            target: Any = types.MethodType(_wrap(type(module)._call_impl, checked), module)
        else:
            target = _wrap_callable(fn, checked)
        jitted = target
        while not isinstance(jitted, _capture.JitFunction):
            jitted = jitted.__func__ if isinstance(jitted, types.MethodType) else jitted.func
        explanation = compilers[jitted].explanation
        explanation.result = target(*args, **kwargs)
        return explanation

    return explained


class disable:
    """Keep code out of compilation: `@disable` on a function (calling it breaks the graph, its body runs plainly), or
    `with disable():` around calls (jitted functions run plainly inside, in this thread)."""

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
        self._previous.append(_capture.calls_suspend())
        return self

    def __exit__(self, *exc: object) -> None:
        _capture.calls_restore(self._previous.pop())


def graph_break(reason: str = "") -> None:
    """End the current graph here.  Does nothing in plain Python."""


def is_compiling() -> bool:
    """True while the calling code is being captured (and in the compiled result), False in plain Python."""
    return False


def list_backends() -> list[str]:
    """Names that `jit(backend=...)` takes; a function is taken as well."""
    return list(NAMED_BACKENDS)
