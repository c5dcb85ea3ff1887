"""Dictionaries: methods, views, iterators, order, keys, errors.

PYTEST_DONT_REWRITE
"""

from types import SimpleNamespace

import torch

from tests.programs.program import X, program


@program()
def dict_building(x):
    d = {"a": x, 1: x + 1}
    d["b"] = x * 2
    d[(1, 2)] = "tuple key"
    d.update({"c": 3}, e=4)
    d |= {"f": 5}
    return d, dict(k=1), dict([("p", 2)]), dict({"q": 3}, r=4), {**d, "a": 0}, d | {"a": 9}


@program()
def dict_reading(x):
    d = {"a": x, "b": None}
    return (
        d["a"] + 1,
        d.get("z"),
        d.get("z", 5),
        "a" in d,
        "z" not in d,
        len(d),
        d.get("b", 1),
        list(d),
        bool(d),
        bool({}),
    )


@program()
def dict_removing(x):
    d = {"a": 1, "b": 2, "c": 3, "d": 4}
    a = d.pop("a")
    z = d.pop("z", None)
    last = d.popitem()
    del d["b"]
    e = d.copy()
    d.clear()
    return x + a, z, last, d, e


@program()
def dict_setdefault(x):
    groups = {}
    for i in range(4):
        groups.setdefault(i % 2, []).append(x[0] + i)
    return groups, groups.setdefault(0, None) is groups[0]


@program()
def dict_views(x):
    d = {"a": 1, "b": 2}
    keys, values, items = d.keys(), d.values(), d.items()
    d["c"] = 3
    return (
        x + len(keys),
        list(keys),
        list(values),
        list(items),
        "c" in keys,
        ("a", 1) in items,
        2 in values,
        keys,
        values,
        items,
    )


@program()
def dict_key_view_is_a_set(x):
    a, b = {"x": 1, "y": 2}, {"y": 3, "z": 4}
    return (
        x + 1,
        sorted(a.keys() & b.keys()),
        sorted(a.keys() | b.keys()),
        sorted(a.keys() - b.keys()),
        a.keys() == {"x", "y"},
        a.keys() <= {"x", "y", "z"},
        sorted(a.keys() ^ b.keys()),
        a.items() == {"x": 1, "y": 2}.items(),
    )


@program()
def dict_iteration(x):
    total = x
    d = {"a": 1, "b": 2}
    for k in d:
        total = total + d[k]
    for k, v in d.items():
        total = total * v
    for v in d.values():
        total = total - v
    return total, [k for k in reversed(d)], list(reversed(d.values())), list(reversed(d.items()))


@program()
def dict_order_after_changes(x):
    d = {"a": 1, "b": 2, "c": 3}
    d["a"] = 10
    del d["b"]
    d["b"] = 20
    return x + 1, d, list(d.items()), next(iter(d)), next(reversed(d))


@program()
def dict_comprehension(x):
    return {k: x * v for k, v in zip("ab", (1, 2))}, {
        i: {j: i * j for j in range(2)} for i in range(2)
    }


@program()
def dict_comparison(x):
    return (
        x + 1,
        {"a": 1, "b": 2} == {"b": 2, "a": 1},
        {"a": 1} != {"a": 2},
        {"a": [1]} == {"a": [1]},
        {} == [],
        {1: 2} == {1.0: 2},
        {True: 1}[1],
    )


@program()
def dict_fromkeys(x):
    d = dict.fromkeys(["a", "b"], 0)
    d["a"] += 1
    e = dict.fromkeys("xy")
    return x + d["a"], d, e


@program()
def dict_errors_are_caught(x):
    found = []
    for action in (
        lambda d: d["z"],
        lambda d: d.pop("z"),
        lambda d: {}.popitem(),
        lambda d: d.__delitem__("q"),
    ):
        try:
            action({"a": 1})
        except KeyError as error:
            found.append(error.args)
    return x + 1, found


@program()
def dict_changed_during_iteration(x):
    d = {"a": 1}
    try:
        for k in d:
            d[k + "b"] = 2
    except RuntimeError as error:
        return x + 1, str(error)


@program()
def unhashable_key_is_caught(x):
    try:
        return {[]: 1}
    except TypeError as error:
        return x + 1, str(error)


@program()
def dict_of_tensors_as_keys(x):
    y = x + 1
    d = {x: 1, y: 2}
    return d[y], d[x], y in d, x * 2


@program()
def dict_with_types_and_functions_as_keys(x):
    d = {int: "i", torch.float32: "f", torch.relu: torch.tanh, None: 0, X.shape: 1}
    return d[torch.relu](x), d[type(1)], d[x.dtype], d[None], d[x.shape]


@program(args=(X, {"a": 1, "b": X + 1}))
def dict_argument_changes(x, d):
    d["c"] = d["b"] * 2
    d["a"] += 1
    del d["b"]
    d.setdefault("z", x)
    return len(d)


@program(args=(X, {"a": 1, "b": 2}))
def dict_argument_reordered(x, d):
    d["a"] = d.pop("a")
    return x + d["a"], list(d)


@program(args=(X, {"a": 1, "b": 2}))
def dict_argument_cleared_and_filled(x, d):
    old = dict(d)
    d.clear()
    d.update(b=1, c=x + 1)
    return old


@program(calls=[(X, {"a": 1}), (X, {"a": 1, "b": 2}), (X, {"b": 2, "a": 1})], graphs=3)
def dict_keys_decide(x, d):
    return [x + v for v in d.values()], list(d)


@program(calls=[(X, {"a": 1, "b": 2}), (X, {"a": 1, "c": 5})], graphs=1)
def other_keys_do_not_matter(x, d):
    return x + d["a"]


@program()
def kwargs_are_a_dict(x):
    def f(**kwargs):
        kwargs["more"] = 1
        return kwargs

    given = {"a": x}
    out = f(**given)
    return out, given, out is given, x + 1


HELD = SimpleNamespace(given=None)


@program()
def own_kwargs_are_the_result(x, *more, **kwargs):
    kwargs["more"] = x + 1
    kwargs["rest"] = more
    return kwargs


@program(state=lambda: (HELD.given, HELD.asked()))
def own_kwargs_are_seen_in_what_is_written(x, **kwargs):
    HELD.given = [kwargs]
    HELD.asked = lambda: kwargs
    kwargs["more"] = 1
    return x + 1


@program()
def own_kwargs_are_part_of_the_result(x, **kwargs):
    kwargs["more"] = 1
    return x + 1, [kwargs.items()]


@program()
def nested_config(x):
    config = {"layers": [{"scale": 2.0, "act": "relu"}, {"scale": 0.5, "act": None}]}
    for layer in config["layers"]:
        x = x * layer["scale"]
        if layer.get("act"):
            x = getattr(torch, layer["act"])(x)
    return x


@program()
def dict_get_with_tensor_default(x):
    cache = {}
    y = cache.get("k", x)
    cache["k"] = y + 1
    return cache.get("k", x), y is x


@program()
def dict_methods_unbound(x):
    d = {"a": 1}
    dict.__setitem__(d, "b", 2)
    dict.update(d, c=3)
    return x + dict.get(d, "b"), dict.__len__(d), dict.__contains__(d, "c"), d, list(dict.items(d))
