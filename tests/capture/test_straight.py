"""Functions captured whole: straight lines, calls, containers, control flow on Python values."""

import collections
import dataclasses
import functools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.capture.capturing import captured

X = torch.arange(12.0).reshape(3, 4)
SCALE = 3.0


def whole(fn, *args, **kwargs):
    return captured(fn, *args, graphs=1, breaks=0, no_plain=True, **kwargs)


def helper(x, scale=2, *rest, bias=1, **more):
    return x * scale + bias + len(rest) + sum(more.values())


class Point:
    factor = 2

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)

    @property
    def total(self):
        return self.x.sum() + self.y

    @staticmethod
    def double(x):
        return x * 2

    @classmethod
    def make(cls, x):
        return cls(x, cls.factor)

    def __call__(self, z):
        return self.x * z

    def __getitem__(self, i):
        return self.x[i]

    def __len__(self):
        return 7


class Sub(Point):
    def __init__(self, x):
        super().__init__(x, 5)

    @property
    def total(self):
        return super().total * 2


@dataclasses.dataclass
class Data:
    x: torch.Tensor
    n: int = 3
    tags: list = dataclasses.field(default_factory=list)


Pair = collections.namedtuple("Pair", "first second")


def add_all(x, *xs, **named):
    for y in xs:
        x = x + y
    for k, v in named.items():
        x = x * v if k != "skip" else x
    return x


PROGRAMS = {
    "arithmetic": lambda x: (x + 1) * 2 - x / 3**2,
    "global": lambda x: x * SCALE + math.pi,
    "functions": lambda x: F.softmax(torch.relu(x), dim=-1).sum(0, keepdim=True),
    "methods": lambda x: x.view(-1, 2).transpose(0, 1).contiguous().mean(),
    "index": lambda x: x[1:, ..., None] + x[0, 0] - x[-1].unsqueeze(1),
    "tuple": lambda x: (x + 1, [x * 2, (x, 3)], {"a": x - 1, "b": None}),
    "shape": lambda x: x.reshape(x.shape[1], x.size(0)) * x.ndim * len(x),
    "dtype": lambda x: (
        x.to(torch.float64).type_as(x) + torch.ones(3, 4, dtype=x.dtype, device=x.device)
    ),
    "if": lambda x: x + 1 if x.shape[0] > 2 and x.dtype is torch.float32 else x - 1,
    "defaults": lambda x: helper(x) + helper(x, 3) + helper(x, 1, 2, 3, bias=4, q=7),
    "star": lambda x: add_all(x, *[x, x], **{"a": 2, "skip": 1}),
    "object": lambda x: Point(x, 1).total + Point.make(x).y + Point.double(x) + Point(x, 2)(x),
    "operator": lambda x: (Point(x, 1) + Point(x, 2)).total,
    "inherit": lambda x: Sub(x).total + Sub(x)[0].sum() + len(Sub(x)),
    "isinstance": lambda x: x * (isinstance(x, torch.Tensor) + isinstance(3, (int, str))),
    "loop": lambda x: sum(x * i for i in range(3)),
    "comprehension": lambda x: torch.stack([x[i] * k for i, k in enumerate((1, 2, 3)) if i != 1]),
    "dict_comprehension": lambda x: {k: x + v for k, v in zip("ab", (1, 2))},
    "chunk": lambda x: [t * 2 for t in x.chunk(2, dim=1)][1],
    "unpack": lambda x: (lambda a, *b: a + b[0] + b[1])(*x),
    "map": lambda x: list(map(lambda t: t + 1, [x, x * 2])),
    "sorted": lambda x: x * sorted([3, 1, 2], key=lambda v: -v)[0],
    "fstring": lambda x: {f"k{x.shape[0]}-{SCALE:.1f}-{'z'!r}": x + 1},
    "string": lambda x: {"a b".upper().split()[0]: x * len("abc".replace("b", "dd"))},
    "dataclass": lambda x: Data(x).x * Data(x, n=4).n + len(Data(x).tags),
    "namedtuple": lambda x: Pair(x + 1, 2).first * Pair(x, second=5).second,
    "returned_namedtuple": lambda x: Pair(x + 1, 2),
    "partial": lambda x: functools.partial(helper, scale=5)(x, bias=2),
    "no_grad": lambda x: no_grad_block(x),
    "max": lambda x: x.max(dim=1).values + x.max(dim=1)[1],
    "in_place": lambda x: (x + 1).add_(2).mul_(x),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "where": lambda x: torch.where(x > 3, x, torch.zeros_like(x)),
    "any": lambda x: x + any(v > 2 for v in (1, 2, 3)) + all([True, 1]),
    "min_max": lambda x: x * max(1, 5, 2) + min([4, 2]),
    "reversed": lambda x: torch.cat([x + i for i in reversed(range(3))]),
    "hasattr": lambda x: (
        x * (hasattr(x, "shape") + hasattr(Point, "nothing") + getattr(Point, "nothing", 7))
    ),
    "set": lambda x: x * (3 in {1, 2, 3}) + len({1, 2}),
    "chained": lambda x: x + (1 < x.shape[0] < 10),
    "walrus": lambda x: (y := x + 1) * y,
    "type": lambda x: type(Point(x, 1)).factor * x,
    "bool_ops": lambda x: (None or x) + (x.shape[0] and 2),
    "matmul": lambda x: x @ x.T,
    "negative": lambda x: -x + abs(x) + (~(x > 1)).float(),
    "pow": lambda x: 2**x + x**2 + 1 / (x + 1) + 5 // (x + 1) + 7 % (x + 1),
    "setitem": lambda x: assign(x),
}


