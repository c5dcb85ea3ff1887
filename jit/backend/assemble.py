"""Makes the native plan of a program, its memory plan and its built kernels: buffers become numbers, kernels
and functions become names that plan_objects.py looks up.

A call of the plan takes the graph's inputs in order and returns the tuple of its outputs.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from frameloom.autograd.result_views import as_created, counting, recounted, restore_views
from frameloom.backend.hot_shapes import Steady
from frameloom.backend.plan_objects import COPIED, INCREMENT_VERSION, Built, PlanObjects
from frameloom.backend.plan_sizes import PlanSizes
from frameloom.capture import _capture
from frameloom.capture.recording.captured_graph import CapturedGraph, without_examples
from frameloom.codegen.cpp.module import KernelEntry
from frameloom.codegen.triton.launch import LaunchEntry, LaunchSource, ListEntry
from frameloom.config import config
from frameloom.ir.dtype import DType
from frameloom.ir.kernel_list import KernelList
from frameloom.ir.library import CALLS, DRAW, OUT_FORMS, READ, UNCHECKED_PUT, UNSAFE_PUT, overload
from frameloom.ir.passes.memory import MemoryPlan
from frameloom.ir.program import (
    Buffer,
    Check,
    Extern,
    Kernel,
    Kind,
    NumberStep,
    Program,
    Step,
    View,
    is_cuda,
    map_leaves,
)
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, Symbol, hint_of
from frameloom.restart import Restart, bail_out
from frameloom.runtime import _runtime
from frameloom.runtime.link import link
from frameloom.runtime.spec import (
    BufferSpec,
    CheckCall,
    DrawCall,
    ExternCall,
    InputSpec,
    KernelCall,
    LaunchCall,
    ListCall,
    Name,
    NumberCall,
    NumberSpec,
    PlanSpec,
    ReadCall,
    SizeCall,
    ViewSpec,
)

_SPEC_KINDS = {
    Kind.INPUT: "input",
    Kind.OUTPUT: "output",
    Kind.TEMP: "arena",
    Kind.EXTERN: "extern",
    Kind.CONSTANT: "constant",
    Kind.NUMBER: "number",
}


def assemble(
    captured: CapturedGraph,
    program: Program,
    memory: MemoryPlan,
    built: Built,
    steady: Steady | None = None,
) -> Any:
    """Returns the native plan of a program whose kernels are `built`.  The plan calls `steady` with sizes
    that come often."""
    spec, objects = specify(captured, program, memory, built, steady)
    if config.verify:
        spec = pickle.loads(pickle.dumps(spec))  # it is plain data
    return _runtime.Plan(link(spec, objects))


def specify(
    captured: CapturedGraph,
    program: Program,
    memory: MemoryPlan,
    built: Built,
    steady: Steady | None = None,
) -> tuple[PlanSpec, PlanObjects]:
    """Returns the specification of `assemble`'s plan, and what its names stand for."""
    objects = PlanObjects(built, dict(program.constants))
    numbers = _Numbers(program, memory, captured, objects)
    calls = _kernel_calls(built, numbers)
    steps: list[Any] = []
    restart = Restart(captured.restarts)
    for step in _run(program):
        restart.look_at(step, len(steps))
        if isinstance(step, Kernel | KernelList):
            steps.append(calls[step.name]())
        elif isinstance(step, Check):
            exception = Name("exception", step.exception)
            steps.append(CheckCall(numbers[step.buffer], exception, step.message))
        elif step.target == DRAW:
            steps.append(_draw_call(step, numbers))
        elif step.target == READ:
            steps.append(ReadCall(numbers[step.args[0].buffer]))
            for symbol, _, _ in step.defines:
                numbers.sizes.symbol(symbol)  # also if no kernel has a loop over it
        else:
            steps.append(_extern_call(step, numbers))
    # Autograd detects a changed tensor by its version, which a kernel's store does not change.
    changed = [
        InputSpec(position)
        for position, count in captured.versions.items()
        if not captured.examples[position].is_inference()
        for _ in range(count)
    ]
    if changed:
        bump = Name("own", INCREMENT_VERSION)
        steps.append(ExternCall(INCREMENT_VERSION, bump, (tuple(changed),), {}, ()))
    # Before the list of buffers is read: an empty output is a buffer that no step uses.
    outputs = tuple(
        numbers.view(o) if isinstance(o, View) else numbers.replace(o) for o in program.outputs
    )
    outputs = tuple(
        (o, captured.written[k]) if k in captured.written and type(o) is ViewSpec else o
        for k, o in enumerate(outputs)
    )
    arena_bytes = numbers.sizes.ref(memory.arena_bytes)
    # A backward pass gets unbacked sizes from the forward pass, which has checked them.
    conditions = (
        captured.shape_env.unbacked_conditions()
        if captured.shape_env and not captured.owned
        else ()
    )
    assert not (conditions and restart.checks_after_write), "a call that starts anew has written"
    for n in conditions:
        missing = [s for s in unbacked_in(n) if s not in numbers.unbacked]
        assert all(s.source.is_erased for s in missing), f"nothing tells {missing}"
        if not missing:
            numbers.sizes.require(n)
    keys = tuple(map(numbers.sizes.symbol, steady.symbols if steady else ()))
    spec = PlanSpec(
        n_inputs=len(program.inputs),
        numbers=tuple(_number_call(n, numbers) for n in program.numbers),
        keys=keys,
        steady=objects.hook("steady", steady),
        sizes=tuple(numbers.sizes.calls),
        refused=objects.hook("refused", _capture.RunPlainly),
        restarting=restart.steps(len(steps)),
        restart=objects.hook("restart", bail_out if captured.restarts else None),
        remember=objects.hook(
            "remember", torch.default_generator.get_state if restart.remembers else None
        ),
        buffers=tuple(numbers.specs),
        steps=tuple(steps),
        outputs=outputs,
        arena_bytes=arena_bytes,
        owned=captured.owned,
        recorded_views=captured.recorded_views,
        views=captured.views,
        lazy={
            k: tuple(Name("lazy", bit) for bit in o.bits)
            for k, o in enumerate(program.outputs)
            if isinstance(o, View) and o.bits
        },
        repeated=captured.repeated,
        otherwise=objects.hook(
            "otherwise",
            partial(_op_by_op, without_examples(captured))
            if any(isinstance(s, DrawCall) for s in steps)
            else None,
        ),
        keep=tuple(Name("library", k) for k in range(len(built.libraries))),
    )
    return spec, objects


