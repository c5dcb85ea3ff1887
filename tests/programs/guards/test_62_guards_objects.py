"""Changes of containers and of objects of all kinds are noticed, wherever the program reaches them.

PYTEST_DONT_REWRITE
"""

import array
import collections
import contextvars
import dataclasses
import enum
import gc
import os
import threading
import types
import weakref

import numpy as np
import torch

from tests.programs.changing import SAME, changes


@changes
def list_items_and_length():
    items = [1.0, 2.0]
    yield lambda x: x * sum(items)
    items.append(4.0)
    yield
    items[0] = 9.0
    yield
    items.reverse()
    yield
    items[:] = [1.0, 2.0]
    yield SAME


@changes
def item_of_a_list_that_is_put_back_equal():
    box = [[1.0]]
    yield lambda x: x * box[0][0]
    box[0] = [1.0]
    yield SAME
    box[0] = (1.0,)
    yield


@changes
def sets():
    full, empty = {1.0, 2.0}, set()
    yield lambda x: x * sum(full) + (1 if empty else 2) + (7.0 in full)
    full.add(7.0)
    yield
    empty.add(1)
    yield


@changes
def nested():
    table = {"a": {"b": [1.0, (2.0, {"c": 3.0})]}, "unused": 0}
    yield lambda x: x * table["a"]["b"][0] + table["a"]["b"][1][1]["c"]
    table["a"]["b"][1][1]["c"] = 4.0
    yield
    table["a"]["b"][0] = 5.0
    yield
    table["a"]["b"] = [6.0, (2.0, {"c": 3.0})]
    yield
    table["a"] = {"b": [7.0, (2.0, {"c": 3.0})]}
    yield
    table["unused"] = 1
    yield SAME


@changes
def order_of_keys():
    table = {"a": 1.0, "b": 2.0}
    ordered = collections.OrderedDict(table)

    def program(x):
        for n, key in enumerate(table):
            x = x + n * table[key]
        for n, (_, value) in enumerate(ordered.items()):
            x = x * 2 + n * value
        return x

    yield program
    table["a"] = table.pop("a")
    yield
    ordered.move_to_end("a")
    yield
    ordered["c"] = 3.0
    yield


@changes
def kinds_of_dictionaries():
    default = collections.defaultdict(lambda: 3.0, a=1.0)
    counter = collections.Counter("aab")
    space = types.SimpleNamespace(k=2.0)
    view = types.MappingProxyType(space.__dict__)
    yield lambda x: x * default["a"] + counter["a"] - space.k * view["k"]
    default["a"] = 2.0
    yield
    counter.update("a")
    yield
    space.k = 3.0
    yield


@changes
def buffers_of_numbers():
    queue = collections.deque([1.0, 2.0])
    raw = bytearray(b"\x01\x02")
    numbers = array.array("d", [1.0, 2.0])
    values = np.array([1.0, 2.0])
    yield lambda x: x * sum(queue) + raw[0] + numbers[0] + float(values[0])
    queue.append(3.0)
    yield
    raw[0] = 9
    yield
    numbers[0] = 9.0
    yield
    values[0] = 9.0
    yield


@changes
def dataclass_and_namedtuple():
    @dataclasses.dataclass
    class Options:
        k: float = 2.0
        names: list = dataclasses.field(default_factory=list)

    pair = collections.namedtuple("Pair", "a b")
    options, box = Options(), [pair(1.0, [2.0])]
    yield lambda x: x * options.k + len(options.names) + box[0].a * box[0].b[0]
    options.k = 3.0
    yield
    options.names.append("n")
    yield
    box[0].b[0] = 5.0
    yield
    box[0] = pair(2.0, [5.0])
    yield
    options.unused = 1
    yield SAME


@changes
def members_of_an_enumeration():
    class Mode(enum.Enum):
        A = [1.0]
        B = [2.0]

    Mode.A.extra = 1.0
    box = [Mode.A]
    yield lambda x: x * box[0].value[0] + box[0].extra if box[0] is Mode.A else x - 1
    Mode.A.value[0] = 5.0
    yield
    Mode.A.extra = 2.0
    yield
    box[0] = Mode.B
    yield


