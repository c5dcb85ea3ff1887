"""The front: files, symbols, kernels that are alike."""

import ctypes

import pytest
import torch

from frameloom.codegen import generate
from frameloom.codegen.cpp.function import Loops
from frameloom.codegen.cpp.prelude import ELEMENTS, Prelude
from frameloom.codegen.cpp.vector import host_isa
from frameloom.codegen.structure import structure
from frameloom.errors import FrameloomError
from frameloom.ir.library import overload
from frameloom.ir.node import binary, unary
from frameloom.ir.ops import Op
from frameloom.ir.program import Kernel
from frameloom.runtime.build.cpp_compiler import Builder
from tests.codegen.kernels import out, read, space, tensor_in, write


def pointwise(op: Op, name: str, x: torch.Tensor, source: str, target: str) -> Kernel:
    (i,) = space(x.shape)
    value = read(tensor_in(source, x), i)
    value = binary(op, value, value) if op in (Op.ADD, Op.MUL) else unary(op, value)
    return Kernel(name, (write(out(target, x.shape), (i,), value),), ("where it came from",))


def test_alike_kernels_share_code():
    x = torch.randn(50)
    kernels = [pointwise(Op.EXP, f"exp_{k}", x, f"in{k}", f"out{k}") for k in range(6)]
    assert len({structure(k)[0] for k in kernels}) == 1
    (source,) = generate(kernels)
    assert [e.name for e in source.entries] == [k.name for k in kernels]
    assert len({e.symbol for e in source.entries}) == 1
    assert [[b.name for b in e.buffers] for e in source.entries] == [
        [f"in{k}", f"out{k}"] for k in range(6)
    ]
    assert source.text.count("where it came from") == 1


def test_files_and_results():
    x = torch.randn(50)
    ops = [Op.NEG, Op.ABS, Op.SQRT, Op.EXP, Op.ADD, Op.MUL]
    kernels = [pointwise(op, "same name", x, "x", "o") for op in ops]
    sources = generate(kernels)
    assert len(sources) == 2
    paths = Builder().build(sources)
    results = []
    for source, path in zip(sources, paths, strict=True):
        library = ctypes.CDLL(str(path))
        for entry in source.entries:
            o = torch.empty(50)
            place = {"x": x.data_ptr(), "o": o.data_ptr()}
            library[entry.symbol](
                (ctypes.c_void_p * 2)(*[place[b.name] for b in entry.buffers]), None
            )
            results.append(o)
            assert entry.bytes_moved == 400
    assert len(results) == 6 and any(torch.equal(r, x + x) for r in results)


def test_nothing_to_generate():
    assert generate([]) == []


def test_library_calls():
    assert overload("aten.mm.out") is torch.ops.aten.mm.out
    with pytest.raises(FrameloomError, match="no operator aten"):
        overload("aten.no_such_operator.default")


def test_names_are_not_types():
    # Loop variables are numbered; none of them may come out as i8, i32, f64...
    x = torch.randn(5, 3)
    kernels = []
    for k in range(2):
        i, j = space(x.shape)
        values = [read(tensor_in("x", x), i, j)]
        for _ in range(70):
            values.append(binary(Op.ADD, values[-1], values[0]))
        kernels.append(
            Kernel(
                "long",
                tuple(write(out(f"o{n}", x.shape), (i, j), v) for n, v in enumerate(values[k::2])),
            )
        )
    for source in generate(kernels):
        for name in ("i8", "i16", "i32", "i64", "u8", "u16", "f32", "f64", "b8"):
            assert f" {name} = " not in source.text


def test_no_variable_is_called_as_a_type():
    isa = host_isa()
    assert isa is not None
    values = Loops(Prelude(isa))
    names = {values.fresh(stem) for stem in "biuf" for _ in range(70)}
    assert len(names) == 280 and names.isdisjoint(ELEMENTS.values())
