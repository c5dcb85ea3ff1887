"""Builtin functions and classes with a meaning of their own: `FUNCTIONS` maps the callable to `(t, args, kwargs) -> value`.

What is here takes values that are not constants (containers, tensors, user objects).  Methods of lists, dicts and sets are in
`methods.py`; pure functions of constants need no entry (`policy.is_pure`).

Over 500 lines because it is a table: one short entry per function, and a reader looks for a name.
"""

from __future__ import annotations

import collections
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import calls
from frameloom.capture.values.base import NotConstant, Raised, Value
from frameloom.capture.values.const import NONE, TRUE, ConstValue, boolean
from frameloom.capture.values.container import ListValue, SequenceValue, SetValue, TupleValue, plain
from frameloom.capture.values.dictionary import DictValue, ViewValue
from frameloom.capture.values.function import (
    BoundMethodValue,
    FunctionValue,
    PartialValue,
)
from frameloom.capture.values.iterator import (
    BuiltinIterator,
    EnumerateValue,
    IteratorValue,
    ReversedIterator,
    SequenceIterator,
)
from frameloom.capture.values.object import MISSING, AttributesValue, ObjectValue, class_attribute
from frameloom.capture.values.static import ClassValue, ExceptionValue, SuperValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer

Args = list[Value]
Kwargs = dict[str, Value]
Known = Callable[["Tracer", Args, Kwargs], Value]
FUNCTIONS: dict[Any, Known] = {}


