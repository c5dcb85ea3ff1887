"""Ops on several tensors, each laid out in another way: the strides that are said of the results are the CPU's."""

import itertools

import pytest
import torch

from frameloom.capture.shapes import registry as shapes
from frameloom.capture.shapes.device_layouts import on_device
from frameloom.capture.tensors.fake import Fake

aten = torch.ops.aten
CPU = torch.device("cpu")
NUMBERS = {"number": 1, "float": 0.5, "int": 1, "bool": False, "str": "none"}


def laid_out(shape):
    a, b, c = shape
    yield torch.rand(shape) + 0.1
    yield (torch.rand(c, b, a) + 0.1).permute(2, 1, 0)
    yield (torch.rand(a, c, b) + 0.1).transpose(1, 2)
    yield torch.full((), 0.5).expand(shape)
    yield torch.full((1, b, 1), 0.5).expand(shape)


def derivatives():
    for name in dir(aten):
        packet = getattr(aten, name)
        if name.endswith("_backward") and isinstance(packet, torch._ops.OpOverloadPacket):
            op = getattr(packet, "default", None)
            kinds = [] if op is None else [str(a.type) for a in op._schema.arguments]
            if kinds.count("Tensor") > 1 and all(k in (*NUMBERS, "Tensor") for k in kinds):
                yield op


def arguments(op, tensors):
    given = iter(tensors)
    return [
        next(given) if str(a.type) == "Tensor" else NUMBERS[str(a.type)]
        for a in op._schema.arguments
    ]


def inferred(op, args):
    metas = [torch.empty_strided(a.shape, a.stride(), device="meta") if isinstance(a, torch.Tensor) else a for a in args]  # fmt: skip
    fakes = [Fake(a, CPU) if isinstance(a, torch.Tensor) else a for a in metas]
    return on_device(CPU, op, shapes.infer(op, tuple(metas), {}), fakes, {})


OPS = [*derivatives(), aten.ldexp.Tensor, aten.lerp.Tensor, aten.addcmul.default, aten.where.self]


@pytest.mark.parametrize("op", OPS, ids=str)
def test_of_all_layouts(op):
    count = sum(str(a.type) == "Tensor" for a in op._schema.arguments)
    for tensors in itertools.product(laid_out((2, 3, 4)), repeat=count):
        args = arguments(op, tensors)
        try:
            made = op(*args)
        except (RuntimeError, IndexError):
            return  # not for such arguments
        if not isinstance(made, torch.Tensor):
            return
        strides = [t.stride() for t in tensors]
        assert inferred(op, args).stride() == made.stride(), strides


def test_most_are_looked_at():
    assert len(OPS) > 15
