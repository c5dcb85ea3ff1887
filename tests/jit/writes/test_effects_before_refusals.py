"""What the program has changed before an op refuses a dtype, which only its kernel does, and what handles that: in jitted functions, and in frames that the hook
compiles, where no call starts anew."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import frameloom

X = torch.arange(6.0).reshape(2, 3) / 8
DTYPES = (torch.uint8, torch.int32, torch.int64, torch.bool, torch.float64, torch.complex64)
# Of a line of two numbers, 0 and 1.
OPS = {
    "index_select": lambda i: X.index_select(0, i),
    "index_copy": lambda i: X.index_copy(0, i, X),
    "index_copy_": lambda i: X.clone().index_copy_(0, i, X),
    "index_add": lambda i: X.index_add(0, i, X),
    "index_reduce": lambda i: X.index_reduce(0, i, X, "amax"),
    "gather": lambda i: X.gather(0, i[:, None]),
    "scatter_add": lambda i: X.scatter_add(0, i[:, None], X),
    "put": lambda i: X.put(i, X[0, :2]),
    "nll_loss": lambda i: F.nll_loss(X, i),
    "nll_loss2d": lambda i: F.nll_loss(X[None, :, :, None], i[None, :1, None].expand(1, 3, 1)),
    "multi_margin_loss": lambda i: F.multi_margin_loss(X, i),
    "multilabel_margin_loss": lambda i: F.multilabel_margin_loss(X[:, :2], i.expand(2, 2)),
    "binary_cross_entropy": lambda i: F.binary_cross_entropy(X[:, 0], i),
    "masked_fill": lambda i: X.masked_fill(i[:, None], 1.0),
    "masked_fill_": lambda i: X.clone().masked_fill_(i[:, None], 1.0),
    "std": lambda i: i.std(),
    "softmax": lambda i: i.softmax(0),
    "logsumexp": lambda i: i.logsumexp(0),
    "mode": lambda i: i.mode(),
    "median": lambda i: i.median(),
    "topk": lambda i: i.topk(1),
    "sort": lambda i: i.sort()[0],
    "frexp": lambda i: torch.frexp(i),
    "bool_minus": lambda i: i - i,
    "avg_pool1d": lambda i: F.avg_pool1d(i[None], 2),
    "interpolate": lambda i: F.interpolate(i[None, None], scale_factor=2),
    "maximum": lambda i: torch.maximum(i, i),
}


def called(fn, dtype):
    x, seen, told = torch.zeros(3), [], []
    for _ in range(2):
        try:
            result = repr(fn(torch.tensor([0, 1]).to(dtype), x, seen))
        except Exception as error:
            result = type(error), str(error)
        told.append((result, x.tolist(), x._version > 0, len(seen)))
    return told


def assert_same_for_all_dtypes(fn, in_frames):
    def outer(i, x, seen):
        assert locals()["x"] is x  # not captured
        return fn(i, x, seen)

    chosen = outer if in_frames else fn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            frameloom.reset()
            assert called(frameloom.jit(chosen), dtype) == called(chosen, dtype), dtype


@pytest.mark.parametrize("in_frames", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_what_comes_before(name, in_frames):
    op = OPS[name]

    def fn(i, x, seen):
        x.add_(1)
        seen.append(1)
        made = op(i)
        x.mul_(2)
        return made

    assert_same_for_all_dtypes(fn, in_frames)


@pytest.mark.parametrize("in_frames", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_what_handles_it(name, in_frames):
    op = OPS[name]

    def fn(i, x, seen):
        try:
            made = op(i)
        except (RuntimeError, IndexError):
            return "handled"
        return made, "passed"

    assert_same_for_all_dtypes(fn, in_frames)


@pytest.mark.parametrize("name, passes", [("scatter_add", False), ("index", True)])
def test_tensors_of_two_devices_behind_effects(name, passes):
    """The program makes the call: in the text of its error is the op that it has called, and in the graph there are others."""
    from frameloom.capture.recording.dead_calls import first_refused
    from frameloom.capture.tensors.fake import Fake

    aten = torch.ops.aten
    graph = torch.fx.Graph()

    def given(dtype, device):
        node = graph.placeholder(f"{device}_{dtype}".replace(".", "_"))
        node.meta["val"] = Fake(torch.empty(3, dtype=dtype, device="meta"), torch.device(device))
        return node

    x, at = given(torch.float32, "cuda:0"), given(torch.int64, "cpu")
    if name == "index":
        call = graph.call_function(aten.index.Tensor, (x, [at]))
    else:
        call = graph.call_function(aten.scatter_add.default, (x, 0, at, x))
    call.meta["site"] = (first_refused.__code__, 0)
    assert first_refused(graph.nodes) is (None if passes else call)
