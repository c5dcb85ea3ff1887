"""Random kernels against the interpreter: axes in any order, broadcast and strided loads, masks, divisions of
positions, reductions inside reductions, several stores."""

import random

import pytest
import torch

from frameloom.ir.dtype import DType
from frameloom.ir.index import floordiv, linear, mod
from frameloom.ir.node import Axis, Node, axis, binary, cast, const, index, load, unary, where
from frameloom.ir.ops import Op
from frameloom.ir.program import Store
from frameloom.ir.substitute import fold, space
from tests.codegen.kernels import check, out, tensor_in

EXTENTS = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 33, 64, 70]


class Maker:
    """One random kernel; every value stays small, so that errors do too."""

    most_folds = 4
    unary_ops = (Op.NEG, Op.ABS, Op.SIN, Op.TANH, Op.SIGMOID, Op.ERF, Op.FLOOR)

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.inputs: dict[str, torch.Tensor] = {}
        self.folds = 0

    def load(self, axes: list[Axis]) -> Node:
        """A tensor over some of the axes, in any memory order."""
        r = self.random
        chosen = [a for a in axes if r.random() < 0.75]
        r.shuffle(chosen)
        pad = r.choice([0, 0, 0, 3])
        strides, step = {}, 1
        for a in chosen:
            strides[a] = step
            step = step * a.extent + pad
        name = f"x{len(self.inputs)}"
        dtype = r.choice(
            [torch.float32] * 5 + [torch.float64, torch.int64, torch.bool, torch.bfloat16]
        )
        flat = torch.rand(step + 4) * 2 - 1
        flat = (
            torch.randint(-3, 4, (step + 4,))
            if dtype is torch.int64
            else flat > 0
            if dtype is torch.bool
            else flat.to(dtype)
        )
        self.inputs[name] = flat
        buffer = tensor_in(name, flat)
        offset = linear([axis(a) for a in chosen], [strides[a] for a in chosen], r.choice([0, 2]))
        mask = None
        if chosen and r.random() < 0.2:
            a = r.choice(chosen)
            mask = binary(r.choice([Op.LT, Op.GE]), axis(a), index(r.randrange(a.extent + 1)))
        return self.as_f32(load(buffer, offset, mask))

    def as_f32(self, n: Node) -> Node:
        return cast(DType.F32, n)

    def digit(self, axes: list[Axis]) -> Node:
        a = self.random.choice(axes)
        c = self.random.choice([2, 3, 4, 8])
        position = (floordiv if self.random.random() < 0.5 else mod)(axis(a), c)
        return binary(Op.MUL, cast(DType.F32, position), const(0.01, DType.F32))

    def simple(self, axes: list[Axis], depth: int, kind: float) -> Node | None:
        """A value of one other at most, as `kind` says, from 0 to 1; None from 0.6 on."""
        if depth == 0 or kind < 0.15:
            return self.load(axes)
        if kind < 0.2 and axes:
            return self.digit(axes)
        if kind < 0.45 and self.folds < self.most_folds:
            return self.fold(axes, depth)
        if kind < 0.6:
            return unary(self.random.choice(self.unary_ops), self.value(axes, depth - 1))
        return None

    def value(self, axes: list[Axis], depth: int) -> Node:
        r = self.random
        kind = r.random()
        if (simple := self.simple(axes, depth, kind)) is not None:
            return simple
        if kind < 0.7 and axes:
            a = r.choice(axes)
            test = binary(r.choice([Op.LT, Op.LE, Op.GT]), axis(a), index(r.randrange(a.extent)))
            return where(test, self.value(axes, depth - 1), self.value(axes, depth - 1))
        if kind < 0.78:
            a, b = self.value(axes, depth - 1), self.value(axes, depth - 1)
            return where(binary(Op.LT, a, b), a, const(0.5, DType.F32))
        return binary(
            r.choice([Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN]),
            self.value(axes, depth - 1),
            self.value(axes, depth - 1),
        )

    def fold(self, axes: list[Axis], depth: int) -> Node:
        r = self.random
        self.folds += 1
        used = [a for a in axes if r.random() < 0.6]
        own = [
            Axis(f"f{self.folds}_{k}", r.choice(EXTENTS[:10])) for k in range(r.choice([1, 1, 2]))
        ]
        inner = self.value(used + own, depth - 1)
        kind = r.choice(["sum", "sum", "max", "min", "argmax"])
        if kind == "sum":
            total = fold("sum", own, inner)
            count = 1
            for a in own:
                count *= a.extent
            return binary(Op.DIV, total, const(count, DType.F32))
        if kind == "argmax":
            # Rounding may not decide which is greatest.
            exact = unary(Op.FLOOR, binary(Op.MUL, self.load(used + own), const(4, DType.F32)))
            return binary(
                Op.MUL, cast(DType.F32, fold("argmax", own, exact)), const(0.01, DType.F32)
            )
        return fold(kind, own, inner)

    def stores(self) -> list[Store]:
        r = self.random
        extents = [r.choice(EXTENTS) for _ in range(r.choice([1, 2, 2, 3]))]
        result = []
        for k in range(r.choice([1, 1, 2])):
            shape = extents if r.random() < 0.8 else extents[: r.randrange(len(extents)) + 1]
            axes = space(shape)
            self.folds = 0
            o = out(f"o{k}", shape)
            value = self.value(list(axes), r.choice([2, 3, 4]))
            order = list(axes)
            result.append(Store(o, linear([axis(a) for a in order], o.strides), value, axes))
        return result


