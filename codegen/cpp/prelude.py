"""The top of a generated C++ file: typedefs, and the sections of vector_base.h and vector_math.h that its
kernels use.

p = Prelude(isa); p.vector(DType.F32, 16) -> "f32x16"; p.function("exp", DType.F32, 16) -> "fl_exp"; p.text()
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from frameloom.codegen.cpp.vector import Isa
from frameloom.codegen.operators import INFIX
from frameloom.ir.dtype import DType
from frameloom.ir.ops import BINARY, Op

ELEMENTS = {
    DType.BOOL: "b8", DType.U8: "u8", DType.I8: "i8", DType.I16: "i16", DType.I32: "i32", DType.I64: "i64",
    DType.F16: "u16", DType.BF16: "u16", DType.F32: "f32", DType.F64: "f64",
}  # fmt: skip


@functools.cache
def sections() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Returns a table: name or "name type" -> (text, names of the sections that it needs)."""
    table: dict[str, tuple[str, tuple[str, ...]]] = {}
    for file in ("vector_base.h", "vector_math.h"):
        text = (Path(__file__).parent / file).read_text()
        for part in re.split(r"^//@ ", text, flags=re.M)[1:]:
            head, body = part.split("\n", 1)
            names, _, needs = head.partition(" needs:")
            name, *types = names.split()
            wanted = tuple(needs.replace(",", " ").split())
            for key in [f"{name} {t}" for t in types] or [name]:
                table[key] = (body.strip() + "\n", wanted)
    return table


UNTYPED = frozenset(
    {"convert", "parts", "torch", "threads", "whole"}
)  # sections for all types at once


class Prelude:
    """Collects what one source file uses: each item once, its dependencies before it."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self._types: dict[str, None] = {}
        self._sections: dict[tuple[str, str, int], str] = {}

    def vector(self, element: str | DType, lanes: int) -> str:
        """Returns the name of a vector type; the element type itself for one lane."""
        if isinstance(element, DType):
            element = ELEMENTS[element]
        if lanes == 1:
            return element
        name = f"{element}x{lanes}"
        self._types.setdefault(name)
        return name

    def mask(self, lanes: int) -> str:
        """Returns the type of BOOL in loops with this number of lanes: an integer with all bits set or
        none."""
        return self.vector(f"i{self.isa.bytes * 8 // lanes}", lanes)

    def function(self, name: str, element: str | DType, lanes: int) -> str:
        """Adds a helper function and its dependencies to the prelude and returns its name."""
        if isinstance(element, DType):
            element = ELEMENTS[element]
        key = (name, "", 0) if name in UNTYPED else (name, element, lanes)
        if key not in self._sections:
            text, needs = self._source(name, element, lanes)
            for n in needs:
                other, _, of = n.partition(":")
                self.function(other, of or element, lanes)
            self._sections[key] = self._instance(text, element, lanes)
        return f"fl_{name}"

    def _source(self, name: str, element: str, lanes: int) -> tuple[str, tuple[str, ...]]:
        table = sections()
        section = table.get(f"{name} {element}") or table.get(name)
        if section is not None:
            return section
        if name == "transpose":
            return transpose(lanes), ("parts",)
        how, _, op = name.rpartition("_")
        if how == "horizontal_place":
            return horizontal_place(Op(op)), ()
        if how == "horizontal":
            return horizontal(Op(op), lanes)
        if how.startswith("first_"):
            return first(Op(op), int(how.removeprefix("first_"))), ()
        if how == "inclusive_scan":
            return inclusive_scan(Op(op), lanes)
        return sleef(name, element, lanes)

    def _instance(self, text: str, element: str, lanes: int) -> str:
        width = element[1:]
        names = {
            "V": lambda: self.vector(element, lanes),
            "E": lambda: element,
            "I": lambda: self.vector(f"i{width}", lanes),
            "U": lambda: self.vector(f"u{width}", lanes),
            "H": lambda: self.vector("u16", lanes),
            "L": lambda: str(lanes),
            "D": lambda: self.vector("f64", lanes),
        }
        return re.sub(r"\b[VEIUHLD]\b", lambda m: names[m[0]](), text)

    def text(self) -> str:
        common = sections()["common"][0]
        types = []
        for name in self._types:
            element, lanes = name.split("x")
            types.append(
                f"typedef {element} {name} __attribute__((vector_size({int(element[1:]) // 8 * int(lanes)})));\n"
            )
        return common + "".join(types) + "".join(self._sections.values())


def _combined(op: Op) -> tuple[str, tuple[str, ...]]:
    """Returns the text that combines v and w, and its dependencies."""
    return (f"v {INFIX[op]} w", ()) if op in INFIX else (f"fl_{op.value}(v, w)", (op.value,))


def horizontal_place(op: Op) -> str:
    """Returns the text that finds the first place of the maximum or minimum of a vector's lanes."""
    sign = ">" if op is Op.MAX else "<"
    return (
        f"template <class P> FN E fl_horizontal_place_{op.value}(V v, P at, i64 *best) {{\n"
        "  E x = v[0]; i64 p = at[0];\n"
        "  for (int l = 1; l < L; l++) {\n"
        "    const E y = v[l]; const i64 q = at[l];\n"
        "    const bool same = (y == x) | ((y != y) & (x != x));\n"
        f"    if ((y {sign} x) | ((y != y) & (x == x)) | (same & (q < p))) x = y, p = q;\n"
        "  }\n  *best = p;\n  return x;\n}\n"
    )


