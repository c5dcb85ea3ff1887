"""Decides which convolutions get channels-last tensors, and the layout of results around them.

The fast kernels of cuDNN for 16-bit types and TF32, and those of oneDNN, need channels-last tensors.  For
other layouts they convert input, weight and result around every convolution, which often costs more than the
convolution.  If it pays for a whole graph, its convolutions get channels-last tensors, and the results of our
own kernels between them get the same layout, because the layout of intermediates is free.  Tensors that the
program sees keep eager's strides (driver.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from frameloom.ir.lower.geometry import same_places
from frameloom.ir.lower.table import Ref, product
from frameloom.ir.program import is_cuda
from frameloom.ir.symbolic.expr import hint_of, is_size

CONVOLUTION = "aten.convolution.default"
BACKWARD = "aten.convolution_backward.default"
ACTUAL_STRIDES = "laid"  # key in a placeholder's meta: the actual strides of the tensor
# Library calls on a channels-last tensor whose results are channels last, too.
LAYOUT_PRESERVING = frozenset(
    f"aten.{name}.default"
    for name in (
        "max_pool2d_with_indices", "avg_pool2d", "upsample_nearest2d", "upsample_bilinear2d",
    )
)  # fmt: skip
# Views that state their own strides, whatever the strides of their base.
EXPLICIT_STRIDES = frozenset({"aten.as_strided.default", "aten._reshape_alias.default"})
MIN_BYTES = 1 << 20  # with fewer bytes to convert, other strides do not pay
# Bytes of a convolution's input and result on the CPU: PyTorch has special code for smaller ones.
MIN_TENSOR_BYTES = 1 << 16
PRODUCT = "aten.mm.default"
products = True  # whether convolutions that are matrix products are called as such
everywhere = False  # for tests: on every device, at any cost


class RestridedTensor:
    """A tensor's geometry (a node's `meta["val"]`) with other strides."""

    def __init__(self, val: Any, strides: Sequence[int]) -> None:
        self.shape, self.dtype, self.device = val.shape, val.dtype, val.device
        self._strides = tuple(strides)

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def storage_offset(self) -> int:
        return 0


def chosen(nodes: Iterable[torch.fx.Node], onednn: bool) -> frozenset[torch.fx.Node]:
    """Returns the convolutions that get channels-last tensors.  `onednn`: whether oneDNN computes those on
    the CPU."""
    convolutions = [
        n for n in nodes if str(n.target) in (CONVOLUTION, BACKWARD) and _is_candidate(n, onednn)
    ]
    if not convolutions or everywhere:
        return frozenset(convolutions)
    on_cpu = [n for n in convolutions if not is_cuda(str(_operands(n)[0].meta["val"].device))]
    return _chosen_on_cpu(on_cpu) | _chosen_on_gpu([n for n in convolutions if n not in on_cpu])


def _chosen_on_cpu(convolutions: Sequence[torch.fx.Node]) -> frozenset[torch.fx.Node]:
    """Chooses on the CPU.  oneDNN converts input and result of each convolution that is not channels last,
    and the weight in any case.  With channels-last tensors the weight is converted before the call (a
    constant one when it is packed).  So a convolution is chosen if its input and result are larger than the
    weight that has to be converted."""
    selected, moved = [], 0
    for node in convolutions:
        x, weight = (n.meta["val"] for n in node.args[:2])  # type: ignore[union-attr]
        around = _bytes(x) + _bytes(node.meta["val"])
        is_packed = node.args[1].op == "get_attr"  # type: ignore[union-attr]
        free = is_packed or is_dense_channels_last(weight.shape, weight.stride())
        converted = 0 if free else _bytes(weight)
        if around >= max(MIN_TENSOR_BYTES, converted):
            selected.append(node)
            moved += 2 * around
    return frozenset(selected if moved >= MIN_BYTES else ())


def _chosen_on_gpu(convolutions: Sequence[torch.fx.Node]) -> frozenset[torch.fx.Node]:
    """Chooses on a GPU: all of the convolutions, or none."""
    saved = cost = 0
    converted: set[Any] = set()
    for node in convolutions:
        x, weight, result = _operands(node)
        around = [x, result]
        if str(node.target) == BACKWARD and (x_gradient := node.meta["val"][0]) is not None:
            saved += 2 * _bytes(x_gradient)
        for source in around:
            val = source.meta["val"]
            saved += 0 if is_channels_last(val.shape, _strides(source)) else 2 * _bytes(val)
        for source in (x, weight):
            val = source.meta["val"]
            given = source is weight or source.op == "placeholder"
            if (
                given
                and source not in converted
                and not is_dense_channels_last(val.shape, _strides(source))
            ):
                converted.add(source)
                cost += 2 * _bytes(val)
    # Weights are converted in either layout: by cuDNN or by a kernel of ours.
    return frozenset(convolutions if saved >= max(MIN_BYTES, cost) else ())


def _operands(node: torch.fx.Node) -> tuple[Any, Any, Any]:
    """Returns input, weight, and the tensor with the geometry of the result (in a backward op: its
    gradient)."""
    if str(node.target) == BACKWARD:
        result, x, weight = node.args[:3]
        return x, weight, result
    return node.args[0], node.args[1], node


def _strides(node: torch.fx.Node) -> tuple[int, ...]:
    strides: tuple[int, ...] = node.meta.get(ACTUAL_STRIDES) or node.meta["val"].stride()
    return strides


def _is_candidate(node: torch.fx.Node, onednn: bool) -> bool:
    x, weight, result = (n.meta.get("val") for n in _operands(node))
    if any(v is None or len(v.shape) != 4 or 0 in v.shape for v in (x, weight, result)):
        return False
    if everywhere:
        return True
    if str(x.device) == "cpu":
        # oneDNN converts tensors for derivatives, too, but needs another layout for those of weights.
        is_forward = str(node.target) == CONVOLUTION
        return onednn and is_forward and x.dtype == torch.float32 and not node.args[6]
    if not is_cuda(str(x.device)) or not _cudnn():
        return False
    return x.dtype in (torch.float16, torch.bfloat16) or (x.dtype == torch.float32 and _tf32())


def _cudnn() -> bool:
    cudnn: Any = torch.backends.cudnn
    return bool(cudnn.is_available() and torch._C._get_cudnn_enabled())


def _tf32() -> bool:
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # the program used the newer names of this setting
        return False


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of a dense channels-last tensor."""
    _, channels, height, width = shape
    return (channels * height * width, 1, channels * width, channels)


