"""The functional form of a program's operator that writes to its arguments
(`torch.library.custom_op(mutates_args=...)`, or `Tensor(a!)` in the schema of `torch.library.define`).

In: an overload. Out: an operator that does not write to its arguments, and returns the new values after the
    results. Where an argument is optional or a list, it returns all of them as one list. It is made once;
    None where the schema says too little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from frameloom.capture.tensors.own_ops import own_op

NAMESPACE = "frameloom_functional"
OURS = ("aten", "prims", NAMESPACE)  # have forms of their own, or need none
WRITTEN = {"Tensor", "Optional[Tensor]", "List[Tensor]"}


def form_on_copies(func: Any) -> Any:
    schema = func._schema
    namespace, name = schema.name.split("::")
    written = [k for k, a in enumerate(schema.arguments) if a.alias_info is not None]
    if namespace in OURS or not written:
        return None
    arguments = [schema.arguments[k] for k in written]
    types = [str(a.type) for a in arguments]
    results = [str(r.type) for r in schema.returns]
    if not all(a.alias_info.is_write and not a.is_out for a in arguments):
        return None
    if not set(types) <= WRITTEN:
        return None
    if returns_written(func):
        results = []
    elif any(r.alias_info is not None for r in schema.returns):
        return None
    in_list = set(types) != {"Tensor"}
    if in_list and not set(results) <= {"Tensor"}:
        return None
    given = str(schema).partition("(")[2].rpartition(" -> ")[0].removesuffix(")")
    given = re.sub(r"\(a\d*!( -> \*)?\)", "", given)
    returned = "Tensor[]" if in_list else f"({', '.join([*results, *types])})"
    form = f"{namespace}_{name}_{func._overloadname}"
    run = _on_copies(func, written, in_list)
    return own_op(f"{form}({given}) -> {returned}", run, namespace=NAMESPACE)


def returns_written(func: Any) -> bool:
    """Whether the operator returns the one tensor that it writes: `(Tensor(a!) x, ...) -> Tensor(a!)`."""
    schema = func._schema
    infos = [a.alias_info for a in schema.arguments if a.alias_info is not None]
    returned = [r.alias_info for r in schema.returns]
    if len(infos) != 1 or len(returned) != 1 or returned[0] is None:
        return False
    return bool(returned[0].is_write and returned[0].before_set == infos[0].before_set)


def _on_copies(func: Any, written: list[int], in_list: bool) -> Any:
    names = [a.name for a in func._schema.arguments]
    is_same = returns_written(func)

    def run(*args: Any, **kwargs: Any) -> Any:
        given, copies = list(args), []
        for k in written:
            where: Any = given if k < len(given) else kwargs
            at: Any = k if k < len(given) else names[k]
            if k < len(given) or at in kwargs:
                where[at] = _copied(where[at])
                copies += _tensors(where[at])
        returned = func(*given, **kwargs)
        if is_same:
            if returned is not copies[0]:
                raise NotImplementedError(f"{func} returns another tensor than its schema says")
            returned = None
        results = (
            () if returned is None else returned if isinstance(returned, tuple) else (returned,)
        )
        every = (*results, *copies)
        return list(every) if in_list else every[0] if len(every) == 1 else every

    return run


def _copied(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [t.clone() for t in value]
    return None if value is None else value.clone()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, list | tuple):
        yield from value
    elif value is not None:
        yield value
