"""Compiles Triton sources to cubins: in worker processes (triton_pool.py), each content once (cache.py).

    cubins = build(sources, 90)            # for pointers and sizes that are multiples of 16
    building = Building(90)                # while sources are written: add(source), ..., result(sources)
    unaligned(source, 90)                  # the same kernel for any pointers and sizes; rarely needed

A source has `text`, `symbol`, `signature`, `warps`, `stages` and `debug`.  The signature has the type of each
parameter; "i32?" is a size that is a multiple of 16 if the pointers are, "i32!" one that always is.  Nothing
is loaded here.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter  # by name: the program may replace the functions of `time`
from typing import Any, Protocol

import torch

from frameloom.debug import log
from frameloom.runtime.build.cache import DiskCache, digest, shared_cache
from frameloom.runtime.build.triton_pool import Round, shared_pool, triton_identity


class Source(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def symbol(self) -> str: ...
    @property
    def signature(self) -> tuple[str, ...]: ...
    @property
    def warps(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def debug(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of one kernel.  It needs `shared` bytes of shared memory per block.  `extra` null pointers
    follow the parameters of the source (for scratch memory, which our kernels do not need)."""

    data: bytes
    symbol: str
    shared: int
    extra: int
    threads: int


def prewarm(kernels: int = 0) -> None:
    """Starts worker processes that import Triton, if this process uses CUDA: a compile will follow soon.
    `kernels`: about how many there will be, if known."""
    if torch.cuda.is_initialized():
        major, minor = torch.cuda.get_device_capability()
        shared_pool().prewarm(10 * major + minor, kernels)


def first_time(work: str, cache: DiskCache | None = None) -> bool:
    """Whether `work`, a text that describes what is compiled, may need kernels that are not in the cache:
    True once for each text."""
    cache, key = cache or shared_cache(), digest("work", work, _identity())
    if cache.get(key, ".seen") is not None:
        return False
    cache.put(key, ".seen", b"")
    return True


def build(
    sources: Sequence[Source], arch: int, aligned: bool = True, cache: DiskCache | None = None
) -> list[Cubin]:
    """Returns a cubin per source; raises KernelError with Triton's message."""
    return Building(arch, aligned, cache).result(sources)


def try_build(
    sources: Sequence[Source], arch: int, cache: DiskCache | None = None
) -> list[Cubin | None]:
    """Returns a cubin per source, or None for a source that Triton rejects."""
    return Building(arch, cache=cache, tolerant=True).accepted(sources)


class Building:
    """Compiles sources, also while more of them are generated.  `tolerant`: Triton may reject some."""

    def __init__(
        self,
        arch: int,
        aligned: bool = True,
        cache: DiskCache | None = None,
        tolerant: bool = False,
    ) -> None:
        self._arch, self._aligned, self._tolerant = arch, aligned, tolerant
        self._cache = cache or shared_cache()
        self._keys: dict[Source, str] = {}
        self._cubins: dict[str, bytes | None] = {}
        self._requested: list[str] = []
        self._round: Round | None = None

    def add(self, source: Source, now: bool = True) -> None:
        """Adds a source; with `now`, an idle process starts to compile it if it is not in the cache."""
        request = _request(source, self._arch, self._aligned)
        key = self._keys[source] = digest("cubin", json.dumps(request, sort_keys=True), _identity())
        if key in self._cubins:
            return
        self._cubins[key] = self._cache.get(key, ".cubin")
        log("cache", f"{key}: {'found' if self._cubins[key] else 'not in the cache'}")
        if not self._cubins[key]:
            self._requested.append(key)
            if self._round is None:
                self._round = shared_pool().round(self._tolerant)
            self._round.add(request, now)

    def result(self, sources: Sequence[Source]) -> list[Cubin]:
        """Returns a cubin per source; adds those that were not added before.  Raises KernelError with
        Triton's message."""
        return [cubin for cubin in self.accepted(sources) if cubin is not None]

    def accepted(self, sources: Sequence[Source]) -> list[Cubin | None]:
        """Like `result`; None for a source that Triton rejects."""
        for source in sources:
            if source not in self._keys:
                self.add(source, now=False)
        if self._round is not None:
            started = perf_counter()
            for key, (metadata, data) in zip(self._requested, self._round.finish(), strict=True):
                if "error" not in metadata:
                    packed = self._cubins[key] = _packed(metadata, data)
                    self._cache.put(key, ".cubin", packed)
            seconds = perf_counter() - started
            log(
                "cache",
                f"waited {1e3 * seconds:.0f} ms for {len(self._requested)} Triton kernel(s)",
            )
            self._round = None
        packed_cubins = [self._cubins[self._keys[s]] for s in sources]
        return [_unpacked(packed) if packed else None for packed in packed_cubins]

    def go_on(self) -> int:
        """Gives work to idle processes; returns how many sources are not compiled yet."""
        if self._round is None:
            return 0
        self._round.go_on()
        return self._round.unanswered

    def close(self) -> None:
        """Stops: the result is not needed."""
        if self._round is not None:
            self._round.close()
            self._round = None


def unaligned(source: Source, arch: int) -> Cubin:
    """Returns the kernel for pointers of any alignment, and any sizes."""
    return build([source], arch, aligned=False)[0]


_identity = functools.cache(triton_identity)


def _request(source: Source, arch: int, aligned: bool) -> dict[str, Any]:
    return {
        "text": _code(source.text),
        "symbol": source.symbol,
        "signature": list(source.signature),
        "aligned": aligned,
        "warps": source.warps,
        "stages": source.stages,
        "debug": source.debug,
        "arch": arch,
    }


def _code(text: str) -> str:
    """Returns the text without comments: they name lines of the program, which do not change the machine
    code."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith("#"))


def _packed(metadata: dict[str, Any], data: bytes) -> bytes:
    head = json.dumps(metadata).encode()
    return struct.pack("<I", len(head)) + head + data


def _unpacked(entry: bytes) -> Cubin:
    (size,) = struct.unpack("<I", entry[:4])
    return Cubin(data=entry[4 + size :], **json.loads(entry[4 : 4 + size]))
