"""mode="reduce-overhead": calls of a plan replay a CUDA graph of its GPU work.

A graph works at the addresses with which it was recorded.  So:
- Before a replay, an input whose address has changed is copied to a tensor that belongs to the graph.  Inputs
  that keep their address (weights, inputs that the program writes to) are read and written in place; when
  they have moved, the graph is recorded again.
- After a replay, results are copied to fresh tensors: a result belongs to the caller, and later calls do not
  change it.

If a replay is not safe, the plan itself runs: replayable.py decides this for a program before it is recorded,
and `Replayed` for each call.  Only `CudaDevice` calls CUDA.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from frameloom.backend.replayable import device_of, reason_against
from frameloom.collector import collector_off
from frameloom.debug import log, notice
from frameloom.ir.program import Program, View

COPIED = 2 << 20  # to copy so many bytes takes the GPU as long as one launch takes the CPU
RECORDINGS = 5  # after so many recordings of a plan, its calls are no longer replayed


_SETTINGS = [
    (getattr(torch._C, name), names)
    for name, *names in [
        ("_get_fp32_precision_getter", "cuda", "matmul"), ("_get_fp32_precision_getter", "cuda", "conv"),
        ("_get_float32_matmul_precision",), ("_get_cublas_allow_tf32",), ("_get_cudnn_allow_tf32",),
        ("_get_cublas_allow_fp16_reduced_precision_reduction",), ("_get_cublas_allow_fp16_accumulation",),
        ("_get_cublas_allow_bf16_reduced_precision_reduction",), ("_get_blas_preferred_backend",),
        ("_get_cudnn_enabled",), ("_get_cudnn_benchmark",), ("_get_cudnn_deterministic",),
        ("_get_deterministic_algorithms",),
    ]
    if hasattr(torch._C, name)  # some versions of PyTorch lack some
]  # fmt: skip


def _read_setting(getter: Callable[..., Any], names: Sequence[str]) -> Any:
    try:
        return getter(*names)
    except RuntimeError:  # an older getter raises if the setting was made with a newer name
        return None


class CudaDevice:
    """Records and replays graphs on one GPU."""

    def __init__(self, index: int) -> None:
        self.index = index

    def stream(self) -> int | None:
        """Returns the current stream; None while it is being recorded."""
        if torch.cuda.is_current_stream_capturing():
            return None
        stream: int = torch._C._cuda_getCurrentRawStream(self.index)
        return stream

    def settings(self) -> tuple[Any, ...]:
        """Returns the settings that a library call reads, and a replay does not read again."""
        return tuple(_read_setting(getter, names) for getter, names in _SETTINGS)

    def record(
        self, plan: Callable[..., Any], inputs: Sequence[torch.Tensor]
    ) -> tuple[Callable[[], None], Sequence[Any]]:
        """Records `plan(*inputs)` without running it.  Returns a function that replays the graph, and the
        tensors to which it writes its results."""
        # Without the collector: it may free an unrelated CUDA object, and that would break the recording.
        with torch.cuda.device(self.index), collector_off():
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            # cuBLAS has a workspace per stream: the recording gets one of its own, which nothing else uses
            # later.
            forget_workspaces = torch._C._cuda_clearCublasWorkspaces
            forget_workspaces()
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    outputs = plan(*inputs)
                except BaseException:
                    with contextlib.suppress(RuntimeError):
                        graph.capture_end()
                    raise
                finally:
                    forget_workspaces()
                graph.capture_end()
        return graph.replay, outputs


class Unfit(Exception):
    """The plan cannot be replayed after all; the message says why."""


@dataclass(frozen=True)
class Recording:
    """`places` has the graph's own tensor for each input that is copied, `fixed` the address of each other
    input."""

    replay: Callable[[], None]
    stream: int
    settings: tuple[Any, ...]
    places: dict[int, torch.Tensor]
    fixed: dict[int, int]
    outputs: dict[int, torch.Tensor]  # those that are copied after a replay


class Replayed:
    """Replaces the plan in calls, and replays a CUDA graph of it where that is safe.

    `outputs` are those of the program.  `versions` maps positions of inputs that are written to the increment
    of their version.  `lasting` are positions of inputs that are expected to keep their address.
    """

    def __init__(
        self,
        plan: Callable[..., Any],
        outputs: Sequence[Any],
        versions: Mapping[int, int],
        lasting: Sequence[int],
        steps: int,
        device: Any,
    ) -> None:
        self.plan = plan
        self.replays = 0
        self._outputs = outputs
        self._versions = versions
        self._in_place = frozenset((*versions, *lasting))
        self._limit = COPIED * steps
        self._device = device
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._recorded = 0
        self._copied: set[int] = set()
        self._seen: list[int] | None = None  # addresses in the first call
        self._given_up = False

    def __call__(self, *inputs: Any) -> Any:
        # Two calls at once would share the graph's tensors for inputs.
        if self._given_up or not self._lock.acquire(blocking=False):
            return self.plan(*inputs)
        try:
            recording = self._recording_for(inputs)
            if recording is not None:
                return self._replay(recording, inputs)
        finally:
            self._lock.release()
        return self.plan(*inputs)

    def _recording_for(self, inputs: Sequence[torch.Tensor]) -> Recording | None:
        """Returns a recording that fits this call; None if the plan must run."""
        stream = self._device.stream()
        if stream is None:
            return None
        addresses = [t.data_ptr() for t in inputs]
        if self._seen is None:  # the first call is not recorded: libraries initialize in it
            self._seen = addresses
            return None
        recording = self._recording
        if recording is not None and recording.stream != stream:
            return None  # it may be running on the other stream
        moved = recording is None
        if recording is not None:
            moved = recording.settings != self._device.settings()
            for i, address in recording.fixed.items():
                moved = moved or addresses[i] != address
        if moved and not self._record(inputs, addresses, stream):
            return None
        return None if self._overlap(inputs) else self._recording

    def _overlap(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether an input that is copied shares memory with one that is written."""
        if not self._versions or not self._copied:
            return False
        written = {inputs[i].untyped_storage().data_ptr() for i in self._versions}
        return any(inputs[i].untyped_storage().data_ptr() in written for i in self._copied)

    def _record(
        self, inputs: Sequence[torch.Tensor], addresses: Sequence[int], stream: int
    ) -> bool:
        before = self._recording.fixed if self._recording else dict(enumerate(self._seen or ()))
        self._recording = None  # its memory is free for the next
        for i, address in before.items():
            if addresses[i] != address and i not in self._in_place:
                self._copied.add(i)
        if self._recorded == RECORDINGS:
            text = (
                'mode="reduce-overhead": inputs that a CUDA graph uses in place, or settings, changed '
                f"{RECORDINGS} times, so that calls are launched anew each time"
            )
            notice("cuda graphs", text)
            return self._give_up("it had to be recorded too often")
        self._recorded += 1
        try:
            self._recording = self._recorded_for(inputs, addresses, stream)
        except Unfit as unfit:
            return self._give_up(str(unfit))
        except RuntimeError as error:
            return self._give_up(f"recording it failed: {error}")
        return True

    def _recorded_for(
        self, inputs: Sequence[torch.Tensor], addresses: Sequence[int], stream: int
    ) -> Recording:
        with torch.inference_mode(False), torch.no_grad():
            places = {i: _place(inputs[i]) for i in self._copied}
        # A recording computes nothing, so it must not change versions: `data` has a version of its own.
        given = [places.get(i, t.data) for i, t in enumerate(inputs)]
        settings = self._device.settings()
        replay, results = self._device.record(self.plan, given)
        outputs = {k: results[k] for k, how in enumerate(self._outputs) if isinstance(how, View)}
        foreign = {t.untyped_storage().data_ptr() for t in given}
        for t in outputs.values():
            if not _dense(t) or t.untyped_storage().data_ptr() in foreign:
                raise Unfit("a result is a part of other memory")
        copies = [*places.values(), *outputs.values()]
        if sum(t.numel() * t.element_size() for t in copies) > self._limit:
            raise Unfit("copying its inputs and results takes longer than launches do")
        fixed = {i: a for i, a in enumerate(addresses) if i not in self._copied}
        return Recording(replay, stream, settings, places, fixed, outputs)

    def _give_up(self, reason: str) -> bool:
        log("graph", f"not replayed as a CUDA graph: {reason}")
        self._given_up, self._recording = True, None
        return False

    def _replay(self, recording: Recording, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        self.replays += 1
        with torch.no_grad():
            if recording.places:
                sources = [inputs[i] for i in recording.places]
                torch._foreach_copy_(list(recording.places.values()), sources)
            recording.replay()
            fresh = [_like(t) for t in recording.outputs.values()]
            if fresh:
                torch._foreach_copy_(fresh, list(recording.outputs.values()))
        for i, count in self._versions.items():
            if not inputs[i].is_inference():
                torch._C._increment_version([inputs[i]] * count)
        copies = dict(zip(recording.outputs, fresh, strict=True))
        return tuple(
            inputs[how] if isinstance(how, int) else how[0] if isinstance(how, tuple) else copies[k]
            for k, how in enumerate(self._outputs)
        )


def _dense(t: torch.Tensor) -> bool:
    """Whether its elements fill the memory from the first to the last one without gaps and overlaps."""
    reach = 1 + sum((e - 1) * s for e, s in zip(t.shape, t.stride(), strict=True))
    return t.numel() == reach and t.numel() > 0


def _like(t: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)


def _place(t: torch.Tensor) -> torch.Tensor:
    """Returns an uninitialized tensor with the same layout as an input."""
    if not _dense(t) or t.is_complex() or t.is_neg():
        raise Unfit("an input that moves has gaps, or more to it than its memory")
    return _like(t)


def replayed(plan: Any, program: Program, captured: Any) -> Any:
    """Returns `plan` wrapped so that calls replay a CUDA graph, or `plan` itself if that is not safe."""
    reason = reason_against(program)
    if reason is not None:
        log("graph", f"not replayed as a CUDA graph: {reason}")
        return plan
    lasting = [i for i, t in enumerate(captured.examples) if isinstance(t, torch.nn.Parameter)]
    device = CudaDevice(torch.device(device_of(program)).index)
    return Replayed(plan, program.outputs, captured.versions, lasting, len(program.steps), device)
