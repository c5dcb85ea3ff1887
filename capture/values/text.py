"""Text that shows tensors' data, such as the message of a check: it can be handed around, but not looked at."""

from __future__ import annotations

from types import CodeType

from frameloom.capture.generator import Avoid
from frameloom.capture.values.base import Value


class TensorTextValue(Value):
    """`site`: the instruction that made it, where the capture breaks instead if the text is needed after all."""

    def __init__(self, site: tuple[CodeType, int]) -> None:
        self.site = site

    def type(self) -> type:
        return str

    def describe(self) -> str:
        return "text that shows a tensor"

    def check_rebuild(self) -> None:
        raise Avoid(self.site)
