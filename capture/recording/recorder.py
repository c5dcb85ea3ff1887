"""The recorder: runs torch calls on Fakes and records their ATen ops as a functional graph.

A call runs at once, under a dispatch mode that receives every ATen op below autograd and above the kernels.
So there is one trace, of what the call really does. Views, in-place and out= ops become functions
(recording/views.py, recording/writes.py); sizes come from shapes/registry.py. A call that cannot be recorded
raises Break, and the caller takes the half-recorded call back with `restore`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from frameloom.capture.recording.backward_marks import note_node, note_sum, summed
from frameloom.capture.recording.call_cache import Calls
from frameloom.capture.recording.custom_op_sizes import special_of
from frameloom.capture.recording.data_dependent import asks_for_data
from frameloom.capture.recording.function_call import CURRENT_DEVICE, record_call, run_recorded
from frameloom.capture.recording.recorder_state import (
    ConstantNodes,
    CurrentCall,
    FromData,
    GraphModes,
    HistoryState,
)
from frameloom.capture.recording.special_ops import SPECIAL
from frameloom.capture.recording.tangents import TANGENT_QUERIES
from frameloom.capture.recording.unbacked_sizes import check_device, undecided
from frameloom.capture.recording.views import reshape, view
from frameloom.capture.recording.writes import write_op
from frameloom.capture.recording.written_parts import WrittenPart
from frameloom.capture.shapes.device_layouts import on_device
from frameloom.capture.shapes.refused import check_arguments
from frameloom.capture.shapes.registry import infer_node
from frameloom.capture.symbolic.dynamic_policy import Pattern
from frameloom.capture.symbolic.layout_assumptions import LayoutAssumptions
from frameloom.capture.symbolic.number_inputs import (
    NumberInputs,
    has_symbols,
    takes_numbers,
    with_sizes,
    without_numbers,
)
from frameloom.capture.symbolic.number_ranges import check_filled, check_numbers, guard_ranges
from frameloom.capture.tensors.cast_cache import Casts
from frameloom.capture.tensors.fake import Fake, fake_like, innermost
from frameloom.capture.tensors.functionalize import Memory, Written, current
from frameloom.capture.tensors.schema import (
    check_derivative,
    device_of,
    names_no_index,
    properties_of,
    selects_by_mask,
    tensors_of,
)
from frameloom.capture.tensors.supported import (
    check_compiled,
    check_layouts,
    check_supported,
    check_together,
    dtypes_of,
)
from frameloom.capture.tensors.zero_tensors import call_with_zeros
from frameloom.capture.values.numbers.symbolic import SYMBOLS
from frameloom.config import config
from frameloom.debug import log
from frameloom.errors import Avoid, Break
from frameloom.ir.fallible import KNOWN
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.shape_env import ShapeEnv
from frameloom.ir.symbolic.symint import SizeNode

aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Records one graph. `n_ops` counts recorded ops that are not views; 0 means that there is nothing to
    compile."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.n_ops = 0
        self.modes, self.current_call = GraphModes(), CurrentCall()
        self.history, self.from_data = HistoryState(), FromData()
        self.casts = Casts()
        self.constants = torch.nn.Module()
        self.inputs: list[tuple[Any, torch.Tensor, Fake]] = []
        self._input_of: dict[int, Fake] = {}
        self.fakes: list[Fake] = []
        self.undo: list[Written] = []
        self.constant_nodes = ConstantNodes()
        # placeholders of tensors; set at the end of the graph
        self.placeholders: list[torch.fx.Node] = []
        # Placeholders of tensors are inserted before it.
        self._marker = self.graph.create_node("call_function", operator.pos, (0,))
        self.numbers = NumberInputs(self.graph)
        self.calls = Calls(self)
        self.shape_env = ShapeEnv(lambda size: SizeNode(size.shape_env, size))  # of symbolic sizes
        self.shape_env.note = self._assumed
        self.shape_env.undecided = functools.partial(undecided, self)
        # Calls of parts of the program, and the instructions of these calls.
        self.parts: list[tuple[torch.fx.Node, Any]] = []
        self.layout_assumptions = LayoutAssumptions(self.shape_env, self.graph)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would wrap __torch_dispatch__ in a helper that imports its own compiler.
        return False

    # It runs for every recorded call: TorchDispatchMode's own methods also maintain state for nested modes.
    def __enter__(self) -> Recorder:
        _push_mode(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _pop_mode()

    # ---- what the interpreter calls

    def input(self, tensor: torch.Tensor, key: object, pattern: Pattern | None = None) -> Fake:
        """Returns the Fake of a real tensor; `key` is its source. There is one Fake per tensor object."""
        existing = self._input_of.get(id(tensor))
        if existing is not None:
            return existing
        check_supported(tensor)
        if tensor.requires_grad and tensor.is_inference() and torch.is_inference_mode_enabled():
            raise Break("unsupported_tensor", "an inference tensor that requires gradients, as its views do not")  # fmt: skip
        with torch.inference_mode(False):
            fake = (
                fake_like(tensor) if pattern is None else pattern.fake(self.shape_env, tensor, key)
            )
        self.give(fake, tensor, key)
        if pattern is not None:
            pattern.placeholder = fake.node
        return fake

    def give(self, fake: Fake, tensor: torch.Tensor, key: object) -> None:
        """Registers `fake` as the Fake of an input."""
        self.placeholder(f"input_{len(self.inputs)}", fake)
        fake.memory.input, fake.memory.inference = len(self.inputs), tensor.is_inference()
        self.inputs.append((key, tensor, fake))
        self._input_of[id(tensor)] = fake

    def origin_of(self, placeholder: torch.fx.Node) -> Any:
        """Returns the source of an input."""
        return self.inputs[placeholder.meta["val"].memory.input][0]

    def real_of(self, placeholder: torch.fx.Node) -> torch.Tensor:
        """Returns the real tensor of an input in the captured call."""
        return self.inputs[placeholder.meta["val"].memory.input][1]

    @property
    def n_inputs(self) -> int:
        return len(self.inputs)

    def is_given_nothing(self) -> bool:
        """Whether an input that is not a parameter or buffer of a module has no elements."""
        own = ("_buffers", "_parameters")
        return any(
            0 in tensor.shape and not any(link in own for _, link in key.links())
            for key, tensor, _ in self.inputs
        )

    def adopt(self, fake: Fake, node: torch.fx.Node) -> None:
        """Registers a tensor that `node` makes, with memory of its own."""
        fake.node, fake.memory = node, self.memory_of(fake)
        self.fakes.append(fake)

    def placeholder(self, name: str, fake: Fake) -> Fake:
        """Makes a placeholder for a fresh Fake."""
        with self.graph.inserting_before(self._marker):
            fake.node = self.graph.placeholder(name)
        fake.node.meta["val"] = fake
        fake.memory = Memory(fake)
        self.fakes.append(fake)
        return fake

    def memory_owner(self, fake: Fake) -> tuple[Any, torch.Tensor] | None:
        """Returns key and tensor of the input whose memory `fake`, or what it wraps, shares; None if there
        is none."""
        number = innermost(fake).memory.input
        return None if number is None else self.inputs[number][:2]

    def is_of_computed_input(self, fake: Fake) -> bool:
        """Whether it shares memory with an input that autograd has computed; its Fake is a leaf."""
        number = fake.memory.input
        return number is not None and not self.inputs[number][1].is_leaf

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], where: object
    ) -> Any:
        """Records `fn(*args, **kwargs)` on Fakes. Raises Break where that is impossible."""
        return record_call(self, fn, args, kwargs, where)

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs `fn(*args, **kwargs)` and records every op of it."""
        return run_recorded(self, fn, args, kwargs)

    def made_in_call(self) -> set[int]:
        """Returns the identities of the Fakes that the last call has made."""
        return {id(fake) for fake in self.fakes[self.current_call.old :]}

    def snapshot(self) -> tuple[Any, int, int, tuple[int, int]]:
        return (self.graph._root.prev, self.n_ops, len(self.undo), self.layout_assumptions.mark())

    def restore(self, snapshot: tuple[Any, int, int, tuple[int, int]]) -> None:
        """Takes back everything that was recorded since the snapshot; inputs stay registered (unused ones are
        dropped at the end)."""
        last, self.n_ops, undo, assumptions = snapshot
        self.layout_assumptions.take_back(assumptions)
        lost = None
        while len(self.undo) > undo:
            was = self.undo.pop()
            fake, fake.node, fake.version = was.fake, was.node, was.version
            fake.counted, fake.memory.version = was.counted, was.of_memory
            if was.owner.grad_fn is not was.history:
                lost = was
        while self.graph._root.prev is not last:
            self.graph.erase_node(self.graph._root.prev)
        if lost is not None and lost.site is not None:
            # The effect of a write on autograd's history cannot be undone.
            raise Avoid(lost.site)

    def release(self) -> None:
        """Drops all references to the tensors of the captured call."""
        self.inputs.clear()
        self.undo.clear()
        self.parts.clear()
        self.shape_env.release()
        self.layout_assumptions.release()
        self.constant_nodes, self.from_data, self.history = (
            ConstantNodes(),
            FromData(),
            HistoryState(),
        )
        self.numbers.release()

    # ---- recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.history.zeros:
            return call_with_zeros(self, func, args, kwargs or {})
        made = self.dispatched(func, args, kwargs or {})
        if self.current_call.is_followed and not properties_of(func).has_derivative:
            check_derivative(func, (*args, kwargs or {}), made)
        return made

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        call = self.current_call
        if not isinstance(func, torch._ops.OpOverload):
            raise Break("unsupported_op", str(func))
        if func is aten.size.default:  # C++ code wants plain sizes
            return [int(n) for n in args[0].shape]
        if func is aten._to_copy.default and not isinstance(args[0], torch.Tensor):
            # `vmap` converts a number to the dtype of the other operand.
            options = {k: kwargs.get(k) for k in ("dtype", "device") if kwargs.get(k) is not None}
            if "dtype" not in options:
                raise Break("unsupported_op", f"{func} of a number")
            return self.pure(aten.scalar_tensor.default, (args[0],), options)
        if func in TANGENT_QUERIES:
            return TANGENT_QUERIES[func](self, *args)
        if self.shape_env.symbols:
            args = tuple(map(with_sizes, args))
            kwargs = {name: with_sizes(a) for name, a in kwargs.items()}
        if func is aten.lift_fresh.default and not isinstance(args[0], Fake):
            return self.new_constant(args[0])
        if (has_symbols(args) or has_symbols(kwargs.values())) and (
            not takes_numbers(func) or func in SPECIAL
        ):
            args = without_numbers(args)
            kwargs = {name: without_numbers(a) for name, a in kwargs.items()}
        tensors_of(func, args, kwargs)
        if call.autocast != self.modes.around and not str(func).startswith(KNOWN):
            # Autocast treats the calls inside its kernel as it treats those of the program.
            raise Break(
                "unsupported_op", f"{func} under autocast that the graph does not run under"
            )
        if kwargs.get("pin_memory"):
            raise Break("unsupported_op", f"{func} in pinned memory")
        check_arguments(func, args, kwargs)
        check_filled(func, args, self)
        if call.autocast and func is aten._to_copy.default:
            self.casts.note(self, args[0])
        properties = properties_of(func)
        check_layouts(func, properties.sparse, args, kwargs, call.is_followed)
        if properties.data_dependent or selects_by_mask(func, args):
            return asks_for_data(self, func, args, kwargs)
        if properties.resizes:
            return reshape(self, func, *args, **kwargs)
        if properties.behaviour == "write":
            number = torch._C._autograd._get_sequence_nr() if call.is_followed else 0
            result = write_op(self, func, args, kwargs)
            if call.is_followed and isinstance(result, Fake) and result.view_of is not None:
                self.history.written_parts[number] = WrittenPart.of(func, args, kwargs)
            return result
        if properties.behaviour == "view":
            if properties.is_composite:  # other ops replace it, and some of them may not be views
                raise Break("unsupported_op", f"{func} as one op")
            return view(self, func, args, kwargs)
        if (special := SPECIAL.get(func) or special_of(func)) is not None:
            return special(self, func, args, kwargs)
        return self.pure(func, args, kwargs)

    def emit(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Fake | None = None
    ) -> Any:
        if torch.get_default_dtype() is not self.modes.default_dtype:
            args, kwargs = self._with_dtype(func, args, kwargs)
        if names_no_index(kwargs.get("device")):
            self.current_call.relies_on[CURRENT_DEVICE] = None
            kwargs = {**kwargs, "device": torch.device("cuda", torch.cuda.current_device())}
        if has_symbols(args) or has_symbols(kwargs.values()):
            guard_ranges(func, args, kwargs)
        node_args = torch.fx.node.map_aggregate(args, self.node_of)
        node_kwargs = torch.fx.node.map_aggregate(kwargs, self.node_of) if kwargs else kwargs
        # Arguments are set afterwards: `create_node` would search them for symbolic sizes.
        node = self.graph.create_node("call_function", func, name=properties_of(func).name)
        node.args = node_args
        if node_kwargs:
            node.kwargs = dict(node_kwargs)
        node.meta["stack"], node.meta["site"] = self.current_call.where, self.current_call.site
        if not torch.is_grad_enabled():
            node.meta["grad"] = False
        if self.history.notes_nodes:
            note_node(node)
        if like is None:
            device = device_of(func, node_args, node_kwargs)
            check_compiled(device)
            if device.type != "cpu":
                check_together(func, args, kwargs)
            meta = infer_node(func, node_args, node_kwargs)
            meta = on_device(device, func, meta, args, kwargs)
            if self.history.notes_nodes:
                note_sum(node)
                meta = summed(node, meta)
            if self.shape_env.has_unbacked and device.type != "cpu":
                check_device(node, meta)
            like = self.new(meta, device)
        check_numbers(func, args, kwargs, like)
        node.meta["val"] = like
        return node

    def _assumed(self, text: str) -> object:
        """Logs an assumption about sizes; returns the line that makes it."""
        if "sizes" in config.logs:
            log("sizes", f"{text}  {self.current_call.where}")
        return self.current_call.where

    def memory_of(self, fake: Fake) -> Memory:
        return Memory(fake, inference=self.current_call.inference)

    def _with_dtype(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Adds a dtype to an op that depends on the default dtype: the program has changed the default, but
        the graph runs under the former one."""
        plain = torch.fx.node.map_aggregate((args, kwargs), self.node_of)
        now = torch.get_default_dtype()
        wanted = dtypes_of(infer_node(func, *plain))
        try:
            torch.set_default_dtype(self.modes.default_dtype)
            if dtypes_of(infer_node(func, *plain)) == wanted:
                return args, kwargs
        finally:
            torch.set_default_dtype(now)
        if len(wanted) != 1 or not any(
            a.name == "dtype" and a.kwarg_only for a in func._schema.arguments
        ):
            raise Break("unsupported_op", f"{func} under another default dtype")
        return args, {**kwargs, "dtype": wanted[0]}

    def remember(self, fake: Fake) -> None:
        memory = fake.memory
        owner = fake._base if fake._is_view() else fake
        self.undo.append(
            Written(
                fake,
                fake.node,
                fake.version,
                fake.counted,
                memory.version,
                owner,
                owner.grad_fn,
                self.current_call.site,
            )
        )

    def node_of(self, a: Any) -> Any:
        if isinstance(a, Fake):
            return current(a, self)
        if isinstance(a, Size):
            return self.numbers.size(self.shape_env.resolved(a))
        return self.numbers.node(a.node.number) if isinstance(a, SYMBOLS) else a

    def all_placeholders(self) -> list[torch.fx.Node]:
        """Returns the placeholders of tensors, then those of numbers."""
        return [*self.placeholders, *(p for _, _, p in self.numbers.inputs)]

    def new(self, meta: Any, device: torch.device) -> Any:
        if isinstance(meta, torch.Tensor):
            fake = Fake(meta, device)
            self.fakes.append(fake)
            return fake
        if isinstance(meta, list | tuple):
            return tuple(self.new(m, device) for m in meta)
        return meta

    def pure(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Any = None
    ) -> Any:
        node = self.emit(func, args, kwargs, like)
        self.n_ops += 1
        value = node.meta["val"]
        if isinstance(value, Fake):
            value.node, value.memory = node, self.memory_of(value)
            return value
        if not isinstance(value, tuple):
            raise Break("data_dependent", f"{func} returns {type(value).__name__}")
        for i, part in enumerate(value):
            if isinstance(part, tuple):
                raise Break("unsupported_op", f"{func} returns nested lists")
            if isinstance(part, Fake):
                part.node = self.graph.call_function(operator.getitem, (node, i))
                part.node.meta.update(val=part, stack=self.current_call.where)
                part.memory = self.memory_of(part)
        return list(value) if properties_of(func).returns_list else value

    def constant(self, name: str) -> torch.Tensor:
        """Returns the tensor of a `get_attr` node."""
        return self.constants.get_buffer(name)

    def new_constant(self, tensor: torch.Tensor) -> Fake:
        """Records a tensor made from Python numbers: the graph module keeps it, and every call copies it."""
        if tensor.device.type == "cuda":
            self.current_call.relies_on[CURRENT_DEVICE] = None
        name = f"constant_{len(self.constants._buffers)}"
        self.constants.register_buffer(name, tensor)
        node = self.graph.get_attr(name)
        fake = fake_like(tensor)
        node.meta["val"], node.meta["stack"] = fake, self.current_call.where
        self.adopt(fake, node)
        return self.pure(aten.clone.default, (fake,), {})
