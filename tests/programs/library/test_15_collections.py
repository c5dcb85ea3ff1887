"""OrderedDict, defaultdict, Counter, deque, namedtuple, ChainMap.

PYTEST_DONT_REWRITE
"""

import collections
import collections.abc
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import torch

from tests.programs.program import X, program

Point = namedtuple("Point", "x y")
Sized = namedtuple("Sized", ["data", "size"], defaults=[3])


class Output(NamedTuple):
    logits: torch.Tensor
    loss: float | None = None

    def scaled(self, n):
        return self.logits * n

    @property
    def width(self):
        return self.logits.shape[-1]


@program()
def ordered_dict(x):
    d = OrderedDict([("a", x), ("b", 2)])
    d["c"] = 3
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    first = d.popitem(last=False)
    return d, first, list(d), d == OrderedDict([("b", 2), ("a", x)]), x + 1


@program()
def ordered_dict_equality_and_copy(x):
    a = OrderedDict(a=1, b=2)
    b = OrderedDict(b=2, a=1)
    return (
        x + 1,
        a == b,
        a == dict(b),
        a.copy(),
        list(reversed(a)),
        a | {"z": 1},
        OrderedDict.fromkeys("ab", 0),
        type(a.copy()),
    )


@program()
def default_dict_of_lists(x):
    d = defaultdict(list)
    for i in range(4):
        d[i % 2].append(x[0] * i)
    return d, len(d), d.get(7), 7 in d, dict(d)


@program()
def default_dict_of_ints_and_lambdas(x):
    d = defaultdict(int)
    for c in "hello":
        d[c] += 1
    nested = defaultdict(lambda: defaultdict(int))
    nested["a"]["b"] += 2
    return x + d["l"], d, nested, d.default_factory, d.copy()


@program(args=lambda: (X, defaultdict(list, a=[1])))
def default_dict_argument(x, d):
    d["a"].append(2)
    d["new"].append(x + 1)
    return len(d)


@program()
def default_dict_without_factory(x):
    d = defaultdict(None, a=1)
    try:
        d["b"]
    except KeyError as error:
        return x + d["a"], error.args, d


@program()
def counter(x):
    c = Counter("abracadabra")
    c["z"] += 1
    c.update("aa")
    return (
        x + c["a"],
        c,
        c.most_common(2),
        c["missing"],
        sorted(c.elements())[:3],
        c.total(),
        Counter(a=2) + Counter(a=1, b=1),
        Counter(a=2) - Counter(a=1),
        sum(c.values()),
    )


@program()
def deque_operations(x):
    d = deque([1, 2], maxlen=3)
    d.append(x)
    d.append(4)
    d.appendleft(0)
    a, b = d.pop(), d.popleft()
    d.extend([7, 8])
    d.extendleft([9])
    d.rotate(1)
    return a, b, d, len(d), d[0], d.maxlen, x + 1


@program()
def deque_with_room(x):
    d = deque([x.shape[0], 5], maxlen=3)
    return d, deque(d, 5), d.copy(), len(d), x + 1


@program()
def deque_more(x):
    d = deque("abca")
    d.remove("b")
    d.reverse()
    d.insert(1, "z")
    d[0] = x
    e = d.copy()
    d.clear()
    return (
        x + 1,
        d,
        e,
        e.count("a"),
        e.index("z"),
        "c" in e,
        list(e),
        bool(d),
        list(reversed(e)),
        deque([1]) + deque([2]),
        deque([1, 2]) == deque([1, 2]),
    )


@program()
def deque_as_the_right_operand(x):
    items, table = [x], {}
    items += deque([1])
    table |= deque([(1, x)])
    return items, table, {1: 2}.keys() | deque([3]), x + 1


@program()
def deque_backwards(x):
    d = deque([1, 2, 3])
    r = reversed(d)
    first = next(r)
    d[1] = x
    second, kind = next(r), type(r).__name__
    d.append(5)
    try:
        text = next(r)
    except RuntimeError as error:
        text = str(error)
    return first, second, kind, text, next(r, "end"), x + 1


@program()
def deque_backwards_behind_the_graph(x):
    used, ended = reversed(deque([1, x, 3])), reversed(deque([1]))
    next(used), next(ended), next(ended, None)
    return used, ended, reversed(deque([x])), x + 1


@program()
def deque_item_written_while_iterated(x):
    d = deque([1, 2])
    forwards = iter(d)
    next(forwards)
    d[1] = x
    written, end = next(forwards), next(forwards, "end")
    d.append(3)
    try:
        return next(forwards)
    except RuntimeError as error:
        return written, end, str(error), x + 1


