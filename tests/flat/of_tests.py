"""The programs of tests/programs and of the random generator, called again and again: exact counts of what is held behind each.

A program may hold more itself with each call (a list that grows), so it is counted plainly, too.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import importlib
import io
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.flat.growth import Held, growth

FOLDER = Path(__file__).parents[1] / "programs"
Seen = tuple[str, Held, Held]  # name, jitted and plainly


def _quiet(call: Callable[[int], Any]) -> Callable[[int], Any]:
    """What a program raises, prints and warns of is nobody's business here."""

    def quietly(k: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(Exception):
                call(k)

    return quietly


def _of_test(fn: Any, target: Any) -> Callable[[int], Any]:
    """`target` in place of the program `fn`, called as its test does."""
    run = fn.__program__
    given = dict(zip(run.__code__.co_freevars, (c.cell_contents for c in run.__closure__), strict=True))  # fmt: skip
    every = given["calls"] or [given["args"]]

    def call(k: int) -> None:
        args = every[k % len(every)]
        if given["before"] is not None:
            given["before"]()
        with torch.set_grad_enabled(given["grad"]):
            target(*(args() if callable(args) else copy.deepcopy(args)))

    return _quiet(call)


def of_tests(calls: int, only: str) -> Iterator[Seen]:
    from tests.programs.program import _jitted

    for path in sorted(FOLDER.rglob("test_*.py")):
        name = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
        module = importlib.import_module(f"tests.programs.{name}")
        for each, fn in list(vars(module).items()):
            run = getattr(fn, "__program__", None)
            if run is None or "breaks" not in run.__code__.co_freevars:
                continue  # a test of changes makes its program anew
            where = f"{path.stem}: {each}"
            if fn.__module__ != module.__name__ or not re.search(only, where):
                continue
            target, seen = _jitted(fn)
            if isinstance(seen.plain, list):  # one more with each call that runs plainly
                seen.plain = collections.deque(maxlen=1)
            yield where, *(growth(_of_test(fn, f), calls) for f in (target, fn))


def of_seeds(seeds: range, calls: int) -> Iterator[Seen]:
    from tests.fuzz import interpret, runner
    from tests.fuzz.grammar import Program
    from tests.fuzz.judge import Side, entered

    runner.prepare()
    for seed in seeds:
        try:
            text = Program(seed).text
        except Exception:  # nothing that can be drawn
            continue

        def side(jitted: bool, text: str = text, seed: int = seed) -> Callable[[int], Any]:
            made = Side(text, f"{seed}.py", jitted)

            def call(k: int) -> None:
                arguments, modes, change = made.steps[k % len(made.steps)]
                if change is not None:
                    change()
                given = arguments()
                with entered(modes), torch.enable_grad() if "no" not in modes else contextlib.nullcontext():  # fmt: skip
                    made.fn(*given) if made.drive is None else made.drive(made.fn, *given)

            return _quiet(call)

        with interpret.within("loops"):
            yield f"seed {seed}", growth(side(True), calls), growth(side(False), calls)


def sweep(found: Iterator[Seen], calls: int, limit: float) -> int:
    """Prints programs that hold so many bytes more with each call than plainly; returns how many."""
    done = grown = 0
    for name, jitted, plain in found:
        done += 1
        more = jitted - plain
        blocks, malloced = more.blocks / calls, more.malloced / calls
        if blocks * 32 > limit or malloced > limit:
            grown += 1
            print(f"{name}: {blocks:.2f} blocks and {malloced:.0f} bytes with each call (plainly {plain.blocks / calls:.2f}, {plain.malloced / calls:.0f})", flush=True)  # fmt: skip
    print(f"{done} programs, {grown} grow", flush=True)
    return grown
