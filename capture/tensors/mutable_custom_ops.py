"""The functional form of a program's operator that writes to its arguments
(`torch.library.custom_op(mutates_args=...)`).

In: an overload. Out: an operator that does not write to its arguments, and returns the new values after the
    results. It is made once; None where the schema says too little."""

from __future__ import annotations

import re
from typing import Any

from frameloom.capture.tensors.own_ops import own_op

NAMESPACE = "frameloom_functional"
OURS = ("aten", "prims", NAMESPACE)  # have forms of their own, or need none


def form_on_copies(func: Any) -> Any:
    schema = func._schema
    namespace, name = schema.name.split("::")
    written = [k for k, a in enumerate(schema.arguments) if a.alias_info is not None]
    plain = all(a.alias_info is None for a in schema.returns)
    writes_all = all(schema.arguments[k].alias_info.is_write for k in written)
    types = [str(schema.arguments[k].type) for k in written]
    if namespace in OURS or not written or not plain or not writes_all or set(types) != {"Tensor"}:
        return None
    given = str(schema).partition("(")[2].rpartition(" -> ")[0].removesuffix(")")
    given = re.sub(r"\(a\d*!\)", "", given)
    returned = [*(str(r.type) for r in schema.returns), *types]
    form = f"{namespace}_{name}_{func._overloadname}"
    text = f"{form}({given}) -> ({', '.join(returned)})"
    return own_op(text, _on_copies(func, written), namespace=NAMESPACE)


def _on_copies(func: Any, written: list[int]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        names = [a.name for a in func._schema.arguments]
        copies = []
        for k in written:
            named = k >= len(given)
            copies.append((kwargs[names[k]] if named else given[k]).clone())
            if named:
                kwargs[names[k]] = copies[-1]
            else:
                given[k] = copies[-1]
        returned = func(*given, **kwargs)
        results = (
            () if returned is None else returned if isinstance(returned, tuple) else (returned,)
        )
        every = (*results, *copies)
        return every[0] if len(every) == 1 else every

    return run
