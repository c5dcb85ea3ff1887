"""What the names in a plan's specification stand for in this process: addresses, handles, functions, tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from frameloom.capture.autograd.custom_function import copied
from frameloom.codegen.cpp.module import SourceFile
from frameloom.codegen.triton.chip import chip_of
from frameloom.codegen.triton.launch import LaunchSource
from frameloom.ir.library import CALLS, LAZY, overload
from frameloom.ir.program import Buffer
from frameloom.runtime import _runtime
from frameloom.runtime.build.launch import load
from frameloom.runtime.build.triton_compiler import Cubin, build, unaligned
from frameloom.runtime.spec import Name

COPIED = "frameloom.copied"
INCREMENT_VERSION = "frameloom.increment_version"
_EXCEPTIONS = {"IndexError": IndexError, "RuntimeError": RuntimeError, "ValueError": ValueError}


@dataclass(frozen=True, slots=True)
class Built:
    """The kernels of a program: C++ sources with their loaded libraries, Triton sources with their cubins and
    device."""

    libraries: Sequence[tuple[SourceFile, Any]] = ()
    cubins: Sequence[tuple[LaunchSource, Cubin, str]] = ()


class PlanObjects:
    """Looks up names.  Kinds: "symbol" (library, symbol), the address of a C++ kernel; "library", its number;
    "cubin", "unaligned", "longer" (number): a loaded GPU function, or one that loads its general form; "op"
    (target), an op of PyTorch; "own" (target), a function of ours; "generator" (device index, method);
    "exception", a builtin; "lazy" (bit of a view); "constant" (number), a tensor; "hook" (field of PlanSpec).
    """

    def __init__(self, built: Built, constants: Mapping[Buffer, torch.Tensor]) -> None:
        self._built = built
        self._constants: list[torch.Tensor] = list(constants.values())
        self._number_of = {buffer: k for k, buffer in enumerate(constants)}
        self._hooks: dict[str, Any] = {}

    def constant(self, buffer: Buffer) -> Name | None:
        """Returns the name of a constant of the program; None for any other buffer."""
        k = self._number_of.get(buffer)
        return None if k is None else Name("constant", k)

    def add_constant(self, tensor: torch.Tensor) -> Name:
        self._constants.append(tensor)
        return Name("constant", len(self._constants) - 1)

    def hook(self, field: str, function: Any) -> Name | None:
        """Returns the name of what the plan calls for `field` of its specification; None for None."""
        if function is None:
            return None
        self._hooks[field] = function
        return Name("hook", field)

    def __call__(self, name: Name) -> Any:
        return getattr(self, f"_{name.kind}")(name.key)

    def _hook(self, field: str) -> Any:
        return self._hooks[field]

    def _constant(self, number: int) -> torch.Tensor:
        return self._constants[number]

    def _library(self, number: int) -> Any:
        return self._built.libraries[number][1]

    def _symbol(self, key: tuple[int, str]) -> int:
        address: int = _runtime.symbol(self._library(key[0]), key[1])
        return address

    def _cubin(self, number: int) -> int:
        _, cubin, device = self._built.cubins[number]
        return load(cubin, torch.device(device).index)

    def _unaligned(self, number: int) -> Callable[[], int]:
        source, _, device = self._built.cubins[number]
        return partial(_load_general, source, torch.device(device).index, aligned=False)

    def _longer(self, number: int) -> Callable[[], int]:
        source, _, device = self._built.cubins[number]
        return partial(_load_general, source, torch.device(device).index, aligned=True)

    def _op(self, target: str) -> Callable[..., Any]:
        return overload(target)  # type: ignore[no-any-return]

    def _own(self, target: str) -> Callable[..., Any]:
        if target == COPIED:
            return copied
        function: Callable[..., Any] = (
            torch._C._increment_version if target == INCREMENT_VERSION else CALLS[target]
        )
        return function

    def _generator(self, key: tuple[int, str]) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(torch.cuda.default_generators[key[0]], key[1])
        return method

    def _exception(self, name: str) -> type[Exception]:
        return _EXCEPTIONS[name]

    def _lazy(self, bit: str) -> Callable[[Any], Any]:
        view: Callable[[Any], Any] = LAZY[bit]
        return view


def _load_general(source: LaunchSource, device: int, aligned: bool) -> int:
    """Loads the kernel for any sizes; with `aligned`, pointers must be multiples of 16."""
    if source.general:
        source = replace(source, text=source.general)
    arch = chip_of(f"cuda:{device}").arch
    return load(build([source], arch)[0] if aligned else unaligned(source, arch), device)
