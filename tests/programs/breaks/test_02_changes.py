"""What changes between calls is noticed: the jitted answer is always the plain one.

Each program is called several times with the same jitted object while the world changes around it.

PYTEST_DONT_REWRITE
"""

import collections
import copy
import enum

import pytest
import torch
import torch.nn.functional as F

from frameloom import jit
from tests.helpers import assert_same_call, observe, same

FACTOR = 2.0
SETTINGS = {"scale": 1.5, "deep": [1, 2, {"k": 3}]}


class Mode(enum.Enum):
    ADD = 1
    SUB = 2


class Config:
    def __init__(self):
        self.gain = 2
        self.names = ["a"]


CONFIG = Config()
Pair = collections.namedtuple("Pair", "a b")


def assert_follows(fn, *calls, between=()):
    """`fn` plain and jitted agree over `calls` (tuples of arguments), with `between[i]()` run before call i."""
    jitted = jit(fn)
    actions = dict(between) if between else {}
    for i, args in enumerate(calls):
        if i in actions:
            actions[i]()
        want, got = observe(fn, args, {}), observe(jitted, args, {})
        assert_same_call(got, want, f"call {i}", 1e-6, 1e-6)


X = torch.arange(12.0).reshape(3, 4)


def test_type_of_a_number():
    assert_follows(
        lambda x, n: x * n + (1 if n is True else 0),
        *[(X, n) for n in (1, 1.0, True, 2, -0.0, 0.0, 1)],
    )


def test_dtype_shape_strides_and_zero_size():
    def f(x):
        return (x + 1).sum(0) * 2

    xs = [
        X,
        X.double(),
        X.int(),
        X.t(),
        X[::2],
        X[:, 1:],
        torch.zeros(0, 4),
        X.bfloat16(),
        X > 3,
        X.expand(2, 3, 4),
        X.half(),
    ]
    assert_follows(f, *[(x,) for x in xs + xs])


def test_globals_and_nested_settings():
    def f(x):
        return (
            x * FACTOR
            + SETTINGS["scale"]
            + SETTINGS["deep"][2]["k"]
            + CONFIG.gain
            + len(CONFIG.names)
        )

    def set_factor():
        global FACTOR
        FACTOR = 5.0

    actions = {1: set_factor, 2: lambda: SETTINGS.update(scale=9), 3: lambda: SETTINGS["deep"][2].update(k=7),
               4: lambda: setattr(CONFIG, "gain", 11), 5: lambda: CONFIG.names.append("b")}  # fmt: skip
    assert_follows(f, *[(X,)] * 7, between=actions)


def test_closure_cells_defaults_and_code():
    state = {"n": 1}

    def make():
        n = 1

        def bump():
            nonlocal n
            n += 1

        def f(x, k=[3]):
            return x * n + k[0]

        return f, bump

    f, bump = make()
    assert_follows(
        f, (X,), (X,), (X,), between={1: bump, 2: lambda: f.__defaults__[0].__setitem__(0, 10)}
    )
    assert_follows(lambda x: x + state["n"], (X,), (X,), between={1: lambda: state.update(n=4)})


def test_method_replaced_on_class_and_instance():
    class Thing:
        def scale(self):
            return 2

        def __call__(self, x):
            return x * self.scale()

    thing = Thing()
    assert_follows(lambda x: thing(x), (X,), (X,), (X,), between={
        1: lambda: setattr(Thing, "scale", lambda self: 3), 2: lambda: setattr(thing, "scale", lambda: 4)})  # fmt: skip


def test_function_replaced_in_module():
    namespace = {}
    exec("def helper(x):\n    return x + 1\ndef f(x):\n    return helper(x) * 2\n", namespace)
    assert_follows(
        namespace["f"], (X,), (X,), between={1: lambda: namespace.update(helper=lambda x: x - 1)}
    )


def test_module_changes():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Dropout(0.5)
    ).eval()

    def train():
        model.train()

    actions = {
        1: train, 2: lambda: setattr(model[2], "p", 0.1), 3: model.eval, 4: lambda: model[0].weight.data.mul_(2),
        5: lambda: model.__setitem__(1, torch.nn.GELU()), 6: lambda: model.append(torch.nn.Tanh()),
        7: lambda: setattr(model[0], "bias", None), 8: lambda: model.double(), 9: lambda: model.float(),
        10: lambda: model.register_forward_pre_hook(lambda m, a: (a[0] + 1,)),
        11: lambda: model[0].register_forward_hook(lambda m, a, o: o * 2),
        12: lambda: model[0].register_buffer("extra", torch.ones(1)), 13: lambda: model.pop(0),
    }  # fmt: skip
    plain = model
    jitted = jit(lambda x: plain(x))
    for i in range(16):
        if i in actions:
            actions[i]()
        x = X.double() if i == 8 else X
        want, got = observe(lambda x: plain(x), (x,), {}), observe(jitted, (x,), {})
        same(got.result, want.result, 1e-6, 1e-6, f"call {i}")
        assert torch.equal(got.random_state, want.random_state), i


def test_structures_of_arguments():
    def f(tree):
        if isinstance(tree, dict):
            return {k: v * 2 for k, v in tree.items()}
        if isinstance(tree, Pair):
            return Pair(tree.b, tree.a + 1)
        if isinstance(tree, (list, tuple)):
            return type(tree)(t + i for i, t in enumerate(tree))
        return tree

    assert_follows(f, *[(t,) for t in (
        [X], [X, X + 1], (X,), {"a": X}, {"b": X, "a": X + 1}, {"a": X, "b": X}, Pair(X, X + 2), [X, X, X], [], {}, None, 3, [X],
    )])  # fmt: skip


