"""Sizes that the data decides: one graph whatever the data is, and results as plain code gives them."""

import pytest
import torch
import torch.nn.functional as F

import frameloom
from tests.helpers import jit_for_test
from tests.jit.numbers.random_data import compared
from tests.observe import assert_same_call, observe, same


def masks(*shape):
    """Some, none, one, all."""
    one = torch.zeros(shape, dtype=torch.bool)
    one.view(-1)[3] = True
    yield torch.randn(shape) > 0
    yield torch.zeros(shape, dtype=torch.bool)
    yield one
    yield torch.ones(shape, dtype=torch.bool)
    yield torch.randn(shape) > 0.5


def agree(fn, *make, graphs=1, breaks=0, kinds=masks):
    """`fn` of tensors and a mask, for all kinds of masks."""
    jitted = jit_for_test(fn)
    with torch.no_grad():
        for mask in kinds(5, 6):
            given = [m() for m in make]
            other = [g.clone() for g in given]
            want, got = fn(*given, mask), jitted(*other, mask.clone())
            same(got, want, 1e-5, 1e-5, f"{int(mask.sum())} of {mask.numel()}: ")
            for a, b in zip(other, given, strict=True):
                assert torch.equal(a, b)
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (graphs, breaks), str(found)
    assert not found.plain, found.plain
    return found


def x():
    return torch.randn(5, 6)


def wide():
    return torch.randn(5, 6, 7)


CASES = {
    "sum": lambda x, m: x[m].sum(),
    "mean": lambda x, m: x[m].mean(),
    "elementwise": lambda x, m: (x[m] * 2 + 1).exp(),
    "nonzero": lambda x, m: m.nonzero(),
    "nonzero_twice": lambda x, m: (m.nonzero(), m.nonzero()),
    "nonzero_columns": lambda x, m: m.nonzero(as_tuple=True),
    "where": lambda x, m: x[torch.where(m)] * 2,
    "length": lambda x, m: (x[m].shape[0] * 2, len(x[m]), x[m].numel() + 1),
    "counted": lambda x, m: x[m].sum() / (x[m].shape[0] + 1),
    "masked_select": lambda x, m: torch.masked_select(x, m) * 2,
    "broadcast_mask": lambda x, m: torch.masked_select(x, m[:, :1]) * 2,
    "computed_mask": lambda x, m: x[(x > 0) & m].cos(),
    "not_zero": lambda x, m: (x * m).nonzero() * 2,
    "products": lambda x, m: x[m] * x.cos()[m] + x[m],
    "cumulative": lambda x, m: x[m].cumsum(0) + 1,
    "any_all": lambda x, m: (x[m].any(), (x[m] > 0).all()),
    "prod_norm": lambda x, m: (x[m].prod(), x[m].norm(), x[m].logsumexp(0)),
    "softmax": lambda x, m: x[m].softmax(0),
    "zeros": lambda x, m: torch.zeros(x[m].shape[0]) + x[m],
    "like": lambda x, m: torch.zeros_like(x[m]) + torch.ones_like(x[m]),
    "new": lambda x, m: x[m].new_full((x[m].shape[0], 2), 3.0) + x[m][:, None],
    "arange": lambda x, m: torch.arange(x[m].shape[0]) * 2,
    "unsqueezed": lambda x, m: (x[m].unsqueeze(-1) * x[m]).sum(-1),
    "outer": lambda x, m: x[m][:, None] + x[m][None],
    "viewed": lambda x, m: x[m].view(-1, 1).cos(),
    "sorted": lambda x, m: x[m].sort().values + 1,
    "cat": lambda x, m: torch.cat([x[m], x[~m]]) * 2,
    "cat_more": lambda x, m: torch.cat([x[m] + 1, torch.ones(3), x[m]]),
    "sliced": lambda x, m: x[m][::2] + 1,
    "double": lambda x, m: x[m].double() + 1,
    "to_mask": lambda x, m: x[m].relu()[torch.arange(x[m].shape[0])],
    "unique": lambda x, m: (x * m).unique() * 2,
    "unique_all": lambda x, m: (x * m).unique(return_inverse=True, return_counts=True),
    "unique_counts": lambda x, m: (x * m).long().unique(return_counts=True)[1] * 2,
    "unique_consecutive": lambda x, m: torch.unique_consecutive(m.long(), return_counts=True),
    "unique_rows": lambda x, m: m.long().unique(dim=0) + 1,
    "unique_columns": lambda x, m: m.long().unique(dim=1, return_inverse=True, return_counts=True),
    "repeated": lambda x, m: x.repeat_interleave(m.sum(1), 0) * 2,
    "repeated_flat": lambda x, m: torch.repeat_interleave(m.view(-1).long()) * 2,
    "repeated_to": lambda x, m: x.repeat_interleave(m.sum(1) * 0 + 2, 0, output_size=10) + 1,
    "put_back": lambda x, m: torch.zeros_like(x).masked_scatter(m, x[m] * 2),
    "assigned": lambda x, m: x.clone().index_put((m,), x[m] * 2) + 1,
}  # fmt: skip

