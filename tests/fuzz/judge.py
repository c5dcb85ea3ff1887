"""Runs a script plainly and jitted, call by call, and says what differs: `python -m tests.fuzz.judge SCRIPT`.

A script defines `fn` (what is jitted), OPTIONS (of jit), STEPS (a function that makes the arguments of a call, the modes around it, and a
function that changes the program's state before it), `state()` (what else is compared), and possibly `drive(fn, *args)`, which calls it.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from dataclasses import dataclass

import torch

import frameloom
from tests.fuzz import support
from tests.fuzz.beyond import Beyond
from tests.fuzz.compare import LOST, compare, distances
from tests.fuzz.noise import COARSE, disturbed
from tests.fuzz.sides import Seen, Side
from tests.ops.undefined import BYTES, fresh_memory_holds, without_thread_caches

TRIALS = 6
# Where Python calls autograd's engine, and what a pass that raises leaves behind.
ENGINE = os.path.join("torch", "autograd", "graph.py")
HOW_FAR = ("value of result", "tree of result", "value of gradient", "tree of gradient")


@dataclass(frozen=True)
class Difference:
    """`kind` names the sort of difference, which shrinking keeps."""

    kind: str
    text: str
    step: int = -1

    def __str__(self) -> str:
        return f"{self.kind} in step {self.step}: {self.text}"


class DeviceStopped(Exception):
    """Plain calls end in an assertion on the GPU, behind which nothing can be compared."""


def judge(text: str, name: str = "program") -> Difference | None:
    """The first difference between the calls of a script and its plain calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _first_difference(text, name)


def run_plainly(text: str, name: str = "program") -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        side = Side(text, f"<{name}>", False)
        for k in range(len(side.steps)):
            side.step(k)


def _first_difference(text: str, name: str) -> Difference | None:
    frameloom.reset()
    plain, other = Side(text, f"<{name}>", False), Side(text, f"<{name}>", True)
    for k in range(len(plain.steps)):
        want = _settled(plain, k)
        if isinstance(want, Exception):
            raise DeviceStopped(str(want)) from want
        if _lacks_memory(want.call.error):
            return None  # fewer intermediate tensors may fit
        got = _settled(other, k)
        if isinstance(got, Exception):
            return Difference("device stopped", str(got), k)
        found = compare(got, want)
        if found is None:
            continue
        if found[0] == "backward" and _saves_less(other, got, want):
            return None  # what follows differs as well
        if found[0] in HOW_FAR and _ended_in_a_pass(got) and _ended_in_a_pass(want):
            return None  # how far it came is up to autograd
        if _reads_beyond(text, name, k):
            return None
        if not _rounding(text, name, k, got, found):
            return Difference(*found, k)
        if not found[0].startswith("value of gradient"):
            return None  # what follows differs as well
    return None


def _saves_less(side: Side, got: Seen, want: Seen) -> bool:
    """With a memory budget, less is saved than eager saves: nobody looks whether that was changed."""
    budget = (side.space["OPTIONS"].get("options") or {}).get("memory_budget")
    return budget is not None and not got.graded and "modified by an inplace" in want.graded


def _ended_in_a_pass(seen: Seen) -> bool:
    """Whether an exception of a backward pass ended the call."""
    frames = traceback.walk_tb(seen.call.error.__traceback__ if seen.call.error else None)
    return any(f.f_code.co_filename.endswith(ENGINE) for f, _ in frames)


def _lacks_memory(error: BaseException | None) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _reads_beyond(text: str, name: str, k: int) -> bool:
    """Whether the program looks at memory that is behind its tensors by chance."""
    plain = Side(text, f"<{name}>", False)
    with Beyond() as watched:
        for j in range(k + 1):
            plain.step(j)
    return watched.found


def _settled(side: Side, k: int) -> Seen | Exception:
    """What is seen of a call, or what the device says that has stopped in it."""
    try:
        seen = side.step(k)
        support.settle()
    except Exception as error:
        try:
            support.settle()
        except RuntimeError as stopped:
            return stopped
        raise error
    return seen


def _rounding(text: str, name: str, k: int, got: Seen, found: tuple[str, str]) -> bool:
    """Whether plain calls differ as much, once inputs are off by their last places, or by what nobody has written."""
    raises_otherwise = " for " in found[0]
    if not raises_otherwise and not found[0].startswith(("value", "tree", "printed")):
        return False
    if raises_otherwise:  # as a size that a rounded number decides may
        return _is_explained(text, name, k, got, found)
    if _is_unwritten(text, name, k, found[0]):
        return True
    if _is_explained(text, name, k, got, found):
        return True
    if not found[0].startswith("value"):
        return False
    # Numbers may be rounded to fewer places on the way.
    coarse = max((torch.finfo(of).eps for word, of in COARSE.items() if word in text), default=0.0)
    if coarse and _is_explained(text, name, k, got, found, coarse=coarse):
        return True
    return _is_explained(text, name, k, got, found, of_ops=True)


def _is_unwritten(text: str, name: str, k: int, kind: str) -> bool:
    """Whether plain calls show what their memory held before: `cat(out=)` resizes a tensor before it refuses it."""
    seen = []
    for byte in BYTES:
        with fresh_memory_holds(byte):
            plain = Side(text, f"<{name}>", False)
            seen.append([plain.step(j) for j in range(k + 1)][k])
    differs = compare(*seen)
    return differs is not None and differs[0] == kind


def _is_explained(
    text: str,
    name: str,
    k: int,
    got: Seen,
    found: tuple[str, str],
    *,
    coarse: float = 0.0,
    of_ops: bool = False,
) -> bool:
    """`coarse`, `of_ops`: these disturb so much that only values count, not another way through the program."""
    only_values = bool(coarse) or of_ops
    reach: dict[tuple[str, int], float] = {}
    for trial in range(1, TRIALS + 1):
        amount = trial if trial % 2 else -trial
        plain = Side(text, f"<{name}>", False)
        with disturbed(amount, coarse, of_ops):
            other = Side(text, f"<{name}>", False)
        for j in range(k + 1):
            want = plain.step(j)
            with disturbed(amount, coarse, of_ops):
                off = other.step(j)
        noise = compare(off, want)
        if noise is None:
            continue
        if noise[0] == found[0] and not noise[0].startswith("value"):
            return True
        if noise[0] != found[0] and found[0].startswith("value"):
            if not only_values:
                return True  # it goes another way
            if not noise[0].startswith(("value", "printed")):
                continue
        for leaf, far in distances(off, want).items():
            reach[leaf] = max(reach.get(leaf, 0.0), far)
    if not found[0].startswith("value") or not reach:
        return False
    apart, factor = distances(got, want), 2 if only_values else 8
    return factor * max(reach.values()) > max(apart.values()) or all(
        far <= 1 or far < factor * reach.get(leaf, 0.0) or reach.get(leaf, 0.0) > LOST
        for leaf, far in apart.items()
    )


def main() -> None:
    """For scripts: exit status 1 where one of them differs; `--interpret` and `--triton` as for the generator."""
    ways = {"--interpret": "loops", "--triton": "triton"}
    way = next((ways[argument] for argument in sys.argv if argument in ways), "")
    if way == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
    without_thread_caches()
    from tests.fuzz.interpret import within

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    status = 0
    for path in [path for path in sys.argv[1:] if path not in ways]:
        with open(path) as file:
            text = file.read()
        with within(way):
            found = judge(text, path)
        print(f"{path}: {found or 'as plain'}")
        status |= found is not None
    sys.exit(status)


if __name__ == "__main__":
    main()
