"""What tensors of varying sizes say of themselves leaves the call as ints."""

import itertools

import pytest
import torch

from frameloom import jit

SAID = [
    "t[-1].storage_offset()", "t[1:].storage_offset()", "t.T[1].storage_offset()", "t.t().stride()", "t[1:].shape", "t.numel()", "torch.numel(t)",
    "t.shape.numel()", "t[1:].shape.numel()", "len(t)", "t.nbytes", "t.nelement() * t.element_size()", "t.shape[0] / 2", "-t.shape[0]",
    "slice(t[-1].storage_offset())", "range(t[1:].storage_offset())", "t.unfold(0, 2, 1).stride()", "max(t.shape)", "f'{t[-1].storage_offset()}'",
    "t.untyped_storage().nbytes()", "t.shape[0].bit_length()", "{t[-1].storage_offset(): t.stride(0)}", "type(t[-1].storage_offset())",
]  # fmt: skip
LEAVES = ["return {}", "told.append({})", "holder.said = {}", "told.extend([{}, {}])", "raise OSError({})"]  # fmt: skip


class Holder:
    said = None


@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("written", ["pass", "t.add_(1)"])
def test_as_ints(leaves, written):
    def seen(of, text):
        told, holder = [], Holder()
        space = {"__name__": "program", "torch": torch, "told": told, "holder": holder}
        exec(text, space)
        fn = of(space["fn"])
        for n in (3, 4, 5):
            try:
                told.append(fn(torch.ones(n, n + 1)))
            except OSError as error:
                told.append(error.args)
        return repr((told, holder.said))

    for said in SAID:
        text = f"def fn(t):\n    {written}\n    {leaves.replace('{}', said)}\n"
        got = seen(lambda fn: jit(fn, dynamic=True, backend="eager"), text)
        assert got == seen(lambda fn: fn, text), text


@pytest.mark.parametrize("strides", itertools.product((1, 2), repeat=3))
def test_layouts_of_overlapping_tensors(strides):
    def fn(x):
        return x + 3, x.expand(2, *x.shape).abs()

    compiled = jit(fn)
    compiled(torch.ones(3, 3, 2))
    x = torch.ones(13).as_strided((3, 3, 3), strides)
    assert [t.stride() for t in compiled(x)] == [t.stride() for t in fn(x)]
