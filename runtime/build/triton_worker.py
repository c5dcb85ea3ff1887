"""The process in which Triton runs: reads kernels from a pipe, writes cubins to another.

triton_pool.py starts it by path: `python -I -S triton_worker.py FOLDER ARCH`, where FOLDER contains the
package triton.  It imports neither PyTorch nor our modules.  It ends when its input closes, when its parent
dies, or after a minute without work.

A message is two little-endian 32-bit lengths, that many bytes of JSON, and that many raw bytes.  The first
message has no content and says that Triton is imported.  Requests have the fields of `compile_kernel`; an
answer has `symbol`, `shared`, `extra`, `threads` and the cubin, or `error`.

Triton's stages are called one by one: triton.compile would hash all of Triton first (0.3 to 1 s) and fill a
cache of its own.
"""

import contextlib
import json
import linecache
import os
import select
import struct
import sys

IDLE = 60.0  # seconds
WARM_UP = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def warm_up(a, b):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    x = tl.load(a + i, mask=i < 1000, other=0).to(tl.float32)
    tl.store(b + i, tl.maximum(x + 1, 0.0).to(tl.bfloat16), mask=i < 1000)
"""


class Source:
    """The text of one kernel, executed as a module."""

    def __init__(self, text, symbol, number):
        self.file = f"<kernel {number} {symbol}>"
        linecache.cache[self.file] = (len(text), None, text.splitlines(True), self.file)
        names = {"__name__": f"kernel_{number}", "__file__": self.file}
        exec(compile(text, self.file, "exec"), names)
        self.function = names[symbol]

    def forget(self):
        linecache.cache.pop(self.file, None)


def is_multiple(kind, aligned):
    """Whether a parameter is a multiple of 16: pointers ("*...") and numbers ("...?") if `aligned`, other
    numbers ("...!") always."""
    return kind.endswith("!") or (aligned and (kind.startswith("*") or kind.endswith("?")))


def stages_of(function, signature, aligned, arch, options):
    """Returns the kernel in Triton's first IR, the stages that translate it to machine code, in order, and
    their options."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend

    types = [kind.rstrip("!?") for kind in signature]
    multiples = [i for i, kind in enumerate(signature) if is_multiple(kind, aligned)]
    attributes = {(i,): [["tt.divisibility", 16]] for i in multiples}
    source = ASTSource(function, dict(zip(function.arg_names, types, strict=True)), {}, attributes)
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    options = backend.parse_options(options)
    stages = {}
    backend.add_stages(stages, options, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    generators, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(target, options, generators, modules, context)
    return module, stages, {"target": target, **options.__dict__}


def compile_kernel(number, text, symbol, signature, aligned, warps, stages, debug, arch):
    """Returns (answer, cubin)."""
    source = Source(text, symbol, number)
    options = {
        "num_warps": warps, "num_stages": stages, "enable_fp_fusion": False, "debug": debug,
        "enable_reflect_ftz": False,  # libdevice keeps denormals, as PyTorch's kernels do
        "sanitize_overflow": False,  # integers wrap around, also in kernels with assertions
    }  # fmt: skip
    try:
        module, passes, metadata = stages_of(source.function, signature, aligned, arch, options)
        parameters = 0
        for name, run in passes.items():
            module = run(module, metadata)
            if name == "ptx":
                parameters = count_parameters(module)
    finally:
        source.forget()
    scratch = [metadata.get(f"{kind}_scratch_size") or 0 for kind in ("global", "profile")]
    if any(scratch):
        raise NotImplementedError(f"{symbol} needs scratch memory of its own: {scratch} bytes")
    answer = {
        "symbol": metadata["name"],
        "shared": metadata["shared"],
        "extra": parameters - len(signature),
        "threads": 32 * metadata["num_warps"],
    }
    return answer, module


def count_parameters(ptx):
    """Returns the number of parameters: those of the source, and pointers to scratch memory that Triton
    appends."""
    entry = ptx[ptx.index(".entry") :]
    return entry[: entry.index(")")].count(".param")


def warm_up(arch, pending):
    """Compiles a small kernel while there is no work, because the first kernel of a process takes longer."""
    source = Source(WARM_UP, "warm_up", 0)
    options = {"num_warps": 4, "num_stages": 1, "enable_fp_fusion": False}
    module, passes, metadata = stages_of(source.function, ["*bf16", "*bf16"], True, arch, options)
    for name, run in passes.items():
        if name == "cubin" or pending(0):
            break
        module = run(module, metadata)
    source.forget()


# --- the pipe


def read_exactly(fd, count):
    parts = []
    while count:
        part = os.read(fd, count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive(fd):
    size, extra = struct.unpack("<II", read_exactly(fd, 8))
    message = json.loads(read_exactly(fd, size))
    read_exactly(fd, extra)
    return message


def send(fd, message, data=b""):
    text = json.dumps(message).encode()
    rest = memoryview(struct.pack("<II", len(text), len(data)) + text + data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def serve(incoming, outgoing, arch):
    parent = os.getppid()

    def pending(seconds):
        return bool(select.select([incoming], [], [], seconds)[0])

    send(outgoing, {})
    if not pending(0.01):
        warm_up(arch, pending)
    number = idle = 0
    while idle < IDLE and os.getppid() == parent:
        if not pending(5.0):
            idle += 5.0
            continue
        idle = 0
        try:
            request = receive(incoming)
        except EOFError:
            return
        number += 1
        try:
            answer, data = compile_kernel(number, **request)
        except Exception as error:  # any kind: the text goes to the user
            answer, data = {"error": f"{type(error).__name__}: {error}"}, b""
        send(outgoing, answer, data)


def main():
    folder, arch = sys.argv[1], int(sys.argv[2])
    os.environ["TRITON_BACKENDS_IN_TREE"] = "1"  # skip a search through all installed packages
    os.environ.pop("TRITON_INTERPRET", None)
    # Triton prints errors to standard output, so the pipe gets another file descriptor.
    outgoing = os.dup(1)
    os.dup2(2, 1)
    sys.path.append(folder)
    import triton  # noqa: F401

    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(0, outgoing, arch)


if __name__ == "__main__":
    main()
