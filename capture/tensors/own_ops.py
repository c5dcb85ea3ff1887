"""Operators of our own, which graphs and plans call as they call those of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def own_op(
    schema: str, run: Callable[..., Any], tags: tuple[torch.Tag, ...] = (), namespace: str = "frameloom",
    key: str = "CompositeExplicitAutograd",
) -> Any:  # fmt: skip
    """Defines an operator with this schema, computed by `run`; returns its overload."""
    library, name = _library(namespace), schema.partition("(")[0]
    library.define(schema, tags=tags)
    library.impl(name, run, key)
    return getattr(getattr(torch.ops, namespace), name).default


@functools.cache  # a freed library removes its definitions
def _library(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "FRAGMENT")