def knows(
    *functions: Any, least: int = 0, most: int | None = None, keywords: str = ""
) -> Callable[[Known], Known]:
    """Register what calling these comes to, for `least` to `most` positional arguments (any number where `most` is None) and
    these keywords ("*": any).  Other calls break: Python finds the right words for what is wrong with them."""
    allowed = frozenset(keywords.split())

    def register(handler: Known) -> Known:
        def checked(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
            count = len(args)
            if (
                count < least
                or (most is not None and count > most)
                or ("*" not in allowed and not allowed.issuperset(kwargs))
            ):
                raise Break("unknown_call", f"{getattr(functions[0], '__name__', '?')}(...)")
            return handler(t, args, kwargs)

        for function in functions:
            FUNCTIONS[function] = checked
        return handler

    return register


def breaks(kind: str, *functions: Any) -> None:
    """Calling these breaks the graph."""
    for function in functions:
        name = getattr(function, "__name__", "?")

        def handler(t: Tracer, args: Args, kwargs: Kwargs, name: str = name) -> Value:
            raise Break(kind, f"{name}(...)")

        FUNCTIONS[function] = handler


breaks("print", print)
breaks(
    "unknown_call",
    input,
    open,
    eval,
    exec,
    compile,
    __import__,
    id,
    locals,
    vars,
    dir,
    globals,
    delattr,
    memoryview,
    bytearray,
)


# --- questions


@knows(len, least=1, most=1)
def _len(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(t.look(args[0]).length(t))


@knows(isinstance, least=2, most=2)
def _isinstance(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(t.is_instance(args[0], args[1]))


@knows(issubclass, least=2, most=2)
def _issubclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.evaluate(issubclass, args, kwargs)


@knows(callable, least=1, most=1)
def _callable(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    return boolean(class_attribute(value.type(), "__call__") is not MISSING)


@knows(type, least=1, most=1)
def _type(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise Break("class_statement", "type(name, bases, dict)")
    value = t.look(args[0])
    if isinstance(value, ObjectValue) and value.origin is not None:
        return ClassValue(value.cls, value.origin.child("type"))
    return t.pinned(value.type())


@knows(hasattr, least=2, most=2)
def _hasattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        t.look(args[0]).getattr(t, t.look(args[1]).constant())
    except Raised as raised:
        if raised.value.is_instance(AttributeError):  # type: ignore[attr-defined]
            return boolean(False)
        raise
    return TRUE


@knows(getattr, least=2, most=3)
def _getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        return t.look(args[0]).getattr(t, t.look(args[1]).constant())
    except Raised as raised:
        if len(args) > 2 and raised.value.is_instance(AttributeError):  # type: ignore[attr-defined]
            return t.look(args[2])
        raise


@knows(setattr, least=3, most=3)
def _setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    t.look(args[0]).setattr(t, t.look(args[1]).constant(), args[2])
    return NONE


@knows(object.__getattribute__, least=2, most=2)
def _object_getattribute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner, name = t.look(args[0]), t.look(args[1]).constant()
    if not isinstance(owner, ObjectValue):
        return owner.getattr(t, name)
    found = owner.find(t, name)
    return (
        found
        if found is not None
        else t.raise_(AttributeError, f"'{owner.describe()}' object has no attribute '{name}'")
    )


@knows(object.__setattr__, torch.nn.Module.__setattr__, least=3, most=3)
def _object_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner, name = t.look(args[0]), t.look(args[1]).constant()
    if not isinstance(owner, ObjectValue):
        raise Break("attribute_write", f"{owner.describe()}.{name} = ...")
    if isinstance(owner, ObjectValue) and issubclass(owner.cls, torch.nn.Module):
        type(owner).setattr(owner, t, name, args[2])
    else:
        owner.setattr_generic(t, name, args[2])
    return NONE


@knows(object.__delattr__, least=2, most=2)
def _object_delattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    t.look(args[0]).delattr(t, t.look(args[1]).constant())
    return NONE


@knows(object.__init__, least=1, most=1)
def _object_init(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return NONE


@knows(object.__init_subclass__, most=1)
def _init_subclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return NONE


@knows(
    object.__new__,
    dict.__new__,
    list.__new__,
    tuple.__new__,
    collections.OrderedDict.__new__,
    least=1,
    keywords="*",
)
def _new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    from frameloom.capture.classes import bare_instance

    cls = t.look(args[0]).constant()
    if cls.__flags__ & 1 << 9 == 0:
        raise Break("unknown_call", f"{cls.__name__}.__new__")
    return bare_instance(t, cls, args[1:])


@knows(object.__eq__, least=2, most=2)
def _object_eq(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TRUE if t.identical(args[0], args[1]) else ConstValue(NotImplemented)


@knows(object.__ne__, least=2, most=2)
def _object_ne(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(not t.same_or_equal(args[0], args[1]))


@knows(super, least=2, most=2)
def _super(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = t.look(args[0])
    if not isinstance(cls, ClassValue) or len(args) != 2:
        raise Break("unknown_call", "super(...)")
    return SuperValue(cls.real, t.look(args[1]))


# --- conversions


@knows(bool, most=1)
def _bool(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(t.look(args[0]).truth(t)) if args else boolean(False)


def _number(special: str, convert: Callable[..., Any]) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0]) if args else None
        if isinstance(value, TensorValue):
            raise Break("item", f"{convert.__name__}(tensor)")
        if (
            isinstance(value, ObjectValue)
            and (result := value.call_special(t, special)) is not None
        ):
            return result
        return t.evaluate(convert, args, kwargs)

    return handler


for _convert, _special in ((int, "__int__"), (float, "__float__"), (complex, "__complex__")):
    FUNCTIONS[_convert] = _number(_special, _convert)


def _text(special: str, convert: Callable[..., Any]) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0]) if args else None
        if isinstance(value, ObjectValue):
            result = value.call_special(t, special)
            if result is None and special == "__str__":
                result = value.call_special(t, "__repr__")
            if result is not None:
                return result
        if isinstance(value, ExceptionValue) and special == "__str__":
            return t.evaluate(lambda *a: str(BaseException(*a)), value.args, {})
        return t.evaluate(convert, args, kwargs)

    return handler


FUNCTIONS[str] = _text("__str__", str)
FUNCTIONS[repr] = _text("__repr__", repr)


@knows(format, least=1, most=2)
def _format(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    spec = t.look(args[1]).constant() if len(args) > 1 else ""
    if isinstance(value, ObjectValue) and value.special("__format__") is MISSING and not spec:
        return t.call_builtin(str, [value], {})
    return t.evaluate(format, args, kwargs)


@knows(abs, least=1, most=1)
def _abs(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return calls.unary(t, abs, "__abs__", args[0])


@knows(list, most=1)
def _list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(t.list_items(args[0]) if args else [])


@knows(tuple, most=1)
def _tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(value := t.look(args[0]), TupleValue) and value.cls is tuple:
        return value
    return TupleValue(t.list_items(args[0]) if args else [])


@knows(torch.Size, most=1)
def _size(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = t.list_items(args[0]) if args else []
    return TupleValue([ConstValue(t.index(item)) for item in items], torch.Size)


@knows(set, most=1)
def _set(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _collection(t, set, args)


@knows(frozenset, most=1)
def _frozenset(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and t.look(args[0]).type() is frozenset:
        return t.look(args[0])
    return _collection(t, frozenset, args)


def _collection(t: Tracer, cls: type, args: Args) -> Value:
    result = SetValue(cls)
    for item in t.list_items(args[0]) if args else []:
        result.entries.setdefault(t.look(item).key(t), t.look(item))
    return result


@knows(dict, collections.OrderedDict, most=1, keywords="*")
def _dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    result = DictValue()
    fill_dict(t, result, args, kwargs)
    return result


def _ordered_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    result = DictValue(cls=collections.OrderedDict)
    fill_dict(t, result, args, kwargs)
    return result


FUNCTIONS[collections.OrderedDict] = _ordered_dict


def fill_dict(t: Tracer, target: Value, args: Args, kwargs: Kwargs) -> None:
    """What `dict.update` does."""
    from frameloom.capture.handlers.containers import mapping_entries

    if args:
        source = t.look(args[0])
        is_mapping = isinstance(source, DictValue | AttributesValue) or (
            isinstance(source, ObjectValue)
            and (source.payload is not None or source.special("keys") is not MISSING)
        )
        if is_mapping:
            assert t.frame is not None
            pairs = mapping_entries(t.frame, source)
        else:
            pairs = []
            for item in t.list_items(source):
                pair = t.list_items(item)
                if len(pair) != 2:
                    raise Break("unpack", "a dictionary from items that are no pairs")
                key, value = pair
                pairs.append((t.look(key), value))
        for key, value in pairs:
            target.setitem(t, key, value)
    for name, value in kwargs.items():
        target.setitem(t, ConstValue(name), value)


# --- iteration


@knows(iter, least=1, most=1)
def _iter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise Break("opaque_iterable", "iter(callable, sentinel)")
    return t.look(args[0]).iterate(t)


@knows(next, least=1, most=2)
def _next(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    iterator = t.look(args[0])
    if not hasattr(iterator, "step"):
        raise Break("opaque_iterable", f"next({iterator.describe()})")
    item = iterator.step(t)
    if item is not None:
        return t.look(item)
    return t.look(args[1]) if len(args) > 1 else t.raise_(StopIteration)


def _step(t: Tracer, iterator: Value) -> Value | None:
    found: Value | None = iterator.step(t)  # type: ignore[attr-defined]
    return found


def _inner(t: Tracer, value: Value) -> IteratorValue:
    iterator = t.look(value).iterate(t)
    if not hasattr(iterator, "step"):
        raise Break("opaque_iterable", f"iteration over {iterator.describe()}")
    return iterator  # type: ignore[return-value]


@knows(enumerate, most=2, keywords="iterable start")
def _enumerate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "start"), args, strict=False)) | kwargs
    if (
        "iterable" not in given
        or not {"iterable", "start"} >= given.keys()
        or len(args) + len(kwargs) != len(given)
    ):
        raise Break("unknown_call", "enumerate(...)")
    return EnumerateValue(
        _inner(t, given["iterable"]), t.index(given["start"]) if "start" in given else 0
    )


@knows(zip, keywords="strict")
def _zip(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and t.look(kwargs["strict"]).truth(t)
    iterators = [_inner(t, value) for value in args]

    def pull(t: Tracer) -> Value | None:
        items: list[Value] = []
        for position, iterator in enumerate(iterators):
            item = _step(t, iterator)
            if item is None:
                if strict and (
                    position or any(_step(t, other) is not None for other in iterators[1:])
                ):
                    t.raise_(ValueError, "zip() arguments have different lengths")
                return None
            items.append(item)
        return TupleValue(items) if items else None

    return BuiltinIterator(zip, list(iterators), kwargs, pull)


@knows(map, least=2)
def _map(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, iterators = t.look(args[0]), [_inner(t, value) for value in args[1:]]

    def pull(t: Tracer) -> Value | None:
        items = []
        for iterator in iterators:
            item = _step(t, iterator)
            if item is None:
                return None
            items.append(item)
        return t.call(function, items, {})

    return BuiltinIterator(map, [function, *iterators], {}, pull)


@knows(filter, least=2, most=2)
def _filter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, iterator = t.look(args[0]), _inner(t, args[1])

    def pull(t: Tracer) -> Value | None:
        while (item := _step(t, iterator)) is not None:
            answer = item if function is NONE else t.call(function, [item], {})
            if t.look(answer).truth(t):
                return item
        return None

    return BuiltinIterator(filter, [function, iterator], {}, pull)


@knows(reversed, least=1, most=1)
def _reversed(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    if (
        isinstance(value, ObjectValue)
        and (result := value.call_special(t, "__reversed__")) is not None
    ):
        return result
    if isinstance(value, ConstValue) and isinstance(value.real, range):
        return ConstValue(value.real[::-1]).iterate(t)
    if isinstance(value, SequenceValue):
        return ReversedIterator(value)
    if not isinstance(value, DictValue | ViewValue | ConstValue):
        raise Break("opaque_iterable", f"reversed({value.describe()})")
    items = list(reversed(t.list_items(value)))
    return SequenceIterator(TupleValue(items), items)


@knows(sum, least=1, most=2, keywords="start")
def _sum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = kwargs.get("start", args[1] if len(args) > 1 else ConstValue(0))
    for item in t.list_items(args[0]):
        total = calls.binary(t, operator.add, total, item)
    return t.look(total)


@knows(any, least=1, most=1)
def _any(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    iterator = _inner(t, args[0])
    while (item := _step(t, iterator)) is not None:
        if t.look(item).truth(t):
            return boolean(True)
    return boolean(False)


@knows(all, least=1, most=1)
def _all(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    iterator = _inner(t, args[0])
    while (item := _step(t, iterator)) is not None:
        if not t.look(item).truth(t):
            return boolean(False)
    return boolean(True)


def _extreme(wanted: Callable[[Any, Any], Any]) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        items = t.list_items(args[0]) if len(args) == 1 else args
        key = t.look(kwargs["key"]) if "key" in kwargs else NONE
        if not items:
            if "default" in kwargs:
                return t.look(kwargs["default"])
            t.raise_(ValueError, "arg is an empty sequence")
        best = items[0]
        rank = best if key is NONE else t.call(key, [best], {})
        for item in items[1:]:
            other = item if key is NONE else t.call(key, [item], {})
            if calls.binary(t, wanted, other, rank).truth(t):
                best, rank = item, other
        return t.look(best)

    return handler


FUNCTIONS[min] = _extreme(operator.lt)
FUNCTIONS[max] = _extreme(operator.gt)


@knows(sorted, least=1, most=1, keywords="key reverse")
def _sorted(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(sorted_items(t, t.list_items(args[0]), kwargs))


def sorted_items(t: Tracer, items: Args, kwargs: Kwargs) -> Args:
    """Items in order, where the keys are constants."""
    key = t.look(kwargs["key"]) if "key" in kwargs else NONE
    reverse = "reverse" in kwargs and t.look(kwargs["reverse"]).truth(t)
    try:
        ranks = [plain(t.look(item if key is NONE else t.call(key, [item], {}))) for item in items]
        order = sorted(range(len(items)), key=ranks.__getitem__, reverse=reverse)
    except NotConstant:
        raise Break("opaque_object", "sorting objects") from None
    except TypeError as error:
        t.raise_(TypeError, *error.args)
    return [items[position] for position in order]


# --- functions about functions


@knows(functools.partial, least=1, keywords="*")
def _partial(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function = t.look(args[0])
    if isinstance(function, PartialValue):
        return PartialValue(
            function.func, [*function.args, *args[1:]], {**function.kwargs, **kwargs}
        )
    return PartialValue(function, args[1:], kwargs)


@knows(functools.reduce, least=2, most=3)
def _reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = t.list_items(args[1])
    if len(args) > 2:
        items.insert(0, args[2])
    if not items:
        t.raise_(TypeError, "reduce() of empty iterable with no initial value")
    result = items[0]
    for item in items[1:]:
        result = t.call(t.look(args[0]), [result, item], {})
    return t.look(result)


@knows(types.MethodType, least=2, most=2)
def _method_type(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return BoundMethodValue(t.look(args[0]), args[1])


@knows(inspect.signature, least=1, most=1)
def _signature(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value, drop = t.look(args[0]), 0
    if isinstance(value, BoundMethodValue):
        value, drop = t.look(value.func), 1
    if not isinstance(value, FunctionValue) or kwargs:
        raise Break("library_call", "inspect.signature(...)")
    function = (
        value.real if value.real is not None else types.FunctionType(value.code, {}, closure=None)
    )
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[drop:]
    return ConstValue(signature.replace(parameters=parameters))


@knows(typing.cast, least=2, most=2)
def _cast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(args[1])


@knows(operator.attrgetter, operator.itemgetter, operator.methodcaller)
def _getter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise Break("unknown_call", "operator getters")


@knows(operator.contains, least=2, most=2)
def _contains(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(t.look(args[0]).contains(t, t.look(args[1])))


@knows(operator.getitem, least=2, most=2)
def _getitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(args[0]).getitem(t, t.look(args[1]))


@knows(operator.is_, least=2, most=2)
def _is(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(t.identical(args[0], args[1]))


# --- torch


def _is_compiling(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TRUE


for _name in ("is_compiling", "is_dynamo_compiling"):
    FUNCTIONS[getattr(torch.compiler, _name)] = _is_compiling


@knows(
    torch.overrides.has_torch_function,
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
)
def _has_torch_function(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for arg in args:
        t.look(arg)
    return boolean(False)


@knows(torch._C._log_api_usage_once)
def _nothing(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return NONE


@knows(torch.is_tensor, least=1, most=1)
def _is_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(isinstance(t.look(args[0]), TensorValue))


@knows(torch.numel, least=1, most=1)
def _numel(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    if not isinstance(value, TensorValue):
        raise Break("unknown_call", "torch.numel(...)")
    return ConstValue(value.fake.numel())
