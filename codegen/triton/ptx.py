"""Functions of fp32 as PTX, with the same instructions as CUDA's C library, so that results equal eager's bit
for bit.

libdevice has the same functions as LLVM code. Linking and optimizing it costs half the compile time of a
small kernel. A few instructions that only the assembler reads cost no compile time, and both branches of a
function are one sequence of selections. tests/codegen/test_ptx.py compares every float with eager mode.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.ir.ops import Op

# $0 is the result, $1 the argument; both are 32 bits wide.
_EXP = """
{
.reg .f32 scaled, whole, rest; .reg .b32 bits;
fma.rn.sat.f32 scaled, $1, 0f3BBB989D, 0f3F000000;
fma.rm.f32 whole, scaled, 0f437C0000, 0f4B400001;
mov.b32 bits, whole;
shl.b32 bits, bits, 23;
add.rn.f32 rest, whole, 0fCB40007F;
neg.f32 rest, rest;
fma.rn.f32 rest, $1, 0f3FB8AA3B, rest;
fma.rn.f32 rest, $1, 0f32A57060, rest;
ex2.approx.ftz.f32 rest, rest;
mov.b32 whole, bits;
mul.rn.f32 $0, rest, whole;
}"""

_LOG = """
{
.reg .f32 x, m, e, p; .reg .b32 bits, k; .reg .pred small, special, zero;
setp.lt.f32 small, $1, 0f00800000;
mul.rn.f32 x, $1, 0f4B000000;
selp.f32 x, x, $1, small;
selp.f32 e, 0fC1B80000, 0f00000000, small;
mov.b32 bits, x;
add.s32 k, bits, -1059760811;
and.b32 k, k, -8388608;
sub.s32 k, bits, k;
mov.b32 m, k;
sub.s32 k, bits, k;
cvt.rn.f32.s32 p, k;
fma.rn.f32 e, p, 0f34000000, e;
add.rn.f32 m, m, 0fBF800000;
fma.rn.f32 p, m, 0fBE055027, 0f3E1039F6;
fma.rn.f32 p, p, m, 0fBDF8CDCC;
fma.rn.f32 p, p, m, 0f3E0F2955;
fma.rn.f32 p, p, m, 0fBE2AD8B9;
fma.rn.f32 p, p, m, 0f3E4CED0B;
fma.rn.f32 p, p, m, 0fBE7FFF22;
fma.rn.f32 p, p, m, 0f3EAAAA78;
fma.rn.f32 p, p, m, 0fBF000000;
mul.rn.f32 p, m, p;
fma.rn.f32 p, p, m, m;
fma.rn.f32 p, e, 0f3F317218, p;
setp.ge.u32 special, bits, 0x7F800000;
@special fma.rn.f32 p, x, 0f7F800000, 0f7F800000;
setp.eq.f32 zero, x, 0f00000000;
selp.f32 $0, 0fFF800000, p, zero;
}"""

# A polynomial of x*x if |x| is below 1.003, else of |x|. The second one is that of CUDA 13, which differs
# from older versions by 1 ulp.
_ERF = """
{
.reg .f32 a, x, c, p, q; .reg .pred far;
abs.f32 a, $1;
setp.ge.f32 far, a, 0f3F8060FE;
mul.rn.f32 x, $1, $1;
selp.f32 x, a, x, far;
selp.f32 p, 0f38EB4C3A, 0f38B1E96A, far;
selp.f32 c, 0fBAAE005B, 0fBA574D20, far;
fma.rn.f32 p, p, x, c;
selp.f32 c, 0f3C09919F, 0f3BAAD5EA, far;
fma.rn.f32 p, p, x, c;
selp.f32 c, 0fBD24D99A, 0fBCDC1BE7, far;
fma.rn.f32 p, p, x, c;
selp.f32 c, 0f3E235519, 0f3DE718AF, far;
fma.rn.f32 p, p, x, c;
selp.f32 c, 0f3F69B4F9, 0fBEC093AC, far;
fma.rn.f32 p, p, x, c;
selp.f32 c, 0f3F210A14, 0f3E0375D3, far;
fma.rn.f32 p, p, x, c;
neg.f32 q, x;
selp.f32 q, q, $1, far;
fma.rn.f32 p, p, q, q;
ex2.approx.ftz.f32 q, p;
sub.rn.f32 q, 0f3F800000, q;
copysign.f32 q, $1, q;
selp.f32 $0, q, p, far;
}"""

_TANH = """
{
.reg .f32 a, x, p, q; .reg .pred near, one;
abs.f32 a, $1;
setp.lt.f32 near, a, 0f3F19999A;
mul.rn.f32 x, $1, $1;
fma.rn.f32 p, x, 0f3C80F082, 0fBD563CAE;
fma.rn.f32 p, p, x, 0f3E085941;
fma.rn.f32 p, p, x, 0fBEAAA9ED;
fma.rn.f32 p, p, x, 0f00000000;
fma.rn.f32 p, p, $1, $1;
mul.rn.f32 q, a, 0f4038AA3B;
ex2.approx.ftz.f32 q, q;
add.rn.f32 q, q, 0f3F800000;
rcp.approx.ftz.f32 q, q;
fma.rn.f32 q, q, 0fC0000000, 0f3F800000;
setp.ge.f32 one, a, 0f41102CB4;
selp.f32 q, 0f3F800000, q, one;
copysign.f32 q, $1, q;
selp.f32 $0, p, q, near;
}"""

FUNCTIONS = {
    Op.EXP: ("_exp", _EXP), Op.LOG: ("_log", _LOG), Op.ERF: ("_erf", _ERF), Op.TANH: ("_tanh", _TANH),
    Op.ROUND: ("_rint", "cvt.rni.f32.f32 $0, $1;"), Op.TRUNC: ("_trunc", "cvt.rzi.f32.f32 $0, $1;"),
    Op.FLOOR: ("_floor", "cvt.rmi.f32.f32 $0, $1;"), Op.CEIL: ("_ceil", "cvt.rpi.f32.f32 $0, $1;"),
    Op.RSQRT: ("_rsqrt", "rsqrt.approx.f32 $0, $1;"), Op.EXP2: ("_exp2", "ex2.approx.f32 $0, $1;"),
}  # fmt: skip


def helpers() -> dict[str, str]:
    """Returns, by name, the text of the Triton function for each."""
    return {name: _function(name, text.split("\n")) for name, text in FUNCTIONS.values()}


def _function(name: str, lines: Sequence[str]) -> str:
    text = " ".join(line for line in lines if line)
    return (
        f"def {name}(x):\n"
        f'    return tl.inline_asm_elementwise("{text}", "=r,r", [x], tl.float32, True, 1)'
    )
