"""Infers what a node that is to be put into a graph returns."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from frameloom.capture.shapes.registry import infer
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import META, properties_of
from frameloom.errors import Break


def infer_node(func: Any, args: Any, kwargs: Any) -> Any:
    """Returns meta tensors like the results of an op on the arguments' nodes."""

    def meta(a: Any) -> Any:
        if not isinstance(a, torch.fx.Node):
            return a
        val = a.meta["val"]
        return val.meta if isinstance(val, Fake) else val  # a number

    meta_args = torch.fx.node.map_aggregate(args, meta)
    meta_kwargs = dict(torch.fx.node.map_aggregate(kwargs, meta)) if kwargs else {}
    if properties_of(func).takes_device:
        meta_kwargs["device"] = META
        meta_kwargs.pop("pin_memory", None)
    try:
        return infer(func, meta_args, meta_kwargs)
    except NotImplementedError as error:
        raise Break("unsupported_op", f"{func}: sizes of its result are not known") from error
