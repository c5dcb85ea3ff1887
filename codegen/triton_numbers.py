"""Random numbers in a Triton text: the words of Philox that the elements of a tile get (ir/philox.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.codegen.triton_ops import full
from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.ops import Op

if TYPE_CHECKING:
    from frameloom.codegen.triton_text import Scope, Writer


def operands_of(n: Node) -> list[Node]:
    """Seed, offset, blocks after the offset, stream and word."""
    return [*n.srcs[:2], *n.arg.place(n.srcs[2], index)]


def random_number(writer: Writer, n: Node, scope: Scope) -> str:
    """The expression of a RANDOM whose operands are defined; its block is drawn by a line of its own."""
    operands = operands_of(n)
    texts = []
    for s in operands:
        value = writer.value(s)
        texts.append(full(s.arg, DType.I32) if value.literal else value.text)
    *block, word = texts
    words = [writer.fresh("w") for _ in range(4)]
    writer.line(f"{', '.join(words)} = {writer.helper('_philox')}({', '.join(block)})", scope)
    if operands[-1].op is Op.CONST:
        bits = words[operands[-1].arg]
    else:
        low, high = (f"tl.where({word} == {k}, {words[k]}, {words[k + 1]})" for k in (0, 2))
        bits = f"tl.where({word} < 2, {low}, {high})"
    if n.dtype is DType.F32:
        return f"{writer.helper('_uniform')}({bits})"
    return f"({bits}).to(tl.int32, bitcast=True)"
