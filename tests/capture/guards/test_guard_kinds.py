"""Values that plain Python tells apart are told apart by the guards: kinds of values, in every place that a program reads them from.

Each case calls one function again and again with another value of one kind; each call must give what the plain call gives.
"""

import functools
import itertools
import operator
import types

import pytest
import torch

from tests.capture.capturing import jitted
from tests.capture.guards import guarded_kinds, guarded_values
from tests.capture.guards.guarded_kinds import CHANGED, KINDS
from tests.capture.guards.guarded_values import New, Plain, Slots, namespace

X = torch.ones(2)


# --- places: the function that asks, and how it is called with a value


def argument(ask):
    def call(f, v):
        return f(X, v)

    return compiled("def f(x, v): y = x + 1; return y, " + ask, {}), call


def keyword(ask):
    return compiled("def f(x, **k): y = x + 1; v = k['v']; return y, " + ask, {}), lambda f, v: f(
        X, v=v
    )


def rest(ask):
    return compiled("def f(x, *a): y = x + 1; v = a[0]; return y, " + ask, {}), lambda f, v: f(X, v)


def closure(ask):
    text = f"""
def make():
    v = None
    def f(x): y = x + 1; return y, {ask}
    def put(new):
        nonlocal v
        v = new
    return f, put
"""
    names = {}
    f, put = compiled(text, names, "make")()

    def call(f, v):
        put(v)
        return f(X)

    return f, call


def global_name(ask):
    names = {}
    f = compiled("def f(x): y = x + 1; return y, " + ask, names)

    def call(f, v):
        f_globals["v"] = v
        return f(X)

    f_globals = f.__globals__
    return f, call


def _inside(read, box, put):
    def place(ask):
        holder = box()
        f = compiled(f"def f(x, box): y = x + 1; v = {read}; return y, {ask}", {})

        def call(f, v):
            put(holder, v)
            return f(X, holder)

        return f, call

    return place


def _anew(read, make):
    def place(ask):
        f = compiled(f"def f(x, box): y = x + 1; v = {read}; return y, {ask}", {})
        return f, lambda f, v: f(X, make(v))

    return place


PLACES = {
    "argument": argument,
    "keyword": keyword,
    "rest": rest,
    "closure": closure,
    "global": global_name,
    "attribute": _inside("box.v", Plain, lambda box, v: setattr(box, "v", v)),
    "slot": _inside("box.a", Slots, lambda box, v: setattr(box, "a", v)),
    "module": _inside("box.v", namespace, lambda box, v: setattr(box, "v", v)),
    "nn.Module": _inside("box.v", torch.nn.Identity, lambda box, v: box.__dict__.update(v=v)),
    "class": _inside(
        "box.v", lambda: type("Box", (), {}), lambda box, v: type.__setattr__(box, "v", v)
    ),
    "item": _inside("box[0]", lambda: [None], lambda box, v: operator.setitem(box, 0, v)),
    "value": _inside("box['v']", dict, lambda box, v: operator.setitem(box, "v", v)),
    "tuple": _anew("box[0]", lambda v: (v,)),
    "deep": _anew("box['k'][0].v", lambda v: {"k": [types.SimpleNamespace(v=v)]}),
    "partial": _anew("box.args[0]", lambda v: functools.partial(print, v)),
    "default": _anew("box()", lambda v: lambda v=v: v),
}


def compiled(text, names, name="f"):
    names.update(vars(guarded_values) | vars(guarded_kinds), X=X)
    exec(text, names)
    return names[name]


def shown(value):
    """What two results must have in common."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), repr(value.tolist())
    if type(value) in (list, tuple):
        return type(value), [shown(v) for v in value]
    if type(value) is dict:
        return [(shown(k), shown(v)) for k, v in value.items()]
    return type(value), repr(value)


def outcome(call, f, v):
    try:
        return shown(call(f, v))
    except Exception as error:
        return type(error), str(error)


def made(v):
    return v.make() if isinstance(v, New) else v


def order_of(n):
    """Each after each of its neighbours, and all once more."""
    return [0, 1, 0, *itertools.chain(*((i, i - 1) for i in range(2, n))), *range(n)]


def check(kind, ask, place, values, put=lambda i: None):
    f, call = PLACES[place](ask)
    f.__globals__["R"] = [v for v in values if not isinstance(v, New)] or [None]
    target, _ = jitted(f)
    for step, i in enumerate(order_of(len(values))):
        put(i)
        want = outcome(call, f, made(values[i]))
        assert want[0] is not NameError, want
        got = outcome(call, target, made(values[i]))
        assert got == want, f"{kind} as {place}: `{ask}`, call {step} with value {i}"


def turns(number):
    """Every question is asked of arguments, and of one more place, in turn."""
    others = list(PLACES)[1:]
    return "argument", others[number % len(others)]


@pytest.mark.parametrize("kind", KINDS)
def test_values(kind):
    values, asks = KINDS[kind]
    for number, ask in enumerate(asks, list(KINDS).index(kind)):
        for place in turns(number):
            check(kind, ask, place, values)


@pytest.mark.parametrize("kind", CHANGED)
def test_contents(kind):
    """The same object each time, which has changed."""
    make, change, contents, asks = CHANGED[kind]
    for number, ask in enumerate(asks):
        for place in turns(number):
            box = make()
            values = [box] * len(contents)
            check(kind, ask, place, values, lambda i: change(box, contents[i]))
