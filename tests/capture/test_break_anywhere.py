"""Every program gives the same answer wherever it is made to break: at the n-th instruction that can break, for every n."""

import pytest
import torch

from frameloom.capture.interpreter import opcodes as handlers
from frameloom.errors import Break
from tests.capture.capturing import captured
from tests.capture.test_breaks import inner, middle
from tests.capture.test_straight import PROGRAMS, Data, Pair, X, add_all, helper

NEVER = frozenset(
    [
        "NOP",
        "RESUME",
        "PRECALL",
        "EXTENDED_ARG",
        "CACHE",
        "POP_TOP",
        "COPY",
        "SWAP",
        "PUSH_NULL",
        "LOAD_CONST",
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_CLOSURE",
        "LOAD_FAST_AND_CLEAR",
        "STORE_FAST",
        "DELETE_FAST",
        "MAKE_CELL",
        "COPY_FREE_VARS",
        "STORE_DEREF",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "KW_NAMES",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "RETURN_VALUE",
        "RETURN_CONST",
        "RETURN_GENERATOR",
        "YIELD_VALUE",
        "END_SEND",
        "SEND",
        "PUSH_EXC_INFO",
        "POP_EXCEPT",
        "RERAISE",
    ]
)


class ForcedBreak:
    """Breaks at the n-th instruction of the first capture."""

    def __init__(self, monkeypatch, n):
        self.left = n
        self.done = False
        table = {name: self.wrap(name, handler) for name, handler in handlers.TABLE.items()}
        monkeypatch.setattr(handlers, "TABLE", table)

    def wrap(self, name, handler):
        if name in NEVER:
            return handler

        def wrapped(frame, ins):
            if not self.done:
                self.left -= 1
                if self.left < 0:
                    self.done = True
                    raise Break("forced", name)
            return handler(frame, ins)

        return wrapped


def loops(x):
    out = []
    for i, (a, b) in enumerate(zip([1, 2], (3, 4), strict=False)):
        x = x + a * b
        out.append(x.sum() * i)
    return out, x


def exceptions(x, log):
    for key in ("a", "b"):
        try:
            try:
                log.append({"a": 1}[key])
                x = x + 1
            finally:
                log.append("finally")
        except KeyError as error:
            x = x * len(error.args)
    return x


def cells(x):
    total = x

    def add(y):
        nonlocal total
        total = total + y
        return lambda: total

    add(1)
    get = add(x)
    return get() + total


class Scope:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self.log

    def __exit__(self, *exc):
        self.log.append("out")


def scopes(x, log):
    with Scope(log) as own, torch.no_grad():
        own.append(1)
        x = x + 1
    return x * len(log)


def nested(x):
    a, b = middle(x, 2)
    return inner(a) + b


def effects(x, box, items):
    box["n"] = x + 1
    items.append(box["n"] * 2)
    items[0] = len(items)
    box.pop("old")
    return box["n"]


def data(x):
    d = Data(x, n=2)
    d.tags.append(Pair(d.x + 1, second=d))
    return d.tags[0].first * d.n + helper(x, bias=add_all(x, x, k=2))


def module(x, layers):
    for layer in layers:
        x = layer(x)
    return x


EXTRA = {
    "loops": (loops, ()),
    "exceptions": (exceptions, ([],)),
    "cells": (cells, ()),
    "scopes": (scopes, ([],)),
    "nested": (nested, ()),
    "effects": (effects, ({"old": 1}, [1, 2])),
    "data": (data, ()),
    "module": (
        module,
        (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4)),),
    ),
}
ALL = {name: (fn, ()) for name, fn in PROGRAMS.items()} | EXTRA


@pytest.mark.parametrize("name", ALL)
def test_break_anywhere(name, monkeypatch):
    fn, more = ALL[name]
    n = 0
    while True:
        with monkeypatch.context() as patch:
            forced = ForcedBreak(patch, n)
            try:
                captured(fn, X, *more)
            except Exception as error:
                raise AssertionError(f"break at instruction {n}") from error
        if not forced.done:
            break
        n += 1
