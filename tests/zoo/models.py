"""What a model of the zoo is: how to build it and what to call it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """One line of the zoo.  `inputs(seed)` gives keyword arguments, of the same shapes for every seed."""

    package: str  # timm, torchvision or transformers
    kind: str  # vision, text, audio, ...
    name: str
    build: Callable[[], Any]
    inputs: Callable[[int], Inputs]
    trained_with: Callable[[int], Inputs] | None = None  # instead of `inputs`

    @property
    def key(self) -> str:
        return f"{self.package}/{self.name}"


def all_models() -> list[Model]:
    from tests.zoo import timm_models, torchvision_models, transformers_models

    return [*timm_models.MODELS, *torchvision_models.MODELS, *transformers_models.MODELS]
