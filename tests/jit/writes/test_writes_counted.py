"""Which writes autograd counts, and how often: those of ops on lists, none through `.data`."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from frameloom import jit
from tests.helpers import jit_for_test

ON_LISTS = {
    "add": lambda t: torch._foreach_add_([t], 1),
    "mul": lambda t: torch._foreach_mul_([t], [t]),
    "lerp": lambda t: torch._foreach_lerp_([t], [t * 2], 0.5),
    "copy": lambda t: torch._foreach_copy_([t], [t * 2]),
    "zero": lambda t: torch._foreach_zero_([t]),
}


@pytest.mark.parametrize("name", ON_LISTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_a_derivative_needs_is_written_by_an_op_on_lists(name):
    def fn(x):
        kept = x.exp()
        made = kept * 2
        with torch.no_grad():
            ON_LISTS[name](kept)
        return made

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        jit(fn)(torch.ones(3, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_writes_through_data_of_what_library_calls_write(dtype):
    def fn(x):
        x.data.mul_(2)

    x = torch.ones(6, dtype=dtype)[::2]
    jit_for_test(fn)(x)
    assert x._version == 0
    assert torch.equal(x, torch.full((3,), 2, dtype=dtype))


def broken(x):
    x.add_(1)
    print(end="")
    x[0] = 2


def pieces_behind_a_break(x):
    pieces = [*x.unbind(0)]
    print(end="")
    for piece in pieces:
        piece.add_(1)


def beside_tensors_of_inference_mode(x):
    with torch.inference_mode():
        other = torch.ones(3)
        print(end="")
        other.add_(1)
        x.add_(1)
        x.mul_(2)


PROGRAMS = {
    "pieces": pieces_behind_a_break,
    "inference": beside_tensors_of_inference_mode,
    "two": lambda x: (x.add_(1), x.mul_(2)),
    "through views": lambda x: (x[0].add_(1), x.view(-1)[1:].zero_(), x.t().sub_(1)),
    "detached and data": lambda x: (x.detach().add_(1), x.data.mul_(2)),
    "drawn": lambda x: (x.normal_(), F.dropout(x, 0.5, True, True), x.bernoulli_(0.5)),
    "out=": lambda x: (torch.add(x, 1, out=x), torch.cumsum(x.clone(), 0, out=x)),
    "indexed": lambda x: (x.index_fill_(0, torch.tensor([0]), 1), x.masked_fill_(x > 0, 2)),
    "lists": lambda x: torch._foreach_add_([x, x], 1),
    "a library's": lambda x: (x.index_add_(0, torch.tensor([0, 0]), x[:2].clone()), x.sort(0)[0]),
    "broken": broken,
}


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_versions_rise_as_often_as_in_eager(name, options):
    x, y = torch.rand(3, 3), torch.rand(3, 3)
    PROGRAMS[name](x)
    f = jit(PROGRAMS[name], **options)
    for call in (1, 2):
        f(y)
        assert y._version == call * x._version


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}], ids=str)
def test_nothing_is_counted_of_a_call_that_raises_before_it_writes(options):
    def program(x, a):
        x.add_(torch.linalg.cholesky(a).sum())

    f, x = jit(program, **options), torch.zeros(2)
    for sign, version in ((1, 1), (-1, 1), (1, 2)):
        with contextlib.nullcontext() if sign > 0 else pytest.raises(RuntimeError):
            f(x, sign * torch.eye(2))
        assert x._version == version


BEHIND_INFERENCE_MODE = {
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "detach of a view": lambda t: t[1:].detach(),
    "view of a detached one": lambda t: t.detach()[1:],
    "twice": lambda t: t.data.detach(),
    "inside": lambda t: detached_inside(t),
}
TOGETHER = {
    "alone": lambda t, d: [d],
    "with what it is cut from": lambda t, d: [t, d],
    "with a view": lambda t, d: [d, d[0]],
    "cut again": lambda t, d: [d, d.detach(), t],
}


@torch.inference_mode()
def detached_inside(t):
    return t.detach()


def counted_and_written(tensors):
    seen = []
    for t in tensors:
        try:
            t.add_(1)
        except RuntimeError as e:
            seen.append(str(e))
    return seen, [t.tolist() for t in tensors]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("together", TOGETHER)
@pytest.mark.parametrize("cut", BEHIND_INFERENCE_MODE)
def test_what_is_cut_from_a_tensor_of_inference_mode_counts_its_writes_behind_it(
    cut, together, inside
):
    def fn(x):
        with torch.inference_mode():
            t = torch.zeros_like(x) * 2
        return TOGETHER[together](t, BEHIND_INFERENCE_MODE[cut](t))

    def seen(call):
        with torch.inference_mode(inside):
            tensors = call(torch.ones(3, 3))
        return counted_and_written(tensors)

    assert seen(jit(fn)) == seen(fn)


@pytest.mark.parametrize("backend", ["default", "eager"])
@pytest.mark.parametrize("view", [lambda x: x[...], lambda x: x.view(1, 1), lambda x: x.expand(3)])
def test_views_in_inference_mode_of_a_leaf_that_is_written_through_data(view, backend):
    """They count from where the leaf does: what is written by other ways than the program's counts neither for it nor for them."""

    def fn(x):
        x.data.mul_(2)
        return view(x)

    def seen(call):
        x = torch.tensor(1.0, requires_grad=True)
        with torch.inference_mode():
            made = call(x)
        return made.requires_grad, made.is_leaf, made._base is x, made._version, made.tolist()

    options = {} if backend == "default" else {"backend": backend}
    assert seen(jit(fn, **options)) == seen(fn)