@program(args=lambda: (X, deque([1, 2, 3])), breaks="print", graphs=4)
def deque_item_written_before_a_break(x, d):
    seen = []
    for item in d:
        seen.append(item)
        d[2] = x + 1
        if len(seen) == 1:
            print("break", end="")
    return seen, x + 2


class EqualToAll(deque):
    def __eq__(self, other):
        return True


@program(args=lambda: (X, EqualToAll()), breaks="opaque_object")
def deque_against_a_subclass(x, other):
    return x + 1, deque([1]) == other


@program(args=lambda: (X, deque([X, X + 1], maxlen=2)))
def deque_argument_as_history(x, history):
    history.append(x * 2)
    return sum(history), len(history)


@program(calls=[(X, deque([1])), (X, deque([1, 2])), (X, deque([1]))], graphs=2)
def deque_argument_is_guarded(x, d):
    return x + len(d) + d[0]


@program()
def named_tuple(x):
    p = Point(x, y=2)
    q = p._replace(y=5)
    a, b = q
    return (
        p,
        q,
        p.x + p.y,
        p[0],
        p._fields,
        p._asdict(),
        Point._make([1, 2]),
        a + b,
        Sized(x),
        Sized(1, 2).size,
        p == p,
        Point(1, 2) == (1, 2),
        Point(1, 2) < (1, 3),
        isinstance(p, tuple),
        len(p),
    )


@program()
def typed_named_tuple_with_methods(x):
    out = Output(x * 2)
    return (
        out,
        out.scaled(3),
        out.width,
        out.loss,
        out._replace(loss=1.0),
        Output._field_defaults,
        [*out],
    )


@program(args=(X, Point(X + 1, [1])))
def named_tuple_argument(x, p):
    p.y.append(2)
    return p.x + x, p._replace(x=0), p


@program()
def chain_map(x):
    c = ChainMap({"a": 1}, {"a": 2, "b": 3})
    c["z"] = 9
    return (
        x + c["a"] + c["b"],
        list(c.maps),
        sorted(c),
        len(c),
        c.new_child({"q": 1})["b"],
        "q" in c,
    )


class Registry(dict):
    def __missing__(self, key):
        return f"no {key}"


@program()
def dict_subclass_with_missing(x):
    r = Registry(a=1)
    return x + r["a"], r["zz"], r.get("zz"), "zz" in r, r


class Stack(list):
    def push(self, item):
        self.append(item)
        return self

    @property
    def top(self):
        return self[-1]


@program()
def list_subclass(x):
    s = Stack([1])
    s.push(x).push(x + 1)
    s.name = "s"
    return s.top * 2, len(s), s, s[0], [*s], isinstance(s, list), s.name, s == [1], s[:2]


class Attributes(OrderedDict):
    """Like the outputs of model libraries: keys are attributes too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


@program()
def ordered_dict_subclass_with_attributes(x):
    out = Attributes(hidden=x)
    out.logits = x * 2
    return out.hidden + out["logits"], list(out.keys()), hasattr(out, "nope"), out


@program()
def user_collections(x):
    d = collections.UserDict({"a": 1})
    d["b"] = x + 1
    u = collections.UserList([1, 2])
    u.append(3)
    return d["b"], d.data, len(u), u[1:], list(u), "a" in d


TABLE = {"a": 2, "b": 3}
PROXY = types.MappingProxyType(TABLE)


def keywords(**given):
    return list(given)


@program()
def mapping_proxy(x):
    try:
        PROXY["c"] = 1
    except TypeError as error:
        text = str(error)
    return (
        x * PROXY["a"] + PROXY.get("c", 1), "a" in PROXY, len(PROXY), list(PROXY), dict(PROXY), {**PROXY}, keywords(**PROXY),
        [pair for pair in PROXY.items()], bool(PROXY), PROXY.copy(), isinstance(PROXY, collections.abc.Mapping), text,
        hasattr(PROXY, "update"), list(PROXY.keys()), sum(PROXY.values()),
    )  # fmt: skip


@program()
def mapping_proxy_made_in_the_call(x):
    table = {"a": x}
    proxy = types.MappingProxyType(table)
    table["b"] = x + 1
    return proxy["a"] + proxy["b"], proxy, table, proxy is proxy


@program(args=lambda: (X, types.MappingProxyType({"k": 2})))
def mapping_proxy_given(x, options):
    return x * options["k"]


@program(graphs=2, breaks="print")
def mapping_proxy_across_a_break(x):
    proxy = types.MappingProxyType({"a": x + 1})
    print("between")
    return proxy["a"] * 2