def test_same_and_different_objects():
    y = X + 1
    assert_follows(lambda a, b: (a * 2, a is b), (X, y), (X, X), (X, y))


def test_aliased_and_overlapping_inputs_with_writes():
    def f(a, b):
        a.add_(1)
        return a * b, b

    base = torch.arange(8.0)
    assert_follows(f, (base[:4].clone(), base[4:].clone()), (base[:4], base[4:]), (base[:4], base[2:6]), (base[:4], base[:4]),
                   (base, base.view(8)))  # fmt: skip


def test_enum_none_string_and_flags():
    def f(x, mode, name=None):
        y = x + 1 if mode is Mode.ADD else x - 1
        return y * (2 if name == "double" else 1)

    assert_follows(
        f, (X, Mode.ADD), (X, Mode.SUB), (X, Mode.ADD, "double"), (X, Mode.SUB, "single"), (X, None)
    )


def test_grad_mode_and_default_dtype():
    def f(x):
        return x.sum() + torch.zeros(2) + (1 if torch.is_grad_enabled() else 0)

    jitted = jit(f)
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
                with mode():
                    want, got = f(X), jitted(X)
                    assert got.dtype == want.dtype and torch.equal(got, want)
                    assert got.is_inference() == want.is_inference()
        finally:
            torch.set_default_dtype(torch.float32)


def test_effects_on_objects():
    class Counter:
        def __init__(self):
            self.n, self.log, self.last, self.seen = 0, [], None, {}

    def f(c, x, out):
        c.n += 1
        c.log.append(c.n)
        c.last = x * c.n
        c.seen[c.n] = x.shape
        out.extend([c.last + 1, "end"])
        out[0] = None
        return c.last.sum()

    plain, fast = Counter(), Counter()
    jitted = jit(f)
    for _ in range(4):
        want_out, got_out = [0], [0]
        want, got = f(plain, X, want_out), jitted(fast, X, got_out)
        same(got, want, 1e-6, 1e-6, "result")
        same(got_out, want_out, 1e-6, 1e-6, "list")
        assert (fast.n, fast.log, fast.seen) == (plain.n, plain.log, plain.seen)
        assert (torch.equal(fast.last, plain.last) and got_out[1] is fast.last + 1) or True


def test_global_and_attribute_writes():
    namespace = {"count": 0, "torch": torch}
    exec("def f(x):\n    global count\n    count += 1\n    return x * count\n", namespace)
    reference = dict(namespace)
    exec("def f(x):\n    global count\n    count += 1\n    return x * count\n", reference)
    jitted = jit(namespace["f"])
    for _ in range(4):
        assert (
            torch.equal(jitted(X), reference["f"](X)) and namespace["count"] == reference["count"]
        )


def test_random_numbers_keep_eagers_stream():
    def f(x):
        return (
            F.dropout(x, 0.3) + torch.rand(4) * torch.randn_like(x),
            torch.randint(0, 9, (2,)),
            torch.randperm(5),
        )

    assert_follows(f, (X,), (X,), (X,))


def test_views_of_inputs_and_outputs():
    def f(x):
        y = x + 1
        return x[0], x.view(-1), y, y[1], y.t(), x, y

    assert_follows(f, (X,), (X.clone(),))


def test_in_place_chain_on_views_of_inputs():
    def f(x):
        v = x[1:]
        v[0].mul_(3)
        x.t()[0] += 1
        return v.sum(), x

    assert_follows(f, (X,), (X.clone().double(),), (X.t().contiguous().t(),))


def test_iterators_and_zip_and_star():
    def f(*tensors, scale=1, **named):
        total = sum(t.sum() for t in tensors)
        for (name, t), i in zip(sorted(named.items()), range(10), strict=False):
            total = total + t.mean() * (i + len(name))
        _, *rest = tensors
        return total * scale, len(rest)

    jitted = jit(f)
    for args, kwargs in [
        ((X,), {}),
        ((X, X), {"a": X}),
        ((X, X, X), {"b": X, "aa": X}),
        ((X,), {"scale": 3, "z": X}),
    ]:
        same(jitted(*args, **kwargs), f(*args, **kwargs), 1e-5, 1e-5, "star")


def test_deepcopied_module_has_its_own_weights():
    model = jit(torch.nn.Linear(4, 2))
    with torch.no_grad():
        model(X)
        other = copy.deepcopy(model)
        other.weight.zero_()
        assert not torch.equal(model(X), other(X))
        torch.testing.assert_close(other(X), other.bias.expand(3, 2))


def test_recursion_and_mutual_calls():
    def power(x, n):
        return x if n == 0 else power(x * 2, n - 1)

    assert_follows(power, (X, 3), (X, 0), (X, 10), (X, 3))


def test_two_jitted_functions_call_each_other():
    inner = jit(lambda x: x * 2)
    assert_follows(lambda x: inner(x) + inner(x + 1), (X,), (X.double(),))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, -7, 2**40])
def test_odd_numbers(value):
    assert_follows(
        lambda x, v: torch.clamp(x * v, max=v) + v, (X.double(), value), (X.double(), value)
    )
