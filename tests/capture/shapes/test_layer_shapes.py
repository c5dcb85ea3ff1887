"""Rules for the shapes of layers say what PyTorch's meta kernels say."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom.capture.shapes.registry import LAYOUTS, RULES, SIZED_RULES, infer, load_rules
from frameloom.capture.tensors.sized import dense_strides, empty_strided
from frameloom.ir.symbolic.shape_env import ShapeEnv
from frameloom.ir.symbolic.symint import SizeNode

aten = torch.ops.aten
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = [(4, 8, 5, 6), (4, 8), (4, 8, 1, 6), (1, 8, 3), (2, 8, 3, 4, 5)]


def told(results):
    return [(r.dtype, r.shape, r.stride()) if isinstance(r, torch.Tensor) else r for r in results]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype, own", itertools.product(FLOATS, (*FLOATS, None)))
def test_batch_norm(dtype, own, shape, last):
    x = torch.empty(shape, dtype=dtype, device="meta")
    if last:
        if x.dim() != 4:
            return
        x = x.to(memory_format=torch.channels_last)
    w = None if own is None else torch.empty(8, dtype=own, device="meta")
    given = torch.empty(8, dtype=own or torch.float32, device="meta")
    forward = aten._native_batch_norm_legit_functional.default
    args = (x, w, w, given, given, True, 0.1, 1e-5)
    wanted = forward(*args)
    if own is not None and own != dtype and own != torch.float32:
        return
    got = infer(forward, args, {})
    if own == dtype != torch.float32:
        wanted = [wanted[0], *(t.to(dtype) for t in wanted[1:])]  # which the devices settle
        got = [got[0], *(t.to(dtype) for t in got[1:])]
    assert told(got) == told(wanted)
    backward = aten.native_batch_norm_backward.default
    for mask in ([True, w is not None, w is not None], [True, False, False]):
        args = (x, x, w, None, None, wanted[1], wanted[2], True, 1e-5, mask)
        assert told(infer(backward, args, {})) == told(backward(*args))


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_attention_on_a_gpu_lies_as_the_query(order):
    shape_env = ShapeEnv(lambda size: SizeNode(size.shape_env, size))
    sizes = [shape_env.symbol(4, None), 3, shape_env.symbol(5, None), 16]
    strides = dense_strides(sizes, order)
    query = empty_strided(sizes, strides, torch.float32)
    load_rules()
    layout = LAYOUTS["cuda", aten.scaled_dot_product_attention.default]
    with torch.enable_grad():
        out = layout(empty_strided(sizes, dense_strides(sizes, (3, 2, 1, 0)), torch.float32), query)
    assert tuple(out.shape) == tuple(sizes) and tuple(out.stride()) == tuple(strides)


def test_an_op_has_one_rule():
    load_rules()
    assert RULES and SIZED_RULES and not RULES.keys() & SIZED_RULES.keys()


@pytest.mark.parametrize("dynamic", [None, True])
def test_losses_of_images(dynamic):
    images, target = torch.rand(2, 5, 3, 3), torch.zeros(2, 3, 3, dtype=torch.int64)
    for weight in (None, torch.rand(5)):
        for reduction in ("none", "mean"):

            def fn(images, target, weight=weight, reduction=reduction):
                return F.nll_loss(images, target, weight, reduction=reduction)

            for x in (images, images.contiguous(memory_format=torch.channels_last)):
                found = frameloom.jit(fn, backend="eager", dynamic=dynamic)(x, target)
                torch.testing.assert_close(found, fn(x, target), check_stride=True)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layer", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_recurrent_layers_take_one_graph_for_all_lengths(layer, batch_first):
    module = layer(4, 5, 2, bidirectional=True, batch_first=batch_first)
    graphs = []

    def backend(graph, examples):
        graphs.append(graph)
        return graph.forward

    jitted = frameloom.jit(lambda x: module(x)[0] + 0, backend=backend, dynamic=True)
    with torch.no_grad():
        for shape in ((3, 6, 4), (5, 2, 4), (7, 3, 4)):
            x = torch.rand(shape)
            torch.testing.assert_close(jitted(x), module(x)[0] + 0, check_stride=True)
    assert len(graphs) == 1
