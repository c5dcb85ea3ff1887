"""Infers sizes, strides and dtypes of an ATen op's results, without running it.

PyTorch's meta kernels can infer them all, but those written in Python take 100 to 900 microseconds per call,
and the first of them imports modules for about a second. The ops that are frequent in real programs have a
rule here; for all others the meta kernel runs.
In: meta tensors. Out: meta tensors. A rule may return None: then the meta kernel runs.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx

from frameloom.capture.shapes.inferred_cache import inferred
from frameloom.capture.shapes.pointwise import PRESERVING, is_pointwise, pointwise
from frameloom.capture.shapes.probe import fit_by_probing
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import META, properties_of
from frameloom.capture.tensors.sized import (
    SizedMeta,
    empty_strided,
    plain_if_static,
    specialized,
)
from frameloom.config import config
from frameloom.debug import log
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.symint import size_of

aten = torch.ops.aten
Rule = Callable[..., Any]
# An op has a rule in one of the two tables.
RULES: dict[Any, Rule] = {}
SIZED_RULES: dict[Any, Rule] = {}  # for symbolic sizes alone: the meta kernel is written in C++
LAYOUTS: dict[tuple[str, Any], Rule] = {}  # by kind of device
# For plain_layouts.py: ops whose results are fresh and plain for any operands, or plain if the operands are.
FRESH: set[Any] = set()
KEEPING: set[Any] = set(PRESERVING)


def infer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the result of `func` on meta tensors: a meta tensor, or the structure that the op returns."""
    load_rules()
    if is_sized(args) or (kwargs and is_sized(kwargs.values())):
        return inferred(_infer_sized, func, args, kwargs)
    rule = RULES.get(func)
    if rule is None and is_pointwise(func):
        rule = pointwise
    if rule is not None:
        result = rule(func, *args, **kwargs)
        if result is not None:
            return result
    return func(*args, **kwargs)


SizedMeta.infer = staticmethod(infer)


def infer_node(func: Any, args: Any, kwargs: Any) -> Any:
    """Returns meta tensors like the results of an op on the arguments' nodes."""

    def meta(a: Any) -> Any:
        if not isinstance(a, torch.fx.Node):
            return a
        val = a.meta["val"]
        return val.meta if isinstance(val, Fake) else val  # a number

    meta_args = torch.fx.node.map_aggregate(args, meta)
    meta_kwargs = dict(torch.fx.node.map_aggregate(kwargs, meta)) if kwargs else {}
    if properties_of(func).takes_device:
        meta_kwargs["device"] = META
        meta_kwargs.pop("pin_memory", None)
    try:
        return infer(func, meta_args, meta_kwargs)
    except NotImplementedError as error:
        raise Break("unsupported_op", f"{func}: sizes of its result are not known") from error


def is_sized(args: Any) -> bool:
    """Whether sizes among the arguments are symbolic."""
    return any(
        isinstance(a, SizedMeta | Size) or (isinstance(a, list | tuple) and is_sized(a))
        for a in args
    )


def _infer_sized(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Infers results for symbolic sizes. If no rule applies, the sizes are specialized."""
    rule = RULES.get(func) or SIZED_RULES.get(func)
    if rule is None and is_pointwise(func):
        rule = pointwise
    if rule is not None:
        result = rule(func, *args, **kwargs)
        if result is not None:
            return as_known(result)
    if properties_of(func).is_composite:
        return as_known(func.decompose(*args, **kwargs))
    if not func._schema.returns:
        return None
    if (fitted := fit_by_probing(func, args, kwargs, infer)) is not None:
        return as_known(fitted)
    if "sizes" in config.logs:
        log("sizes", f"{func} has to know the sizes")
    args, kwargs = with_specialized_sizes((args, kwargs))
    return infer(func, tuple(args), dict(kwargs))


def with_specialized_sizes(arguments: Any) -> Any:
    """Returns the arguments of an op with constants in place of symbolic sizes, which become guards."""
    return torch.fx.node.map_aggregate(arguments, _specialized)


def _specialized(a: Any) -> Any:
    return specialized(a) if isinstance(a, torch.Tensor) else int(a) if isinstance(a, Size) else a


def as_known(result: Any) -> Any:
    """Returns the result with each tensor in the class that fits: SizedMeta only if sizes are symbolic."""
    if isinstance(result, list | tuple):
        return type(result)(map(as_known, result))
    if not isinstance(result, torch.Tensor):
        return result
    if not isinstance(result, SizedMeta) and result._has_symbolic_sizes_strides:  # type: ignore[attr-defined]
        shape, strides = (
            [size_of(n) if isinstance(n, torch.SymInt) else n for n in numbers]
            for numbers in (result.shape, result.stride())
        )
        result = empty_strided(shape, strides, result.dtype)
    return plain_if_static(result)


@functools.cache
def load_rules() -> None:
    """Imports the modules that fill the tables, once."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.endswith("_rules"):
            importlib.import_module(f"{__package__}.{module.name}")


def rule(*funcs: Any) -> Callable[[Rule], Rule]:
    """Registers the rule of these ops. It gets meta tensors, and returns None if it is not sure."""
    return _registering(RULES, funcs)


def sized_rule(*funcs: Any) -> Callable[[Rule], Rule]:
    """Registers the rule of ops whose meta kernel is as fast where all sizes are known."""
    return _registering(SIZED_RULES, funcs)


def layout(*funcs: Any, devices: Sequence[str] = ("cpu", "cuda")) -> Callable[[Rule], Rule]:
    """Registers what corrects the results of these ops for devices whose kernels give other layouts or dtypes
    than the meta kernel. It gets the meta result and the op's arguments (Fakes)."""
    return _registering(LAYOUTS, itertools.product(devices, funcs))


def _registering(table: dict[Any, Rule], keys: Iterable[Any]) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        table.update(dict.fromkeys(keys, fn))
        return fn

    return register
