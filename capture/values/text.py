"""Text that may not be needed, such as the message of a check.

Text with tensor data can be passed on, but not read; reading text with dynamic sizes specializes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import TupleValue, plain
from frameloom.capture.values.numbers.symbolic import DeferredValue, is_symbolic
from frameloom.errors import Avoid

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class TensorTextValue(Value):
    """Text that shows a tensor. `site`: the instruction that made it, where the capture breaks if the text is
    needed."""

    cls = str

    def __init__(self, site: tuple[CodeType, int]) -> None:
        self.site = site

    def describe(self) -> str:
        return "text that shows a tensor"

    def check_rebuild(self) -> None:
        raise Avoid(self.site)


class SizeTextValue(DeferredValue):
    """`fn(*segments)`, a string with dynamic sizes and numbers."""

    def __init__(self, t: Tracer, fn: Callable[..., str], segments: Sequence[Value]) -> None:
        super().__init__(t, 0, None, fn)
        self.segments = list(segments)

    @property
    def is_specialized(self) -> bool:
        return not any(shows_sizes(self.t, segment) for segment in self.segments)

    def type(self) -> type:
        return str

    def describe(self) -> str:
        return "text that shows a size"

    def specialize(self) -> Any:
        return self.fn(*(plain(self.t.look(segment)) for segment in self.segments))

    def parts(self) -> list[Value]:
        return self.segments

    def rebuild(self, r: Rebuilder) -> None:
        r.call(self.fn, *self.segments)


def joined(*segments: str) -> str:
    return "".join(segments)


def shows_sizes(t: Tracer, value: Value) -> bool:
    """Whether it is a dynamic size or number, text with one, or a tuple of constants with one."""
    value = t.look(value)
    if isinstance(value, TupleValue) and value.cls in (tuple, torch.Size):
        items = [t.look(item) for item in value.items]
        known = all(isinstance(item, ConstValue) for item in items)
        return known and any(map(is_symbolic, items))
    return is_symbolic(value)
