"""Python's numbers in a graph: nodes whose value is an int or a float become numbers of the program."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.fx

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.table import Decline, Ref
from frameloom.ir.node import load
from frameloom.ir.numbers import NAMES, OF_FLOATS
from frameloom.ir.program import Buffer, Kind, NumberStep
from frameloom.ir.symbolic.expr import Symbol, is_size

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering

LAYOUT = {torch.ops.aten.sym_size.int: "dim", torch.ops.aten.sym_stride.int: "stride"}
DTYPES = {int: DType.I64, float: DType.F64}


class Scalar(Expr):
    """A number that is known only at run time.  A lowering that needs its value declines."""

    __slots__ = ("buffer",)
    is_number = True

    def __init__(self, buffer: Buffer) -> None:
        super().__init__(load(buffer, index.index(0)))
        self.buffer = buffer

    @property
    def is_float(self) -> bool:
        return self.buffer.dtype is DType.F64

    def _unknown(self, *_: Any) -> NoReturn:
        raise Decline

    __bool__ = __float__ = __int__ = __index__ = _unknown
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    binary = _unknown  # type: ignore[assignment]
    __hash__ = object.__hash__


def number_buffer(name: str, cls: type) -> Buffer:
    return Buffer(name, DTYPES[cls], (), (), Kind.NUMBER)


class Numbers:
    """The numbers of one graph."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.steps: list[NumberStep] = []
        self.narrow: dict[Buffer, Scalar] = {}
        self.symbols: dict[Symbol, Buffer] = {}  # symbols with the number that has their value
        self._sizes: dict[torch.fx.Node, Buffer] = {}  # sizes as operands of numbers

    def placeholder(self, node: torch.fx.Node) -> Scalar:
        buffer = number_buffer(node.name, type(node.meta["val"]))
        self.lowering.inputs.append(buffer)
        return Scalar(buffer)

    def computed(self, node: torch.fx.Node) -> Scalar:
        cls = type(node.meta["val"])
        if node.target is torch.Tensor.item:
            ref: Ref = self.lowering.values[node.args[0]]  # type: ignore[index]
            return Scalar(self._step(node.name, "read", cls, ref.buffer, ref.offset))
        name = NAMES[node.target]
        operands = [self._operand(a) for a in node.args]
        floats = [
            isinstance(a, float) or (isinstance(a, Buffer) and a.dtype is DType.F64)
            for a in operands
        ]
        if any(floats) or (name in OF_FLOATS and name != "truediv") or node.target is math.pow:
            operands = [
                a if f else self._float(node, a) for a, f in zip(operands, floats, strict=True)
            ]
        elif name == "float":
            return Scalar(self._step(node.name, "float", cls, *operands))
        return Scalar(self._step(node.name, name, cls, *operands))

    def note_size(self, node: torch.fx.Node) -> None:
        """Registers a size that is a number of the program: an input, or computed."""
        if node.op == "placeholder":
            buffer = self._sizes[node] = number_buffer(node.name, int)
            self.lowering.inputs.append(buffer)
        elif node.target is operator.index:
            buffer = self._operand(node.args[0])
        else:
            return
        ((monomial, _),) = node.meta["val"].terms
        self.symbols[monomial[0]] = buffer

    def _operand(self, value: Any) -> Any:
        if not isinstance(value, torch.fx.Node):
            return value
        return (
            self._of_size(value)
            if is_size(value.meta["val"])
            else self.lowering.values[value].buffer
        )

    def _of_size(self, node: torch.fx.Node) -> Buffer:
        """Returns a size as a number, from which other numbers are computed."""
        number = self._sizes.get(node)
        if number is None:
            if node.target is operator.index:
                number = self._operand(node.args[0])
            elif node.target in LAYOUT:
                tensor, dim = node.args
                buffer = self.lowering.values[tensor].buffer  # type: ignore[index]
                number = self._step(node.name, LAYOUT[node.target], int, buffer, dim)
            else:
                number = self._step(
                    node.name, NAMES[node.target], int, *map(self._operand, node.args)
                )
            self._sizes[node] = number
        return number

    def _float(self, node: torch.fx.Node, value: Any) -> Any:
        if isinstance(value, int):
            return float(value)
        return self._step(f"{node.name}_float{len(self.steps)}", "float", float, value)

    def _step(self, name: str, op: str, cls: type, *operands: Any) -> Buffer:
        result = number_buffer(name, cls)
        self.steps.append(NumberStep(op, result, operands))
        return result

    def in_loops(self, number: Scalar) -> Scalar:
        """Returns a number for kernels.  PyTorch refuses numbers that are too large for a tensor's dtype;
        "narrow" leaves such calls to PyTorch."""
        if number.is_float and number.buffer not in self.narrow:
            self.narrow[number.buffer] = Scalar(
                self._step(f"{number.buffer.name}_narrow", "narrow", float, number.buffer)
            )
        return self.narrow[number.buffer] if number.is_float else number
