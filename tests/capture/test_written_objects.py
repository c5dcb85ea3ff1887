"""What a call writes to is one object there: guards of its value where nothing is to be written, and of its other names."""

import types

import torch

from tests.capture.capturing import jitted

X = torch.ones(2)


def test_what_is_set_to_what_it_is():
    def f(x, o, table):
        o.flag = True
        table["k"] = 1
        return x + 1

    function, _ = jitted(f)
    for flag, k in ((True, 1), (False, 1), (True, 2), (1, 1.0)):
        o, table = types.SimpleNamespace(flag=flag), {"k": k}
        function(X, o, table)
        assert o.flag is True and type(table["k"]) is int and table["k"] == 1


def test_a_set_with_two_names():
    def f(x, s, t):
        s.add(3)
        return x * len(t)

    function, _ = jitted(f)
    assert torch.equal(function(X, {1}, {1}), X)
    both = {1, 2}
    assert torch.equal(function(X, both, both), 3 * X)
    one = {1}
    assert torch.equal(function(X, one, one), 2 * X)
