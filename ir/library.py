"""Facts about library calls (ATen overloads) that lowering, fusion and the code generator share."""

from __future__ import annotations

# Calls that write into a given buffer: the result lives in the arena or in a fresh output.
OUT_FORMS: dict[str, str] = {
    "aten.mm.default": "aten.mm.out",
    "aten.bmm.default": "aten.bmm.out",
    "aten.addmm.default": "aten.addmm.out",
    "aten.baddbmm.default": "aten.baddbmm.out",
}