def no_grad_block(x):
    with torch.no_grad():
        y = x + 1
        with torch.enable_grad():
            y = y * 2
    return y


def assign(x):
    y = torch.zeros(3, 4)
    y[1] = x[0]
    y[:, 2] += 5
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole(name):
    whole(PROGRAMS[name], X)


def test_closure():
    k = 4

    def f(x):
        def g(y):
            nonlocal_value = y * k

            def h():
                return nonlocal_value + x

            return h()

        return g(x + 1)

    whole(f, X)


def test_nonlocal():
    def f(x):
        total = x

        def add(y):
            nonlocal total
            total = total + y

        for i in range(3):
            add(i)
        return total

    whole(f, X)


def test_while_and_break():
    def f(x, n):
        i = 0
        while True:
            x = x + i
            i += 1
            if i == n:
                break
            elif i % 2:
                continue
            x = x * 2
        else:
            x = x - 100
        return x

    whole(f, X, 5)


def test_try_without_exception():
    def f(x):
        try:
            y = x + 1
        except ValueError:
            y = x - 1
        else:
            y = y * 2
        finally:
            y = y + 3
        return y

    whole(f, X)


def test_exception_handled_inside():
    def f(x, table):
        try:
            k = table["missing"]
        except KeyError:
            k = 2
        try:
            raise ValueError("no")
        except (TypeError, ValueError) as error:
            k += len(error.args)
        return x * k

    whole(f, X, {"a": 1})


def test_exception_through_calls():
    def inner(table, key):
        return table[key]

    def f(x, table):
        try:
            return x * inner(table, "b")
        except KeyError:
            return x - inner(table, "a")

    whole(f, X, {"a": 1})


def test_lists_and_dicts_are_changed():
    def f(x):
        items = [x]
        items.append(x + 1)
        items += [x * 2]
        items.insert(0, 5)
        first = items.pop(0)
        table = {"a": first}
        table["b"] = items[0]
        table.update(c=3)
        del table["a"]
        table.setdefault("d", []).append(x)
        return items, table, list(table), [k for k, v in table.items() if k != "b"]

    whole(f, X)


def test_same_object_twice():
    def f(x):
        inner = [x + 1]
        return inner, inner

    from tests.capture.capturing import jitted

    target, runner = jitted(f)
    for _ in range(2):
        a, b = target(X)
        assert a is b


def test_returned_objects():
    def f(x):
        data = Data(x + 1)
        data.tags.append(x)
        return data

    from tests.capture.capturing import jitted

    target, runner = jitted(f)
    for _ in range(2):
        got = target(X)
        assert type(got) is Data and got.n == 3 and torch.equal(got.x, X + 1) and got.tags[0] is X
    assert not runner.breaks and len(runner.graphs) == 1


