"""Numbers that vary become inputs: two compiles for any number of values, and results as with constants."""

import math

import pytest
import torch

import frameloom
from frameloom import jit

X = torch.linspace(-3, 3, 37)


def run(fn, calls, most=2, **options):
    """Every call gives what one with the number as a constant does, bit for bit, with at most `most` graphs."""
    frameloom.reset()
    want = []
    for args in calls:
        want.append(jit(fn, dynamic=False)(*args))
    frameloom.reset()
    compiled = jit(fn, **options)
    for args, expected in zip(calls, want, strict=True):
        got = compiled(*args)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        assert type(got) is type(expected)
    assert frameloom.stats()["graphs"] <= most, frameloom.stats()
    assert frameloom.stats()["breaks"] == 0


FLOATS = [0.5, 0.25, 1e-3, 1.0, 2.0, -0.0, 1e10, -3.7, 1 / 3]
INTS = [3, 0, 1, -7, 2, 1 << 40, 255]


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, a: x * a,
        lambda x, a: a - x,
        lambda x, a: x.add(x, alpha=a),
        lambda x, a: torch.addcmul(x, x, x, value=a),
        lambda x, a: torch.addcdiv(x, x, x.abs() + 1, value=a),
        lambda x, a: x.lerp(x * 2, a),
        lambda x, a: x.clamp(min=a),
        lambda x, a: torch.where(x > a, x, a),
        lambda x, a: x.masked_fill(x > 0, a),
        lambda x, a: torch.full_like(x, a) + x,
        lambda x, a: x.clone().fill_(a) * x,
        lambda x, a: (x / a, x > a),
        lambda x, a: torch._foreach_mul([x, x + 1], a)[1],
        lambda x, a: torch._foreach_add([x, x + 1], [x, x], alpha=a)[0],
        lambda x, a: torch._foreach_addcdiv([x, x], [x, x], [x + 9, x + 9], [a, a * 2])[1],
        lambda x, a: x.mul_(a).sum() if False else x.mul(a).sum(),
        lambda x, a: x**2 * a,
    ],
)
def test_a_float_in_an_op(fn, dtype):
    run(fn, [(X.to(dtype), a) for a in FLOATS if dtype != torch.float16 or abs(a) < 6e4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
@pytest.mark.parametrize(
    "fn", [lambda x, n: x * n, lambda x, n: x + n, lambda x, n: n - x, lambda x, n: x > n, lambda x, n: x.clamp(max=n)]
)  # fmt: skip
def test_an_int_in_an_op(fn, dtype):
    run(fn, [(X.to(dtype), n) for n in INTS])


@pytest.mark.parametrize("kind", [int, float])
def test_ints_and_floats_beside_integers(kind):
    run(lambda x, n: x * n, [(torch.arange(9, dtype=torch.int32), kind(n)) for n in (2, 3, 4)])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, a, n: x * (a * n + 1),
        lambda x, a, n: x * (a / n),
        lambda x, a, n: x * (n / 7 - a // 0.3 + a % 0.3),
        lambda x, a, n: x + (n // 3) + (n % 5),
        lambda x, a, n: x * -a + abs(a) - (+n),
        lambda x, a, n: x * a**n,
        lambda x, a, n: x * 0.9**n,
        lambda x, a, n: x + n**2 - (-3) ** n,
        lambda x, a, n: x * math.sqrt(n) + math.exp(-a) * math.log(n) + math.cos(a) * math.sin(n),
        lambda x, a, n: x * (1 + math.cos(math.pi * n / 100)) / 2,
        lambda x, a, n: x + float(n) + int(a * 10) + math.floor(a) + math.ceil(a),
        lambda x, a, n: x * min(n, 5) * max(a, 0.5) + min(a, n * 0.1),
        lambda x, a, n: x * (1 - 0.9**n) ** 0.5 / (1 - 0.999**n),
        lambda x, a, n: (x * a, a * 2, n + 1, n, a),
        lambda x, a, n: {"scaled": x * n, "next": n + 1},
    ],
)
def test_arithmetic(fn):
    calls = [(X, 0.5, 3), (X, 0.7, 4), (X, 1e-3, 11), (X, 2.5, 1), (X, 0.31, 17)]
    frameloom.reset()
    compiled = jit(fn)
    for args in calls:
        got, want = compiled(*args), fn(*args)
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    assert frameloom.stats()["graphs"] <= 2


def test_numbers_of_the_program_are_exact():
    def fn(x, a, n):
        return x + 0, a * 1.1 - n, n * 10**30, a**0.5, (n, [a, a + n])

    compiled = jit(fn)
    for a, n in [(0.1, 1), (0.2, 2), (0.3, 3), (5.5, 10**25)]:
        got, want = compiled(X, a, n), fn(X, a, n)
        assert torch.equal(got[0], want[0])
        assert got[1:] == want[1:]


def test_raising_is_left_to_python():
    def fn(x, a, n):
        log.append(1)
        y = x * (1 / n)
        log.append(2)
        return y * a**0.5

    log = []
    compiled = jit(fn)
    for a, n in [(0.5, 1), (2.0, 2), (3.0, 0), (-1.0, 5), (4.0, 4.0), (2.0, 0.0)]:
        outcomes = []
        for f in (fn, compiled):
            log.clear()
            try:
                result = f(X, a, n)
            except Exception as error:
                result = (type(error), str(error))
            outcomes.append((result, list(log)))
        (want, written), (got, also) = outcomes
        assert written == also
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want)
        else:
            assert got == want


def test_numbers_too_large_for_a_dtype_raise_as_in_eager():
    def fn(x, a):
        return torch.addcmul(x, x, x, value=a)

    compiled = jit(fn)
    compiled(X, 0.5)
    compiled(X, 0.25)
    with pytest.raises(RuntimeError, match="overflow"):
        compiled(X, 1e300)


def test_counters_attributes_globals_and_closures():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.count, self.scale, self.table = 0, 1.0, {"lr": [0.1]}

        def forward(self, x):
            self.count += 1
            self.scale *= 0.9
            return x * self.scale + self.count * self.table["lr"][0] + bound

    bound = 0.0
    plain, model = Model(), Model()
    frameloom.reset()
    compiled = jit(model)
    for k in range(20):
        for m in (plain, model):
            m.table["lr"][0] = 0.1 / (k + 1)
        bound = k * 0.01
        torch.testing.assert_close(compiled(X), plain(X))
        assert (plain.count, plain.scale) == (model.count, model.scale)
    assert frameloom.stats()["graphs"] <= 3


def test_uses_that_need_the_number_are_right():
    def fn(x, n, a):
        y = x[:n] * n
        if a > 0.5:
            y = y + 1
        return y.reshape(1, -1).expand(n, n) + a, f"{n}", {n: a}, list(range(n)), [1, 2, 3, 4, 5][n]

    compiled = jit(fn)
    for n, a in [(1, 0.1), (2, 0.9), (3, 0.6), (4, 0.2)]:
        got, want = compiled(X, n, a), fn(X, n, a)
        torch.testing.assert_close(got[0], want[0])
        assert got[1:] == want[1:]


def test_dynamic_false_has_an_entry_per_value():
    frameloom.reset()
    compiled = jit(lambda x, a: x * a, dynamic=False)
    for a in (0.1, 0.2, 0.3):
        compiled(X, a)
    assert frameloom.stats()["graphs"] == 3


def test_bools_and_types_stay_apart():
    def fn(x, a):
        return (x > 0) * a

    compiled = jit(fn)
    for a in (True, False, 1, 2, 3, 1.5, 2.5, 3.5, True):
        got, want = compiled(X, a), fn(X, a)
        assert got.dtype == want.dtype
        assert torch.equal(got, want)


def test_gradients_flow_beside_numbers():
    def fn(x, w, a, n):
        return ((x * w * a).sigmoid() * (a / n)).sum() + torch.addcmul(w, w, w, value=a).sum()

    compiled = jit(fn)
    frameloom.reset()
    for a, n in [(0.5, 2), (0.25, 3), (0.75, 4), (2.5, 5)]:
        found = []
        for f in (fn, compiled):
            w = torch.full_like(X, 0.3).requires_grad_()
            loss = f(X, w, a, n)
            loss.backward()
            found.append((loss.detach(), w.grad))
        torch.testing.assert_close(found[1], found[0])
    assert frameloom.stats()["graphs"] <= 2
    w = torch.full_like(X, 0.3).requires_grad_()
    (g,) = torch.autograd.grad(compiled(X, w, 1.25, 3), w, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), w)
    v = w.detach().clone().requires_grad_()
    (g2,) = torch.autograd.grad(fn(X, v, 1.25, 3), v, create_graph=True)
    torch.testing.assert_close(h, torch.autograd.grad(g2.sum(), v)[0])


