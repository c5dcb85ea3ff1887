"""Which tensors lie plainly whichever sizes are 1, by what the recorded ops say: trials of the calls (symbolic/chain_probe.py) cost more.

A plain operand has the strides of a fresh tensor; an expanded one is a plain one that is repeated.  In both the strides never grow from the outer
dimensions to the inner ones, so that kernels that take the order of dimensions from strides find none to exchange, for sizes of 1, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import getitem
from typing import Any

import torch

from frameloom.capture.autograd.partition import is_view
from frameloom.capture.shapes.registry import PRESERVING, is_pointwise
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.sized import lies_plainly

Node = torch.fx.Node
aten = torch.ops.aten
# Their results are laid out anew, and plainly, whatever the operands are.
FRESH = frozenset({
    aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.mv.default, aten.embedding.default,
    aten.embedding_dense_backward.default, aten.native_layer_norm.default, aten.native_layer_norm_backward.default,
    aten._fused_rms_norm.default, aten.gather.default, aten.index_select.default, aten.repeat.default, aten.full.default, aten.arange.default,
})  # fmt: skip
# They are laid out plainly where the operands are.
KEEPING = frozenset({
    aten.convolution.default, aten.convolution_backward.default, aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit_functional.default, aten.native_batch_norm_backward.default, aten.native_group_norm.default, aten.native_group_norm_backward.default, aten.max_pool2d_with_indices.default,
    aten.max_pool2d_with_indices_backward.default, aten.avg_pool2d.default, aten.avg_pool2d_backward.default,
    aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d_backward.default, aten._softmax.default, aten._softmax_backward_data.default,
    aten._log_softmax.default, aten._log_softmax_backward_data.default, aten.native_dropout.default, aten.sum.dim_IntList, aten.sum.default,
    aten.mean.dim, aten.mean.default, aten.nll_loss_backward.default, aten.view.default, aten._unsafe_view.default, aten.alias.default,
    aten.unsqueeze.default, aten.detach.default, aten.clone.default, aten._to_copy.default, *PRESERVING,
})  # fmt: skip
FORMATS = (None, torch.contiguous_format, torch.preserve_format)


def base_of(node: Node) -> Node:
    """What it is a view of."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def inputs_are_plain(graph: torch.fx.Graph) -> bool:
    """Of others, the derivative of a product asks for the strides: what it gives may be a transposed view where sizes are 1."""
    values = (n.meta["val"] for n in graph.find_nodes(op="placeholder"))
    return all(lies_plainly(value) for value in values if isinstance(value, Fake))


def is_surely_plain(node: Node, proven: set[Node]) -> bool:
    """Whether what it gives lies plainly where sizes are 1, too, in a graph whose inputs are plain.  `proven`: those that do, to which it is added."""
    passed, stack = {node}, [node]
    while stack:
        operands = _operands(stack.pop())
        if operands is None:
            return False
        new = [n for n in operands if n not in passed and n not in proven]
        passed.update(new)
        stack += new
    proven |= passed
    return True


def _operands(node: Node) -> Iterable[Node] | None:
    """It lies plainly if these do; None where that is not known."""
    value = node.meta.get("val")
    if not isinstance(value, Fake) or not lies_plainly(value):
        return None
    if node.op == "placeholder" or not value.shape:
        return ()
    target: Any = node.target
    if target is getitem:
        node = node.args[0]  # type: ignore[assignment]
        target = node.target
    if target in FRESH:
        return ()
    tensors = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Fake)]
    if target in KEEPING:
        if target is aten.sum.dim_IntList and base_of(tensors[0]).op == "placeholder":
            return None  # autograd hands on what comes where all that is summed up is 1
        return tensors if node.kwargs.get("memory_format") in FORMATS else None
    if not isinstance(target, torch._ops.OpOverload) or not is_pointwise(target):
        return None
    return [n.args[0] if n.target is aten.expand.default else n for n in tensors]  # type: ignore[misc]
