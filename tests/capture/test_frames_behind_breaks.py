"""What a frame holds is there behind a break: variables, cells, iterators, generators, what is on the stack."""

import torch

from tests.capture.capturing import captured, jitted

X = torch.arange(12.0).reshape(3, 4)


def test_stack_values_survive():
    def say(v):
        print(v)
        return v

    def f(x):
        return [x + 1, say(2), (x * 2, {"k": say(3)}), f"{say(4)}"]

    captured(f, X)


def test_closure_cells_keep_identity():
    def f(x):
        total = x

        def add(y):
            nonlocal total
            total = total + y

        add(1)
        print("middle")
        add(2)
        get = lambda: total
        print("again")
        add(x)
        return get() + total

    captured(f, X)


def test_free_variable_is_written():
    def make():
        count = 0

        def f(x):
            nonlocal count
            count += 1
            y = x + count
            print("middle", count)
            count += 1
            return y * count

        return f, lambda: count

    plain, plain_count = make()
    captured_f, captured_count = make()
    target, runner = jitted(captured_f)
    for _ in range(3):
        assert torch.equal(target(X), plain(X))
        assert plain_count() == captured_count()


def test_iterators_on_the_stack():
    def f(x):
        out = []
        for i, (a, b) in enumerate(zip([1, 2, 3], (4, 5, 6))):
            x = x + a * b
            print(i)
            out.append(x.sum())
        for k, v in {"a": 1, "b": 2}.items():
            print(k)
            x = x * v
        return x, out

    captured(f, X)


def test_super_behind_a_break():
    class Base:
        def run(self, x):
            return x + 1

    class Derived(Base):
        def run(self, x):
            y = x * 2
            print("in derived")
            return super().run(y) * 3

    def f(x):
        return Derived().run(x)

    captured(f, X)
    target, runner = jitted(Derived.run)
    assert torch.equal(target(Derived(), X), Derived().run(X))


def test_generator_expression_behind_a_break():
    def f(x):
        parts = (x + i for i in range(3))
        print("middle")
        return sum(parts)

    captured(f, X)


def test_started_generator():
    def f(x):
        parts = (x + i for i in range(3))
        first = next(parts)
        print("middle")
        return first * sum(parts)

    captured(f, X)


def test_recursion():
    def f(x, n):
        if n == 0:
            print("bottom")
            return x
        return f(x + 1, n - 1) * 2

    captured(f, X, 4)


def test_comprehension_with_a_break():
    def say(v):
        print(v)
        return v

    def f(x):
        y = x + 1
        return [y * say(i) for i in range(3)]

    captured(f, X)


def test_default_arguments_and_locals_survive():
    def f(x, a=1, *rest, b=2, **more):
        z = x * a
        print(rest, more)
        return z + b + len(rest) + len(more) + a

    captured(f, X, 1, 5, 6, b=3, c=4)


def test_delete_and_unbound():
    def f(x, flag):
        y = x + 1
        if flag:
            z = y
        print("middle")
        del y
        try:
            return z * 2
        except NameError:
            return x

    captured(f, X, True)
    captured(f, X, False)


def test_a_cell_is_written_even_if_it_held_the_value_when_captured():
    def f(x, flags):
        out = []
        for flag in flags:
            y = x + 1
            print("in between")
            out.append((lambda: flag)())
            x = y * 2
        return out, x

    captured(f, X, [True, False, False, True, True, False])