ROWS = {
    "rows": lambda x, m: x[m] * 2,
    "rows_sum": lambda x, m: x[m].sum(0),
    "rows_sum_last": lambda x, m: x[m].sum(-1) + 1,
    "rows_mean": lambda x, m: x[m].mean(0),
    "rows_softmax": lambda x, m: x[m].softmax(-1),
    "rows_layer_norm": lambda x, m: F.layer_norm(x[m], (7,)),
    "rows_linear": lambda x, m: F.linear(x[m], x[0, :4]),
    "rows_matmul": lambda x, m: x[m] @ x[m].t(),
    "rows_transposed": lambda x, m: x[m].t() + 1,
    "rows_max_last": lambda x, m: x[m].max(-1).values,
    "first": lambda x, m: x[m[:, 0]] + 1,
    "first_flat": lambda x, m: x[m[:, 0]].flatten(1) + 1,
    "first_reshaped": lambda x, m: x[m[:, 0]].reshape(-1, 7) + 1,
    "middle": lambda x, m: x[:, m[0]] + 1,
    "last": lambda x, m: x.transpose(1, 2).contiguous()[..., m[0]] + 1,
    "embedding": lambda x, m: F.embedding(m.nonzero()[:, 0], x[0]) * 2,
    "linear_relu": lambda x, m: torch.relu(F.linear(x[m].cos(), x[0, :4], x[0, :4, 0])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_elements(name):
    agree(CASES[name], x)


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    agree(ROWS[name], wide)


def test_another_size_in_each_call_is_one_compile():
    jitted = jit_for_test(lambda x: (x[x > 0] * 2).sum())
    for n in (7, 300, 4, 20):
        x = torch.randn(n, 3)
        assert torch.allclose(jitted(x), (x[x > 0] * 2).sum())
    assert len(jitted.explanation.graphs) == 2


# --- what is assumed


@pytest.mark.parametrize("name", ["max", "amax", "argmax", "var", "condition", "gradient", "write"])
def test_where_it_does_not_hold_the_call_is_plain(name):
    def condition(x, m):
        found = m.nonzero()
        if found.shape[0] == 0:
            return x - 1
        return x + found.sum()

    def write(x, m):
        x.add_(1)
        return x[m].max()

    fn = {
        "max": lambda x, m: x[m].max() + 1,
        "amax": lambda x, m: x[m].amax(0) * 2,
        "argmax": lambda x, m: x[m].argmax() + 1,
        "var": lambda x, m: x[m].var() * 2,
        "condition": condition,
        "gradient": lambda x, m: (x.requires_grad_() * 2)[m].sum().backward() or x.grad,
        "write": write,
    }[name]
    jitted = jit_for_test(fn)
    for mask in masks(5, 6):
        x = torch.randn(5, 6)
        want, got = observe(fn, (x, mask), {}), observe(jitted, (x, mask), {})
        assert_same_call(got, want, f"{int(mask.sum())}: ", 1e-5, 1e-5)
    if name in ("max", "amax", "argmax", "var", "condition"):
        found = jitted.explanation
        assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


def test_sizes_that_have_to_be_equal_break():
    def fn(x, m):
        return x[m] + x[x > 0]

    jitted = jit_for_test(fn)
    x = torch.randn(5, 6)
    assert torch.equal(jitted(x, x > 0), fn(x, x > 0))
    with pytest.raises(RuntimeError, match="must match"):
        jitted(x, x > 3)


def same_calls(fn, *calls):
    """... of one graph, whatever the call's data is."""
    jitted = jit_for_test(fn)
    for given in calls:
        want, got = observe(fn, given, {}), observe(jitted, given, {})
        assert_same_call(got, want, str(given), 1e-5, 1e-5)
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


def test_sizes_that_have_to_be_equal_are_compared():
    """... where the tensors of which they are the sizes are not needed otherwise, too."""
    x = torch.tensor([0.5, -3.0, 2.0])
    some, other = torch.tensor([True, False, True]), torch.tensor([True, True, True])

    def added(x, m):
        x.add_(1)
        return (x[m] + x[x > 0]) * 2

    def split(x, m):
        return torch.zeros(x[m].shape[0]).split([2, 1])

    same_calls(added, (x, some), (x, other), (x, some))
    same_calls(split, (x, other), (x, some), (x, other))


def test_a_mask_that_is_computed_twice_has_one_size():
    def fn(x):
        x[x > 0] = x[x > 0] * 3
        return x[x * 2 > 1] + x[x * 2 > 1]

    same_calls(fn, (torch.randn(5, 6),), (-torch.ones(5, 6),), (torch.ones(5, 6),))


def test_a_size_that_can_only_be_one_number():
    def fn(x):
        n = int((x > 0).sum())
        return torch.cat([part + 1 for part in x.split([n, 1 - n])])

    jitted = jit_for_test(fn)
    for given in (torch.ones(1), -torch.ones(1), torch.ones(1)):
        assert torch.equal(jitted(given), fn(given))


def test_rows_without_elements():
    def fn(x, m):
        return x[m] * 2, x[m].shape[0], x + 1

    jitted = jit_for_test(fn)
    for mask in ([True, False], [True, True], [False, False]):
        given = torch.zeros(2, 0), torch.tensor(mask)
        want, got = observe(fn, given, {}), observe(jitted, given, {})
        assert_same_call(got, want, str(mask))


@pytest.mark.parametrize("fn", [
    lambda x, w: torch.bincount(x, minlength=4) * 2, lambda x, w: torch.bincount(x) + 1, lambda x, w: torch.bincount(x, w),
    lambda x, w: torch.bincount(x, w.double(), 6).cumsum(0), lambda x, w: (x.add_(1), torch.bincount(x, minlength=4) * 2),
    lambda x, w: [w[:n].sum() for n in torch.bincount(x, minlength=4).tolist()],
])  # fmt: skip
def test_counts_of_numbers(fn):
    jitted = jit_for_test(fn)
    for numbers in ([0, 1, 2], [3, 3], [], [0], [5, 1], [-1, 2], [1, 1, 1, 1, 2]):
        given = torch.tensor(numbers, dtype=torch.long), torch.randn(len(numbers))
        want, got = observe(fn, given, {}), observe(jitted, given, {})
        assert_same_call(got, want, str(numbers), 1e-5, 1e-5)
    assert not jitted.explanation.breaks


def test_in_a_try_block():
    def fn(x, repeats):
        try:
            return x.repeat_interleave(repeats) * 2
        except RuntimeError:
            return x

    jitted = jit_for_test(fn)
    x = torch.arange(3.0)
    for repeats in ([1, 2, 3], [0, 0, 0], [1, -1, 2], [2, 2, 2]):
        assert torch.equal(jitted(x, torch.tensor(repeats)), fn(x, torch.tensor(repeats)))


def test_an_unused_result():
    def fn(x, m):
        x[m]
        m.nonzero()
        return x + 1

    agree(fn, x)


def test_behind_a_break():
    def fn(x, m):
        y = x[m]
        frameloom.graph_break()
        return y * y.shape[0], y.shape

    agree(fn, x, graphs=3, breaks=1)  # the second piece, once more for other sizes


def test_a_module_with_parameters():
    model = torch.nn.Linear(7, 4)
    agree(lambda x, m: model(x[m]).relu(), wide)


def test_parameters_without_gradient_mode():
    weight = torch.nn.Parameter(torch.randn(5, 6))
    agree(lambda x, m: weight[m] * x[m], x)


def test_variances_of_too_few_warn():
    jitted = jit_for_test(lambda x, m: (x[m].var(0), x[m].std(-1)))
    for mask in masks(5, 6):
        given = wide(), mask
        want = observe(lambda x, m: (x[m].var(0), x[m].std(-1)), given, {})
        assert_same_call(observe(jitted, given, {}), want, f"{int(mask.sum())}", 1e-5, 1e-5)


# --- ints that tensors hold

COUNTS = ([3, 1, 2, 4, 0], [5, 5, 5, 5, 5], [1, 0, 2, 7, 0], [4, 2, 3, 1, 0])


def split_unevenly(x, n):
    return torch.cat([p + 1 for p in x.split([n, 10 - n])]) * x


ITEMS = {
    "slice": lambda x, n: x[: n.max().item()] * 2,
    "slice_from": lambda x, n: x[n.min().item() :] * 2,
    "slice_between": lambda x, n: x[n.min().item() : n.max().item()] * 2,
    "zeros": lambda x, n: torch.zeros(n[0].item(), 3) + 1,
    "arithmetic": lambda x, n: torch.zeros(n[0].item() + n[1].item() * 2, 3) + 1,
    "returned": lambda x, n: (n[0].item() + 1, (x * 2)[: n[1].item()], n[0].item()),
    "list": lambda x, n: (n * 2).tolist(),
    "list_of_lists": lambda x, n: (n[:4].view(2, 2) * 2).tolist(),
    "computed_list": lambda x, n: [k + 1 for k in (n * 2).tolist()],
    "shape": lambda x, n: torch.ones(n[0].item(), n[1].item()).sum(1),
    "split": lambda x, n: [p.sum() for p in x.split((n * 0 + 2).tolist())],
    "split_unevenly": lambda x, n: split_unevenly(x, n[0].item()),
    "int": lambda x, n: torch.arange(int(n[1])) * 2,
    "number": lambda x, n: x * n[0].item(),
    "expand": lambda x, n: x.expand(n[0].item(), 10) + 1,
    "extremes": lambda x, n: torch.zeros(max(n[0].item(), 2), min(n[1].item(), 3)) + 1,
    "selected": lambda x, n: x[n[0].item()] * 2,
}  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
def test_ints_that_a_tensor_holds(name):
    fn = ITEMS[name]
    jitted = jit_for_test(fn)
    for counts in COUNTS:
        x, n = torch.randn(10), torch.tensor(counts)
        same(jitted(x, n), fn(x, n), 1e-5, 1e-5, f"{counts}: ")
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


@pytest.mark.parametrize("fn", [
    lambda x, n: x[: n.item()] * 2, lambda x, n: torch.zeros(n.item() + 1) + 1, lambda x, n: x[n.item()] + 1,
    lambda x, n: (torch.ones(2 * int(n), 3) * 2, n.item() + 1),
])  # fmt: skip
def test_ints_that_the_call_is_given_in_a_tensor(fn):
    jitted = jit_for_test(fn)
    for n in (3, 5, 1, 0, 7):
        given = torch.randn(10), torch.tensor(n)
        same(jitted(*given), fn(*given), 1e-5, 1e-5, f"{n}: ")
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


def written_at(x, i):
    x[i, 1:] = x[0, 1:]
    x[..., i] += 1
    x[i] = 2.0
    return x * 2


def written_through_a_view(x, i):
    x[i].add_(1)
    return x[:, 0].sum()


@pytest.mark.parametrize("fn", [
    lambda x, i: x[i] * 2, lambda x, i: x[i, 0] + 1, lambda x, i: x[0, i] + 1, lambda x, i: x[i, 1:] * 2, lambda x, i: x[i, i] + 1,
    lambda x, i: x[i, torch.tensor([0, 1])] + 1, lambda x, i: x[x.sum(1).argmax()] * 2, written_at, written_through_a_view,
])  # fmt: skip
def test_positions_that_the_call_is_given_in_a_tensor(fn):
    same_calls(fn, *((torch.randn(3, 4), torch.tensor(i)) for i in (0, 2, -1, 3, 1, -9)))


def test_gradients_at_such_positions():
    def fn(x, i):
        return (x[i].exp() * x[0, i]).sum() + x[x.sum(1).argmax()].sin().sum()

    jitted = jit_for_test(fn)
    for i in (0, 2, -1, 1):
        x = torch.randn(3, 4, requires_grad=True)
        found = [torch.autograd.grad(f(x, torch.tensor(i)), x) for f in (fn, jitted)]
        same(found[1], found[0], 1e-5, 1e-5, f"{i}: ")
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


@pytest.mark.parametrize("counts", [[-1, 3], [11, 2], [0, 0], [12, -12]])
def test_ints_beyond_what_is_assumed(counts):
    def fn(x, n):
        a, b = n.tolist()
        return x[:a] * 2, x[b:].sum(), torch.zeros(abs(a) + 1)

    jitted = jit_for_test(fn)
    for given in ([3, 2], counts, [2, 3]):
        x, n = torch.randn(10), torch.tensor(given)
        assert_same_call(observe(jitted, (x, n), {}), observe(fn, (x, n), {}), "", 1e-5, 1e-5)


def test_sizes_that_do_not_fit_raise():
    jitted = jit_for_test(lambda x, n: [p * 2 for p in x.split(n.tolist())])
    x = torch.randn(10)
    assert len(jitted(x, torch.tensor([4, 6]))) == 2
    for counts in ([4, 5], [-1, 11]):
        with pytest.raises(RuntimeError, match="split_with_sizes"):
            jitted(x, torch.tensor(counts))


def test_ints_that_have_to_be_known_break():
    def fn(x, n):
        for _ in range(n[0].item()):
            x = x + 1
        return x if n[1].item() > 2 else x * 2

    jitted = jit_for_test(fn)
    for counts in COUNTS:
        x, n = torch.randn(10), torch.tensor(counts)
        same(jitted(x, n), fn(x, n), 1e-5, 1e-5, f"{counts}: ")
    assert {b.kind for b in jitted.explanation.breaks} == {"item"}


def test_what_is_left_over_of_no_elements_is_ambiguous():
    jitted = jit_for_test(lambda x, n: x[:n].reshape(n, -1) * 2)
    for n in (2, 3, 0, 1):
        given = torch.randn(5), n
        want = observe(lambda x, n: x[:n].reshape(n, -1) * 2, given, {})
        assert_same_call(observe(jitted, given, {}), want, f"{n}", 1e-5, 1e-5)


def test_experts():
    """Tokens sorted by expert, each expert on its own tokens."""
    experts = torch.nn.ModuleList([torch.nn.Linear(7, 7) for _ in range(4)])

    def fn(x, chosen):
        counts = torch.nn.functional.one_hot(chosen, 4).sum(0).tolist()
        order = chosen.argsort(stable=True)
        parts = x[order].split(counts, dim=0)
        made = torch.cat([e(p) for e, p in zip(experts, parts, strict=True)])
        return torch.zeros_like(x).index_add(0, order, made)

    jitted = jit_for_test(fn)
    with torch.no_grad():
        for k in (4, 2, 1, 4):
            x, chosen = torch.randn(12, 7), torch.randint(0, k, (12,))
            same(jitted(x, chosen), fn(x, chosen), 1e-5, 1e-5, "")
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


@pytest.mark.parametrize("seed", range(0, 120, 5))
def test_random_programs(seed):
    compared(seed)


@pytest.mark.parametrize("use", ["differentiated", "twice", "step", "written"])
@pytest.mark.parametrize("seed", range(0, 60, 12))
def test_random_programs_in_use(seed, use):
    compared(seed, use=use)


def test_a_number_of_the_data_that_only_a_loop_without_need_of_it_takes():
    def fn(x, y):
        z = torch.isin(x, y.unique())
        y.diagonal().fill_(4)
        return z, torch.zeros(int(x.abs().max()) % 5 + 1).amax(0)

    x, jitted = torch.arange(-8, 8), frameloom.jit(fn)
    for y in (torch.ones(4, 4), torch.arange(9.0).view(3, 3)):
        assert all(map(torch.equal, jitted(x, y.clone()), fn(x, y.clone())))
