# ruff: noqa: UP006, UP045
"""Kinds of values: some of each kind, and what a program can ask of them that tells them apart (test_guard_kinds.py)."""

import collections
import dataclasses  # noqa: F401
import datetime
import fractions
import functools
import inspect  # noqa: F401
import itertools
import math
import operator
import pathlib
import re
import types
import typing
import weakref

import numpy as np
import torch

from tests.capture.guards.guarded_values import (  # (what is asked uses some of them by name)
    CV,
    CV2,
    LRU2,
    NAN,
    OTHER_NAN,
    Asked,
    Bits,
    Cached,
    Call,
    Color,
    Computed,
    Ctx,
    D,
    Data,
    EqOnly,
    Equal,
    EqualToAll,
    Fmt,
    Frozen,
    GetAttribute,
    Holder,
    InClass,
    IntBits,
    Items,
    Iter,
    Key,
    Len0,
    Meta,
    Missing,
    New,
    Next,
    Num,
    Number,
    O,
    Other,
    P,
    Pair,
    Place,
    Plain,
    Point,
    Q,
    Real,
    Shade,
    Sized,
    Slots,
    SubHolder,
    T,
    Table,
    Text,
    Truth,
    U,
    W,
    WithMeta,
    WithMetaToo,
    advanced,
    attributes,
    cached,
    closure_of,
    default_dict,
    default_of,
    fn_with,
    generator,
    lru,
    module_buf,
    module_with,
    moved_to_end,
    namespace,
    ordered,
    reclassed,
    tied,
    with_attribute,
    with_desc,
)  # fmt: skip

# `v` is the value; R: all of the kind.  KEYS, SET, FROZEN, LIST, DEQUE, COUNTS hold some of them.
ASK = ["repr(v)", "type(v).__name__", "bool(v)", "[v == r for r in R]", "[v is r for r in R]", "KEYS.get(v)"]  # fmt: skip
NUMBERS = [*ASK, "v + 1", "f'{v}'", "x * v", "isinstance(v, int)", "R.index(v)", "{1: 'int', 0: 'zero', 2.5: 'real'}.get(v)", "len({v, 1, 0})", "1 if v else 2", "str(v)", "x.new_zeros(3)[:int(v)]" ]  # fmt: skip
COLLECTIONS = ["len(v)", "list(v)", "repr(v)", "bool(v)", "type(v).__name__", "1 in v", "[v == r for r in R]", "[x + i for i in v]", "sorted(map(str, v))", "next(iter(v), 'none')", "[*v]", "any(i == 2 for i in v)", "[v is r for r in R]"]  # fmt: skip
IDENTITY = ["[v is r for r in R]", "KEYS.get(v)", "v in KEYS", "KEYS.get((v, 1), 'no')", "len({v, R[0]})", "len({v, *R})", "{R[0]: 1}.get(v, 2)", "{v: 1}.get(R[1], 2)", "(v, R[0]) == (R[0], v)", "[r for r in R].index(v)", "R.count(v)", "v in {r for r in R}", "v in FROZEN", "v in SET", "len(SET | {v})", "len(SET - {v})", "frozenset([v]) == frozenset([R[0]])", "len({(v, 1), (R[0], 1)})", "len(dict.fromkeys([v, *R]))", "SET.isdisjoint([v])", "{v} <= SET", "{v: 1} == {R[0]: 1}", "{v} == {R[0]}", "len({R[0]: 1, R[1]: 1} | {v: 2})", "v in KEYS.keys()", "len(KEYS.keys() & {v})", "COUNTS[v]", "v in LIST", "v in DEQUE", "{frozenset([v]): 1}.get(frozenset([R[0]]), 0)", "dict([(v, 1), (R[0], 2)])[v]", "(lambda s: s.discard(R[0]) or len(s))({v, R[1]})", "len({v: 1}.keys() - {R[0]})", "len({v: 1}.items() | {R[0]: 1}.items())", "collections.defaultdict(int, {v: 5})[R[0]]", "[o is R[0] for o in {v, R[0]}]", "{id(v): 1}.get(id(R[0]))", "BY_ID.get(id(v))", "name_of(v)"]  # fmt: skip
ATTRIBUTES = ["getattr(v, 'a', 'none')", "hasattr(v, 'b')", "type(v).__name__", "getattr(v, 'b', 'none')", "[v is r for r in R]"]  # fmt: skip
TABLES = ["list(v)", "list(v.items())", "list(v.values())", "len(v)", "v.get('a')", "'a' in v", "bool(v)", "repr(v)", "type(v).__name__", "[v == r for r in R]", "sum(v.values())", "[*reversed(v)]", "{**v}", "v.keys() == {'a', 'b'}", "v.get('c', 7)", "dict(v)", "v | {'z': 1}", "next(iter(v.items()), None)", "list(v.copy())"]  # fmt: skip
ITERATORS = ["list(v)", "next(v, 'none')", "[x + i for i in v]", "sum(v)", "2 in v", "type(v).__name__", "list(zip(v, v))", "operator.length_hint(v, -1)"]  # fmt: skip