def is_dense_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether every element has the same place as in a dense channels-last tensor."""
    return same_places(shape, strides, channels_last_strides(shape))


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether neighbours in memory are channels of one pixel (a slice of the channels counts as channels
    last, too)."""
    if len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1 or strides[1] != 1:
        return False
    pairs = zip(shape[2:], strides[2:], strict=True)
    return all(extent == 1 or stride >= shape[1] for extent, stride in pairs)


def as_product(x: Ref, weight: Ref, options: Sequence[Any]) -> tuple[Ref, Ref] | None:
    """Returns the matrices (pixels by channels) whose product is a convolution with one-pixel windows; None
    if there are none.  On the CPU the product takes a third of the time.  On a GPU this is done for 16-bit
    types, where products and convolutions round in the same way, and only if the rows suit the library's fast
    kernels."""
    stride, padding, _, transposed, _, groups = options
    single = weight.shape[2:] == (1, 1) and not transposed and groups == 1
    if not (products and single and set(stride) == {1} and set(padding) == {0}):
        return None
    out, channels = weight.shape[:2]
    tensor_cores = x.torch_dtype.itemsize == 2 and out % 8 == 0 and channels % 8 == 0
    if not everywhere and is_cuda(x.buffer.device) and not tensor_cores:
        return None
    pixels = product(x.shape) // channels
    left = replace(x, shape=(pixels, channels), strides=(channels, 1))
    return left, replace(weight, shape=(channels, out), strides=(1, channels))


def layout(val: Any, operands: Iterable[Any]) -> Any:
    """Returns the geometry for the result of our own kernel: channels last if an operand is, else `val`."""
    if len(val.shape) != 4 or 0 in val.shape or product(val.shape[2:]) == 1:
        return val
    if any(isinstance(r, Ref) and is_channels_last(r.shape, r.strides) for r in operands):
        return RestridedTensor(val, channels_last_strides(val.shape))
    return val


def replay_view(
    target: Any, base: Ref, arguments: Sequence[Any], options: dict[str, Any]
) -> tuple[Any, ...] | None:
    """Returns (shape, strides, offset) of a view of `base` in its actual layout, one for each view of the op;
    None if no view of it shows the elements of the program's view."""
    if str(target) in EXPLICIT_STRIDES or any(map(is_size, (*base.shape, *base.strides))):
        return None
    if str(target) == "aten._unsafe_view.default":
        target = torch.ops.aten.view.default
    meta = torch.empty_strided(base.shape, base.strides, dtype=base.torch_dtype, device="meta")
    try:
        result = target(meta, *arguments, **options)
    except RuntimeError:
        return None
    views = result if isinstance(result, (list, tuple)) else [result]
    if any(v.dtype != base.torch_dtype for v in views):
        return None
    return tuple(
        (tuple(v.shape), tuple(v.stride()), base.offset + int(v.storage_offset())) for v in views
    )


def _bytes(val: Any) -> int:
    size: int = val.dtype.itemsize
    return size * hint_of(product(val.shape))
