"""`frameloom.compile`, with the signature of `torch.compile`; and the backend that
`torch.compile(backend="frameloom")` finds by its entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from frameloom.api import jit
from frameloom.debug import notice
from frameloom.errors import OptionError
from frameloom.options import BUDGET, NAMED_BACKENDS, OPTIONS

BACKENDS = {"inductor": "frameloom", "aot_eager": "eager"}  # its names for what we have


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Does what `jit` does, with the arguments of `torch.compile`.

    model: a function, method or `nn.Module`; None: returns a decorator.
    backend: None, "inductor" and "frameloom" mean our code generator, "eager" and "aot_eager" run the
        captured graph op by op; a function is called as by `jit`, as is one that the program has registered
        with PyTorch by this name.
    options: those of `jit`. Others, which only mean something to torch.compile, have no effect; a notice says
        so once. "triton.cudagraphs" and "max_autotune" choose the mode if none is given.
    disable: return `model` as it is.
    A module is compiled in place and returned. Raises OptionError for what `jit` refuses.
    """
    if disable:
        return model if model is not None else _unchanged
    if isinstance(backend, str):
        backend = BACKENDS.get(backend) or _registered(backend)
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options={options!r}: expected a dict")
    own = {name: value for name, value in (options or {}).items() if name in (*OPTIONS, BUDGET)}
    others = {name: value for name, value in (options or {}).items() if name not in own}
    if mode is None:
        mode = _mode_of(others)
    if others:
        notice("options", f"options of torch.compile without effect: {', '.join(sorted(others))}")
    return jit(
        model, fullgraph=fullgraph, dynamic=dynamic, mode=mode, backend=backend, options=own or None
    )


def _mode_of(options: dict[str, Any]) -> str | None:
    """Takes the options that stand for a mode out of `options`, and returns the mode."""
    replays, tunes = options.pop("triton.cudagraphs", False), options.pop("max_autotune", False)
    if tunes:
        return "max-autotune" if replays else "max-autotune-no-cudagraphs"
    return "reduce-overhead" if replays else None


def _registered(name: str) -> str | Callable[..., Any]:
    """Returns the backend that the program has registered with PyTorch's compiler by this name; if there is
    none, the name."""
    compiler = vars(torch).get("_dynamo")  # `torch._dynamo` would import it
    if compiler is None or name in NAMED_BACKENDS:
        return name
    if name not in compiler.list_backends(exclude_tags=()):
        return name
    registered: Callable[..., Any] = compiler.lookup_backend(name)
    return name if registered.__module__.startswith("torch.") else registered


def _unchanged(model: Any) -> Any:
    return model


def backend(gm: Any, example_inputs: Any) -> Callable[..., Any]:
    """Compiles a graph that `torch.compile` captured; `torch.compile(fn, backend="frameloom")` calls it."""
    getattr(
        gm, "real_recompile", gm.recompile
    )()  # a lazy graph module has not written its code yet
    compiled: Callable[..., Any] = jit(gm.forward)
    return compiled