KINDS = {
    "equal numbers": ([1, 1.0, True, 0, 0.0, -0.0, False, 2.5, 2, 1], NUMBERS),
    "floats": ([0.0, -0.0, NAN, OTHER_NAN, -NAN, math.inf, 1e300, 1.0], [*ASK, "math.copysign(1, v)", "v + 1", "math.isnan(v)", "v != v", "x * v", "(v,) == (NAN,)", "v in (NAN, 1.0)", "{NAN: 1}.get(v)", "1 / v", "[NAN].count(v)"]),
    "complex": ([1j, 1 + 0j, complex(1, -0.0), complex(-0.0, 0), 0j, 1], [*ASK, "v + 1", "x + v"]),
    "large ints": ([2**70, 2**70 + 1, -(2**70), 2**31, 2**63, 5], [*ASK, "v + 1", "v % 7", "hash(v)"]),
    "subclasses of numbers": ([1, Number(1), Number(2), Real(1), Real(-0.0), 1.0, True], [*NUMBERS, "isinstance(v, Number)"]),
    "numpy scalars": ([np.float32(1), np.float64(1), np.int64(1), np.bool_(True), np.float32(2), np.float64(2), 1, np.float64(-0.0)], [*ASK, "v + 1", "x * float(v)", "v.dtype.name if isinstance(v, np.generic) else 'none'", "x * v"]),
    "text": (["a", Text("a"), b"a", "b", "", Text(""), "a" * 300, "é"], [*ASK, "len(v)", "v[:1]", "v + v", "'a' in v if isinstance(v, str) else 'none'", "isinstance(v, Text)", "[*v]", "v * 2", "hash(v)", "{'a': 1}.get(v)"]),
    "bytes": ([b"a", bytearray(b"a"), b"ab", b"", bytearray(b"b"), memoryview(b"a"), "a"], ["len(v)", "list(v)", "v == b'a'", "type(v).__name__", "bool(v)", "v[:1] == b'a'"]),
    "singletons": ([None, False, 0, (), Ellipsis, NotImplemented, ""], [*ASK, "v is None", "v is ...", "v or 5", "v == None"]),
    "ranges": ([range(n) for n in (2, 3, 4, 5)] + [range(1, 4), range(0, 4, 2), range(0, 3, 2), range(3, 0, -1), range(0)], [*COLLECTIONS, "v[0]", "v[-1]", "v.start", "v.stop", "v.step", "v[1:]", "v.index(2)", "len(v) > 2", "KEYS.get(v)", "x[v.start:v.stop]", "list(zip(v, v))", "list(enumerate(v))", "max(v)", "sum(v)", "tuple(reversed(v))", "hash(v) == hash(range(2))", "{range(2): 1}.get(v)", "v.count(1)", "isinstance(v, range)", "slice(v.start, v.stop)"]),
    "slices": ([slice(1), slice(2), slice(0, 2), slice(0, 1), slice(None, None, 2), slice(None), slice(-1, None), slice(True)], ["x[v]", "[1, 2, 3][v]", "'abc'[v]", "repr(v)", "v == slice(1)", "v.start", "v.stop", "v.step", "v.indices(3)", "(1, 2, 3)[v]", "range(5)[v]", "[v is r for r in R]", "(v.start, v.stop)"]),
    "tuples": ([(1, 2), (1, 2.0), (True, 2), (2, 1), (1,), (), ((1, 2),), Pair((1, 2)), Point(1, 2), Place(1, 2), torch.Size((1, 2)), [1, 2]], [*COLLECTIONS, "v[0]", "v + (1,)", "v[:1]", "type(v[:1]).__name__", "{(1, 2): 'x'}.get(v)", "isinstance(v, torch.Size)", "v[-1]", "len(set(v))", "type(v + v).__name__"]),
    "named tuples": ([Point(1, 2), Place(1, 2), Point(2, 1), Point(1, None), Point(1.0, 2)], [*COLLECTIONS, "v.a", "v.b", "v._fields", "v._replace(a=5)", "v._asdict()", "v == (1, 2)", "{(1, 2): 'x'}.get(v)"]),
    "sizes": ([torch.Size([1, 2]), torch.Size([2, 1]), torch.Size([2]), (1, 2), torch.Size([])], [*COLLECTIONS, "v.numel() if isinstance(v, torch.Size) else -1", "x.new_zeros(v).shape", "v[:1]", "type(v[:1]).__name__", "v == X.shape", "type(v + v).__name__"]),
    "lists": ([[1, 2], [1, 2.0], [2, 1], [1], [], [[1, 2]], Items([1, 2]), [True, 2], [1, 2]], [*COLLECTIONS, "v[0]", "v + [1]", "v[:1]", "v.index(1)", "v.count(2)", "isinstance(v, Items)"]),
    "nested": ([[{"a": (1, [2])}], [{"a": (1, [3])}], [{"a": (1.0, [2])}], [{"b": (1, [2])}], [{"a": (1, (2,))}], [{"a": [1, [2]]}], [{"a": (1, [range(2)])}], [{"a": (1, [range(3)])}]], ["repr(v)", "[v == r for r in R]", "list(v[0])", "v[0].get('a')", "v[0]['a'][1][0]", "str(v[0].get('a', (0, [0]))[0])"]),
    "ranges in containers": ([[range(n), {"k": range(n + 1)}, (range(n),)] for n in (2, 3, 4, 5)], ["len(v[0])", "len(v[1]['k'])", "len(v[2][0])", "[x + i for i in v[0]]", "v[0] == range(3)", "repr(v)"]),
    "sets": ([{1, 2}, {2, 1}, {1, 2, 3}, {3}, set(), frozenset({1, 2}), {True, 2}, {1.0, 2}, {"a", 2}, {None, 1}, {(1, 2)}, {8, 0}, {0, 8}], [*COLLECTIONS, "v | {5}", "sorted(v & {1, 2})", "v <= {1, 2}", "v == frozenset({1, 2})", "v - {1}", "v ^ {1}", "v.isdisjoint({3})", "min(v)", "frozenset(v) in {frozenset({1, 2})}"]),
    "sets of objects": ([{O}, {P}, {O, P}, {O, Q}, frozenset({O}), frozenset({P}), set()], ["O in v", "P in v", "len(v)", "v == {O}", "len(v | {O})", "v <= {O, P}", "[i is O for i in v]", "next(iter(v), None) is O", "v == frozenset({O})", "len(v & {P})", "len(v - {O})", "frozenset(v) == frozenset({P})"]),
    "sets of tensors": ([{T}, {U}, {T, U}, frozenset({T}), frozenset({U}), set()], ["T in v", "U in v", "len(v)", "len(v | {T})", "len({T, U} - v)", "[i is T for i in v]", "[i + 1 for i in v]", "len(set(v) | {U})"]),
    "frozen sets": ([frozenset({1, 2}), frozenset({1}), frozenset(), frozenset({1.0, 2}), frozenset({(1, 2)}), frozenset({O}), frozenset({P})], ["1 in v", "O in v", "len(v)", "{frozenset({1}): 'x'}.get(v)", "v == {1, 2}", "repr(v) if len(v) != 1 else ''", "hash(v) == hash(frozenset({1}))"]),
    "dictionaries": ([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}, {"a": 1.0, "b": 2}, {"a": True, "b": 2}, {}, {"a": 2, "b": 2}, {"c": 1}, {1: 1}, {Text("a"): 1}, Table(a=1, b=2), {True: 1}, {1.0: 1}], TABLES),
    "keys of dictionaries": ([{1: 1}, {True: 1}, {1.0: 1}, {Number(1): 1}, {"1": 1}, {(1,): 1}, {None: 1}], ["list(v)", "repr(v)", "v.get(1)", "v.get(True)", "v.get(1.0)", "[type(k).__name__ for k in v]", "1 in v", "[*v.items()]"]),
    "dictionaries by identity": ([{O: 1}, {P: 1}, {O: 1, P: 2}, {P: 2, O: 1}, {O: 2}, {}], ["v.get(O)", "v.get(P)", "O in v", "[k is O for k in v]", "list(v.values())", "v == {O: 1}", "len(v | {O: 3})", "len(v)", "[k is O for k in v.keys()]", "len(v.keys() & {O})"]),
    "dictionaries by tensors": ([{T: 1}, {U: 1}, {T: 1, U: 2}, {U: 2, T: 1}, {T: 2}, {}], ["v.get(T)", "v.get(U)", "T in v", "[k is T for k in v]", "list(v.values())", "len(v)"]),
    "dictionaries by types": ([{int: 1}, {bool: 1}, {torch.float32: 1}, {Color.RED: 1}, {Color.GREEN: 1}, {len: 1}, {generator: 1}, {torch.nn: 1}, {torch.relu: 1}], ["v.get(int)", "v.get(torch.float32)", "v.get(Color.RED)", "v.get(len)", "v.get(generator)", "repr(list(v))", "v.get(torch.nn)", "v.get(torch.relu)"]),
    "default dictionaries": ([default_dict(int), default_dict(list), default_dict(float), default_dict(None), default_dict(int, a=1), default_dict(closure_of(3)), default_dict(closure_of(4)), {}], ["v.get('a')", "v.default_factory() if getattr(v, 'default_factory', None) else 'none'", "type(v).__name__", "len(v)", "v.copy()['q'] if isinstance(v, collections.defaultdict) else 0", "list(v)"]),
    "ordered": ([ordered([("a", 1), ("b", 2)]), ordered([("b", 2), ("a", 1)]), moved_to_end("a", [("a", 1), ("b", 2)]), {"a": 1, "b": 2}, ordered([])], [*TABLES, "next(reversed(v), 'none')"]),
    "counters": ([collections.Counter("ab"), collections.Counter("ba"), collections.Counter("aab"), collections.Counter(), {"a": 1, "b": 1}], [*TABLES, "v.most_common(1) if isinstance(v, collections.Counter) else 0", "v['q'] if isinstance(v, collections.Counter) else 0", "v + v if isinstance(v, collections.Counter) else 0"]),
    "chain maps": ([collections.ChainMap({"a": 1}, {"b": 2}), collections.ChainMap({"b": 2}, {"a": 1}), collections.ChainMap({"a": 2}, {"a": 1}), collections.ChainMap(), collections.ChainMap({"a": 2}, {"a": 1, "b": 3})], ["list(v)", "v.get('a')", "len(v)", "len(v.maps)", "bool(v)", "'b' in v", "dict(v)", "v.get('b', 0)"]),
    "proxies": ([types.MappingProxyType(t) for t in ({"a": 1}, {"a": 2}, {"b": 1}, {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, ordered([("a", 1)]))], ["list(v)", "v.get('a')", "len(v)", "'a' in v", "dict(v)", "v == {'a': 1}", "list(v.items())", "repr(v)"]),
    "views": ([t.keys() for t in ({"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1})] + [{"a": 1}.values(), {"a": 2}.values(), {"a": 1}.items(), {"a": 2}.items()], ["list(v)", "len(v)", "'a' in v", "1 in v", "type(v).__name__", "repr(v)", "next(iter(v))"]),
    "deques": ([collections.deque([1, 2]), collections.deque([1, 2], 2), collections.deque([1, 2], 5), collections.deque([2, 1]), collections.deque(), collections.deque([1.0, 2])], [*COLLECTIONS, "v.maxlen", "v[0]", "len([*v.copy(), 3])", "(v + collections.deque([3]))", "v.count(1)"]),
    "namespaces": ([types.SimpleNamespace(a=1), types.SimpleNamespace(a=2), types.SimpleNamespace(b=1), types.SimpleNamespace(), types.SimpleNamespace(a=1.0), types.SimpleNamespace(a=range(3)), types.SimpleNamespace(a=range(4)), types.SimpleNamespace(a=1, b=None)], [*ATTRIBUTES, "repr(v)", "vars(v)", "list(vars(v))", "v == types.SimpleNamespace(a=1)", "v.__dict__.get('a')"]),
    "modules of Python": ([namespace(a=1), namespace(a=2), namespace(b=1), namespace(), namespace(a=1.0), namespace(a=Plain, b=2)], [*ATTRIBUTES, "v.__dict__.get('a')", "vars(v).get('a', 5)", "'b' in vars(v)", "v.__name__"]),
    "attributes": ([attributes(a=1), attributes(a=2), attributes(a=None), attributes(b=1), attributes(), attributes(a=1.0), attributes(a=True), attributes(Other, a=1), InClass(), attributes(InClass, a=2), attributes(InClass, a=1)], [*ATTRIBUTES, "vars(v)", "len(v.__dict__)", "'a' in v.__dict__", "list(vars(v))"]),
    "slots": ([Slots(a=1), Slots(a=2), Slots(b=1), Slots(), Slots(a=None), Slots(a=range(2)), Slots(a=range(3))], ATTRIBUTES),
    "properties": ([Computed(1), Computed(2), Computed(1.0), Computed(True)], [*ATTRIBUTES, "v.a", "vars(v)"]),
    "asked": ([Asked(a=1), Asked(b=1), Asked(), Asked(a=1, b=2), Asked(a=2)], [*ATTRIBUTES, "v.zz", "v.a"]),
    "metaclasses": ([WithMeta, WithMetaToo, Plain, InClass, Meta], [*ATTRIBUTES, "v.__name__", "repr(v)", "isinstance(v, Meta)", "issubclass(v, Plain)"]),
    "classes": ([Plain, Other, int, bool, torch.Tensor, torch.nn.Linear, type], ["v.__name__", "issubclass(v, Plain)", "isinstance(1, v)", "isinstance(O, v)", "v is Plain", "v == int", "KEYS.get(v)", "{int: 1, bool: 2}.get(v)", "v.__mro__[-1].__name__", "[v is r for r in R]", "len({v, int})"]),
    "data classes": ([Data(), Data(1, 3), Data(1.0), Data(a=2), Data(a=range(2)), Data(a=range(3)), Data(b=None)], ["v.a", "v.b", "v == Data()", "repr(v)", "dataclasses.asdict(v)", "dataclasses.replace(v, b=9)", "[v == r for r in R]", "[v is r for r in R]"]),
    "frozen data classes": ([Frozen(), Frozen(1), Frozen(1.0), Frozen(2), Frozen("a"), Frozen(True)], ["v.a", "v == Frozen()", "{Frozen(): 'one', Frozen(2): 'two'}.get(v)", "hash(v) == hash(Frozen())", "len({v, Frozen()})", "[v is r for r in R]", "repr(v)"]),
    "enums": ([Color.RED, Color.GREEN, Color.ALSO_RED, Shade.RED, Shade.GREEN, 1], [*ASK, "getattr(v, 'value', v)", "getattr(v, 'name', v)", "v is Color.RED", "v in list(Color)", "{Color.RED: 1, Color.GREEN: 2}.get(v)", "v == 1", "isinstance(v, int)", "{Shade.RED: 1}.get(v)", "v in (Color.RED, 2)"]),
    "flags": ([Bits.A, Bits.B, Bits.A | Bits.B, Bits(0), IntBits.A, IntBits.A | IntBits.B, IntBits(5), 1], [*ASK, "Bits.A in v if isinstance(v, Bits) else 0", "v | v", "getattr(v, 'value', v)", "bool(v)", "v == 1"]),
    "dtypes": ([torch.float32, torch.float64, torch.int64, torch.bool, torch.float16, torch.complex64], [*ASK, "x.to(v).dtype", "v.is_floating_point", "v.itemsize", "torch.zeros(2, dtype=v)", "v is torch.float32", "x.dtype == v"]),
    "devices": ([torch.device("cpu"), torch.device("cpu", 0), torch.device("meta"), "cpu", torch.device("cpu")], ["repr(v)", "v == torch.device('cpu')", "getattr(v, 'index', 'none')", "getattr(v, 'type', 'none')", "x.to(v).device.type", "{torch.device('cpu'): 1}.get(v)", "x.device == v", "torch.zeros(2, device=v).device", "str(v)", "type(v).__name__"]),
    "memory formats": ([torch.contiguous_format, torch.channels_last, torch.preserve_format], [*ASK, "torch.zeros(1, 2, 2, 2).contiguous(memory_format=v).stride() if v is not torch.preserve_format else 0"]),
    "layouts": ([torch.strided, torch.sparse_coo, torch.sparse_csr], [*ASK, "x.layout == v"]),
    "functions": ([closure_of(1), closure_of(2), default_of(1), default_of(2), default_of(1.0), with_attribute(1), with_attribute(2), closure_of(range(2)), closure_of(range(3))], ["v()", "type(v).__name__", "v.__name__", "[v is r for r in R]", "[v == r for r in R]", "getattr(v, 'n', 'none')", "v.__defaults__", "v.__kwdefaults__", "{R[0]: 1, R[1]: 2}.get(v)", "len({v, R[0]})", "v in R", "hasattr(v, 'n')", "v.__closure__ is None", "len({v: 1, R[0]: 1, R[1]: 1})"]),
    "partials": ([functools.partial(pow, 2, 3), functools.partial(pow, 3, 2), functools.partial(pow, 2.0, 3), functools.partial(closure_of(1)), functools.partial(closure_of(2)), functools.partial(dict, a=1), functools.partial(dict, a=2), functools.partial(dict, b=1)], ["v()", "v.args", "v.keywords", "[v is r for r in R]", "v.func is pow", "type(v).__name__"]),
    "methods": ([Holder(1).method, Holder(2).method, Holder(1).other, SubHolder(1).method, Holder.of_class, SubHolder.of_class, [1].copy, [2].copy, [1].pop.__self__.copy], ["v()", "v.__self__ is R[0].__self__", "v == R[0]", "v.__name__", "type(v).__name__", "v.__func__ is Holder.method if isinstance(v, types.MethodType) else 0", "{R[0]: 1, R[2]: 2}.get(v)", "[v is r for r in R]"]),
    "builtins": ([len, max, min, torch.relu, torch.sin, operator.add, math.sin], ["v.__name__", "v is len", "KEYS.get(v)", "v([1, 2]) if v in (len, max, min) else 0", "v(x) if v in (torch.relu, torch.sin) else 0", "[v is r for r in R]", "len({v, len})"]),
    "getters": ([operator.itemgetter(0), operator.itemgetter(1), operator.itemgetter(0, 1), operator.itemgetter(-1)], ["v([5, 6])", "repr(v)", "v(x)"]),
    "objects": ([O, P, Q, Plain(), Other()], IDENTITY),
    "tensors": ([T, U, torch.ones(2), torch.zeros(2, dtype=torch.int64), W], ["[v is r for r in R]", "KEYS.get(v)", "v in KEYS", "KEYS.get((v, 1), 'no')", "len({v, R[0]})", "len({v, *R})", "{R[0]: 1}.get(v, 2)", "{v: 1}.get(R[1], 2)", "v in SET", "len(SET | {v})", "v in FROZEN", "len(dict.fromkeys([v, *R]))", "{v} <= SET", "{v} == {R[0]}", "len({(v, 1), (R[0], 1)})", "v + 1", "v.dtype", "id(v) == id(R[0])", "len({id(v), id(R[0])})", "isinstance(v, torch.nn.Parameter)"]),
    "modules": ([module_with(), module_with(), module_with(lambda m, a, r: r * 2), module_with(lambda m, a, r: r * 3), module_with(training=False), module_with(weight=W), module_with(weight=W), torch.nn.ReLU(), torch.nn.Identity()], ["v(x)", "v.training", "len(list(v.parameters()))", "any(p is W for p in v.parameters())", "len(v._forward_hooks)", "[v is r for r in R]", "len({v, R[0]})", "{R[0]: 1}.get(v)", "len({*v.parameters(), W})", "v in SET", "v == R[0]", "type(v).__name__"]),
    "modules with tied weights": ([tied(), torch.nn.Sequential(module_with(), module_with()), tied(), torch.nn.Sequential(module_with(weight=W), module_with(weight=W))], ["len(set(v.parameters()))", "len(list(v.parameters()))", "v[0].weight is v[1].weight", "len({id(p) for p in v.parameters()})", "len({v[0].weight, v[1].weight})", "[*dict.fromkeys(p for m in v for p in m._parameters.values())].__len__()", "len(list(v.named_parameters()))", "len(v.state_dict())", "len({v[0], v[1]})", "v(x)"]),
    "weak references": ([weakref.ref(O), weakref.ref(P), weakref.ref(Q), weakref.ref(Plain())], ["v() is O", "v() is None", "v() is P", "type(v()).__name__", "KEYS.get(v())", "{weakref.ref(O): 1}.get(v)", "v == weakref.ref(O)"]),
    "equal objects": ([Equal(1), Equal(1), Equal(2), Equal(1.0), EqualToAll(), Equal(True)], ["v == Equal(1)", "[v == r for r in R]", "[v is r for r in R]", "KEYS.get(v)", "v in [Equal(2)]", "{Equal(2): 'two'}.get(v)", "len({v, Equal(1)})", "v in (R[0], R[2])", "(v,) == (R[0],)", "[R[2], R[0]].index(v)", "{1: v} == {1: R[0]}"]),
    "truths": ([Truth(True), Truth(False), Plain(), Sized(0), Sized(2), None], ["bool(v)", "not v", "1 if v else 2", "v is not None and bool(v)", "any([v])", "list(filter(None, [v])) == [v]"]),
    "sized": ([Sized(0), Sized(2), Sized(3), Sized(4), Sized(5)], ["len(v)", "list(v)", "bool(v)", "2 in v", "v[1]", "[x + i for i in v]"]),
    "exceptions": ([ValueError(1), ValueError(2), KeyError(1), ValueError(1.0), ValueError()], ["v.args", "type(v).__name__", "isinstance(v, LookupError)", "repr(v)", "str(v)"]),
    "list iterators": ([New(lambda i=i: advanced(iter([1, 2, 3]), i)) for i in range(4)] + [New(lambda: iter([1, 2])), New(lambda: iter([1.0, 2]))], ITERATORS),
    "range iterators": ([New(lambda a=a: advanced(iter(range(*a[1:])), a[0])) for a in ((0, 3), (1, 3), (0, 4), (1, 4), (2, 4), (0, 5), (0, 1, 5), (0, 0, 5, 2), (0, 3, 0, -1), (3, 3))], ITERATORS),
    "tuple iterators": ([New(lambda i=i: advanced(iter((1, 2, 3)), i)) for i in range(4)], ITERATORS),
    "reversed iterators": ([New(lambda i=i: advanced(reversed([1, 2, 3]), i)) for i in range(4)] + [New(lambda: reversed((1, 2, 3))), New(lambda: reversed(range(3))), New(lambda: reversed(range(4)))], ITERATORS),
    "dictionary iterators": ([New(lambda i=i: advanced(iter({1: 2, 3: 4}), i)) for i in range(3)] + [New(lambda: iter({1: 2, 3: 4}.values())), New(lambda: iter({3: 4, 1: 2})), New(lambda: iter({1: 2, 3: 5}.values()))], ITERATORS),
    "set iterators": ([New(lambda i=i: advanced(iter({1, 2, 3}), i)) for i in range(3)] + [New(lambda: iter({1, 2}))], ITERATORS),
    "other iterators": ([New(lambda: zip([1], [2])), New(lambda: enumerate([5, 6])), New(lambda: enumerate([5, 6], 2)), New(lambda: map(abs, [-1, -2])), New(lambda: itertools.count(3)), New(lambda: itertools.islice(itertools.count(), 3)), New(lambda: itertools.repeat(2, 2)), New(lambda: itertools.repeat(2, 3)), New(lambda: iter("abc")), New(lambda: iter("abd")), New(lambda: filter(None, [0, 1])), New(lambda: itertools.chain([1], [2])), New(lambda: itertools.cycle([1, 2]))], ["next(v)", "[i for i, _ in zip(v, range(2))]", "type(v).__name__", "next(v, 0)"]),
    "generators": ([New(lambda n=n: generator(n)) for n in (2, 3, 4)] + [New(lambda: advanced(generator(4), 2)), New(lambda: (i * i for i in range(3))), New(lambda: (i * i for i in range(4)))], ITERATORS[:-1]),
    "fresh equal objects": ([New(lambda: [1, 2]), New(lambda: {"a": range(3)}), New(lambda: {"a": range(4)}), New(Plain), New(lambda: (range(2), range(3))), New(lambda: (range(3), range(2))), New(lambda: torch.zeros(2)), New(lambda: {Plain(): 1})], ["repr(v) if type(v) is tuple else 0", "len(v['a']) if type(v) is dict and 'a' in v else 0", "[len(r) for r in v] if type(v) is tuple else 0", "[v is r for r in R]", "O in v if type(v) is dict else 0"]),
    "same twice": ([(O, O), (O, P), (P, O), (T, T), (T, U), (U, T), ([1], [1]), (LIST2 := [1], LIST2), (closure_of(1), F2 := closure_of(1)), (F2, F2), (W, W), (Plain, Plain), (Plain, Other)], ["v[0] is v[1]", "len({id(v[0]), id(v[1])})", "v[0] in [v[1]] if not isinstance(v[0], torch.Tensor) else 0", "len({v[0], v[1]})", "{v[0]: 1}.get(v[1], 2)", "id(v[0]) == id(v[1])", "len({(v[0], 0), (v[1], 0)})", "len(dict.fromkeys(v))", "frozenset(v[:1]) == frozenset(v[1:])", "{v[0]} == {v[1]}", "{v[0]: 0} == {v[1]: 0}", "{v[0]}.isdisjoint({v[1]})", "[v[0]].index(v[1]) if not isinstance(v[0], torch.Tensor) else 0", "len(set(v))"]),
    "decimals": ([D("1"), D("1.0"), D("-0"), D("NaN"), fractions.Fraction(1), fractions.Fraction(1, 2), 1], ["repr(v)", "v == 1", "bool(v)", "x * float(v)", "[v is r for r in R]"]),
    "dates": ([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), datetime.timedelta(1), datetime.timedelta(2)], ["repr(v)", "v == R[0]", "hash(v) == hash(R[0])", "{R[0]: 1}.get(v)"]),
    "paths": ([pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b"), "a", pathlib.Path("a")], ["repr(v)", "str(v)", "v == R[0]", "type(v).__name__"]),
    "patterns": ([re.compile("a"), re.compile("b"), re.compile("a", re.I)], ["v.match('A') is None", "v.pattern", "v.match('a') is None", "v == R[0]", "v.flags"]),
    "finfo": ([torch.finfo(torch.float32), torch.finfo(torch.float64), torch.iinfo(torch.int8)], ["v.max", "v.bits", "repr(v)"]),
    "aliases": ([list[int], list[str], dict[str, int], int | str, typing.Optional[int], typing.List[int]], ["repr(v)", "v == list[int]", "typing.get_args(v)", "typing.get_origin(v)"]),
    "missing": ([Missing(), Missing(6), Missing(a=1), Missing(7, a=2)], ["v['q']", "v.get('a')", "len(v)", "v['a']"]),
    "eq only": ([EqOnly(1), EqOnly(2), EqOnly(1.0)], ["v == 1", "v in [1]", "[1, 2].index(v)", "v != 2", "[v == r for r in R]", "v in (2, 3)"]),
    "own hashes": ([Key("a", 1), Key("a", 2), Key("b", 1), "a"], ["{Key('z', 1): 'one', 'a': 'text'}.get(v)", "v == 'a'", "len({v, Key('q', 2)})", "v.upper()", "[v == r for r in R]", "repr(v)"]),
    "descriptors": ([with_desc(1), with_desc(2), with_desc(1.0)], ["v.a", "type(v).a", "getattr(v, 'b', 0)"]),
    "getattribute": ([GetAttribute(1), GetAttribute(2), GetAttribute(2.0)], ["v.a", "v.n", "v.a is v.n"]),
    "cached": ([cached(1), cached(2), Cached(3), Cached(1)], ["'a' in v.__dict__", "v.n", "v.a"]),
    "reclassed": ([reclassed(Other), reclassed(InClass), Plain(), reclassed(Plain)], ["type(v).__name__", "getattr(v, 'a', 0)", "isinstance(v, Other)", "v.__class__.__name__"]),
    "callables": ([Call(1), Call(2), Call(1.0), lru, LRU2, functools.partial(lru, 2), functools.partial(lru, 3), Call], ["v() if isinstance(v, (Call, functools.partial)) else 0", "v(1) if not isinstance(v, (Call, functools.partial)) and v is not Call else 0", "callable(v)", "[v is r for r in R]"]),
    "iterables": ([Iter(1), Iter(2), Iter(3), Iter(4), Len0(), Len0([1])], ["list(v)", "[x + i for i in v]", "sum(v)", "bool(v)", "1 in v", "[*zip(v, v)]"]),
    "own iterators": ([New(lambda n=n: Next(n)) for n in (1, 2, 3, 4)], ["list(v)", "next(v)", "[x + i for i in v]", "sum(v)", "(next(v), v.n)"]),
    "own numbers": ([Num(1), Num(0), Num(2), Num(-1)], ["x[v.n:]", "[1, 2, 3][v]", "x * v", "range(3)[v]", "float(v)", "x + v", "list(range(v))", "x.new_zeros(3)[v]", "operator.index(v)"]),
    "formats": ([Fmt(1), Fmt(2), Fmt("a")], ["f'{v}'", "f'{v:x}'", "f'{v!r}'", "str(v)", "'%s' % v", "'{}'.format(v)", "repr([v])", "format(v, 'y')"]),
    "contexts": ([Ctx(1), Ctx(2), Ctx(range(2)), Ctx(range(3))], ["v.__enter__()", "(lambda: [q for q in [v.n]])()"]),
    "context variables": ([CV, CV2], ["v.get()", "v.name", "v is CV"]),
    "functions with attributes": ([fn_with(), fn_with(__defaults__=(5,)), fn_with(__kwdefaults__={"b": 7}), fn_with(__name__="g"), fn_with(__doc__="d"), fn_with(a=1), fn_with(__defaults__=(range(2),)), fn_with(__defaults__=(range(3),)), fn_with(__module__="m"), fn_with(__qualname__="q"), fn_with(__annotations__={"a": int})], ["v()", "v.__name__", "v.__doc__", "getattr(v, 'a', 0)", "v.__defaults__", "v.__kwdefaults__", "v.__module__", "v.__qualname__", "v.__annotations__", "inspect.signature(v).parameters['a'].default", "vars(v)", "v.__dict__", "len(v.__dict__)", "hasattr(v, 'a')"]),
    "module state": ([module_buf(), module_buf(a=1), module_buf(a=2), module_buf(a=torch.ones(2)), module_buf(a=torch.zeros(2)), module_buf(a=range(2)), module_buf(a=range(3)), module_buf(b=None), module_buf(a=T), module_buf(a=T, b=T), module_buf(a=T, b=U)], ["hasattr(v, 'a')", "getattr(v, 'a', 0)", "len(list(v.buffers()))", "list(v.state_dict())", "getattr(v, 'a', 0) is T", "getattr(v, 'a', None) is getattr(v, 'b', 0)", "v(x)", "len({*v.buffers()})", "[n for n, _ in v.named_buffers()]", "T in set(v.buffers())", "len({*v.buffers(), T})"]),
    "simple sequences": ([collections.UserList([1, 2]), collections.UserList([1]), collections.UserDict(a=1), collections.UserDict(a=2), collections.UserString("a")], ["len(v)", "repr(v)", "list(v)", "v == [1, 2]", "'a' in v"]),
    "weak containers": ([weakref.WeakSet([O]), weakref.WeakSet([P]), weakref.WeakSet(), weakref.WeakKeyDictionary({O: 1}), weakref.WeakKeyDictionary({P: 1})], ["O in v", "len(v)", "[k is O for k in v]", "bool(v)"]),
    "numpy arrays": ([np.ones(2), np.zeros(2), np.ones(3), np.ones(2, np.float32), np.array([1, 2])], ["v.tolist()", "v.dtype.name", "len(v)", "v.sum() > 1", "x + torch.from_numpy(v).sum()", "v.shape"]),
    "slices in containers": ([(slice(n), [slice(n + 1)], {"k": slice(1, n)}) for n in (1, 2, 3, 4)], ["x[v[0]]", "v[1][0].stop", "x[v[2]['k']]", "repr(v)", "v[0] == slice(2)", "[1, 2, 3, 4][v[0]]", "v[0].indices(3)"]),
    "tuples of tensors": ([(T, U), (U, T), (T, T), (U,), (T, U, T)], ["[t is T for t in v]", "len(set(v))", "v[0] is v[-1]", "T in set(v)", "{t: i for i, t in enumerate(v)}[v[0]]", "[list(v).index(t) if t is v[0] else 0 for t in v[:1]]", "v[0] + v[-1]", "len({id(t) for t in v})"]),
    "tensor facts": ([torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(2, requires_grad=True), torch.ones(3), torch.ones(4)[::2], torch.ones(2, 1), torch.ones(()), torch.ones(2).detach().requires_grad_(), torch.empty(0)], ["v.dtype", "v.shape", "v.stride()", "v.requires_grad", "v.is_leaf", "v.is_contiguous()", "v.numel()", "v.grad is None", "v.storage_offset()", "v.dim()", "v.layout", "hasattr(v, 'tag')", "len(v.size())", "v._version", "v.names"]),
    "tagged tensors": ([torch.ones(2), (lambda t: setattr(t, "tag", 1) or t)(torch.ones(2)), (lambda t: setattr(t, "tag", 2) or t)(torch.ones(2)), (lambda t: setattr(t, "tag", range(2)) or t)(torch.ones(2)), (lambda t: setattr(t, "tag", range(3)) or t)(torch.ones(2))], ["getattr(v, 'tag', 0)", "hasattr(v, 'tag')", "vars(v)"]),
    "lengths": ([[0] * n for n in (1, 2, 3, 4, 5, 6, 1, 2)], ["len(v)", "[i for i, _ in enumerate(v)]", "len(v) > 2", "x * len(v)", "bool(v)", "v[-1]", "tuple(v)"]),
    "numbers that vary": ([1, 2, 3, 4.0, 5, 0, -1, True, 2**40, 7.5, float("inf"), None], ["v", "x * v", "v if v is None else v + 1", "repr(v)", "bool(v)", "v is None", "type(v).__name__", "range(v) if type(v) is int and v < 9 else 0", "slice(v)", "[v]", "{'a': v}", "v == 3", "{3: 1}.get(v)", "v in (1, 5)", "str(v)", "len(range(v)) if type(v) is int and v < 9 else 0", "x[:v] if type(v) is int else 0", "(v, v)", "-v", "v // 2", "v is True", "isinstance(v, bool)", "hash(v)", "sorted([v, 3])", "max(v, 2)", "min([v, 2])", "abs(v)", "list(range(5))[v:]", "divmod(v, 2)", "round(v)", "f'{v:>3}'", "'abc'[:v]", "(1, 2, 3)[v]", "[0] * v if v != 2**40 else 0", "x.new_zeros(abs(v) % 3 + 1)", "{v}", "frozenset([v])", "{v: 1}", "range(2, v)", "list(reversed(range(v))) if v != 2**40 else 0", "iter(range(v)).__length_hint__()", "next(iter(range(v, 9)))"]),
}  # fmt: skip


# Objects that stay the same ones and change: how to make one, how to change it, contents, what to ask.


def refill(box, content):
    """Gives an object that existed another content."""
    if isinstance(box, list):
        box[:] = content
    elif isinstance(box, collections.deque):
        box.clear()
        box.extend(content)
    elif isinstance(box, dict | set):
        box.clear()
        box.update(content)
    else:
        box.__dict__.clear()
        box.__dict__.update(content)


def set_all(box, content):
    for name, value in content.items():
        setattr(box, name, value)


def new_function():
    def f(a=1, *, b=2):
        return a, b

    return f


MIXED = [
    1,
    1.0,
    True,
    -0.0,
    0.0,
    None,
    range(2),
    range(3),
    range(4),
    "a",
    (1, 2),
    (1, 2.0),
    slice(2),
    slice(3),
    float("nan"),
    O,
    P,
    T,
    U,
    int,
    bool,
]
CHANGED = {
    "list": (list, refill, [[v] for v in MIXED] + [[], [1, 2], [2, 1]], ["len(v)", "repr(v[:1])[:4]", "v[0] is O", "v[0] is T", "v.count(1)", "type(v[0]).__name__", "[type(i).__name__ for i in v]", "O in v", "v == [1]", "v and v[0] == 1 if not v or not isinstance(v[0], torch.Tensor) else 2", "[len(i) for i in v if isinstance(i, range)]", "[i.stop for i in v if isinstance(i, slice)]"]),
    "dict": (dict, refill, [{"k": v} for v in MIXED] + [{}, {"a": 1, "k": 2}, {"k": 2, "a": 1}, {1: 1}, {True: 1}, {1.0: 1}, {O: 1}, {P: 1}, {T: 1}, {U: 1}], ["list(v)[:0]", "len(v)", "v.get('k') is O", "'k' in v", "v.get(1)", "O in v", "v.get(O)", "T in v", "type(v.get('k')).__name__", "[type(k).__name__ for k in v]", "len(v['k'])", "[*v] == ['k', 'a']", "v == {'k': 1}" ]),
    "set": (set, refill, [{1}, {1.0}, {True}, {O}, {P}, {T}, {U}, {O, P}, set(), {None}, {(1, 2)}, {(O, 1)}, {frozenset({1})}, {range(2)}, {int}, {len}], ["len(v)", "O in v", "T in v", "1 in v", "[type(i).__name__ for i in v]", "(O, 1) in v", "v == {1}", "v | {O} == {O}", "range(2) in v", "int in v", "frozenset({1}) in v"]),
    "deque": (collections.deque, refill, [[v] for v in MIXED] + [[], [1, 2]], ["len(v)", "v[0] is O", "type(v[0]).__name__", "O in v", "[len(i) for i in v if isinstance(i, range)]"]),
    "attributes": (Plain, refill, [{"a": v} for v in MIXED] + [{}, {"b": 1}], ["hasattr(v, 'a')", "v.a is O", "type(v.a).__name__", "len(v.a)", "vars(v).get('a') is P", "{v.a: 1}.get(O)", "len({v.a, T})"]),
    "namespace": (types.SimpleNamespace, refill, [{"a": v} for v in MIXED] + [{}, {"b": 1}], ["hasattr(v, 'a')", "v.a is O", "type(v.a).__name__", "len(v.a)"]),
    "function": (new_function, set_all, [{"__defaults__": (v,)} for v in MIXED] + [{"__defaults__": None}, {"__defaults__": (1,)}, {"__kwdefaults__": {"b": 5}}, {"__kwdefaults__": {"b": range(2)}}, {"__kwdefaults__": {"b": range(3)}}, {"__kwdefaults__": None}, {"__kwdefaults__": {"b": 1}}, {"__name__": "q"}, {"q": 1}, {"q": 2}, {"__code__": (lambda a=1, *, b=2: (b, a)).__code__}, {"__code__": (lambda a=1, *, b=2: a).__code__}], ["v()", "v(1)", "v.__name__", "v.__defaults__", "type(v()).__name__", "getattr(v, 'q', 0)", "v(b=1)"]),
    "class": (lambda: type("C", (), {"a": 0}), set_all, [{"a": v} for v in MIXED] + [{"b": 1}, {"b": 2}, {"__len__": lambda s: 3}, {"__len__": lambda s: 4}, {"__bool__": lambda s: False}, {"__getattr__": lambda s, n: n}, {"a": property(lambda s: 7)}, {"a": property(lambda s: 8)}, {"__bool__": lambda s: True}, {"__call__": lambda s: 1}, {"__eq__": lambda s, o: True}], ["v.a is O", "type(v.a).__name__", "v().a is O", "type(v().a).__name__", "len(v())", "bool(v())", "getattr(v(), 'b', 0)", "v() == 1", "hasattr(v(), 'zz')", "callable(v())"]),
}  # fmt: skip
