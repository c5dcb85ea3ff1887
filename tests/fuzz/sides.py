"""A script with a namespace of its own, and all that can be seen of a call of its function."""

from __future__ import annotations

import contextlib
import linecache
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from frameloom import jit
from tests import observe as observed
from tests.fuzz import noise, support
from tests.observe import is_leaf, observe, seed

# Autograd's message names the node that it meets first, and ours are others; and a plan counts its writes as one.
NODE = re.compile(
    r"modified by an inplace operation: .*|Function \w+ returned an invalid gradient at index \d+",
    re.DOTALL,
)
OURS = (
    "frameloom",
    "Triggered internally",
    "Converting a tensor with requires_grad",
    "do not obey the gradient layout contract",
    "grad.sizes() = ",
)  # notices of ours, and warnings that come once


class Picture(observed.Picture):
    def _exception(self, value: BaseException) -> tuple[Any, ...]:
        parts = super()._exception(value)
        return tuple(NODE.sub("", p) if isinstance(p, str) else p for p in parts)


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
            with entered(modes), noise.applied():
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
        retained = [(t, t.grad) for t in {*found, *held} if t.retains_grad]
        lists = [(s, len(s)) for s in self.call.state or () if isinstance(s, list)]
        total: Any = 0
        try:
            for t in found:
                part = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
                weights = torch.linspace(-1, 1, part.numel(), dtype=torch.float64).to(part.device)
                weights *= 1 + support.off(part.dtype) * (weights * 16 % 2 - 1)
                total = total + (part.double() * weights.view(part.shape)).sum()
            with noise.applied():
                total.backward()
        except RuntimeError as error:
            # How far it came is up to autograd.
            for t in held + self.leaves:
                if is_leaf(t):
                    t.grad = None
            for t, was in before:
                if not torch.equal(t, was):
                    t.data.copy_(was)
            for t, was in retained:  # one that `unsqueeze_` gave another shape cannot be put back
                t.grad = was if was is None or was.shape == t.shape else None
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
