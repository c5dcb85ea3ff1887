"""`jit` and its friends as a user meets them."""

import copy
import functools
import gc
import pickle
import warnings
import weakref
from dataclasses import replace
from types import FunctionType

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import frameloom
from frameloom import FullGraphError, OptionError, compiler, disable, explain, graph_break, jit
from frameloom.capture.recording import function_call
from tests import fresh
from tests.helpers import check


def double_plus(x, y=1, *, scale=2.0):
    return x * scale + y


class Scaler:
    factor = 3.0

    @jit
    def apply(self, x):
        return x * self.factor

    @staticmethod
    @jit
    def relu(x):
        return torch.relu(x) + 1

    @classmethod
    @jit
    def scaled(cls, x):
        return x * cls.factor

    def __call__(self, x):
        return x - self.factor


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def test_decorator_with_and_without_options():
    @jit
    def f(x):
        return x + 1

    @jit(fullgraph=True)
    def g(x):
        return x + 2

    x = torch.randn(5)
    assert torch.equal(f(x), x + 1) and torch.equal(g(x), x + 2)
    assert f.__name__ == "f" and f.__wrapped__.__name__ == "f"


def test_every_kind_of_argument():
    f, x = jit(double_plus), torch.randn(4)
    for args, kwargs in [
        ((x,), {}),
        ((x, 3), {}),
        ((x,), {"y": 2.5}),
        ((x, 1), {"scale": -1.0}),
        ((), {"x": x}),
    ]:
        assert torch.equal(f(*args, **kwargs), double_plus(*args, **kwargs))
    with pytest.raises(TypeError, match=r"double_plus\(\) got an unexpected keyword"):
        f(x, wrong=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        f()


def test_methods_static_class_and_callable_objects():
    s, x = Scaler(), torch.randn(4)
    assert torch.equal(s.apply(x), x * 3)
    assert torch.equal(Scaler.relu(x), torch.relu(x) + 1)
    assert torch.equal(Scaler.scaled(x), x * 3)
    assert torch.equal(jit(s)(x), x - 3)
    assert torch.equal(jit(s.apply)(x), x * 3)
    s.factor = 5.0
    assert torch.equal(s.apply(x), x * 5)


def test_lambda_and_closure():
    k = torch.randn(4)
    f = jit(lambda x: x + k)
    x = torch.randn(4)
    assert torch.equal(f(x), x + k)
    k = torch.randn(4)
    assert torch.equal(f(x), x + k)


def test_module_stays_itself():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    ).eval()
    keys, x = list(model.state_dict()), torch.randn(3, 4)
    want = model(x)
    same = jit(model)
    assert (
        same is model
        and isinstance(model, torch.nn.Sequential)
        and list(model.state_dict()) == keys
    )
    torch.testing.assert_close(model(x), want)
    torch.testing.assert_close(copy.deepcopy(model)(x), want)
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(x), want)
    seen = []
    handle = model.register_forward_hook(lambda m, a, out: seen.append(1) or out + 1)
    torch.testing.assert_close(model(x), want + 1)
    handle.remove()
    torch.testing.assert_close(model(x), want)
    assert len(seen) == 1
    torch.manual_seed(0)
    trained = model.train()(x)
    torch.manual_seed(0)
    torch.testing.assert_close(trained, copy.deepcopy(model)(x))
    torch.testing.assert_close(model.eval()(x), want)
    with torch.no_grad():
        model[0].weight.mul_(2)
    torch.testing.assert_close(model(x), copy.deepcopy(model)(x))


def by_dictionary(module):
    made = type(module).__new__(type(module))
    made.__dict__ = dict(module.__dict__)
    return made