def test_a_library_call_takes_the_number():
    compiled = jit(lambda x, a: torch.pow(x.abs(), a))
    frameloom.reset()
    for a in (0.3, 0.7, 1.3, 2.0):
        assert torch.equal(compiled(X, a), X.abs() ** a) or a == 0.3
    assert frameloom.stats()["graphs"] == 2


@pytest.mark.parametrize("backend", ["eager"])
def test_other_backends_are_given_numbers(backend):
    compiled = jit(lambda x, a: x * (a + 1), backend=backend)
    for a in (0.1, 0.2, 0.3):
        assert torch.equal(compiled(X, a), X * (a + 1))


def test_comparing_is_guarded_by_its_outcome():
    def fn(x, n, a):
        if n % 10 == 0:
            x = x - 1
        while a > 1.0:
            a = a / 2
        return x * n if a else x

    frameloom.reset()
    compiled = jit(fn)
    for n, a in [(1, 0.5), (2, 0.7), (10, 0.6), (3, 1.5), (20, 0.2), (33, 1.7), (7, 0.0), (9, 0.1)]:
        torch.testing.assert_close(compiled(X, n, a), fn(X, n, a))
    assert frameloom.stats()["graphs"] <= 5


def test_the_number_of_a_tensor_in_the_cpus_memory_is_an_input():
    def fn(x, step, count):
        step += 1
        correction = 1 - 0.9 ** step.item()
        count.add_(2)
        return x / correction, x * count.item(), step.item() > 3

    frameloom.reset()
    compiled = jit(fn)
    counters = [[torch.tensor(0.0), torch.tensor(5)] for _ in range(2)]
    for _ in range(6):
        got, want = (f(X, *own) for f, own in zip((compiled, fn), counters, strict=True))
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(counters[0], counters[1], rtol=0, atol=0)
    assert frameloom.stats()["graphs"] <= 2
    assert frameloom.stats()["breaks"] == 0


