"""What PyTorch's settings and the program's objects are behind an exception: all of (settings) x (what raises) x (where it does), called several times."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from frameloom import jit
from tests.observe import observe

SETTINGS = {
    "no_grad": "with torch.no_grad():",
    "enable_grad": "with torch.enable_grad():",
    "set_grad_enabled": "with torch.set_grad_enabled(False):",
    "inference": "with torch.inference_mode():",
    "autocast": "with torch.autocast('cpu', torch.bfloat16):",
    "device": "with torch.device('cpu'):",
    "generator": "with scope():",
    "function mode": "with Mode():",
    "set": "if torch._C._set_grad_enabled(False) is None:",
    "dtype": "if torch.set_default_dtype(torch.float64) is None:",
    "deterministic": "if torch.use_deterministic_algorithms(True) is None:",
    "decorated": "if True:",
}
RAISES = {
    "check": "torch.linalg.cholesky(-torch.eye(2))",
    "check of an input": "torch.linalg.cholesky(x[:2, :2] * 0 - 1)",
    "index": "x[i]",
    "index, used": "seen.append(x[i])",
    "embedding": "torch.nn.functional.embedding(i, x)",
    "kernel": "torch.bincount(-i)",
    "draw": "torch.multinomial(-x - 1, 1)",
    "behind a draw": "seen.append(torch.rand(3)); x[i]",
    "Python": "raise ValueError(3)",
    "attribute": "x.missing",
    "number": "1 // (x.dim() - 2)",
    "shapes": "x @ torch.ones(7, 7)",
    "dtype": "x.to(torch.complex64).softmax(1)",
    "dtype, used": "seen.append(x.to(torch.complex64).softmax(1))",
    "data": "if (x < 100).any(): raise KeyError(1)",
    "item": "x[i.item()]",
    "behind print": "print(1); raise ValueError(3)",
    "check behind a break": "graph_break(); torch.linalg.cholesky(x[:2, :2] * 0 - 1)",
    "index behind a break": "graph_break(); x[i]",
    "callee": "helper(x, i)",
    "callback": "functools.reduce(lambda a, q: a + helper(q, i), [x], x)",
    "frame": "uncaptured(lambda: helper(x, i))",
}
CAUGHT = """
    try:
        {raises}
    except Exception as error:
        seen.append(type(error).__name__)"""
IN_A_FRAME = """
def inner():
    nonlocal x
    {inner}
uncaptured(inner)"""
PLACES = {
    "inside": "{block}\n    x = x + 1\n    {raises}",
    "behind": "{block}\n    x = x + 1\n{raises}",
    "before": "{raises}\n{block}\n    x = x + 1",
    "behind a write": "x.mul_(2)\n{block}\n    x.add_(1)\n{raises}",
    "inside, behind a write": "{block}\n    x.add_(1)\n    {raises}",
    "behind, broken inside": "{block}\n    graph_break()\n    x = x + 1\n{raises}",
    "inside, broken inside": "{block}\n    graph_break()\n    x = x + 1\n    {raises}",
    "inside of another": "{block}\n    graph_break()\n    x = x + 1\nwith torch.no_grad():\n    x = x + 2\n    {raises}",
    "nested": "with torch.enable_grad():\n    {block}\n        x = x + 1\n    {raises}",
    "caught": "{block}\n    x = x + 1" + CAUGHT + "\nx = x * 2\n{raises}",
    "in a frame": IN_A_FRAME.format(inner="{block}\n        x = x + 1\n    {raises}"),
    "in a frame, inside": IN_A_FRAME.format(inner="{block}\n        x = x + 1\n        {raises}"),
    "in a frame, broken": IN_A_FRAME.format(
        inner="{block}\n        graph_break()\n        x = x + 1\n    {raises}"
    ),
    "in a frame, caught": IN_A_FRAME.format(
        inner="{block}\n        x = x + 1" + CAUGHT.replace("\n", "\n    ")
    ),
}
HEAD = """
import contextlib, functools, torch
from frameloom import graph_break

seen = []

@contextlib.contextmanager
def scope():
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        yield
    finally:
        torch.set_grad_enabled(before)

def helper(x, i):
    return x[i] * 2

def uncaptured(f):
    sorted([f], key=lambda f: [f(), 0][1])

"""
# The number of the element that is out of bounds is not told.
TEXTS = ("index is out of bounds",)
CALLS = 4


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def program(setting: str, raises: str, place: str) -> dict[str, Any]:
    text = PLACES[place].replace("{block}", SETTINGS[setting]).replace("{raises}", RAISES[raises])
    body = "\n".join("    " + line for line in text.strip().splitlines())
    decorated = "@torch.no_grad()\n" if setting == "decorated" else ""
    space: dict[str, Any] = {"Mode": Mode}
    exec(f"{HEAD}{decorated}def fn(x, i):\n{body}\n    return x\n", space)
    return space


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    count = torch._C._len_torch_function_stack()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)
        while torch._C._len_torch_function_stack() > count:
            torch._C._pop_torch_function_stack()
        torch.set_autocast_enabled("cpu", False)


def _called(fn: Any, space: dict[str, Any], number: int, grad: bool) -> dict[str, Any]:
    def made() -> tuple[torch.Tensor, ...]:
        x = torch.arange(12.0).view(3, 4) + 1
        history = torch.ones(3, 4, requires_grad=True)
        return (x * history if number == CALLS - 1 else x), torch.tensor([9])

    space["seen"].clear()
    with put_back():
        call = observe(fn, made, state=lambda: space["seen"], grad=grad)
    text = str(call.error).partition("\n")[0]
    return {
        "settings": call.world,
        "exception": (type(call.error).__name__, text),
        "random state": call.random_state.tolist(),
        "argument": call.arguments[0][0].tolist(),
        "objects": str(call.state),
    }


def differences(setting: str, raises: str, place: str, **options: Any) -> Iterator[str]:
    spaces = [program(setting, raises, place) for _ in range(2)]
    jitted = jit(spaces[1]["fn"], **options)
    for k in range(CALLS):
        grad = setting != "enable_grad"
        want = _called(spaces[0]["fn"], spaces[0], k, grad)
        got = _called(jitted, spaces[1], k, grad)
        if got["exception"][1].startswith(TEXTS):
            got["exception"] = want["exception"]
        for what in want:
            if got[what] != want[what]:
                yield f"{setting} | {raises} | {place} | {options}: call {k}: {what}: {got[what]} instead of {want[what]}"


@torch.enable_grad()
def sweep_exceptions(
    settings: Sequence[str] = (*SETTINGS,),
    raises: Sequence[str] = (*RAISES,),
    places: Sequence[str] = (*PLACES,),
) -> Iterator[str]:
    for options in ({}, {"backend": "eager"}):
        for names in itertools.product(settings, raises, places):
            yield from differences(*names, **options)
