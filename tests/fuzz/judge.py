"""Runs a script plainly and jitted, call by call, and says what differs: `python -m tests.fuzz.judge SCRIPT`.

A script defines `fn` (what is jitted), OPTIONS (of jit), STEPS (a function that makes the arguments of a call, the modes around it, and a
function that changes the program's state before it), `state()` (what else is compared), and possibly `drive(fn, *args)`, which calls it.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import frameloom
from frameloom import jit
from tests import observe as observed
from tests.fuzz import support
from tests.observe import _difference, aliasing_of, is_leaf, observe, seed, without_stack
from tests.ops.undefined import BYTES, fresh_memory_holds

# Relative errors that differently ordered sums and other functions of the same accuracy may make, in units of the last place.
ULPS = 64.0
TRIALS = 6
# What in a script makes numbers coarser than they look.
COARSE = {
    "float16": torch.float16,
    ".half()": torch.float16,
    "bfloat16": torch.bfloat16,
    "'autocast'": torch.bfloat16,
}
# Numbers in printed text, and the blanks that fill their columns.
NUMBER = re.compile(r"\s*[-+]?\d+\.\d*(?:e[-+]?\d+)?")
# Autograd's message names the node that it meets first, and ours are others; and a plan counts its writes as one.
NODE = re.compile(r"modified by an inplace operation: .*", re.DOTALL)
# A pass finds out about a change where the first op of its own needs the tensor: of eager's ops another one than of a graph's.
CHANGED = re.compile(
    r"(one of the variables needed .*|Output \d+ of \w+ is a view .*) has been modified (by an )?inplace.*",
    re.DOTALL,
)
# Where Python calls autograd's engine, and what a pass that raises leaves behind.
ENGINE = os.path.join("torch", "autograd", "graph.py")
HOW_FAR = ("value of result", "tree of result", "value of gradient", "tree of gradient")
OURS = (
    "frameloom",
    "Triggered internally",
    "Converting a tensor with requires_grad",
)  # notices of ours, and warnings that come once


@dataclass(frozen=True)
class Difference:
    """`kind` names the sort of difference, which shrinking keeps."""

    kind: str
    text: str
    step: int = -1

    def __str__(self) -> str:
        return f"{self.kind} in step {self.step}: {self.text}"


class Picture(observed.Picture):
    def _exception(self, value: BaseException) -> tuple[Any, ...]:
        parts = super()._exception(value)
        return tuple(NODE.sub("", p) if isinstance(p, str) else p for p in parts)


class DeviceStopped(Exception):
    """Plain calls end in an assertion on the GPU, behind which nothing can be compared."""


class Side:
    """A script with a namespace of its own, and what it does in each step."""

    def __init__(self, text: str, name: str, jitted: bool) -> None:
        self.space: dict[str, Any] = {"__name__": "program"}
        seed(0)  # layers of the program draw their weights
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        exec(compile(text, name, "exec", dont_inherit=True), self.space)
        self.fn: Any = self.space["fn"]
        if jitted:
            self.fn = jit(self.fn, **self.space["OPTIONS"])
        self.drive: Callable[..., Any] | None = self.space.get("drive")

    @property
    def steps(self) -> list[Any]:
        return self.space["STEPS"]  # type: ignore[no-any-return]

    def step(self, k: int) -> Seen:
        arguments, modes, change = self.steps[k]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if change is not None:
                change()
        return Seen(self, arguments, modes)


# Of which eager's vectors are off from its single numbers by units of 1 times the first operand, however small the result is.
ROUGH = (torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default)


class Sources(TorchDispatchMode):
    """What is drawn, or computed from ints, is off by its last places, too, but for numbers that are whole; and so is what eager does roughly."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = [a for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        is_first = torch.Tag.nondeterministic_seeded in func.tags or (
            bool(given) and not any(t.is_floating_point() or t.is_complex() for t in given)
        )
        if func in ROUGH:
            return made.add_(args[0] * support.off(made.dtype))
        if is_first and isinstance(made, torch.Tensor) and made.is_floating_point():
            signs = torch.arange(made.numel(), device=made.device) * 7 % 3 - 1
            off = 1 + support.off(made.dtype) * signs.reshape(made.shape)
            if not torch.equal(made, made.round()):
                made.mul_(off)
        return made


