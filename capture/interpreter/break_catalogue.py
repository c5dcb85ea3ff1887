"""The catalogue of graph breaks: what each kind means, why it cannot be captured, what to try.

In: a `Break` and where it happened. Out: `report`, a text of at most six lines. Nothing here decides whether
something breaks.
"""

from __future__ import annotations

import functools
import linecache
from dataclasses import dataclass

from frameloom.errors import Break, Where


@dataclass(frozen=True)
class BreakReport:
    """One graph break: its kind, its place and the message."""

    kind: str
    where: Where
    text: str


# kind -> (why, what to try)
CATALOGUE: dict[str, tuple[str, str]] = {
    "attribute": (
        "this attribute is computed by code that cannot be followed",
        "read it outside and pass the value in",
    ),
    "attribute_write": (
        "this attribute cannot be written back after a graph",
        "set it outside the jitted function",
    ),
    "autograd": ("it changes autograd's state, not tensors", "do it outside the jitted function"),
    "autograd_function": (
        "its forward or backward does more than compute new tensors from its own",
        "do the rest outside of the function",
    ),
    "cannot_rebuild": (
        "this object cannot be made again in new code",
        "make it outside and pass it in",
    ),
    "class_statement": ("classes are made by plain Python", "define the class at module level"),
    "cold_cache": (
        "this function's cache has no result for these arguments, and what was changed before matters, or the cache is full",
        "call it once before the jitted function, or make its cache larger",
    ),
    "context_manager": (
        "what this context manager does is unknown",
        "enter it outside the jitted function",
    ),
    "coroutine": (
        "only coroutines that the captured code drives itself are followed",
        "call a plain function from the coroutine",
    ),
    "data_dependent": (
        "the result's shape or value depends on the tensor's data",
        "use a form with a fixed shape, e.g. torch.where",
    ),
    "data_dependent_branch": (
        "the branch depends on the tensor's data",
        "use torch.where, torch.cond or frameloom.cond, or branch on shapes and Python values",
    ),
    "data_pointer": (
        "it reaches behind the tensor to its memory",
        "do it outside the jitted function",
    ),
    "dictionary_key": (
        "this key can only be looked up by running Python",
        "use strings, ints or classes as keys",
    ),
    "disabled": ("the function is marked with frameloom.disable", "remove the mark to capture it"),
    "exception": (
        "an exception leaves the captured code",
        "check the inputs before the jitted function",
    ),
    "finalizer": (
        "the object's finalizer runs code of the program",
        "let go of it outside the jitted function",
    ),
    "generator": ("a started generator cannot be taken apart", "use a list"),
    "gradient": (
        "this history is left to autograd itself",
        "do not change inputs in place, or call it under torch.no_grad()",
    ),
    "graph_break": ("frameloom.graph_break() was called", "remove the call"),
    "identity": (
        "whether two objects are the same may change from call to call",
        "compare by value",
    ),
    "import": ("importing a module runs its code", "import it at the top of the file"),
    "item": ("the value of a tensor is needed in Python", "keep it a tensor, e.g. a 0-dim one"),
    "library_call": (
        "this library function is not captured",
        "call it outside the jitted function",
    ),
    "logging": ("a log entry must be written in its place", "log after the jitted function"),
    "may_raise": (
        "it may raise depending on data, and the program handles that",
        "move it out of the try block",
    ),
    "metadata_mutation": ("the tensor's shape or layout is changed in place", "make a new tensor"),
    "numpy": (
        "this use of NumPy is not captured",
        "use the torch function of the same name, or convert outside the jitted function",
    ),
    "op_error": (
        "the operation fails, so plain Python runs it and raises",
        "look at the error it raises",
    ),
    "opaque_iterable": ("what comes next is not known while capturing", "pass a list or a tuple"),
    "opaque_object": (
        "nothing is known about this object while capturing",
        "use plain Python values or tensors",
    ),
    "opcode": ("this kind of statement is left to CPython", "write it with simpler statements"),
    "print": (
        "printing must happen in between the computations",
        "print after the jitted function",
    ),
    "set_order": ("the order of a set of objects changes from run to run", "use a list or a dict"),
    "tensor_attribute": (
        "this attribute of a tensor is not part of the graph",
        "do it outside the jitted function",
    ),
    "tensor_subclass": ("what a tensor subclass does is unknown", "pass plain tensors"),
    "too_deep": ("calls are nested too deeply", "write the recursion as a loop"),
    "too_large": ("this is too large to follow", "compute it outside the jitted function"),
    "mutated_view": (
        "the tensor is written through a view whose elements cannot be put back",
        "write to the tensor itself, or to a slice or select of it",
    ),
    "unbound": ("a variable has no value here", "assign it on every path"),
    "shared_dictionary": (
        "the object's dictionary was reached under another name too, and is changed",
        "change it by one of the names alone",
    ),
    "unknown_call": ("what this call does is unknown", "call it outside the jitted function"),
    "unpack": ("the number of values does not fit", "check the sizes"),
    "unsupported_call": (
        "this call does not go through PyTorch's dispatcher",
        "call it outside the jitted function",
    ),
    "unsupported_op": ("this operation cannot be recorded", "call it outside the jitted function"),
    "unsupported_tensor": (
        "this kind of tensor is not supported",
        "pass dense tensors on the CPU or a CUDA device",
    ),
    "warning": ("Python warns here, in its place among other output", "avoid what it warns of"),
}
UNKNOWN = ("it cannot be captured", "call it outside the jitted function")


def report(cause: Break, where: Where) -> BreakReport:
    """Returns the report: what happened, where, why, and what to try."""
    why, suggestion = CATALOGUE.get(cause.kind, UNKNOWN)
    lines = [f"graph break ({cause.kind}): {cause.detail or cause.kind}", f"  at {where}"]
    source = _source_line(where).rstrip()
    if source:
        indent = len(source) - len(source.lstrip())
        lines.append(f"    {source.strip()}")
        if where.column is not None and where.end_column is not None and where.column >= indent:
            width = max(1, min(where.end_column, len(source)) - where.column)
            lines.append(f"    {' ' * (where.column - indent)}{'^' * width}")
    lines += [f"  why: {why}", f"  try: {suggestion}"]
    return BreakReport(cause.kind, where, "\n".join(lines))


def _source_line(where: Where) -> str:
    lines = linecache.getlines(where.file) if where.file in linecache.cache else _read(where.file)
    return lines[where.line - 1] if 0 < where.line <= len(lines) else ""


@functools.lru_cache(maxsize=8)
def _read(file: str) -> list[str]:
    """Returns the lines of a file without adding them to the program's `linecache`."""
    lines = linecache.getlines(file)
    linecache.cache.pop(file, None)
    return lines