def horizontal(op: Op, lanes: int) -> tuple[str, tuple[str, ...]]:
    """Returns the text that combines a vector's lanes, in log2(lanes) exchanges, and its dependencies."""
    combined, needs = _combined(op)
    lines = []
    half = lanes // 2
    while half:
        order = ", ".join(str(lane ^ half) for lane in range(lanes))
        lines.append(f"  {{ const V w = SHUFFLE(v, I, {order}); v = {combined}; }}\n")
        half //= 2
    return f"FN E fl_horizontal_{op.value}(V v) {{\n{''.join(lines)}  return v[0];\n}}\n", needs


def first(op: Op, count: int) -> str:
    """Returns the text that combines a vector's first lanes, one after the other, by an infix operator."""
    text = f" {INFIX[op]} ".join(f"v[{lane}]" for lane in range(count))
    return f"FN E fl_first_{count}_{op.value}(V v) {{\n  return {text};\n}}\n"


def inclusive_scan(op: Op, lanes: int) -> tuple[str, tuple[str, ...]]:
    """Returns the text that combines each lane with the lanes before it and with `before`, and its
    dependencies. `before` then becomes the combination of all lanes in all places. `neutral` is the neutral
    element."""
    combined, needs = _combined(op)
    lines, step = [], 1
    while step < lanes:
        order = ", ".join(str(k - step if k >= step else lanes + k) for k in range(lanes))
        lines.append(f"  {{ const V w = SHUFFLE2(v, neutral, I, {order}); v = {combined}; }}\n")
        step *= 2
    last = ", ".join([str(lanes - 1)] * lanes)
    text = (
        f"FN V fl_inclusive_scan_{op.value}(V v, V neutral, V *before) {{\n{''.join(lines)}"
        f"  const V w = *before; v = {combined};\n  *before = SHUFFLE(v, I, {last});\n  return v;\n}}\n"
    )
    return text, needs


def transpose(lanes: int) -> str:
    """Returns the text of a function that reads `columns` contiguous elements at each of `rows` places and
    exchanges rows and columns: halves, then quarters, then single elements."""
    lines = []
    half = lanes // 2
    while half:
        low = ", ".join(str(lane + lanes - half if lane & half else lane) for lane in range(lanes))
        high = ", ".join(str(lane + lanes if lane & half else lane + half) for lane in range(lanes))
        lines.append(
            f"  EACH for (int i = 0; i < L; i++) if (!(i & {half})) {{\n"
            f"    const V a = t[i], b = t[i + {half}];\n"
            f"    t[i] = SHUFFLE2(a, b, I, {low});\n    t[i + {half}] = SHUFFLE2(a, b, I, {high});\n  }}\n"
        )
        half //= 2
    return (
        "template <int rows, int columns> FN void fl_transpose(V *t, const E *p, i64 step) {\n"
        "  EACH for (int l = 0; l < L; l++)\n"
        "    t[l] = l < rows ? columns == L ? load<V>(p + l * step) : load_part<V, columns>(p + l * step) : V{};\n"
        f"{''.join(lines)}}}\n"
        "FN void fl_transpose(V *t, const E *p, i64 step, i64 rows, i64 columns) {\n"
        "  EACH for (int l = 0; l < L; l++) t[l] = l < rows ? load_part<V>(p + l * step, columns) : V{};\n"
        f"{''.join(lines)}}}\n"
    )


_SLEEF_ERROR = {"erfc": "15"}  # hundredths of units in the last place; all others 1.0


def sleef(name: str, element: str, lanes: int) -> tuple[str, tuple[str, ...]]:
    """Returns the text of a call of PyTorch's Sleef, or of the C library per lane if Sleef lacks the
    function."""
    stem = name.removesuffix("_sleef")
    letter, suffix = ("f", "f") if element == "f32" else ("d", "")
    symbol = f"Sleef_{stem}{letter}{lanes}_u{_SLEEF_ERROR.get(stem, '10')}"
    types, parameters, lane, args = "V", "V a", "a[l]", "a"
    if Op(stem) in BINARY:
        types, parameters, lane, args = "V, V", "V a, V b", "a[l], b[l]", "a, b"
    tag = f"{name}_{element}x{lanes}"
    text = (
        f"static V fl_slow_{tag}({parameters}) {{\n"
        f"  V r; EACH for (int l = 0; l < L; l++) r[l] = __builtin_{stem}{suffix}({lane}); return r;\n}}\n"
        f'static V (*const fl_ptr_{tag})({types}) = fl_find<V (*)({types})>("{symbol}", fl_slow_{tag});\n'
        f"FN V fl_{name}({parameters}) {{ return fl_ptr_{tag}({args}); }}\n"
    )
    return text, ("torch",)
