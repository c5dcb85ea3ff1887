"""Makes a script that fails small: statements, calls and options are deleted, and expressions replaced by their parts, while the same kind of difference remains."""

from __future__ import annotations

import ast
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.runner import Way, judged_alone

# The changes that can be made to a tree.
Edits = Callable[[ast.Module], Iterator[Callable[[], Any]]]
NEEDED = ("STEPS", "OPTIONS", "fn")


def shrunk(script: str, kind: str, way: Way, seconds: float) -> tuple[str, str]:
    """The smallest script found in that time, and what differs there."""
    until = time.time() + seconds
    quick = replace(way, seconds=min(way.seconds, 20.0))
    tree, text = ast.parse(script), ""

    def fails(candidate: ast.Module) -> bool:
        nonlocal text
        found, told = judged_alone(ast.unparse(ast.fix_missing_locations(candidate)), quick)
        if found == kind:
            text = told
        return found == kind

    if not fails(copy.deepcopy(tree)):
        return script, "not the same way twice"
    for edits in (_calls, _unused, _of_fn, _unused):  # coarsely first
        tree = _smaller(tree, edits, fails, until)
    before = None
    while before != (before := _size(tree)) and time.time() < until:
        for edits in (_unused, _chunks, _unwrapped, _items, _parts):
            tree = _smaller(tree, edits, fails, until)
    return ast.unparse(ast.fix_missing_locations(tree)), text


def _smaller(tree: ast.Module, edits: Edits, fails: Callable[[ast.Module], bool], until: float) -> ast.Module:  # fmt: skip
    """After one edit at a time, of those after which it still fails."""
    k = 0
    while time.time() < until:
        candidate = copy.deepcopy(tree)
        edit = next(itertools.islice(edits(candidate), k, None), None)
        if edit is None:
            break
        edit()
        if _size(candidate) < _size(tree) and fails(candidate):
            tree = candidate
        else:
            k += 1
    return tree


def _size(tree: ast.Module) -> int:
    return sum(1 for _ in ast.walk(tree))


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, name, None), list) and body:
                yield body
        if isinstance(node, ast.Try | ast.Match):
            yield getattr(node, "handlers", None) or getattr(node, "cases", [])


def _is_needed(statement: Any) -> bool:
    return bool(_names(statement) & set(NEEDED))


def _calls(tree: ast.Module) -> Iterator[Callable[[], Any]]:
    """Deletes items of STEPS, from the last on."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_needed(node) and isinstance(node.value, ast.List):
            for k in range(len(node.value.elts) - 1, -1, -1):
                yield lambda node=node, k=k: node.value.elts.pop(k)


def _unused(tree: ast.Module) -> Iterator[Callable[[], Any]]:
    """Deletes what the module defines and nobody reads; first as if nothing but the calls were compared."""
    for kept in (NEEDED, (*NEEDED, "state", "drive")):
        yield lambda kept=kept: _delete_unused(tree, set(kept))


def _delete_unused(tree: ast.Module, wanted: set[str]) -> None:
    while True:
        read = {n.id for s in tree.body if _names(s) & wanted or not _names(s) for n in ast.walk(s) if isinstance(n, ast.Name)}  # fmt: skip
        if read <= wanted:
            break
        wanted |= read
    tree.body = [s for s in tree.body if _names(s) & wanted or not _names(s)]


def _names(statement: Any) -> set[str]:
    """What a statement of the module defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in statement.names}
    return {t.id for t in getattr(statement, "targets", []) if isinstance(t, ast.Name)}


def _of_fn(tree: ast.Module) -> Iterator[Callable[[], Any]]:
    """Deletes statements of the function that is jitted."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "fn":
            yield from _chunks(node)


def _chunks(tree: ast.AST) -> Iterator[Callable[[], Any]]:
    """Deletes statements: halves of a body, then quarters, down to one."""
    for body in sorted(_bodies(tree), key=len, reverse=True):
        size = max(1, len(body) // 2)
        while True:
            for start in range(len(body) - size, -1, -size):
                if not any(_is_needed(s) for s in body[start : start + size]):
                    yield lambda body=body, start=start, size=size: _delete(body, start, size)
            if size == 1:
                break
            size //= 2


def _delete(body: list[Any], start: int, size: int) -> None:
    del body[start : start + size]
    if not body:
        body.append(ast.Pass())


def _items(tree: ast.Module) -> Iterator[Callable[[], Any]]:
    """Deletes items of lists, tuples, dictionaries and keyword arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Set):
            for k in range(len(node.elts) - 1, -1, -1):
                yield lambda node=node, k=k: node.elts.pop(k)
        elif isinstance(node, ast.Call):
            for k in range(len(node.keywords) - 1, -1, -1):
                yield lambda node=node, k=k: node.keywords.pop(k)
        elif isinstance(node, ast.Dict):
            for k in range(len(node.keys) - 1, -1, -1):
                yield lambda node=node, k=k: (node.keys.pop(k), node.values.pop(k))
        elif isinstance(node, ast.FunctionDef) and node.decorator_list:
            yield node.decorator_list.clear


def _unwrapped(tree: ast.Module) -> Iterator[Callable[[], Any]]:
    """Puts what is in a compound statement in its place."""
    for body in _bodies(tree):
        for k, node in enumerate(body):
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(node, name, None)
                if isinstance(inner, list) and inner and not isinstance(node, ast.FunctionDef | ast.ClassDef):  # fmt: skip
                    yield lambda body=body, k=k, inner=inner: body.__setitem__(slice(k, k + 1), inner)  # fmt: skip


def _parts(tree: ast.Module) -> Iterator[Callable[[], Any]]:
    """Puts a part of an expression in its place."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                for part in _simpler(value):
                    yield lambda node=node, name=name, part=part: setattr(node, name, part)
            elif isinstance(value, list):
                for k, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        for part in _simpler(item):
                            yield lambda value=value, k=k, part=part: value.__setitem__(k, part)


def _simpler(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.Constant | ast.Name) or isinstance(getattr(value, "ctx", None), ast.Store | ast.Del):  # fmt: skip
        return
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        yield value.func.value
    for child in ast.iter_child_nodes(value):
        if isinstance(child, ast.expr) and not (isinstance(value, ast.Call) and child is value.func):  # fmt: skip
            yield child
    if isinstance(value, ast.Tuple | ast.Dict | ast.JoinedStr | ast.Compare | ast.Lambda):
        yield ast.Constant(None)
    if not isinstance(value, ast.Attribute):
        yield ast.Constant(1)
