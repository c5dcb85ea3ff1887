"""Tensors with symbolic sizes: `SizedMeta` for shape inference, `SizedFake` for the recorded program.

Both report sizes as ints and Sizes (ir/symbolic/expr.py). A SizedFake also reports them to PyTorch's C++
code, as torch.SymInt. Only the rules of shapes/registry.py read a SizedMeta; any other computation with it
specializes its sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.tensors.fake import Fake
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import fits, same
from frameloom.ir.symbolic.expr import Int, Size, hint_of, largest, linear
from frameloom.ir.symbolic.symint import follows, has_ascending_strides


class Sized:
    """Overrides the methods by which a tensor reports its layout."""

    own_shape: tuple[Int, ...]
    own_strides: tuple[Int, ...]
    own_offset: Int

    def copy_layout(self, other: torch.Tensor) -> None:
        """Takes the layout of another tensor."""
        self.own_shape, self.own_strides = tuple(other.shape), tuple(other.stride())
        self.own_offset = other.storage_offset()

    @property
    def shape(self) -> tuple[Int, ...]:
        return torch.Size([n if type(n) is int else resolved(n) for n in self.own_shape])

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        strides = tuple([n if type(n) is int else resolved(n) for n in self.own_strides])
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> Int:
        return resolved(self.own_offset)

    def numel(self) -> Int:
        total: Int = 1
        for n in self.shape:
            total = total * n
        return total

    nelement = numel

    @property
    def nbytes(self) -> Int:
        return self.numel() * self.itemsize  # type: ignore[attr-defined]

    def __len__(self) -> Int:
        return self.shape[0]

    def is_contiguous(self, memory_format: Any = torch.contiguous_format) -> bool:
        rank = len(self.own_shape)
        order = _order(rank, memory_format)
        return len(order) == rank and follows(self.shape, self.stride(), order)


def _order(rank: int, memory_format: Any) -> Sequence[int]:
    """Returns the dimensions from the innermost to the outermost."""
    if memory_format is torch.channels_last:
        return (1, 3, 2, 0)
    if memory_format is torch.channels_last_3d:
        return (1, 4, 3, 2, 0)
    return range(rank - 1, -1, -1)


class SizedMeta(Sized, torch.Tensor):
    fake_class: Any  # the class of Fakes with such a meta tensor
    infer: Any  # infers the result of an op (shapes/registry.py)
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, shape: Sequence[Int], strides: Sequence[Int], dtype: torch.dtype, offset: Int = 0
    ) -> SizedMeta:
        meta: SizedMeta = torch.Tensor._make_wrapper_subclass(
            cls,
            [max(hint_of(n), 0) for n in shape],
            strides=[hint_of(n) for n in strides],
            storage_offset=hint_of(offset),
            dtype=dtype,
            device="meta",
        )
        meta.own_shape, meta.own_strides, meta.own_offset = tuple(shape), tuple(strides), offset
        return meta

    def contiguous(self, *, memory_format: Any = torch.contiguous_format) -> Any:
        if self.is_contiguous(memory_format):
            return self
        order = _order(len(self.own_shape), memory_format)
        return SizedMeta(self.shape, dense_strides(self.shape, order), self.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.infer(func, args, kwargs or {})


class SizedFake(Sized, Fake):
    """A Fake whose `meta` is a SizedMeta."""

    @classmethod
    def make(cls, meta: SizedMeta, device: torch.device, requires_grad: bool) -> Fake:
        plain = plain_if_static(meta)
        if not isinstance(plain, SizedMeta):
            return Fake(plain, device, requires_grad)
        shape, strides, offset = meta.shape, meta.stride(), meta.storage_offset()
        fake: SizedFake = torch.Tensor._make_wrapper_subclass(
            cls,
            list(shape),
            strides=list(strides),
            storage_offset=offset,
            dtype=meta.dtype,
            layout=torch.strided,
            device=device,
            requires_grad=requires_grad,
            storage_size=_extent(shape, strides, offset) * meta.dtype.itemsize,
        )
        fake.copy_layout(meta)
        fake.meta = meta
        fake.node = fake.memory = fake.view_of = None
        fake.version = 0
        return fake


SizedMeta.fake_class = SizedFake


def _extent(shape: Sequence[Int], strides: Sequence[Int], offset: Int) -> Int:
    """Returns the minimum number of elements of the storage. PyTorch would need many more steps to compute
    it."""
    shape_env = next(n.shape_env for n in (*shape, *strides, offset) if isinstance(n, Size))
    parts = [(n * s, 1) for n, s in zip(shape, strides, strict=True)] + [(s, -1) for s in strides]
    return linear(shape_env, ((offset, 1), (1, 1), *parts))


def resolved(n: Int) -> Int:
    return n.shape_env.resolved(n) if isinstance(n, Size) else n


def strides_of(shape: Sequence[Int]) -> list[Int]:
    """Returns the strides of a fresh tensor."""
    strides: list[Int] = []
    step: Int = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * _at_least_1(n)
    return strides[::-1]


def has_contiguous_strides(t: torch.Tensor) -> bool:
    """Whether `t` has the strides of a fresh tensor with elements, also in dimensions of size 1."""
    step: Int = 1
    for n, stride in zip(reversed(t.shape), reversed(t.stride()), strict=True):
        if stride is not step and not same(stride, step):
            return False
        step = step * (n if isinstance(n, Size) and not unbacked_in(n) else largest(n, 1))
    return True


def has_channels_last_strides(t: torch.Tensor) -> bool:
    """Whether PyTorch treats the strides as channels-last, as it does for some contiguous tensors with sizes
    of 1, too."""
    if t.dim() not in (4, 5) or has_contiguous_strides(t):
        return False
    return has_ascending_strides(t.shape, t.stride(), (1, *range(t.dim() - 1, 1, -1), 0))


def dense_strides(shape: Sequence[Int], order: Sequence[int]) -> tuple[Int, ...]:
    """Returns the strides of a fresh tensor with the dimensions in this order, from the innermost to the
    outermost."""
    strides: list[Int] = [0] * len(shape)
    step: Int = 1
    for d in order:
        strides[d] = step
        step = step * _at_least_1(shape[d])
    return tuple(strides)


def _at_least_1(n: Int) -> Int:
    return n.shape_env.nonzero_deferred(n) if isinstance(n, Size) else max(n, 1)


def assume_elements(*tensors: torch.Tensor) -> None:
    """Assumes that none of them is empty, as in the captured call: otherwise PyTorch chooses another
    kernel."""
    for t in tensors:
        for n in t.shape if isinstance(t, Sized) else ():
            if isinstance(n, Size):
                n.shape_env.assume_not_0(n)


def has_sizes(*numbers: Sequence[Int]) -> bool:
    for some in numbers:
        for n in some:
            if isinstance(n, Size):
                return True
    return False


def empty_strided(
    shape: Sequence[Int], strides: Sequence[Int], dtype: torch.dtype, offset: Int = 0
) -> torch.Tensor:
    """Returns a meta tensor, a SizedMeta if needed. A size that is 0 in the captured call is specialized."""
    if has_sizes(shape, strides, (offset,)):
        shape = [n if _is_possible(n) else int(n) for n in shape]
        if has_sizes(shape, strides, (offset,)):
            return SizedMeta(shape, strides, dtype, offset)
    return _plain(tuple(shape), tuple(strides), dtype, offset)


def _is_possible(n: Int) -> bool:
    return fits(0, n) if unbacked_in(n) else hint_of(n) > 0 and n >= 0


def plain_if_static(meta: torch.Tensor) -> torch.Tensor:
    """Returns a plain meta tensor if no size is symbolic any more."""
    if isinstance(meta, SizedMeta) and not has_sizes(
        meta.shape, meta.stride(), (meta.storage_offset(),)
    ):
        return specialized(meta)
    return meta


def specialized(meta: torch.Tensor) -> torch.Tensor:
    """Specializes its sizes: guards require their values."""
    if not isinstance(meta, SizedMeta):
        return meta
    shape, strides = [int(n) for n in meta.shape], [int(n) for n in meta.stride()]
    return _plain(tuple(shape), tuple(strides), meta.dtype, int(meta.storage_offset()))


def _plain(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, offset: int
) -> torch.Tensor:
    made = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return made.as_strided(shape, strides, offset) if offset else made