class Seen:
    """One call and all that can be seen of it."""

    def __init__(self, side: Side, arguments: Callable[[], Any], modes: str) -> None:
        self.leaves: list[torch.Tensor] = []
        given: list[torch.Tensor] = []
        before: list[int] = []

        def make() -> Any:
            support.leaves.clear()
            made = arguments()
            self.leaves[:] = support.leaves
            given[:] = Picture(made).tensors
            given[:] = [t for t in given if not t.is_inference()]
            before[:] = [t._version for t in given]
            return made

        def call(*args: Any) -> Any:
            with entered(modes), Sources() if support.disturbance[0] else contextlib.nullcontext():
                try:
                    return side.fn(*args) if side.drive is None else side.drive(side.fn, *args)
                except BaseException as error:
                    # A checkpointed region of PyTorch 2.11 that raises leaves its hooks in place for as long as its generator lives.
                    traceback.clear_frames(error.__traceback__)
                    raise

        with torch.enable_grad():
            self.call = observe(call, make, state=side.space.get("state"), grad=True)
            self.written = [t._version - v for t, v in zip(given, before, strict=True)]
            self.graded = self._differentiate()
        # Names of functions also decide where lines break.
        printed = re.sub(r",\s+grad_fn=<\w+>", ", grad_fn=<...>", self.call.printed).splitlines()
        self.printed = [s for s in printed if not any(t in s for t in OURS)]
        error = self.call.error
        self.root = [*self.call.arguments, self.call.result, error, self.call.state]
        self.roots = {"result": self.root, "gradient": [t.grad for t in self.leaves]}

    def _differentiate(self) -> str:
        """What the backward pass from all results says; it fills the leaves' gradients."""
        found = [t for t in results_of(self.call.result) if t.requires_grad]
        if not found:
            return ""
        held = Picture([self.call.arguments, self.call.state]).tensors
        before = [(t, t.clone()) for t in held if not t.requires_grad]  # gradients among them
        lists = [(s, len(s)) for s in self.call.state or () if isinstance(s, list)]
        total: Any = 0
        try:
            for t in found:
                part = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
                weights = torch.linspace(-1, 1, part.numel(), dtype=torch.float64).to(part.device)
                weights *= 1 + support.off(part.dtype) * (weights * 16 % 2 - 1)
                total = total + (part.double() * weights.view(part.shape)).sum()
            total.backward()
        except RuntimeError as error:
            # How far it came is up to autograd.
            for t in held + self.leaves:
                if is_leaf(t):
                    t.grad = None
            for t, was in before:
                if not torch.equal(t, was):
                    t.data.copy_(was)
            for noted, length in lists:  # by hooks
                del noted[length:]
            return str(error)
        return ""


