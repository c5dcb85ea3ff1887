"""Python's own rules, guards, effects."""

import contextlib

import pytest
import torch

from tests.public_issues.cases import Cases

cases = Cases()


@cases(108898)
def global_function_replaced():
    names = {"torch": torch}
    exec(
        "def helper(x): return torch.sin(x) + 20\n"
        "def f(x, replace):\n    x = helper(x)\n    def add(x): return x + 1\n    return add(x)\n",
        names,
    )

    def g(x, replace):
        if replace:
            names["helper"] = lambda x: torch.cos(x)
        return names["f"](x, replace)

    return g, (torch.ones(1), False), (torch.ones(1), True), (torch.ones(1), True)


@cases(138112)
def variable_shared_by_two_functions():
    z, k = 1, 2

    def create():
        def inner(x):
            nonlocal k, z
            k = z

        return inner

    def run(fn, x):
        nonlocal z
        z = 3
        fn(x)
        return x.cos()

    def f(x):
        y = run(create(), x)
        return y, z, k

    return f, (torch.randn(2, 3),), (torch.randn(2, 3),)


@cases(197896)
def containers_changed_by_a_method_of_a_local_class():
    state, log = {"n": 0}, []

    def f(x):
        class Helper:
            def touch(self):
                state["n"] += 1
                state["last"] = "touched"
                log.append(len(log))

        Helper().touch()
        return x + 1

    def g(x):
        return f(x), dict(state), list(log)

    return g, (torch.ones(2),), (torch.ones(2),)


@cases(197830)
def closed_by_contextlib():
    def f(x):
        closed = []

        class Thing:
            def close(self):
                closed.append(1)

        with contextlib.closing(Thing()) as thing:
            assert not closed and thing is not None
        return x + len(closed)

    return f, (torch.ones(2),)


@cases(186671)
def set_that_lies_about_its_items():
    class Lying(set):
        def __iter__(self):
            return iter([99])

    def f(x, a, b):
        return x + 1, a == b, a <= b, 99 in b, len(b)

    return f, (torch.ones(1), {1, 2, 3}, Lying({1, 2, 3}))


@cases(193969)
def subclass_of_intermediates():
    class Mine(torch.Tensor):
        pass

    def f(x):
        x = x.as_subclass(Mine)
        y = torch.empty_like(x)
        y.copy_(x)
        x.add_(1)
        return isinstance(y, Mine), isinstance(x, Mine), type(y).__name__

    return f, (torch.ones(2, 2),)


@cases(96198)
def dictionary_subclass_beside_a_tensor():
    class Bag(dict):
        pass

    def f(bag, x):
        return x + sum(isinstance(v, torch.Tensor) for v in bag.values()), isinstance(
            bag, torch.Tensor
        )

    return f, (Bag(a=torch.ones(1), b=2), torch.ones(1))


@cases(124068)
def attribute_set_past_the_class():
    class Thing:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value * 2)

    def f(x):
        t = Thing()
        t.a = 3
        object.__setattr__(t, "b", 5)
        return x + t.a + t.b

    return f, (torch.ones(1),)


@cases(233)
def counter_in_a_closure():
    def make():
        x = torch.zeros(3)

        def counter():
            nonlocal x
            x = x + 1
            return x

        return counter

    counter = make()
    return (lambda y: counter() + counter() + y), (torch.ones(3),), (torch.ones(3),)


@cases(99639)
def deep_closures():
    def f(x):
        def a(y):
            def b(z):
                def c(w):
                    return w + y + z + x

                return c(1) * 2

            return b(y + 1)

        return a(x)

    return f, (torch.ones(2),)


@cases(116999)
def operands_that_refuse_comparison():
    class Strict:
        def __eq__(self, other):
            if not isinstance(other, Strict):
                raise TypeError("not comparable")
            return True

        __hash__ = object.__hash__

    def f(x, s):
        return x + (s == Strict()), s is None, s in (s,)

    return f, (torch.ones(1), Strict())


@cases(108950)
def optional_argument_in_turns():
    def f(keys, values=None):
        if values is None:
            values = torch.ones_like(keys)
        return values + keys + torch.ones(1)

    calls = []
    for n in range(3):
        calls += [(torch.randn(n),), (torch.randn(n), torch.randn(n))]
    return f, *calls


@pytest.mark.parametrize("case", cases)
def test_issue(case):
    case.run()