@pytest.mark.parametrize("way", [by_dictionary, copy.copy, nn.Module._replicate_for_data_parallel])
@pytest.mark.parametrize("kind", [nn.Linear, nn.GRU])
def test_copies_that_share_a_modules_dictionary_have_their_own_parameters(kind, way):
    """As `nn.DataParallel` makes them, and `copy.copy` of modules that pickle their whole dictionary."""
    x, model, plain = torch.randn(2, 3), kind(3, 3), kind(3, 3)
    plain.load_state_dict(model.state_dict())
    frameloom.jit(model)
    model(x)
    results = []
    for module in model, plain:
        other = way(module)
        other.__dict__["_parameters"] = dict(other._parameters)
        for name, parameter in module._parameters.items():
            other.__dict__.pop(name, None)
            other._parameters.pop(name, None)
            setattr(other, name, torch.ones_like(parameter))
        if kind is nn.GRU:
            other._flat_weights = [getattr(other, name) for name in other._flat_weights_names]
        around = frameloom.jit(lambda x, other=other: other(x))
        results.append([*tree_leaves([other(x), around(x), around(x), module(x)])])
    torch.testing.assert_close(*results)


def test_module_parameters_can_be_replaced():
    model = jit(torch.nn.Linear(4, 4))
    x = torch.randn(2, 4)
    model(x)
    model.weight = torch.nn.Parameter(torch.ones(4, 4))
    torch.testing.assert_close(model(x), F.linear(x, torch.ones(4, 4), model.bias))


@pytest.mark.parametrize(("options", "says"), [
    (dict(fullgraph=1), "fullgraph=1"), (dict(dynamic="x"), "dynamic='x'"), (dict(dynamic=1), "dynamic=1"),
    (dict(mode="fast"), "mode='fast'"), (dict(mode=3), "mode=3"), (dict(backend="tvm"), "backend='tvm'"),
    (dict(backend=3), "backend=3"), (dict(options=3), "options=3"), (dict(options={"x": 1}), "unknown 'x'"),
    (dict(options={"memory_budget": 1.5}), "from 0 to 1"), (dict(options={"memory_budget": True}), "from 0 to 1"), (dict(options={"freezing": 3}), "accepted: False, True"), (dict(options={"numerics": "wild"}), "accepted: 'eager'"),
])  # fmt: skip
def test_wrong_options_say_what_is_possible(options, says):
    with pytest.raises(OptionError, match=says):
        jit(double_plus, **options)


@pytest.mark.parametrize("thing", [3, "f", int, Scaler])
def test_what_cannot_be_jitted(thing):
    with pytest.raises(OptionError):
        jit(thing)


def test_functions_written_in_c():
    x = torch.ones(3)
    sine = jit(torch.sin, fullgraph=True, backend="eager")
    assert sine.__name__ == "sin" and torch.equal(sine(x), x.sin())
    assert torch.equal(jit(torch.Tensor.cos, fullgraph=True, backend="eager")(x), x.cos())


def test_eager_backend_and_callable_backend():
    seen = []

    def backend(gm, example_inputs):
        seen.append((gm, example_inputs))
        return gm.forward

    def f(x, y):
        return torch.relu(x @ y), x + 1

    x, y = torch.randn(3, 4), torch.randn(4, 5)
    for jitted in (
        jit(f, backend="eager"),
        jit(f, backend=backend),
        jit(f, backend=lambda gm, inputs: gm),
    ):
        for _ in range(2):
            torch.testing.assert_close(jitted(x, y), f(x, y))
    ((gm, inputs),) = seen
    assert isinstance(gm, torch.fx.GraphModule) and [t.shape for t in inputs] == [x.shape, y.shape]
    assert frameloom.list_backends() == ["frameloom", "eager"]


def test_failing_backend_is_named():
    def broken(gm, example_inputs):
        raise ZeroDivisionError("no")

    with pytest.raises(frameloom.BackendError, match=r"broken.*ZeroDivisionError: no"):
        jit(lambda x: x + 1, backend=broken)(torch.ones(2))
    with pytest.raises(frameloom.BackendError, match="returned int"):
        jit(lambda x: x + 1, backend=lambda gm, inputs: 3)(torch.ones(2))


def test_disable_as_decorator_and_context():
    calls = []

    @disable
    def logged(x):
        calls.append(x.sum().item())
        return x + 1

    @jit
    def f(x):
        return logged(x * 2) * 3

    x = torch.randn(4)
    frameloom.reset()
    for _ in range(3):
        torch.testing.assert_close(f(x), (x * 2 + 1) * 3)
    assert len(calls) == 3 and frameloom.stats()["graphs"] == 2
    with disable():
        g = jit(lambda x: x - 1)
        assert torch.equal(g(x), x - 1)
    assert frameloom.stats()["graphs"] == 2
    assert torch.equal(g(x), x - 1)
    assert frameloom.stats()["graphs"] == 3