def _run(program: Program) -> list[Step]:
    """Returns the steps that the plan runs: on a GPU the kernel itself fails instead of setting the flag of a
    check, as eager's kernels do; nothing waits for it."""
    return [s for s in program.steps if not (isinstance(s, Check) and is_cuda(s.buffer.device))]


def _leaf(
    inputs: Sequence[Any],
    numbers: Mapping[Symbol, int],
    unbacked: Mapping[Symbol, SizeCall],
    symbol: Symbol,
) -> SizeCall:
    """Returns where a call finds the value of a symbol: in a number, in the header of an input, or after a
    step."""
    number = numbers.get(symbol)
    if number is not None:
        return SizeCall("number", (number,))
    if symbol.unbacked:
        return unbacked[symbol]
    position = inputs.index(symbol.source.origin)
    return SizeCall(symbol.source.kind, (position, symbol.source.dim))


def _op_by_op(captured: CapturedGraph, *inputs: Any) -> tuple[Any, ...]:
    """Runs the captured graph op by op."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        outputs = captured.gm.forward(*inputs)
        return restore_views(outputs, captured.views, captured.recorded_views, inputs)

    counted = counting(run, captured.versions, captured.recorded_views)
    counted = recounted(counted, captured.written, captured.recorded_views)
    results: tuple[Any, ...] = as_created(counted, captured.creation)(*inputs)
    return results


def _draw_call(step: Extern, numbers: _Numbers) -> DrawCall:
    device, increment, aligned = step.args
    index = torch.device(device).index
    get_seed, get_offset, set_offset = (
        Name("generator", (index, m)) for m in ("initial_seed", "get_offset", "set_offset")
    )
    seed, offset = (numbers[b] for b in step.results if b is not None)
    pointer = None if aligned is None else numbers[aligned.buffer]
    return DrawCall(get_seed, get_offset, set_offset, increment, seed, offset, index, pointer)


def _number_call(step: NumberStep, numbers: _Numbers) -> NumberCall:
    operands: list[int] = []
    constants: list[int | float] = []
    for operand in step.operands:
        if isinstance(operand, Buffer):
            operands.append(numbers[operand])
        else:
            operands.append(~len(constants))
            constants.append(operand)
    dtype = next((b.dtype for b in step.operands if isinstance(b, Buffer)), None)
    # All operands are constants if a size was specialized in the meantime.
    is_float = dtype is DType.F64 or any(type(c) is float for c in constants)
    kind = "f" if is_float and step.op not in ("dim", "stride") else "i"
    if step.op == "read":
        assert dtype is not None
        kind = str(dtype.to_torch())[6:]
    return NumberCall(f"{step.op}_{kind}", numbers[step.result], tuple(operands), tuple(constants))


def _kernel_calls(built: Built, numbers: _Numbers) -> dict[str, Callable[[], Any]]:
    """Returns, by kernel name, a function that makes its step.  It is called in the order of the steps,
    because it numbers buffers."""
    calls: dict[str, Callable[[], Any]] = {}
    for k, (source, _) in enumerate(built.libraries):
        for entry in source.entries:
            address = Name("symbol", (k, entry.symbol))
            calls[entry.name] = partial(_kernel_call, entry, address, numbers)
    for k, (launched, _, device) in enumerate(built.cubins):
        for one in launched.entries:
            if isinstance(one, ListEntry):
                calls[one.name] = partial(_list_call, launched, one, k, device, numbers)
            else:
                calls[one.name] = partial(_launch_call, launched, one, k, numbers)
    return calls


def _kernel_call(entry: KernelEntry, address: Name, numbers: _Numbers) -> KernelCall:
    buffers = tuple(numbers[b] for b in entry.buffers)
    sizes = tuple(map(numbers.sizes.index, entry.sizes))
    moved = numbers.sizes.ref(_bytes_of(entry.buffers)) if sizes else entry.bytes_moved
    return KernelCall(address, buffers, moved, entry.name, sizes)


def _bytes_of(buffers: Sequence[Buffer]) -> Int:
    """Returns an estimate of `bytes_moved` of a kernel for calls whose sizes differ from those of the
    captured one."""
    return sum(
        _torch_dtype(b).itemsize
        * math.prod(n for n, s in zip(b.shape, b.strides, strict=True) if hint_of(s))
        for b in buffers
    )


def _launch_call(
    source: LaunchSource, entry: LaunchEntry, cubin: int, numbers: _Numbers
) -> LaunchCall:
    buffers = tuple(numbers[b] for b in entry.buffers)
    x, y, z = numbers.sizes.refs(source.grid)
    sizes = tuple((numbers.sizes.index(n), kind) for n, kind in source.sizes)
    kinds = source.signature[len(buffers) :]
    even = tuple(k for (k, _), kind in zip(sizes, kinds, strict=True) if kind.endswith("?"))
    limit = longer = None
    if source.limit is not None:
        size, most = source.limit
        limit, longer = (numbers.sizes.index(size), most), Name("longer", cubin)
    function, unaligned = Name("cubin", cubin), Name("unaligned", cubin)
    return LaunchCall(
        function, buffers, (x, y, z), unaligned, entry.name, sizes, even, limit, longer
    )


def _list_call(
    source: LaunchSource, entry: ListEntry, cubin: int, device: str, numbers: _Numbers
) -> ListCall:
    places = tuple(
        (numbers[b], start * _torch_dtype(b).itemsize) for row in entry.columns for b, start in row
    )
    counts = torch.tensor([-(-words[0] // entry.block) for words in entry.words])
    rows = torch.repeat_interleave(counts)
    earlier = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    blocks = torch.stack((rows, earlier), 1).to(torch.int32)
    on_device = torch.device(device)
    return ListCall(
        Name("cubin", cubin),
        table=numbers.own("table", (len(places),), on_device),
        fixed=numbers.own("constant", entry.words, on_device),
        blocks=numbers.own("constant", blocks, on_device),
        places=places,
        columns=len(entry.columns[0]),
        grid=source.grid,
        name=entry.name,
    )


class _Numbers:
    """Maps each buffer to its number and BufferSpec: inputs come first, then buffers from which sizes are
    read, then the others in order of their first use."""

    def __init__(
        self,
        program: Program,
        memory: MemoryPlan,
        captured: CapturedGraph,
        objects: PlanObjects,
    ) -> None:
        first = dict.fromkeys([*program.inputs, *(buffer for _, buffer in program.symbols)])
        self._numbers = {buffer: number for number, buffer in enumerate(first)}
        symbols = {symbol: self._numbers[buffer] for symbol, buffer in program.symbols}
        self.unbacked: dict[Symbol, SizeCall] = {}  # where unbacked sizes are read
        self.sizes = PlanSizes(partial(_leaf, captured.inputs, symbols, self.unbacked))
        self._memory = memory
        self._objects = objects
        self.specs = [self._spec(buffer) for buffer in first]
        for place, step in enumerate(_run(program)):
            for symbol, buffer, dim in step.defines:
                if isinstance(step, Extern) and step.target == READ:
                    vector = self[step.args[0].buffer]
                    self.unbacked[symbol] = SizeCall("item", (place, vector, dim))
                else:
                    self.unbacked[symbol] = SizeCall("after", (place, len(self.specs), dim))
                    self[buffer]

    def __getitem__(self, buffer: Buffer) -> int:
        number = self._numbers.get(buffer)
        if number is None:
            number = self._numbers[buffer] = len(self.specs)
            self.specs.append(self._spec(buffer))
        return number

    def _spec(self, buffer: Buffer) -> BufferSpec:
        kind, offset = _SPEC_KINDS[buffer.kind], self._memory.offsets.get(buffer)
        if kind == "arena" and offset is None:
            kind = "transient"
        return BufferSpec(
            kind=kind,
            shape=self.sizes.refs(buffer.shape),
            strides=self.sizes.refs(buffer.strides),
            dtype=_torch_dtype(buffer),
            device=torch.device(buffer.device),
            offset=self.sizes.ref(offset or 0),
            constant=self._objects.constant(buffer),
        )

    def own(self, kind: str, content: Any, device: torch.device) -> int:
        """Adds a buffer that the program does not have, and returns its number: a table of this shape, or a
        constant with this content."""
        tensor = name = None
        if kind == "constant":
            with torch.inference_mode(False):
                tensor = torch.as_tensor(content, device=device)
            name = self._objects.add_constant(tensor)
        shape = tuple(content if tensor is None else tensor.shape)
        strides = (1,) if tensor is None else tensor.stride()
        dtype = torch.int64 if tensor is None else tensor.dtype
        self.specs.append(BufferSpec(kind, shape, strides, dtype, device, constant=name))
        return len(self.specs) - 1

    def view(self, view: View) -> ViewSpec:
        dtype = view.torch_dtype or _torch_dtype(view.buffer)
        shape, strides = self.sizes.refs(view.shape), self.sizes.refs(view.strides)
        return ViewSpec(self[view.buffer], shape, strides, self.sizes.ref(view.offset), dtype)

    def replace(self, value: Any) -> Any:
        """Replaces views, number buffers and sizes in an Extern's arguments by their specs."""
        return map_leaves(self._spec_of, value)

    def _spec_of(self, value: Any) -> Any:
        if isinstance(value, View):
            return self.view(value)
        if isinstance(value, Buffer):
            return NumberSpec(self[value])
        return self.sizes.ref(value) if isinstance(value, Size) else value


