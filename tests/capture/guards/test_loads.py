"""The kinds of loads: new code reads the same objects as guards do, whatever the program's classes override."""

import functools
import gc
import threading
import types
import warnings
import weakref

import numpy as np
import pytest
import torch

from frameloom.capture import _capture
from frameloom.capture.guards.source import SOURCE_KINDS
from tests.capture.capturing import jitted
from tests.capture.guards.program import Program


class Table(dict):
    def __getattribute__(self, name):
        raise AttributeError(name)

    def __getitem__(self, key):
        return "another"


class Row(list):
    __getitem__ = Table.__getitem__


class Box:
    def method(self, a=1, *, b=2):
        return __class__, a, b


def attribute_table(obj):
    return object.__getattribute__(obj, "__dict__")


TABLE, ROW, BOX, ITERATOR = Table({None: 1, "k": 2}), Row([1, 2]), Box(), iter([1, 2])
LOCAL = threading.local()
LOADS = {
    "attr": (Box.method, "__name__", "method"),
    "dict": (TABLE, None, attribute_table(TABLE)),
    "thread_dict": (LOCAL, None, LOCAL.__dict__),
    "type": (ROW, None, Row),
    "item": (ROW, 1, 2),
    "key": (TABLE, "k", 2),
    "class_attr": (Box, "method", Box.method),
    "class_order": (Row, None, Row.__mro__),
    "state": (ITERATOR, None, ITERATOR.__reduce__()),
    "proxied": (types.MappingProxyType(TABLE), None, TABLE),
    "referent": (weakref.ref(BOX), None, BOX),
}
ATTRIBUTES = {
    "cell_contents": Box.method.__closure__[0],
    "func_closure": Box.method,
    "func_defaults": Box.method,
    "func_kwdefaults": Box.method,
    "func_code": Box.method,
    "func_globals": Box.method,
    "method_self": BOX.method,
    "method_func": BOX.method,
}


def test_every_kind_is_tested():
    kinds = {*LOADS, *ATTRIBUTES, "cached", "tensor_of_array"}
    assert set(_capture.LOADS) == kinds <= set(SOURCE_KINDS)


@pytest.mark.parametrize("kind", LOADS)
def test_functions(kind):
    obj, key, expected = LOADS[kind]
    read, _ = _capture.LOADS[kind]
    loaded = read(obj) if key is None else read(obj, key)
    assert loaded is expected or (kind == "state" and loaded == expected)


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_attributes(kind):
    guards = Program(lambda: 0)
    node = guards.child(guards.object(ATTRIBUTES[kind]), kind)
    attribute = getattr(ATTRIBUTES[kind], _capture.LOADS[kind][0])
    guards.check(node, "is", attribute)
    assert guards.passes((), lambda: 0)


def test_an_entry_of_a_cache():
    cached = functools.lru_cache(lambda number: BOX)
    cached(1)
    (table,) = [obj for obj in gc.get_referents(cached) if type(obj) is dict and 1 in obj]
    assert _capture.LOADS["cached"][0](table[1]) is BOX


def test_what_is_not_there():
    for kind, obj, key in (("item", ROW, 2), ("key", TABLE, 1), ("referent", ROW, None)):
        with pytest.raises(LookupError):
            _capture.LOADS[kind][0](obj, key)
    with pytest.raises(TypeError):
        _capture.LOADS["key"](TABLE, [])


def test_a_key_that_is_none():
    class Own(dict):
        def __getitem__(self, key):
            return dict.__getitem__(self, key)

    def fn(x, table):
        y = x + 1
        values = [value for _, value in table.items()]
        print(end="")
        return y * values[0]

    compiled, _ = jitted(fn)
    for factor in (2.5, 3.5):
        assert compiled(torch.ones(2), Own({None: factor})).tolist() == [2 * factor] * 2


def test_tensor_of_array_shares_the_memory():
    read, _ = _capture.LOADS["tensor_of_array"]
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    tensor = read(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == ((2, 2), (3, 2), torch.float64)


def test_tensor_of_array_that_is_read_only_or_backwards():
    read, _ = _capture.LOADS["tensor_of_array"]
    base = np.arange(6.0).reshape(2, 3)
    forwards = read(base, 0)
    cold = np.broadcast_to(base, (2, 2, 3))[:, ::-1]
    for array, access in ((base[::-1], 2), (base[:, ::-1], 4), (base[::-1, ::-1], 6), (cold, 5)):
        tensor = read(array, access)
        assert tensor.data_ptr() == base.ctypes.data and (tensor == forwards).all()
        for other in {0, 1, 2, 3, 4, 6, 8, 5} - {access}:
            with pytest.raises(LookupError):
                read(array, other)


@pytest.mark.parametrize(
    "array",
    [np.arange(3)[::-1], np.broadcast_to(np.ones(2), (2, 2)), np.array(["a"]), np.zeros(2, ">f4"), np.zeros(2, object),
     np.zeros(2, [("a", "i4")])],
    ids=["backwards", "read-only", "text", "big-endian", "objects", "records"],
)  # fmt: skip
def test_memory_that_a_tensor_cannot_share(array):
    read, _ = _capture.LOADS["tensor_of_array"]
    with warnings.catch_warnings(), pytest.raises(LookupError):
        warnings.simplefilter("error")
        read(array)
