"""Lowering: a captured graph of ATen ops becomes a Program of one-store kernels and library calls.

`lower(graph, constants)` takes a functional `torch.fx.Graph`: placeholders, calls of ATen overloads,
`operator.getitem`, `get_attr` of tensors, and at the very end `aten.copy_` into placeholders or views of
them.  Every node has the tensor's geometry in `meta["val"]` and, if known, the user's line in
`meta["stack"]`.  To add an op, write one function in the file of its subject (see table.py).
"""

# These imports add entries to the table.
import frameloom.ir.lower.ops.activation
import frameloom.ir.lower.ops.copies
import frameloom.ir.lower.ops.create
import frameloom.ir.lower.ops.derivative
import frameloom.ir.lower.ops.foreach
import frameloom.ir.lower.ops.gather
import frameloom.ir.lower.ops.grid_sample
import frameloom.ir.lower.ops.interpolate
import frameloom.ir.lower.ops.loss
import frameloom.ir.lower.ops.matmul
import frameloom.ir.lower.ops.normalize
import frameloom.ir.lower.ops.normalize_backward
import frameloom.ir.lower.ops.pointwise
import frameloom.ir.lower.ops.pool
import frameloom.ir.lower.ops.quantize
import frameloom.ir.lower.ops.random
import frameloom.ir.lower.ops.reduce
import frameloom.ir.lower.ops.reduce_backward
import frameloom.ir.lower.ops.scan
import frameloom.ir.lower.ops.scatter
import frameloom.ir.lower.ops.search
import frameloom.ir.lower.ops.unfold  # noqa: F401
from frameloom.ir.lower.driver import lower
from frameloom.ir.lower.table import TABLE

__all__ = ["TABLE", "lower"]
