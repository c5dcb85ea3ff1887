"""Parts that are alike: fused once, and said again for all; other programs are fused as a whole."""

import torch

from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.kernel_list import KernelList
from frameloom.ir.node import axis, binary, const, index, load
from frameloom.ir.ops import Op
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Store, View
from frameloom.ir.substitute import space
from frameloom.ir.verify import verify
from tests.codegen.kernels import read

F32 = DType.F32
SHAPES = [(3,), (4, 5), (1,), (), (6, 1, 2), (300,)]


def strides_of(shape):
    return torch.empty(shape).stride()


def build(shapes=SHAPES, device="cuda:0", factor=lambda k: 0.5, shared=None):
    """p += g * factor, by way of an intermediate, for each shape; the program and its inputs."""
    inputs, steps, tensors = [], [], []

    def tensor(name, shape, kind):
        return Buffer(name, F32, shape, strides_of(shape), kind, device=device)

    for k, shape in enumerate(shapes):
        p, g = tensor(f"p{k}", shape, Kind.INPUT), tensor(f"g{k}", shape, Kind.INPUT)
        g = shared or g
        t = tensor(f"t{k}", shape, Kind.TEMP)
        axes = space([e for e in shape if e > 1])
        at = iter(axes)
        places = [next(at) if e > 1 else index(0) for e in shape]
        scaled = binary(Op.MUL, read(g, *places), const(factor(k), F32))
        into = read(t, *places).srcs[0]
        steps.append(Kernel(f"mul_{k}", (Store(t, into, scaled, axes),)))
        value = binary(Op.ADD, read(p, *places), read(t, *places))
        steps.append(Kernel(f"add_{k}", (Store(p, into, value, axes),)))
        inputs += [p] if shared else [p, g]
    inputs += [shared] if shared else []
    tensors = [torch.randn(b.shape) for b in inputs]
    return Program(tuple(inputs), tuple(steps), tuple(range(len(inputs)))), tensors


def fused(*args, **kwargs):
    """The fused program, after a look at what it computes."""
    program, tensors = build(*args, **kwargs)
    verify(program)
    result = fuse(program)
    verify(result)
    ours, theirs = ([t.clone() for t in tensors] for _ in range(2))
    interp.run(result, ours)
    interp.run(program, theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    return result


def rows(program):
    return [len(s.instances) if isinstance(s, KernelList) else 1 for s in program.steps]


def test_parts_become_one_list():
    shapes = [s for s in SHAPES if len(s) != 0 and s != (1,)]
    assert rows(fused(shapes)) == [len(shapes)]


def test_tensors_of_one_element_are_parts_of_another_form():
    assert sorted(rows(fused())) == [1, 1, 4]


def test_on_the_cpu_each_has_a_kernel():
    assert rows(fused(device="cpu")) == [1] * len(SHAPES)


def test_other_numbers_make_other_parts():
    shapes = [(3,)] * 10
    assert sorted(rows(fused(shapes, factor=lambda k: 0.5 if k % 2 else 1.0))) == [5, 5]
    assert sorted(rows(fused(shapes, factor=lambda k: 0.0 if k % 2 else -0.0))) == [5, 5]


def test_a_tensor_that_several_read_is_no_reason_to_fuse_them_apart():
    shared = Buffer("shared", F32, (8,), (1,), Kind.INPUT, device="cuda:0")
    assert KernelList not in map(type, fused([(8,)] * 5, shared=shared).steps)


def test_a_number_may_be_shared():
    shared = Buffer("shared", F32, (), (), Kind.INPUT, device="cuda:0")

    def at(k, shape):
        p = Buffer(f"p{k}", F32, shape, strides_of(shape), Kind.INPUT, device="cuda:0")
        axes = space(shape)
        value = binary(Op.MUL, read(p, *axes), read(shared))
        return p, Kernel(f"mul_{k}", (Store(p, read(p, *axes).srcs[0], value, axes),))

    made = [at(k, (2 + k, 3)) for k in range(5)]
    buffers = (shared, *(p for p, _ in made))
    result = fuse(Program(buffers, tuple(s for _, s in made), tuple(range(6))))
    assert rows(result) == [5]
    assert len(result.steps[0].template.columns) == 2


def test_each_part_may_begin_elsewhere_and_read_another_number():
    numbers = [Buffer(f"n{k}", F32, (), (), Kind.INPUT, device="cuda:0") for k in range(3)]
    inputs, steps, outputs = [*numbers], [], []
    for k, which in enumerate((0, 0, 1, 1, 2)):  # two are shared, each by some of the parts
        p = Buffer(f"p{k}", F32, (9,), (1,), Kind.INPUT, device="cuda:0")
        o = Buffer(f"o{k}", F32, (4,), (1,), Kind.OUTPUT, device="cuda:0")
        axes = space([4])
        here = axis(axes[0])
        value = binary(Op.MUL, load(p, linear([here], [1], k)), read(numbers[which]))
        inputs.append(p)
        steps.append(Kernel(f"mul_{k}", (Store(o, here, value, axes),)))
        outputs.append(View(o, (4,), (1,)))
    program = Program(tuple(inputs), tuple(steps), tuple(outputs))
    result = fuse(program)
    assert rows(result) == [5]
    tensors = [torch.randn(b.shape) for b in inputs]
    for a, b in zip(interp.run(result, tensors), interp.run(program, tensors), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
