"""An exception that comes of data meets what the program has on its way: handlers around others, `finally` blocks, context managers."""

import pytest
import torch

from tests.programs.against_python import LOG, differences
from tests.programs.program import X, program

SCOPE = """
import contextlib, torch
from tests.programs.against_python import LOG
class Swallows:
    def __enter__(self): return self
    def __exit__(self, *what): LOG.append(what[0]); return True
class Passes(Swallows):
    def __exit__(self, *what): LOG.append(what[0])
@contextlib.contextmanager
def catches(error):
    try: yield 5
    except error: LOG.append("caught")
@contextlib.contextmanager
def cleans():
    try: yield 5
    finally: LOG.append("left")
def inner(x, i): return x[i] + 1
def inner_with(x, i):
    with Passes(): return x[i]
"""
LOOK = "y = x[i] + 1"
PROGRAMS = [
    f"try:\n    try: {LOOK}\n    finally: z = 1\nexcept IndexError: return 5\nreturn y",
    f"try:\n    try: {LOOK}\n    except KeyError: z = 1\nexcept (TypeError, LookupError): return 5\nreturn y",
    f"try: {LOOK}\nexcept (KeyError, NotImplementedError): return 5\nreturn y",
    f"try: {LOOK}\nexcept KeyError: return 5\nexcept IndexError as e: return 6\nreturn y",
    f"try: {LOOK}\nfinally: LOG.append(1)\nreturn y",
    f"try: {LOOK}\nfinally: return 3",
    f"try: {LOOK}\nexcept* IndexError: LOG.append(1)\nreturn x",
    f"y = x\nwith Swallows(): {LOOK}\nreturn y",
    f"y = x\nwith Passes(): {LOOK}\nreturn y",
    f"y = x\nwith Swallows(), Passes(): {LOOK}\nreturn y",
    f"y = x\nwith contextlib.suppress(IndexError): {LOOK}\nreturn y",
    f"y = x\nwith catches(IndexError): {LOOK}\nreturn y",
    f"y = x\nwith catches(KeyError): {LOOK}\nreturn y",
    f"y = x\nwith cleans(): {LOOK}\nreturn y",
    f"with torch.no_grad(): {LOOK}\nreturn y",
    f"try:\n    with torch.no_grad(): {LOOK}\nexcept IndexError: return 7\nreturn y",
    f"y = x\nwith contextlib.ExitStack() as s:\n    s.enter_context(Swallows())\n    {LOOK}\nreturn y",
    "try: y = inner(x, i) * 2\nexcept IndexError: return 8\nreturn y",
    "try: y = inner_with(x, i) * 2\nfinally: LOG.append(2)\nreturn y",
    "y = x\nfor n in range(2):\n    try: y = y + x[i]\n    except IndexError: continue\n    finally: LOG.append(n)\nreturn y",
    "try: y = [x[i] for _ in range(2)]\nexcept IndexError: return 9\nreturn y",
    "def g():\n    try: yield x[i] + 1\n    finally: LOG.append(3)\nreturn list(g())",
    "def g():\n    try: yield x[i] + 1\n    except IndexError: yield 4\nreturn list(g())",
]


@pytest.mark.parametrize("text", PROGRAMS)
@pytest.mark.parametrize("place", [1, 9])
def test_what_is_on_the_way_of_an_exception_is_met(text, place):
    lines = text.splitlines()
    scope = {"__name__": "program"}
    exec(SCOPE + "def f(x, i):\n" + "".join(f"    {line}\n" for line in lines), scope)
    LOG.clear()
    found = differences(
        lambda x, i: scope["f"](x, i), lambda: (torch.ones(4), torch.tensor([place])), calls=2
    )
    assert not found, found


class Emptied(dict):
    def take(self):
        print("takes")
        return self.popitem()

    def __getitem__(self, key):
        print("reads", key)
        return dict.__getitem__(self, key)

    @property
    def first(self):
        print("asks")
        return self["first"]


def emptied(table):
    """Its call of a Python function is the first instruction of the new code under this handler."""
    try:
        while True:
            table.take()
    except KeyError:
        return "empty"


@program(args=lambda: (X, Emptied()), graphs=2, breaks="print")
def handler_of_a_called_python_function(x, table):
    y = x + 1
    return emptied(table), y * 2


@program(args=lambda: (X, Emptied(), Emptied()), breaks="print")
def no_handler_of_the_code_before(x, table, other):
    y = x + 1
    try:
        y = y * 2
    except KeyError:
        return "caught what the next line raises"
    try:
        return y, other.first
    except KeyError as error:
        return y * 3, error.args
