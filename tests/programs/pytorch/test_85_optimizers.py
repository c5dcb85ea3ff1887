"""`optimizer.step()` inside of jitted functions: parameters, state and numbers as plain Python leaves them."""

import pytest
import torch

from tests.helpers import jit_for_test

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "maximize": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
    "adam": (torch.optim.Adam, {"weight_decay": 0.01}),
    "adamw": (torch.optim.AdamW, {"amsgrad": True}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1}),
    "adadelta": (torch.optim.Adadelta, {}),
    "adamax": (torch.optim.Adamax, {}),
    "nadam": (torch.optim.NAdam, {}),
    "radam": (torch.optim.RAdam, {}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "rprop": (torch.optim.Rprop, {}),
    "asgd": (torch.optim.ASGD, {}),
}  # fmt: skip
IN_ONE_GRAPH = {"sgd", "momentum", "maximize", "adadelta", "rmsprop"}
SHAPES = [(3, 4), (7,), (), (2, 3, 5)]


def parameters(count=len(SHAPES)):
    made = torch.Generator().manual_seed(0)
    shapes = [SHAPES[k % len(SHAPES)] for k in range(count)]
    return [torch.nn.Parameter(torch.randn(s, generator=made)) for s in shapes]


def set_gradients(params, seed):
    made = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=made)


def assert_same_state(ours, theirs, rtol=1e-6, atol=1e-7):
    for a, b in zip(ours.param_groups, theirs.param_groups, strict=True):
        assert a.keys() == b.keys()
        for x, y in zip(a["params"], b["params"], strict=True):
            torch.testing.assert_close(x, y, rtol=rtol, atol=atol)
            mine, wanted = ours.state.get(x, {}), theirs.state.get(y, {})
            assert list(mine) == list(wanted)
            for name, value in wanted.items():
                assert type(mine[name]) is type(value), name
                if isinstance(value, torch.Tensor):
                    torch.testing.assert_close(mine[name], value, rtol=rtol, atol=atol)
                else:
                    assert mine[name] == value, name
        assert {k: v for k, v in a.items() if k != "params"} == {
            k: v for k, v in b.items() if k != "params"
        }


def run_both(
    cls, options, steps=4, change=lambda optimizer, k: None, count=len(SHAPES), **tolerance
):
    """Steps of the jitted and of the plain optimizer; the jitted step."""
    params, theirs = parameters(count), parameters(count)
    ours_optimizer, their_optimizer = cls(params, **options), cls(theirs, **options)
    jitted = jit_for_test(lambda: ours_optimizer.step())
    for k in range(steps):
        for each, optimizer in ((params, ours_optimizer), (theirs, their_optimizer)):
            set_gradients(each, k)
            change(optimizer, k)
        jitted()
        their_optimizer.step()
        assert_same_state(ours_optimizer, their_optimizer, **tolerance)
    return jitted


@pytest.mark.parametrize("foreach", [None, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name, foreach):
    cls, options = OPTIMIZERS[name]
    jitted = run_both(cls, {**options, "foreach": foreach})
    if name in IN_ONE_GRAPH:
        assert not jitted.explanation.breaks


def test_parameters_without_gradients():
    def change(optimizer, k):
        optimizer.param_groups[0]["params"][k].grad = None

    run_both(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, change=change)


def test_learning_rates_that_change():
    def change(optimizer, k):
        optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)

    run_both(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, steps=6, change=change)


def test_a_learning_rate_that_is_a_tensor():
    def change(optimizer, k):
        optimizer.param_groups[0]["lr"].fill_(0.1 / (k + 1))

    params, theirs = parameters(), parameters()
    pair = [
        torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9, foreach=True)
        for p in (params, theirs)
    ]
    jitted = jit_for_test(lambda: pair[0].step())
    for k in range(5):
        for each, optimizer in zip((params, theirs), pair, strict=True):
            set_gradients(each, k)
            change(optimizer, k)
        jitted()
        pair[1].step()
        assert_same_state(*pair)


def test_several_groups():
    params, theirs = parameters(8), parameters(8)
    pair = [
        torch.optim.SGD([{"params": p[:3], "lr": 0.5}, {"params": p[3:]}], lr=0.1, momentum=0.9)
        for p in (params, theirs)
    ]
    jitted = jit_for_test(lambda: pair[0].step())
    for k in range(3):
        set_gradients(params, k)
        set_gradients(theirs, k)
        jitted()
        pair[1].step()
        assert_same_state(*pair)


def test_hooks_run():
    seen = []

    def change(optimizer, k):
        if k == 2:
            optimizer.register_step_post_hook(lambda *args: seen.append(k))

    run_both(torch.optim.SGD, {"lr": 0.1}, change=change)
    assert seen == [2, 2, 2, 2]


def test_state_that_was_replaced():
    def change(optimizer, k):
        if k == 2:
            optimizer.load_state_dict(optimizer.state_dict())
        if k == 3:
            optimizer.state.clear()

    run_both(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, steps=5, change=change)


def test_tables_by_tensor():
    x, y = torch.randn(3), torch.randn(3)
    table = {x: 1, y: y * 2}

    def reads(a, b):
        table[b] = table[b] + a * table[a]
        table[a] += 1
        del table[b]
        table[b] = a
        return table[a], b in table, [a][0] in table, a.clone() in {a: 1}

    wanted = {x: 1, y: y * 2}
    jitted = jit_for_test(reads)
    results = [jitted(x, y) for _ in range(3)]
    assert [r[:1] + r[1:3] for r in results] == [(2, True, True), (3, True, True), (4, True, True)]
    assert list(table) == list(wanted) and table[y] is x
    with pytest.raises(KeyError):
        jitted(torch.ones(3), y)


FUSED = {
    "adam": (torch.optim.Adam, {"weight_decay": 0.01, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"maximize": True}),
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.01}),
}  # fmt: skip


def rates(optimizer, k):
    optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)


@pytest.mark.parametrize("name", FUSED)
def test_fused_kernels_of_the_cpu(name):
    cls, options = FUSED[name]
    # The kernels multiply and add with one rounding.
    options = {**options, "fused": True}
    jitted = run_both(cls, options, steps=6, change=rates, rtol=1e-5, atol=1e-6)
    assert not jitted.explanation.breaks
    assert len(jitted.explanation.graphs) == 2


def test_a_rate_that_changes_before_what_cannot_be_recorded():
    """Plain Python takes the call with whatever number; 16-bit parameters are not rounded as plain ops round."""
    params = [torch.nn.Parameter(torch.randn(3).bfloat16()) for _ in range(3)]
    optimizer = torch.optim.Adam(params, fused=True)
    jitted = jit_for_test(lambda: optimizer.step())
    for k in range(8):
        for p in params:
            p.grad = torch.ones_like(p)
        rates(optimizer, k)
        jitted()
    assert len(jitted.explanation.breaks) <= 3


@pytest.mark.parametrize("cls", [torch.optim.NAdam, torch.optim.AdamW])
def test_lists_of_many_tensors(cls):
    jitted = run_both(cls, {"foreach": True}, steps=3, change=rates, count=120)
    assert not jitted.explanation.plain and not jitted.explanation.breaks
    assert len(jitted.explanation.graphs) == 2