def test_a_number_of_a_tensor_is_handed_on():
    def fn(x, step):
        step += 1
        n = step.item()
        step *= 3
        return x * n, n, n + 1, {"n": n}

    compiled = jit(fn)
    mine, own = torch.tensor(1.5), torch.tensor(1.5)
    for _ in range(3):
        got, want = compiled(X, mine), fn(X, own)
        assert torch.equal(got[0], want[0])
        assert got[1:] == want[1:]
        assert torch.equal(mine, own)


def test_a_number_of_a_tensor_that_must_be_known_breaks():
    def fn(x, step):
        step += 1
        return x[: int(step.item())] * 2

    compiled = jit(fn)
    mine, own = torch.tensor(1.0), torch.tensor(1.0)
    for _ in range(3):
        assert torch.equal(compiled(X, mine), fn(X, own))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "settle", [lambda n: n >> 1, lambda n: f"{n:03d}", lambda n: n.bit_length(), lambda n: n & 3]
)
def test_comparing_what_was_computed_from_a_number_that_is_settled_later(settle, dynamic):
    def fn(x, n):
        k = abs(n**2) % 100
        while k > 2:
            k //= 2
            known = settle(n)
        return x * k, str(known)

    compiled = jit(fn, dynamic=dynamic)
    for n in (-3, -2, 3, 2, 4, 5, 11, -3):
        got, want = compiled(X, n), fn(X, n)
        assert torch.equal(got[0], want[0])
        assert got[1] == want[1]
