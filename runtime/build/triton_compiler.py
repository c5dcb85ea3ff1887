"""Compiles Triton sources to cubins: in worker processes (triton_pool.py), each content once (cache.py).

    cubins = build(sources, 90)            # for pointers and sizes that are multiples of 16
    building = Building(90)                # the same while sources are written: add(source), ..., result(sources)
    unaligned(source, 90)                  # the same kernel for any of them; wanted rarely, so compiled when wanted

A source has `text`, `symbol`, `signature`, `warps`, `stages` and `debug`.  The signature has the type of each parameter; "i32?" is a size that
is a multiple of 16 where the pointers are, "i32!" one that always is.  Nothing is loaded here.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter  # the program may replace them in their module
from typing import Any, Protocol

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
    """Machine code of one kernel.  `shared` bytes of memory a block; `extra` pointers that follow those of the source and
    are null (scratch memory that no kernel of ours needs)."""

    data: bytes
    symbol: str
    shared: int
    extra: int
    threads: int


def prewarm(kernels: int = 0) -> None:
    """A compile is near, of about so many kernels if that is known: where this process uses CUDA, Triton is imported meanwhile, in other
    processes."""
    import torch

    if torch.cuda.is_initialized():
        major, minor = torch.cuda.get_device_capability()
        shared_pool().prewarm(10 * major + minor, kernels)


def first_time(work: str, cache: DiskCache | None = None) -> bool:
    """Whether kernels that are not in the cache may be needed for `work`, a text that says what is compiled: True once for each."""
    cache, key = cache or shared_cache(), digest("work", work, _identity())
    if cache.get(key, ".seen") is not None:
        return False
    cache.put(key, ".seen", b"")
    return True


def build(
    sources: Sequence[Source], arch: int, aligned: bool = True, cache: DiskCache | None = None
) -> list[Cubin]:
    """A cubin per source; KernelError with Triton's words."""
    return [c for c in _build(sources, arch, aligned, cache, False) if c is not None]


def try_build(
    sources: Sequence[Source], arch: int, cache: DiskCache | None = None
) -> list[Cubin | None]:
    """The same, with None for what Triton refuses."""
    return _build(sources, arch, True, cache, True)


def _build(
    sources: Sequence[Source], arch: int, aligned: bool, cache: DiskCache | None, tolerant: bool
) -> list[Cubin | None]:
    cache = cache or shared_cache()
    requests = [_request(s, arch, aligned) for s in sources]
    keys = [_key(r) for r in requests]
    found = {k: _looked_up(cache, k) for k in dict.fromkeys(keys)}
    missing = {k: r for k, r in zip(keys, requests, strict=True) if not found[k]}
    if missing:
        started = perf_counter()
        answers = shared_pool().compile(list(missing.values()), tolerant)
        for k, (facts, data) in zip(missing, answers, strict=True):
            if "error" in facts:
                continue
            found[k] = _kept(cache, k, facts, data)
        seconds = perf_counter() - started
        log("cache", f"compiled {len(missing)} Triton kernel(s) in {1e3 * seconds:.0f} ms")
    return [_unpacked(found[k]) if found[k] else None for k in keys]


class Building:
    """Sources that are compiled while more of them are written."""

    def __init__(self, arch: int, cache: DiskCache | None = None) -> None:
        self.arch = arch
        self._cache = cache or shared_cache()
        self._keys: dict[Source, str] = {}
        self._found: dict[str, Any] = {}
        self._asked: list[str] = []
        self._round: Round | None = None

    def add(self, source: Source) -> None:
        """Its compile begins, if it never was compiled before."""
        request = _request(source, self.arch, True)
        key = self._keys[source] = _key(request)
        if key in self._found:
            return
        self._found[key] = _looked_up(self._cache, key)
        if not self._found[key]:
            self._asked.append(key)
            if self._round is None:
                self._round = shared_pool().round()
            self._round.add(request)

    def result(self, sources: Sequence[Source]) -> list[Cubin]:
        """A cubin per source; those that were not added are, now.  KernelError with Triton's words."""
        for source in sources:
            if source not in self._keys:
                self.add(source)
        if self._round is not None:
            started = perf_counter()
            for key, answer in zip(self._asked, self._round.finish(), strict=True):
                self._found[key] = _kept(self._cache, key, *answer)
            seconds = perf_counter() - started
            log("cache", f"waited {1e3 * seconds:.0f} ms for {len(self._asked)} Triton kernel(s)")
            self._round = None
        return [_unpacked(self._found[self._keys[s]]) for s in sources]

    def go_on(self) -> int:
        """Keeps the processes busy; how many sources they still have to do."""
        if self._round is None:
            return 0
        self._round.go_on()
        return self._round.unanswered

    def close(self) -> None:
        """Nobody will ask for the result."""
        if self._round is not None:
            self._round.close()
            self._round = None


def unaligned(source: Source, arch: int) -> Cubin:
    """The kernel for pointers of any alignment, and any sizes."""
    return build([source], arch, aligned=False)[0]


_identity = functools.cache(triton_identity)


def _key(request: dict[str, Any]) -> str:
    return digest("cubin", json.dumps(request, sort_keys=True), _identity())


def _looked_up(cache: DiskCache, key: str) -> bytes | None:
    found = cache.get(key, ".cubin")
    log("cache", f"{key}: {'found' if found else 'not in the cache'}")
    return found


def _kept(cache: DiskCache, key: str, facts: dict[str, Any], data: bytes) -> bytes:
    packed = _packed(facts, data)
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
    """Without comments, which tell where in the program a kernel comes from: lines that move there change no machine code."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith("#"))


def _packed(facts: dict[str, Any], data: bytes) -> bytes:
    head = json.dumps(facts).encode()
    return struct.pack("<I", len(head)) + head + data


def _unpacked(entry: Any) -> Cubin:
    (size,) = struct.unpack("<I", entry[:4])
    return Cubin(data=entry[4 + size :], **json.loads(entry[4 : 4 + size]))
