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
    return [c for c in _build(sources, arch, aligned, cache, False) if c is not None]


def try_build(
    sources: Sequence[Source], arch: int, cache: DiskCache | None = None
) -> list[Cubin | None]:
    """Returns a cubin per source, or None for a source that Triton rejects."""
    return _build(sources, arch, True, cache, True)


def _build(
    sources: Sequence[Source], arch: int, aligned: bool, cache: DiskCache | None, tolerant: bool
) -> list[Cubin | None]:
    cache = cache or shared_cache()
    requests = [_request(s, arch, aligned) for s in sources]
    keys = [_key(r) for r in requests]
    cubins = {k: _looked_up(cache, k) for k in dict.fromkeys(keys)}
    missing = {k: r for k, r in zip(keys, requests, strict=True) if not cubins[k]}
    if missing:
        started = perf_counter()
        answers = shared_pool().compile(list(missing.values()), tolerant)
        for k, (metadata, data) in zip(missing, answers, strict=True):
            if "error" in metadata:
                continue
            cubins[k] = _store(cache, k, metadata, data)
        seconds = perf_counter() - started
        log("cache", f"compiled {len(missing)} Triton kernel(s) in {1e3 * seconds:.0f} ms")
    return [_unpacked(cubins[k]) if cubins[k] else None for k in keys]


class Building:
    """Compiles sources while more of them are generated."""

    def __init__(self, arch: int, cache: DiskCache | None = None) -> None:
        self.arch = arch
        self._cache = cache or shared_cache()
        self._keys: dict[Source, str] = {}
        self._cubins: dict[str, Any] = {}
        self._requested: list[str] = []
        self._round: Round | None = None

    def add(self, source: Source) -> None:
        """Starts to compile a source if it is not in the cache."""
        request = _request(source, self.arch, True)
        key = self._keys[source] = _key(request)
        if key in self._cubins:
            return
        self._cubins[key] = _looked_up(self._cache, key)
        if not self._cubins[key]:
            self._requested.append(key)
            if self._round is None:
                self._round = shared_pool().round()
            self._round.add(request)

    def result(self, sources: Sequence[Source]) -> list[Cubin]:
        """Returns a cubin per source; adds those that were not added before.  Raises KernelError with
        Triton's message."""
        for source in sources:
            if source not in self._keys:
                self.add(source)
        if self._round is not None:
            started = perf_counter()
            for key, answer in zip(self._requested, self._round.finish(), strict=True):
                self._cubins[key] = _store(self._cache, key, *answer)
            seconds = perf_counter() - started
            log(
                "cache",
                f"waited {1e3 * seconds:.0f} ms for {len(self._requested)} Triton kernel(s)",
            )
            self._round = None
        return [_unpacked(self._cubins[self._keys[s]]) for s in sources]

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


def _key(request: dict[str, Any]) -> str:
    return digest("cubin", json.dumps(request, sort_keys=True), _identity())


def _looked_up(cache: DiskCache, key: str) -> bytes | None:
    data = cache.get(key, ".cubin")
    log("cache", f"{key}: {'found' if data else 'not in the cache'}")
    return data


def _store(cache: DiskCache, key: str, metadata: dict[str, Any], data: bytes) -> bytes:
    packed = _packed(metadata, data)
    cache.put(key, ".cubin", packed)
    return packed


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


def _unpacked(entry: Any) -> Cubin:
    (size,) = struct.unpack("<I", entry[:4])
    return Cubin(data=entry[4 + size :], **json.loads(entry[4 : 4 + size]))