def test_changes_outside():
    class Box:
        pass

    def f(x, box, items, table):
        box.value = x + 1
        box.count = box.count + 1
        box.gone = 1
        del box.gone
        items.append(x * 2)
        items[0] = 7
        table["k"] = box.value
        table.pop("old")
        return x

    def fresh():
        box = Box()
        box.count = 1
        return box, [1, 2], {"old": 1}

    from tests.capture.capturing import jitted

    target, runner = jitted(f)
    for _ in range(2):
        box, items, table = fresh()
        assert target(X, box, items, table) is X
        assert torch.equal(box.value, X + 1) and box.count == 2 and not hasattr(box, "gone")
        assert items[:2] == [7, 2] and torch.equal(items[2], X * 2)
        assert list(table) == ["k"] and table["k"] is box.value
    assert not runner.breaks and len(runner.graphs) == 1


def test_global_written():
    def f(x):
        global COUNT
        COUNT = COUNT + 1
        return x + COUNT

    global COUNT
    COUNT = 0
    from tests.capture.capturing import jitted

    target, runner = jitted(f)
    assert torch.equal(target(X), X + 1) and COUNT == 1
    assert torch.equal(target(X), X + 2) and COUNT == 2
    assert not runner.breaks


def test_mutated_inputs():
    def f(x, y):
        x.add_(1)
        y[0] = x[1]
        return x

    whole(f, X.clone(), X.clone())


def test_same_tensor_twice():
    whole(lambda x, y: x.add_(1) + y, X, X)
    shared = X.clone()
    whole(lambda a: a[0].mul_(2) + a[1], [shared, shared])


def test_guards_tell_cases_apart():
    from tests.capture.capturing import jitted

    def f(x, flag, items):
        return x + len(items) if flag else x * items[0]

    target, runner = jitted(f)
    cases = [
        (X, True, [1]),
        (X, False, [1]),
        (X, False, [2]),
        (X, True, [1, 2]),
        (X[1:], True, [9]),
        (X.double(), True, [1]),
    ]
    for _ in range(2):
        for case in cases:
            assert torch.equal(target(*case), f(*case))
    assert len(runner.graphs) == 6


def test_unused_arguments_are_not_guarded():
    from tests.capture.capturing import jitted

    def f(x, unused, items):
        return x + items["a"], unused

    target, runner = jitted(f)
    target(X, 1, {"a": 1, "b": 2})
    target(X, "other", {"a": 1, "c": 4})
    assert len(runner.graphs) == 1


def test_generator_function():
    def numbers(x):
        for i in range(3):
            got = yield x + i
            assert got is None
        return

    def outer(x):
        yield from numbers(x)
        yield x

    whole(lambda x: torch.stack(list(outer(x))), X)


def test_context_manager_of_the_user():
    class Scope:
        depth = 0

        def __enter__(self):
            self.depth += 1
            return self

        def __exit__(self, *exc):
            self.depth -= 1

    def f(x):
        with Scope() as scope:
            y = x * scope.depth
        return y + scope.depth

    whole(f, X)


def test_aliased_objects_are_told_apart():
    from tests.capture.capturing import jitted

    def f(x, a, b):
        a.append(1)
        return x * len(b)

    target, runner = jitted(f)
    for _ in range(2):
        assert torch.equal(target(X, [0], [0]), X)
        shared = [0]
        assert torch.equal(target(X, shared, shared), X * 2)
    assert len(runner.graphs) == 2


def test_inputs_that_share_memory():
    from tests.capture.capturing import jitted

    def f(x, y):
        x.add_(1)
        return y * 2

    target, runner = jitted(f)
    for _ in range(2):
        base = X.clone()
        assert torch.equal(target(base, X), X * 2)
        assert torch.equal(target(base, base[1:]), (base[1:]) * 2)


def test_attention_relies_on_the_settings_that_choose_its_implementation():
    def f(q):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    runner = captured(f, torch.randn(1, 2, 8, 8), graphs=1)
    assert len([g for g in runner.guards if "_sdp_enabled" in g]) == 4, runner.guards
