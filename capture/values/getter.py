"""operator.itemgetter, attrgetter and methodcaller: callables that store what to look up."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.container import TupleValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class GetterValue(Value):
    """`cls(*args, **kwargs)`, where the arguments are values."""

    is_true = True

    def __init__(self, cls: type, args: list[Value], kwargs: dict[str, Value]) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def key(self, t: Tracer) -> Any:
        return self

    def parts(self) -> list[Value]:
        return [*self.args, *self.kwargs.values()]

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            name = self.cls.__name__
            t.raise_(TypeError, f"{name} expected 1 argument, got {len(args)}")
        owner = t.look(args[0])
        if self.cls is operator.methodcaller:
            name = t.look(self.args[0]).constant()
            return t.look(t.call(owner.getattr(t, name), self.args[1:], self.kwargs))
        read = self._item if self.cls is operator.itemgetter else self._attribute
        results = [read(t, owner, t.look(key)) for key in self.args]
        return results[0] if len(results) == 1 else TupleValue(results)

    def _item(self, t: Tracer, owner: Value, key: Value) -> Value:
        return t.look(owner.getitem(t, key))

    def _attribute(self, t: Tracer, owner: Value, key: Value) -> Value:
        for name in key.constant().split("."):
            owner = t.look(owner.getattr(t, name))
        return owner

    def rebuild(self, r: Rebuilder) -> None:
        r.call(self.cls, *self.args, **self.kwargs)