def results_of(value: Any) -> list[torch.Tensor]:
    """Tensors of a result, from outside in; what is not looked into tells nothing."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() or value.is_complex() else []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, support.Box):
        value = [value.x]
    return [t for v in value for t in results_of(v)] if isinstance(value, list | tuple) else []


@contextlib.contextmanager
def entered(modes: str) -> Iterator[None]:
    """In the modes of that names."""
    with contextlib.ExitStack() as stack:
        for mode in modes.split():
            if mode == "no_grad":
                stack.enter_context(torch.no_grad())
            elif mode == "inference":
                stack.enter_context(torch.inference_mode())
            elif mode == "autocast":
                stack.enter_context(torch.autocast(support.DEVICE, torch.bfloat16))
            elif mode == "float64":
                stack.callback(torch.set_default_dtype, torch.get_default_dtype())
                torch.set_default_dtype(torch.float64)
        yield


def compare(got: Seen, want: Seen) -> tuple[str, str] | None:
    """Kind and text of the first difference; kinds "value" and "gradient value" may be rounding."""
    for look in (_errors, _printed, _random):
        if (found := look(got, want)) is not None:
            return found
    for what, root in want.roots.items():
        if (found := _pictures(Picture(got.roots[what]), Picture(root), what)) is not None:
            return found
    return None


def _errors(got: Seen, want: Seen) -> tuple[str, str] | None:
    g, w = got.call.error, want.call.error
    if type(g) is not type(w):
        trace = "".join(traceback.format_exception(g)[-3:]) if g else ""
        return f"{type(g).__name__} for {type(w).__name__}", f"{g!r} for {w!r} {trace}"
    if NODE.sub("", without_stack(str(g))) != NODE.sub("", without_stack(str(w))):
        return "text of an exception", f"{g!r} for {w!r}"
    if CHANGED.sub("changed", got.graded) != CHANGED.sub("changed", want.graded):
        return "backward", f"{got.graded or 'done'} for {want.graded or 'done'}"
    return None


def _printed(got: Seen, want: Seen) -> tuple[str, str] | None:
    if not _same_text(got.printed, want.printed):
        return "printed", f"{got.printed} for {want.printed}"
    if got.call.world != want.call.world:
        return "global state", f"{got.call.world} for {want.call.world}"
    if got.written != want.written:
        return "version", f"{got.written} for {want.written}"
    return None


def _same_text(got: list[str], want: list[str]) -> bool:
    """Whether the texts differ in nothing but the last places of their numbers."""
    if got == want:
        return True
    g, w = "\n".join(got), "\n".join(want)
    if NUMBER.sub(" 0.", g) != NUMBER.sub(" 0.", w):
        return False
    eps = torch.finfo(torch.float32).eps
    for a, b in zip(NUMBER.findall(g), NUMBER.findall(w), strict=True):
        exponent = b.partition("e")[2]
        place = 10.0 ** (
            int(exponent or 0) - max(len(s.partition("e")[0].partition(".")[2]) for s in (a, b))
        )
        if abs(float(a) - float(b)) > 1.01 * place + 4 * eps * abs(float(b)):
            return False
    return True


def _random(got: Seen, want: Seen) -> tuple[str, str] | None:
    same = torch.equal(got.call.random_state, want.call.random_state)
    return None if same else ("random state", "differs")


def _pictures(a: Picture, b: Picture, what: str) -> tuple[str, str] | None:
    if (found := _difference(a.tree, b.tree)) is not None:
        return f"tree of {what}", found
    for k, (g, w) in enumerate(zip(a.leaves, b.leaves, strict=True)):
        if (off := _off(g, w)) > 1:
            return f"value of {what}", f"leaf {k}, {off:.1f} times what may be: {_cut(g)} for {_cut(w)}"  # fmt: skip
    if aliasing_of(a.tensors) != aliasing_of(b.tensors):
        return f"aliasing of {what}", f"{aliasing_of(a.tensors)} for {aliasing_of(b.tensors)}"
    return None


def _cut(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 200 else text[:200] + "..."


def _off(g: Any, w: Any) -> float:
    """How far apart, where 1 is what rounding may do."""
    if not isinstance(w, torch.Tensor):
        if g == w or (g != g and w != w):
            return 0.0
        if not isinstance(w, float):
            return 2.0
        # What a tensor of float32 gave, as a Python float.
        is_single = torch.equal(torch.tensor([g, w], dtype=torch.float32).double(), torch.tensor([g, w], dtype=torch.float64))  # fmt: skip
        return abs(g - w) / ((1e-7 if is_single else 1e-12) * ULPS * (abs(w) + 1))
    with torch.no_grad():
        g, w = g.detach().cpu(), w.detach().cpu()
        if w.numel() == 0:
            return 0.0
        if not (w.is_floating_point() or w.is_complex()):
            return 0.0 if torch.equal(g, w) else 2.0
        g, w = (_parts(t) for t in (g, w))
        eps = torch.finfo(w.dtype).eps
        if not torch.equal(g.isnan(), w.isnan()) or not torch.equal(_infinite(g), _infinite(w)):
            return 1e9
        g, w = (t.double().nan_to_num(0, 0, 0) for t in (g, w))
        scale = w.abs() + w.abs().mean() + 1e-3
        return float(((g - w).abs() / (ULPS * eps * scale)).max())


def _parts(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t.resolve_conj().resolve_neg()) if t.is_complex() else t


def _infinite(t: torch.Tensor) -> torch.Tensor:
    return t.isinf() * t.nan_to_num(0).sign()


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
        if found[0] in HOW_FAR and _ended_in_a_pass(got) and _ended_in_a_pass(want):
            return None  # how far it came is up to autograd
        if not _rounding(text, name, k, got, found):
            return Difference(*found, k)
        if not found[0].startswith("value of gradient"):
            return None  # what follows differs as well
    return None


def _ended_in_a_pass(seen: Seen) -> bool:
    """Whether an exception of a backward pass ended the call."""
    frames = traceback.walk_tb(seen.call.error.__traceback__ if seen.call.error else None)
    return any(f.f_code.co_filename.endswith(ENGINE) for f, _ in frames)


def _lacks_memory(error: BaseException | None) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


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
    if not found[0].startswith(("value", "tree", "printed")):
        return False
    if _is_unwritten(text, name, k, found[0]):
        return True
    if _is_explained(text, name, k, got, found, 0.0):
        return True
    # Numbers may be rounded to fewer places on the way.
    coarse = max((torch.finfo(of).eps for word, of in COARSE.items() if word in text), default=0.0)
    if not coarse or not found[0].startswith("value"):
        return False
    return _is_explained(text, name, k, got, found, coarse)


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
    text: str, name: str, k: int, got: Seen, found: tuple[str, str], coarse: float
) -> bool:
    reach = 0.0
    for trial in range(1, TRIALS + 1):
        amount = trial if trial % 2 else -trial
        plain = Side(text, f"<{name}>", False)
        with disturbed(amount, coarse):
            other = Side(text, f"<{name}>", False)
        for j in range(k + 1):
            want = plain.step(j)
            with disturbed(amount, coarse):
                off = other.step(j)
        noise = compare(off, want)
        if noise is None:
            continue
        if noise[0] == found[0] and not noise[0].startswith("value"):
            return True
        if noise[0] != found[0] and found[0].startswith("value"):
            if coarse:
                continue
            return True  # it goes another way
        reach = max(reach, _distance(off, want))
    return found[0].startswith("value") and (2 if coarse else 8) * reach > _distance(got, want)


@contextlib.contextmanager
def disturbed(amount: float, coarse: float) -> Iterator[None]:
    support.disturbance[:] = amount, coarse
    try:
        yield
    finally:
        support.disturbance[:] = 0.0, 0.0


def _distance(got: Seen, want: Seen) -> float:
    most = 0.0
    for what, root in want.roots.items():
        a, b = Picture(got.roots[what]), Picture(root)
        if len(a.leaves) == len(b.leaves):
            most = max([most, *(_off(g, w) for g, w in zip(a.leaves, b.leaves, strict=True))])
    return most


def main() -> None:
    """For scripts: exit status 1 where one of them differs; `--interpret` and `--triton` as for the generator."""
    ways = {"--interpret": "loops", "--triton": "triton"}
    way = next((ways[argument] for argument in sys.argv if argument in ways), "")
    if way == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
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
