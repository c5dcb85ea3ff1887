"""Lowering: a captured graph of ATen ops becomes a Program of one-store kernels and library calls.

`lower(gm)` takes a functional `torch.fx.GraphModule`: placeholders, calls of ATen overloads, `operator.getitem`,
`get_attr` of tensors, and at the very end `aten.copy_` into placeholders or views of them.  Every node carries the
tensor's geometry in `meta["val"]` and, if known, the user's line in `meta["stack"]`.  To add an op: one function in the
file of its subject (see table.py).
"""

# Imported for the rows that they add to the table.
import frameloom.ir.lower.activation
import frameloom.ir.lower.copies
import frameloom.ir.lower.create
import frameloom.ir.lower.derivative
import frameloom.ir.lower.foreach
import frameloom.ir.lower.gather
import frameloom.ir.lower.grid_sample
import frameloom.ir.lower.interpolate
import frameloom.ir.lower.loss
import frameloom.ir.lower.matmul
import frameloom.ir.lower.normalize
import frameloom.ir.lower.normalize_backward
import frameloom.ir.lower.pointwise
import frameloom.ir.lower.pool
import frameloom.ir.lower.quantize
import frameloom.ir.lower.random
import frameloom.ir.lower.reduce
import frameloom.ir.lower.reduce_backward
import frameloom.ir.lower.scan
import frameloom.ir.lower.scatter
import frameloom.ir.lower.search
import frameloom.ir.lower.unfold  # noqa: F401
from frameloom.ir.lower.graph import lower
from frameloom.ir.lower.table import TABLE

__all__ = ["TABLE", "lower"]
