"""Runs kernels that the GPU code generator wrote under Triton's interpreter, on CPU tensors.

Triton decides when it is first imported whether it interprets: tests/conftest.py says so.  Compiling happens in processes
of its own and is not concerned.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import types
from dataclasses import replace

import numpy as np
import torch

from frameloom.codegen.schedule.partition import launches
from frameloom.codegen.triton.chip import H200, Chip
from frameloom.codegen.triton.module import generate
from frameloom.codegen.triton.ptx import FUNCTIONS
from frameloom.ir import interp
from frameloom.ir.program import Kernel, Kind, Program, View
from tests.codegen.kernels import tensor_in

TINY = Chip("a chip for tests", 90, 2, 1 << 20)


class _Libdevice(types.SimpleNamespace):
    """libdevice on the interpreter's tensors, by PyTorch's functions."""

    def __getattr__(self, name):
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        if name == "rint":
            fn = torch.round
        elif name == "pow":
            fn = torch.pow
        else:
            fn = getattr(torch, name, None) or getattr(torch.special, name)

        def call(*args):
            shape = max((a for a in args if isinstance(a, tl.tensor)), key=lambda a: len(a.shape))
            data = [
                torch.from_numpy(np.array(a.handle.data))
                if isinstance(a, tl.tensor)
                else torch.tensor(a, dtype=torch.float32)
                for a in args
            ]
            result = fn(*data).numpy()
            return tl.tensor(TensorHandle(result, shape.dtype.scalar), shape.type)

        return call


_LIBDEVICE = _Libdevice()


@functools.cache
def _set_up_interpreter():
    """As on a GPU, and without what takes most of its time and changes nothing."""
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder as Builder
    from triton.runtime.interpreter import TensorHandle

    def rounded(self, src, dst_type):
        if dst_type.scalar != tl.bfloat16 or src.dtype.scalar == tl.bfloat16:
            return self.cast_impl(src, dst_type)
        bits = torch.from_numpy(np.array(src.data)).bfloat16().view(torch.uint16).numpy()
        return TensorHandle(bits, tl.bfloat16)

    def splat(self, ret_type, arg):
        return TensorHandle(np.full(ret_type.shape, arg.data.reshape(-1)[0]), arg.dtype.scalar)

    # It does not round to bfloat16, and what comes of comparing two numbers becomes a block of floats.
    Builder.create_fp_trunc = Builder.create_si_to_fp = Builder.create_ui_to_fp = rounded
    Builder.create_splat = splat
    # Of a number and NaN it takes NaN where a GPU takes the number.
    Builder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    Builder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)

    # It computes whether integers overflow, for assertions that only its debug mode looks at.
    options = interpreter.interpreter_builder.options
    assert not options.debug
    interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)

    # Each call of a function looks through the whole language for what it has to patch.
    @functools.cache
    def builtin_names(package):
        return [name for name, x in inspect.getmembers(package) if tl.core.is_builtin(x)]

    def patch_builtin(package, builder, scope):
        for name in builtin_names(package):
            member = getattr(package, name)
            if tl.core.is_builtin(member):
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtin

    # A number is an array of one element to it, of which NumPy 2.5 makes no int (as newer versions of Triton know).
    patch_tensor = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_lang_tensor

    # Each value's dtype is looked up in a table that is made for it.
    look_up = interpreter._get_np_dtype
    of_scalar = functools.cache(look_up)

    def np_dtype(dtype):
        scalar = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        return of_scalar(scalar) if type(scalar) is tl.dtype else look_up(dtype)

    interpreter._get_np_dtype = np_dtype


def load(source):
    """The interpreted function of a LaunchSource."""
    _set_up_interpreter()
    name = f"<triton {source.symbol} {abs(hash(source.text))}>"
    linecache.cache[name] = (len(source.text), None, source.text.splitlines(True), name)
    space = {"__name__": "generated"}
    exec(compile(source.text, name, "exec"), space)
    space["libdevice"] = _LIBDEVICE
    space |= {  # the interpreter has no PTX
        name: getattr(_LIBDEVICE, name[1:]) for name, _ in FUNCTIONS.values() if name in space
    }
    return space[source.symbol]


def run(kernels, tensors: dict[str, torch.Tensor], chip: Chip = H200) -> list[str]:
    """Runs kernels that `launches` made on `tensors`, by buffer name; temporaries are added.  Returns the texts."""
    texts = []
    for kernel in kernels:
        source = generate([kernel], chip)[0]
        texts.append(source.text)
        entry = source.entries[0]
        for b in entry.buffers:
            if b.name not in tensors:
                room = 1 + sum((e - 1) * s for e, s in zip(b.shape, b.strides, strict=True))
                tensors[b.name] = torch.zeros(room, dtype=b.dtype.to_torch())
        load(source)[source.grid](*(tensors[b.name] for b in entry.buffers))
    return texts


def check(
    stores, inputs: dict[str, torch.Tensor], rtol=2e-6, atol=1e-6, chip: Chip = TINY, name="kernel"
) -> list[str]:
    """One kernel of `stores`: generated and interpreted, against the interpreter of the IR.  Returns the texts."""
    buffers = tuple(tensor_in(n, t) for n, t in inputs.items())
    kernel = Kernel(name, tuple(stores))
    results = list(dict.fromkeys(s.buffer for s in stores if s.buffer.kind is not Kind.INPUT))
    written = [s.buffer for s in stores if s.buffer.kind is Kind.INPUT]
    views = tuple(View(b, b.shape, b.strides) for b in [*results, *written])
    mine = {n: t.clone() for n, t in inputs.items()}
    theirs = [t.clone() for t in inputs.values()]
    expected = interp.run(Program(buffers, (kernel,), views), theirs)
    for b in results:
        room = 1 + sum((e - 1) * s for e, s in zip(b.shape, b.strides, strict=True))
        mine[b.name] = torch.zeros(room, dtype=b.dtype.to_torch())
    texts = run(launches(kernel, chip), mine, chip)
    for b, e in zip([*results, *written], expected, strict=True):
        found = torch.as_strided(mine[b.name], b.shape, b.strides)
        try:
            torch.testing.assert_close(found, e, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            raise AssertionError(f"{b}: {error}\n" + "\n".join(texts)) from None
    return texts