def test_graph_break_and_is_compiling():
    def f(x):
        y = x + 1
        graph_break()
        return y * 2

    check(f, torch.randn(3), graphs=2, breaks=1)

    @jit
    def g(x):
        return x + (1 if frameloom.is_compiling() else 2)

    assert torch.equal(g(torch.zeros(2)), torch.ones(2))
    assert not frameloom.is_compiling()


def test_streams_of_devices_that_pytorch_was_not_built_for():
    """Asking whether one is being captured raises there."""

    def f(x):
        try:
            captured = torch.xpu.is_current_stream_capturing()
        except Exception:
            captured = False
        return x + 1 if captured else x - 1

    def g(x):
        y = x + 1
        torch.xpu.is_current_stream_capturing()
        return y

    check(f, torch.randn(3), graphs=1, breaks=0)
    check(g, torch.randn(3))


def test_fullgraph_names_the_break():
    @jit(fullgraph=True)
    def f(x):
        y = x + 1
        print("now")
        return y

    with pytest.raises(FullGraphError) as info:
        f(torch.ones(2))
    text = str(info.value)
    assert "print" in text and "test_api.py" in text and len(text.splitlines()) <= 6


def test_stats_count_graphs_breaks_and_recompiles():
    frameloom.reset()
    assert frameloom.stats()["graphs"] == 0

    @jit
    def f(x):
        return x * 2

    f(torch.ones(2)), f(torch.ones(2)), f(torch.ones(3))
    counts = frameloom.stats()
    assert (counts["graphs"], counts["breaks"], counts["recompiles"]) == (2, 0, 1)
    frameloom.reset()
    f(torch.ones(2))
    assert frameloom.stats()["graphs"] == 1


@pytest.mark.compiled
def test_explain_returns_graphs_breaks_guards_kernels():
    def f(x):
        y = torch.relu(x) + 1
        print("mid")
        return y * 2

    report = explain(f)(torch.ones(4))
    assert torch.equal(report.result, torch.ones(4) * 4)
    assert len(report.graphs) == 2 and len(report.breaks) == 1 and len(report.kernels) == 2
    assert report.breaks[0].where.line == f.__code__.co_firstlineno + 2
    assert "tensor" in " ".join(report.guards) and "void" in report.kernels[0].source
    assert "2 graph(s)" in str(report)


def test_explain_takes_static_methods():
    twice = staticmethod(lambda x: x * 2)
    named = classmethod(lambda cls, x: x * len(cls.__name__))
    x = torch.ones(4)
    for fn in (twice, functools.partial(twice), named.__get__(None, dict)):
        report = explain(fn, backend="eager")(x)
        assert torch.equal(report.result, fn(x)) and len(report.graphs) == 1
    with pytest.raises(TypeError, match="'classmethod' object is not callable"):
        explain(named)(x)


@pytest.mark.compiled
def test_explain_tells_of_backward_passes_once_they_came():
    weight = torch.randn(4, 3, requires_grad=True)
    with torch.enable_grad():
        report = explain(lambda x: (x @ weight).exp().sum())(torch.randn(2, 4))
    before = len(report.kernels)
    assert "backward of" not in str(report)
    report.result.backward()
    assert "backward of graph 0" in str(report)
    assert len(report.kernels) == before + len(report.graphs[0].backward[0].kernels) > before


def test_gradients_run_plainly_with_one_notice(monkeypatch):
    monkeypatch.setattr(function_call, "config", replace(function_call.config, gradients=False))
    w = torch.nn.Parameter(torch.ones(3))

    @jit
    def f(x):
        return (x * w).sum()

    frameloom.reset()
    with torch.enable_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            f(torch.ones(3)).backward()
    assert torch.equal(w.grad, torch.full((3,), 3.0))
    assert len([c for c in caught if "gradient" in str(c.message)]) == 1
    assert f(torch.ones(3)).item() == 3 and not f(torch.ones(3)).requires_grad


