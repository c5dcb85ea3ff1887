"""Built-in functions that make iterators and use them up."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.bytecode.opcodes import PY312
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.interpreter.generator import GeneratorValue
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import NONE, ConstValue, is_none
from frameloom.capture.values.containers.container import (
    ListValue,
    TupleValue,
    plain,
)
from frameloom.capture.values.containers.iterator import (
    ITERABLES,
    REVERSIBLE,
    BuiltinIterator,
    EnumerateValue,
    GetitemReversed,
)
from frameloom.capture.values.numbers.number import NumberValue, extreme
from frameloom.capture.values.numbers.symbolic import computed
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


# --- iteration


class CallIterator(BuiltinIterator):
    """The iterator of `iter(function, sentinel)`."""

    mutable = ("ended",)

    ended = False

    def type(self) -> type:
        return type(iter(int, 1))

    def step(self, t: Tracer) -> Value | None:
        if self.ended:
            return None
        function, sentinel = self.arguments
        item = t.call(function, [], {})
        if t.same_or_equal(item, sentinel):
            t.change(self)
            self.ended = True
            return None
        return item

    def rebuild(self, r: Rebuilder) -> None:
        if self.ended:
            r.code.call_const(ended_call)
            return
        super().rebuild(r)


def ended_call() -> Any:
    """Called from new code: returns such an iterator that has ended."""
    iterator = iter(int, 0)
    next(iterator, None)
    return iterator


@knows(iter, least=1, most=2)
def _iter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2:
        return CallIterator(iter, args, {}, None)  # type: ignore[arg-type]
    return t.look(args[0]).iterate(t)


@knows(next, least=1, most=2)
def _next(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    iterator = t.look(args[0])
    if not hasattr(iterator, "step"):
        raise Break("opaque_iterable", f"next({iterator.describe()})")
    if isinstance(iterator, GeneratorValue) and len(args) == 1:
        return t.look(iterator.send(t, NONE))  # its StopIteration has the result
    item = iterator.step(t)
    if item is not None:
        return t.look(item)
    return t.look(args[1]) if len(args) > 1 else t.raise_(StopIteration)


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
        t.iterator(given["iterable"]), t.index(given["start"]) if "start" in given else 0
    )


@knows(zip, keywords="strict")
def _zip(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and t.look(kwargs["strict"]).truth(t)
    iterators = [t.iterator(value) for value in args]

    def pull(t: Tracer) -> Value | None:
        items: list[Value] = []
        for position, iterator in enumerate(iterators):
            item = iterator.step(t)
            if item is None:
                if strict and position:
                    t.raise_(ValueError, _unequal(position, "shorter"))
                for place, other in enumerate(iterators[1:] if strict else (), 1):
                    if other.step(t) is not None:
                        t.raise_(ValueError, _unequal(place, "longer"))
                return None
            items.append(item)
        return TupleValue(items) if items else None

    return BuiltinIterator(zip, list(iterators), kwargs, pull)


def _unequal(position: int, how: str) -> str:
    before = "argument 1" if position == 1 else f"arguments 1-{position}"
    return f"zip() argument {position + 1} is {how} than {before}"


@knows(map, least=2)
def _map(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, iterators = t.look(args[0]), [t.iterator(value) for value in args[1:]]

    def pull(t: Tracer) -> Value | None:
        items = []
        for iterator in iterators:
            item = iterator.step(t)
            if item is None:
                return None
            items.append(item)
        return t.call(function, items, {})

    return BuiltinIterator(map, [function, *iterators], {}, pull)


@knows(filter, least=2, most=2)
def _filter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, iterator = t.look(args[0]), t.iterator(args[1])

    def pull(t: Tracer) -> Value | None:
        while (item := iterator.step(t)) is not None:
            answer = item if is_none(function) else t.call(function, [item], {})
            if t.look(answer).truth(t):
                return item
        return None

    return BuiltinIterator(filter, [function, iterator], {}, pull)


@knows(reversed, least=1, most=1)
def _reversed(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    if isinstance(value, ConstValue) and isinstance(value.real, range):
        return ConstValue(value.real[::-1]).iterate(t)
    if isinstance(value, TensorValue):
        return t.torch_call(torch.Tensor.__reversed__, [value], {})
    if isinstance(value, ConstValue) and type(value.real) in (str, bytes):
        return GetitemReversed(value, len(value.real))
    return value.reverse(t)


@knows(any, least=1, most=1)
def _any(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    return any(t.look(item).truth(t) for item in t.each(args[0]))


@knows(all, least=1, most=1)
def _all(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    return all(t.look(item).truth(t) for item in t.each(args[0]))


def _extreme(wanted: Callable[[Any, Any], Any], real: Callable[..., Any]) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        items = t.each(args[0]) if len(args) == 1 else iter(args)
        key = t.look(kwargs["key"]) if "key" in kwargs else NONE
        best = next(items, None)
        if best is None:
            if "default" in kwargs:
                return t.look(kwargs["default"])
            name = "min" if wanted is operator.lt else "max"
            what = "iterable argument is empty" if PY312 else "arg is an empty sequence"
            t.raise_(ValueError, f"{name}() {what}")
        rank = best if is_none(key) else t.call(key, [best], {})
        for item in items:
            other = item if is_none(key) else t.call(key, [item], {})
            if is_none(key) and (number := computed(t, real, [t.look(best), t.look(item)])):
                best = rank = number
                continue
            if is_none(key) and any(isinstance(t.look(v), NumberValue) for v in (best, item)):
                best = rank = extreme(t, wanted, t.look(best), t.look(item))
                continue
            if operators.binary(t, wanted, other, rank).truth(t):
                best, rank = item, other
        return t.look(best)

    return handler


FUNCTIONS[min] = _extreme(operator.lt, min)
FUNCTIONS[max] = _extreme(operator.gt, max)


@knows(sorted, least=1, most=1, keywords="key reverse")
def _sorted(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(sorted_items(t, t.sized_items(args[0]), kwargs))


def sorted_items(t: Tracer, items: Args, kwargs: Kwargs) -> Args:
    """Returns the items in order. Keys that are not constants are compared by interpreted code."""
    key = t.look(kwargs["key"]) if "key" in kwargs else NONE
    reverse = "reverse" in kwargs and t.look(kwargs["reverse"]).truth(t)
    ranks = [t.look(item if is_none(key) else t.call(key, [item], {})) for item in items]
    try:
        known = [plain(rank) for rank in ranks]
        order = sorted(range(len(items)), key=known.__getitem__, reverse=reverse)
    except NotConstant:
        asked = [_Rank(t, rank) for rank in ranks]
        order = sorted(range(len(items)), key=asked.__getitem__, reverse=reverse)
    except TypeError as error:
        t.raise_(TypeError, *error.args)
    return [items[position] for position in order]


class _Rank:
    """Lets Python's own sort call the program's comparisons, in its order."""

    def __init__(self, t: Tracer, value: Value) -> None:
        self.t = t
        self.value = value

    def __lt__(self, other: _Rank) -> bool:
        return operators.binary(self.t, operator.lt, self.value, other.value).truth(self.t)


ITERATORS = {
    *(type(iter(source)) for source in (*ITERABLES, "é")),
    *(type(reversed(source)) for source in REVERSIBLE),
    *(cls for cls in vars(itertools).values() if hasattr(cls, "__next__")),
    *(enumerate, zip, map, filter, reversed, type(iter(int, 1))),
}


def _itself(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(args[0]).iterate(t)


def knows_iterator(cls: Any) -> None:
    """Registers the rules for the methods of a class of iterators."""
    knows(cls.__next__, least=1, most=1)(_next)
    knows(cls.__iter__, least=1, most=1)(_itself)


for _cls in ITERATORS:
    knows_iterator(_cls)
