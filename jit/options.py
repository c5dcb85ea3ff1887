"""Options of one `jit` call.  Checks them, with errors that list the accepted values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from frameloom.errors import OptionError

Backend = Callable[..., Any]
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# name -> accepted values
OPTIONS: dict[str, tuple[Any, ...]] = {"numerics": ("eager",), "freezing": (False, True)}
BUDGET = "memory_budget"
NAMED_BACKENDS = ("frameloom", "eager")


class JitOptions(TypedDict, total=False):
    """The options of `jit`, as they are given."""

    fullgraph: bool
    dynamic: bool | None
    mode: str | None
    backend: str | Backend | None
    options: Mapping[str, Any] | None


@dataclass(frozen=True)
class Options:
    """Checked options.  `backend` is None for our own code generator, "eager", or the user's function."""

    fullgraph: bool = False
    backend: str | Backend | None = None
    mode: str = "default"
    # Whether parameters and buffers in evaluation mode are constants (capture/graph_passes/freezing.py).
    freezing: bool = False
    # None: sizes and numbers that differ in a later call are symbolic from then on; True: all sizes are
    # symbolic from the start; False: none.
    dynamic: bool | None = None
    # Limit for saved tensors: bytes, or a share of what would be saved without it
    # (capture/autograd/partition.py).
    memory_budget: int | float | None = None

    @property
    def tune(self) -> bool:
        """Whether several launch configurations of each GPU kernel are timed."""
        return self.mode.startswith("max-autotune")

    @property
    def replay(self) -> bool:
        """Whether calls replay a CUDA graph where that is safe."""
        return self.mode in ("reduce-overhead", "max-autotune")


def check_options(
    fullgraph: object = False,
    dynamic: object = None,
    mode: object = None,
    backend: object = None,
    options: object = None,
) -> Options:
    """Returns the checked options; raises OptionError for anything wrong."""
    if not isinstance(fullgraph, bool):
        raise OptionError(f"fullgraph={fullgraph!r}: expected True or False")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise OptionError(f"dynamic={dynamic!r}: expected None, True or False")
    if mode is not None and mode not in MODES:
        raise OptionError(f"mode={mode!r}: expected None or one of {', '.join(map(repr, MODES))}")
    chosen = _check_backend(backend, options)
    given: dict[str, Any] = dict(options or {})  # type: ignore[call-overload]
    freezing = chosen is None and bool(given.get("freezing"))
    return Options(fullgraph, chosen, str(mode or "default"), freezing, dynamic, given.get(BUDGET))


def _check_budget(value: object) -> None:
    if (type(value) is int and value >= 0) or (type(value) is float and 0.0 <= value <= 1.0):
        return
    raise OptionError(
        f"options: {BUDGET}={value!r}; accepted: a number of bytes (int), or a share of what would be saved (float from 0 to 1)"
    )


def _check_backend(backend: object, options: object) -> str | Backend | None:
    if options is not None:
        if not isinstance(options, Mapping):
            raise OptionError(
                f"options={options!r}: expected a dict such as {{'numerics': 'eager'}}"
            )
        for name, value in options.items():
            if name == BUDGET:
                _check_budget(value)
                continue
            if name not in OPTIONS:
                known = ", ".join(sorted([*OPTIONS, BUDGET]))
                raise OptionError(f"options: unknown {name!r}; known: {known}")
            if value not in OPTIONS[name]:
                accepted = ", ".join(map(repr, OPTIONS[name]))
                raise OptionError(f"options: {name}={value!r}; accepted: {accepted}")
    if backend is None or backend == "frameloom":
        return None
    if isinstance(backend, str):
        if backend not in NAMED_BACKENDS:
            raise OptionError(
                f"backend={backend!r}: known are {', '.join(NAMED_BACKENDS)}, or a function (gm, example_inputs)"
            )
        return backend
    if not callable(backend):
        raise OptionError(
            f"backend={backend!r}: expected a name or a function (gm, example_inputs)"
        )
    return backend