def test_entries_have_a_budget():
    @jit(dynamic=False)
    def f(x):
        return x + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 40):
            assert torch.equal(f(torch.ones(n)), torch.full((n,), 2.0))
    assert len([c for c in caught if "compiled entries" in str(c.message)]) == 1


def test_deleting_a_jitted_function_frees_everything():
    class Big:
        pass

    big = Big()
    model = jit(torch.nn.Linear(4, 4))
    weights = weakref.ref(model.weight)

    def f(x):
        return model(x) + (1 if big else 0)  # noqa: F821 (deleted below on purpose)

    jitted = jit(f)
    jitted(torch.randn(2, 4)), model(torch.randn(2, 4))
    refs = [weakref.ref(jitted), weakref.ref(f), weakref.ref(big), weakref.ref(model), weights]
    del jitted, f, big, model
    gc.collect()
    assert [r() for r in refs] == [None] * len(refs)


def test_import_is_light_and_disable_variable_works():
    program = """
import os, sys
os.environ["FRAMELOOM_DISABLE"] = "1"
import torch
from torch import nn
from torch.utils._pytree import tree_leaves
before = set(sys.modules)
import frameloom
f = lambda x: x
assert frameloom.jit(f) is f
assert not [m for m in sys.modules if m.startswith(("sympy", "triton", "networkx"))], "heavy import"
"""
    fresh.run(program, check=True)


def test_without_a_compiler_functions_run_plainly(tmp_path):
    program = """
import warnings, torch, frameloom
with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter("always")
    f, g = frameloom.jit(lambda x: torch.relu(x) + 1), frameloom.jit(lambda x: x * 3 - 1)
    x = torch.randn(5)
    for _ in range(3):
        assert torch.equal(f(x), torch.relu(x) + 1) and torch.equal(g(x), x * 3 - 1)
print(len([c for c in caught if "plain" in str(c.message)]))
"""
    environment = {
        "CXX": "/nonexistent/g++",
        "PATH": "/nonexistent",
        "FRAMELOOM_CACHE_DIR": str(tmp_path),
    }
    out = fresh.run(program, env=environment, check=True)
    assert out.stdout.strip() == "1"


def test_notices_are_no_exceptions_where_warnings_are_errors(monkeypatch, capsys):
    monkeypatch.setattr(compiler, "config", replace(compiler.config, entries=2))

    @jit(dynamic=False)
    def f(x, name):
        return x + len(name)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in "a", "ab", "abc", "abcd":
            assert f(torch.ones(2), name).tolist() == [1 + len(name)] * 2
    assert capsys.readouterr().err.count("compiled entries") == 1


def test_functions_that_come_one_after_another_have_a_notice_each(monkeypatch):
    """Also where one lies where another one lay."""
    monkeypatch.setattr(compiler, "config", replace(compiler.config, entries=1))
    for _ in range(10):
        f = jit(lambda x, name: x + len(name), dynamic=False)
        with pytest.warns(RuntimeWarning, match="compiled entries"):
            for name in "a", "ab", "abc":
                f(torch.ones(2), name)
        del f
        gc.collect()


def with_default(x, k=1):
    frameloom.graph_break()
    return x * k


class Called:
    def __call__(self, x):
        return x * 2


def test_what_is_changed_of_a_jitted_callable_counts():
    """Defaults behind a break, what a partial holds, the `__call__` of a class."""
    x, changed = torch.ones(2), FunctionType(with_default.__code__, globals(), argdefs=(1,))
    jitted = jit(changed)
    assert jitted(x).tolist() == [1, 1]
    changed.__defaults__ = (7,)
    assert jitted(x).tolist() == [7, 7]
    part = functools.partial(with_default, k=2)
    jitted = jit(part)
    assert jitted(x).tolist() == [2, 2]
    part.keywords["k"] = 5
    assert jitted(x).tolist() == [5, 5]

    class Other(Called):
        def __call__(self, x):
            return x - 7

    made = Called()
    jitted = jit(made)
    assert jitted(x).tolist() == [2, 2]
    made.__class__ = Other
    assert jitted(x).tolist() == [-6, -6]
