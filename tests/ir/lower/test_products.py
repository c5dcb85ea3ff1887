"""Large matrix products on GPUs read and write aligned rows."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.program import Extern, Kind
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu, lowered

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture


def of(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16)


def linear(x, w):
    return F.linear(x, w)


def product(fn, *args):
    """The call, and the devices of kernels before and after it."""
    program, steps = lowered(fn, *args)
    (at,) = [k for k, s in enumerate(program.steps) if isinstance(s, Extern)]
    return program.steps[at], steps[:at], steps[at + 1 :], program


def test_a_result_with_odd_rows_is_written_in_longer_ones():
    call, before, after, program = product(linear, of(2048, 1024), of(5001, 1024))
    assert call.results[0].shape == (2048, 5008) and call.results[0].kind is Kind.TEMP
    assert [a.shape for a in call.args] == [(2048, 1024), (1024, 5008)]
    assert (before, after) == (["cuda:0"], ["cuda:0"])
    assert program.outputs[0].strides == (5001, 1)


def test_what_follows_reads_the_longer_rows():
    call, _, after, program = product(
        lambda x, w, b: F.linear(x, w, b).relu(), of(2048, 1024), of(5001, 1024), of(5001)
    )
    assert call.target == "aten.addmm.default" and call.results[0].strides == (5008, 1)
    assert after == ["cuda:0"] and program.outputs[0].strides == (5001, 1)


def test_where_a_row_is_added_the_result_is_contiguous():
    call, before, after, program = product(
        lambda x, w, b: F.linear(x, w, b), of(2048, 1024), of(5001, 1024), of(5001)
    )
    assert call.results[0].shape == (2048, 5008) and call.results[0].strides == (5008, 1)
    assert [a.shape for a in call.args[:3]] == [(5008,), (2048, 1024), (1024, 5008)]
    assert call.args[2].strides == (1, 1024)
    assert set(before) == set(after) == {"cuda:0"} and program.outputs[0].strides == (5001, 1)


def test_batches():
    call, _, _, _ = product(lambda x, y: torch.bmm(x, y), of(64, 512, 1024), of(64, 1024, 197))
    assert call.results[0].strides == (512 * 200, 200, 1)
    assert call.args[1].strides == (1024 * 200, 200, 1)


def test_an_operand_is_written_aligned_by_what_computes_it():
    call, before, after, _ = product(
        lambda x, w: torch.softmax(x, -1) @ w, of(4096, 1001), of(1001, 4096)
    )
    assert call.args[0].strides == (1008, 1)
    assert (before, after) == (["cuda:0"], [])


def test_the_dense_dimension_of_an_operand_stays():
    call, _, _, _ = product(lambda x, w: x @ w.t(), of(4096, 2046), of(4096, 2046))
    assert call.args[0].strides == (2048, 1) and call.args[1].strides == (1, 2048)


@pytest.mark.parametrize(
    "x, w",
    [
        (of(2048, 1024), of(5000, 1024)),
        (of(256, 64), of(5001, 64)),
        (of(2048, 1024).float(), of(5001, 1024).float()),
        (of(16, 8191), of(8192, 8191)),
    ],
    ids=["aligned", "small", "F32", "more to copy than to multiply"],
)
def test_others_are_left_alone(x, w):
    call, before, after, _ = product(linear, x, w)
    assert (before, after) == ([], [])
    assert call.results[0].kind is Kind.OUTPUT
