"""Functions that only uncaptured Python of a jitted function reaches are compiled too, and only there."""

import copy
import gc
import weakref

import pytest
import torch

import frameloom
from frameloom import explain, jit
from tests.helpers import check

X = torch.arange(12.0).reshape(3, 4) / 5


def scored(x):
    return (x.sin() * 2 + x.cos()).sum().item()


def test_a_callback_of_a_c_function_is_compiled():
    def pick(rows):
        return sorted(rows, key=scored)[0] * 2

    report = explain(pick)([X[0], X[1], X[2]])
    assert report.n_ops >= 3, report
    assert torch.equal(report.result, pick([X[0], X[1], X[2]]))


def test_it_is_left_alone_elsewhere():
    seen = []

    def watched(x):
        seen.append(frameloom.is_compiling())
        return x.sin() + 1

    @jit
    def f(x):
        return next(map(watched, iter([x]))) if x.sum().item() > 0 else x

    f(X), f(X)
    seen.clear()
    watched(X)
    assert seen == [False]


def test_inside_a_function_that_cannot_be_captured():
    def layer(x):
        return x.sin() * 2 + 1

    def outer(x):
        assert locals()["x"] is x
        return layer(x)

    report = explain(outer)(X)
    assert len(report.graphs) == 1 and report.plain, report
    assert torch.allclose(report.result, layer(X))


def test_modules_called_by_a_library(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()

    def f(x):
        return [y for y in map(model, sorted([x, x * 2], key=lambda t: t.sum().item()))]

    with torch.no_grad():
        check(f, X)
        assert explain(f)(X).n_ops >= 2


def test_an_exception_passes():
    class Own(Exception):
        pass

    def raises(x):
        y = x * 2
        if y.sum().item() > 0:
            raise Own("here")
        return y

    @jit
    def f(x):
        try:
            return sorted([x, x], key=raises)
        except Own as error:
            return str(error)

    assert f(X) == f(X) == "here"


def test_a_check_of_data_that_fails():
    """Such a check may be captured only where the call can start anew, which a frame of the hook cannot."""

    def inner(x):
        y = x.sin() + 1
        if (y > 1.5).any():
            raise ValueError("big")
        return y * 2

    def outer(x):
        assert locals()
        return inner(x)

    jitted = jit(outer)
    for value in (0.1, 0.1):
        torch.testing.assert_close(jitted(torch.full((3,), value)), outer(torch.full((3,), value)))
    with pytest.raises(ValueError, match="big"):
        jitted(torch.ones(3))


def test_disabled_code_stays_plain():
    seen = []

    def inner(x):
        seen.append(frameloom.is_compiling())
        return x + 1

    @frameloom.disable
    def outer(x):
        return inner(x)

    @jit
    def f(x):
        return outer(x) * 2

    f(X), f(X)
    assert seen == [False, False]


def test_reset_and_deletion_let_go():
    def callback(x):
        return (x.sin() + x.cos()).sum().item()

    def f(rows):
        return max(rows, key=callback)

    jitted = jit(f)
    want = f([X[0], X[1]])
    assert torch.equal(jitted([X[0], X[1]]), want)
    frameloom.reset()
    assert torch.equal(jitted([X[0], X[1]]), want)
    code = weakref.ref(jitted)
    del jitted
    gc.collect()
    assert code() is None
    again = jit(f)
    assert torch.equal(again([X[0], X[1]]), want)


def test_two_backends_share_what_was_compiled():
    def callback(x):
        return (x * 3).sum().item()

    def f(rows):
        return min(rows, key=callback)

    rows = [X[0], X[1]]
    assert torch.equal(jit(f)(rows), jit(f, backend="eager")(copy.deepcopy(rows)))


@pytest.mark.parametrize("grad", [False, True])
def test_gradients_flow(grad):
    layer = torch.nn.Linear(4, 2)

    def f(x):
        return sorted([layer(x)], key=lambda t: t.sum().item())[0].sum()

    with torch.set_grad_enabled(grad):
        want, got = f(X), jit(f)(X)
    torch.testing.assert_close(got, want)
    assert got.requires_grad == want.requires_grad


def test_looking_for_tensors_asks_no_object():
    asked = []

    class Nosy:
        @property
        def __class__(self):
            asked.append("class")
            return torch.Tensor

    class Items(list):
        def __getitem__(self, key):
            asked.append("item")
            return super().__getitem__(key)

    class Table(dict):
        def values(self):
            asked.append("values")
            return super().values()

    def count(items, table, one):
        return 1

    @jit
    def f(x):
        arguments = [Items([Nosy()])], [Table(a=Nosy())], [Nosy()]
        return x + sum(map(count, *arguments), start=x.sum().item())

    f(X)
    assert not asked


def test_what_implements_an_operator_is_left_alone():
    """It is one call to the program and to us, whatever it does inside."""

    def only_some(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        for n in rows.tolist():
            result[n] = x[n] * 2
        return result

    op = torch.library.custom_op(
        "frameloom_tests::only_some", only_some, mutates_args=(), schema="(Tensor x, Tensor rows) -> Tensor"
    )  # fmt: skip
    op.register_fake(lambda x, rows: torch.empty_like(x))

    def f(x, rows):
        if x.sum() > 100:
            return x
        return op(x.sin(), rows).cos()

    report = explain(f)(X, torch.tensor([0, 2]))
    assert len(report.breaks) == 1, report
    check(f, X, torch.tensor([0, 2]))


@pytest.mark.parametrize("backend", ["eager", lambda gm, inputs: lambda *given: gm(*given)])
def test_what_a_backend_runs_is_left_alone(backend):
    def f(x):
        y = x + 1
        print(end="")
        return y * 2 if y.sum() > 0 else y

    frameloom.reset()
    g = jit(f, backend=backend)
    for k in range(3):
        assert torch.equal(g(torch.full((3,), k - 1.0)), f(torch.full((3,), k - 1.0)))
    assert frameloom.stats()["graphs"] <= 4