@changes
def config_object():
    class Config:
        def __init__(self):
            self.gain = 2.0
            self.inner = types.SimpleNamespace(deep=[1.0])

    class Holder:
        def __init__(self, config):
            self.config = config

        def __call__(self, x):
            return x * self.config.gain + self.config.inner.deep[0]

    config = Config()
    holder = Holder(config)
    yield lambda x: holder(x)
    config.gain = 3.0
    yield
    config.inner.deep[0] = 2.0
    yield
    config.inner = types.SimpleNamespace(deep=[2.0])
    yield SAME
    config.__dict__ = {"gain": 4.0, "inner": config.inner}
    yield
    config.__dict__["gain"] = 5.0
    yield
    holder.config = Config()
    yield
    config.gain = 100.0
    yield SAME


@changes
def a_counter_beside_what_is_read():
    state = types.SimpleNamespace(k=2.0, steps=0)
    yield lambda x: x * state.k
    for _ in range(40):
        state.steps += 1
        yield SAME
    state.k = 3.0
    yield


@changes
def type_of_a_number():
    box = [1]
    yield lambda x: x * box[0] + (1 if box[0] is True else 0)
    for value in (1.0, True, 2, -0.0, 0.0, 10**30, 1):
        box[0] = value
        yield


@changes
def environment():
    os.environ.pop("FRAMELOOM_TEST_K", None)
    yield lambda x: x * float(os.environ.get("FRAMELOOM_TEST_K", "2"))
    os.environ["FRAMELOOM_TEST_K"] = "5"
    yield
    del os.environ["FRAMELOOM_TEST_K"]


@changes
def facts_about_a_tensor():
    base = torch.arange(12.0)
    leaf = torch.zeros(3, requires_grad=True)
    with torch.enable_grad():
        inner = leaf * 2
    box = [leaf, base[:3]]

    def program(x):
        x = x + 1 if box[0].is_leaf else x - 1
        return x * getattr(leaf, "note", 2.0) * getattr(leaf, "missing", 3.0)

    yield program
    box[0] = inner
    yield
    leaf.note = 5.0
    yield
    torch.Tensor.missing = 7.0
    yield
    del torch.Tensor.missing
    yield


@changes
def place_of_a_tensor_in_its_memory():
    base = torch.arange(12.0)
    box = [base[:3]]
    yield lambda x: x * box[0].storage_offset() + (1 if box[0]._is_view() else 2)
    box[0] = base[3:6]
    yield
    box[0] = torch.zeros(3)
    yield


@changes
def methods_of_tensors_replaced():
    yield lambda x: x.relu() + 1
    torch.Tensor.relu = lambda self: self * 3
    yield
    del torch.Tensor.relu
    torch.Tensor.__add__ = lambda self, other: self * 5
    yield
    del torch.Tensor.__add__
    yield


@changes
def what_a_weak_reference_refers_to():
    class A:
        k = 2.0

    alive = [A()]
    reference = weakref.ref(alive[0])
    yield lambda x: x * reference().k if reference() is not None else x - 1
    alive.clear()
    gc.collect()
    yield


@changes
def context_variable_and_thread_local():
    variable, local = contextvars.ContextVar("variable", default=2.0), threading.local()
    local.k = 3.0
    yield lambda x: x * variable.get() + local.k
    variable.set(5.0)
    yield
    local.k = 4.0
    yield


@changes
def strides_counted_from_the_start_of_the_storage():
    base = torch.arange(12.0)
    box = [base[:6]]
    yield lambda x: (box[0].as_strided((2, 2), (2, 1), 1) + 1, torch.as_strided(box[0], (3,), (1,)))
    box[0] = base[3:9]
    yield
    box[0] = base[6:]
    yield


@changes
def mapping_behind_a_proxy():
    table = {"a": 1.0}
    proxies = [types.MappingProxyType(table)]
    yield lambda x: x * proxies[0]["a"] + len(proxies[0])
    table["a"] = 2.0
    yield
    table["b"] = 2.0
    yield
    proxies[0] = types.MappingProxyType({"a": 5.0})
    yield