def _torch_dtype(buffer: Buffer) -> torch.dtype:
    dtype: torch.dtype = buffer.torch_dtype if buffer.dtype is None else buffer.dtype.to_torch()
    return dtype


def _extern_call(step: Extern, numbers: _Numbers) -> ExternCall:
    results = tuple(None if b is None else numbers[b] for b in step.results)
    if step.target in CALLS:
        given = tuple(map(numbers.replace, step.args))
        return ExternCall(step.target, Name("own", step.target), given, {}, results, False)
    if step.target == "aten.copy.default":
        # `aten.copy` of PyTorch copies the whole storage of the target, here the whole arena.
        given = tuple(map(numbers.replace, step.args[:2]))
        return ExternCall(COPIED, Name("own", COPIED), given, {}, results, False)
    if step.target == UNSAFE_PUT:
        given = (*map(numbers.replace, step.args), True)
        return ExternCall(UNCHECKED_PUT, Name("op", UNCHECKED_PUT), given, {}, results, False)
    out_form = any(b is not None and b.kind is not Kind.EXTERN for b in step.results)
    function = Name("op", OUT_FORMS[step.target] if out_form else step.target)
    args = [numbers.replace(a) for a in step.args]
    kwargs = {name: numbers.replace(v) for name, v in step.kwargs}
    for argument in overload(step.target)._schema.arguments[len(args) :]:
        if argument.kwarg_only or argument.name in kwargs:
            break
        args.append(argument.default_value)  # the C interface has no defaults
    return ExternCall(step.target, function, tuple(args), kwargs, results, out_form)