class SharingMaker(Maker):
    """Stores that share values, and reductions of all elements, one behind the other.  Rounding decides nothing."""

    most_folds = 6
    unary_ops = (Op.NEG, Op.ABS, Op.SIN, Op.TANH, Op.SIGMOID)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.known: list[tuple[set[Axis], Node]] = []
        self.extents: list[int] = []

    def value(self, axes: list[Axis], depth: int) -> Node:
        r = self.random
        shared = [n for over, n in self.known if over <= set(axes)]
        if shared and r.random() < 0.35:
            return r.choice(shared)
        if depth > 0 and r.random() < 0.15 and self.folds < 5:
            n, over = self.whole(depth), set()
        else:
            n, over = self.plain(axes, depth), set(axes)
        if depth > 0:
            self.known.append((over, n))
        return n

    def plain(self, axes: list[Axis], depth: int) -> Node:
        r = self.random
        kind = r.random()
        if (simple := self.simple(axes, depth, kind)) is not None:
            return simple
        a, b = self.value(axes, depth - 1), self.value(axes, depth - 1)
        if kind < 0.75 and axes:
            cut = r.choice(axes)
            test = binary(
                r.choice([Op.LT, Op.LE, Op.GT]), axis(cut), index(r.randrange(cut.extent))
            )
            return where(test, a, b)
        return binary(r.choice([Op.ADD, Op.SUB, Op.MAX, Op.MIN]), a, b)

    def whole(self, depth: int) -> Node:
        r = self.random
        self.folds += 1
        extents = self.extents if r.random() < 0.7 else [r.choice(EXTENTS[:8])]
        own = [Axis(f"w{self.folds}_{k}", e) for k, e in enumerate(extents)]
        return fold(r.choice(["max", "min"]), own, self.value(own, depth - 1))

    def stores(self) -> list[Store]:
        r = self.random
        self.extents = [r.choice(EXTENTS[:10]) for _ in range(r.choice([1, 2, 2, 3]))]
        result = []
        for k in range(r.choice([1, 2, 3, 4])):
            few = r.randrange(len(self.extents)) + 1
            axes = space(self.extents if r.random() < 0.7 else self.extents[:few])
            o = out(f"o{k}", [a.extent for a in axes])
            value = self.value(list(axes), r.choice([2, 3, 4]))
            offset = linear([axis(a) for a in axes], o.strides)
            result.append(Store(o, offset, value, axes))
        return result


# 70, 119, 185: merged axes in a loop of loops, positions met out of order, a condition that is never true.
@pytest.mark.parametrize("seed", [*range(12), 70, 119, 185])
def test_random_kernel(seed):
    maker = Maker(seed)
    stores = maker.stores()
    check(stores, maker.inputs, rtol=1e-4, atol=1e-4, name=f"random_{seed}")


# 278, 281: a reduction that loses an axis as its axes are renamed, more elements than lanes added one by one.
@pytest.mark.parametrize("seed", [*range(12), 278, 281])
def test_random_kernel_of_shared_values(seed):
    maker = SharingMaker(seed)
    check(maker.stores(), maker.inputs, rtol=1e-4, atol=1e-4, name=f"shared_{seed}")
