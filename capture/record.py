"""The recorder: runs torch calls on Fakes and writes down the ATen ops they come to, as a functional graph.

A call is run at once, under a dispatch mode that meets every ATen op below autograd and above the kernels: there is one
trace, of what the call really does.  Views, in-place and out= ops become functions here (functional.py); sizes come
from shapes.py.  What cannot be recorded raises Break, and the caller takes the half-recorded call back with `restore`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from frameloom.capture.aten_op import (
    SPLITS,
    device_of,
    facts_of,
    fakes_in,
    infer_node,
    is_out,
    may_raise,
    names_no_index,
    one_needs_another,
    plain_arguments,
    refusal,
    same_layout,
    selects_by_mask,
    tensors_of,
)
from frameloom.capture.data_dependent import asks_for_data
from frameloom.capture.device_layouts import LAYOUTS
from frameloom.capture.fake import Fake, fake_like
from frameloom.capture.functional import (
    Memory,
    ViewOf,
    current,
    functional_form,
    functional_form_of_view,
    reaches_beyond,
    write,
)
from frameloom.capture.graph import CapturedGraph
from frameloom.capture.joint import Joint, check_inputs, wants_gradients
from frameloom.capture.late_sizes import Result, assumed, avoid_all, check_device, undecided
from frameloom.capture.number_inputs import (
    NumberInputs,
    has_symbols,
    takes_numbers,
    with_sizes,
    without_numbers,
)
from frameloom.capture.outputs import Outputs
from frameloom.capture.over_sizes import WHOLE_OVER_SIZES
from frameloom.capture.recorded_calls import Calls
from frameloom.capture.shapes import as_known
from frameloom.capture.sized import SizedFake
from frameloom.capture.soft_sizes import SoftSizes
from frameloom.capture.special_ops import SPECIAL, WHOLE, WHOLE_ON_GPU
from frameloom.capture.supported import check_result, check_supported, dtypes_of
from frameloom.capture.values.base import Avoid
from frameloom.capture.values.symbolic import SYMBOLS
from frameloom.capture.varying import Pattern
from frameloom.config import config
from frameloom.debug import log
from frameloom.errors import Break
from frameloom.ir.size import Size
from frameloom.ir.size_facts import Facts
from frameloom.ir.size_node import SizeNode

aten = torch.ops.aten
CURRENT_DEVICE = getattr(torch._C, "_cuda_getDevice", None)
# Functions that choose among implementations, and what that depends on.
ATTENTION = (F.scaled_dot_product_attention, F.multi_head_attention_forward)
ATTENTION_SETTINGS = tuple(
    getattr(torch._C, f"_get_{kind}_sdp_enabled") for kind in ("flash", "mem_efficient", "math", "cudnn")
)  # fmt: skip
MAX_VIEWS = 500  # of views


class Recorder(TorchDispatchMode):
    """Records one graph.  `n_ops` counts recorded ops that are not views; 0 means there is nothing to compile."""

    # For what is saved for the backward pass (capture/saved.py).
    budget: int | float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.n_ops = 0
        self.default_dtype = torch.get_default_dtype()  # as the graph will find it
        self.inference = False  # whether the call being recorded is made in inference mode
        self._constants = torch.nn.Module()
        self._inputs: list[tuple[Any, torch.Tensor, Fake]] = []
        self._input_of: dict[int, Fake] = {}
        self._fakes: list[Fake] = []
        self._undo: list[tuple[Fake, Any, int, int]] = []
        self._where = ""
        self.function: Any = None  # whose call is being recorded
        self._last: Any = None  # node before the current call
        self._outs: set[int] = (
            set()
        )  # tensors that the current call was given as out= and an op has written
        self.known: dict[torch.fx.Node, Any] = {}  # what nodes hold at every call (known.py)
        self.unknown: set[torch.fx.Node] = set()  # of which that was asked in vain
        self.hidden_writes = (
            False  # whether one changed a tensor that has a history without changing that
        )
        self._old = 0  # how many Fakes there were before the current call
        # C functions that tell settings on which the current call depends
        self.relies_on: set[Any] = set()
        self.is_followed = False  # whether autograd follows the current call
        self.looks_at_data = False  # whether what was recorded follows from what tensors hold
        self.assumes = False  # whether the current call is recorded as if a condition held
        self._marker = self.graph.create_node(
            "call_function", operator.pos, (0,)
        )  # placeholders of tensors go before it
        self.numbers = NumberInputs(self.graph)
        self.functions: list[Any] = []  # calls of the program's autograd Functions, as Derivatives
        self.calls = Calls(self)
        self.facts = Facts(lambda size: SizeNode(size.facts, size))  # of sizes that vary
        self.facts.note = self._assumed
        self.facts.undecided = functools.partial(undecided, self)
        # Calls of parts of the program, and the instructions that make them.
        self.parts: list[tuple[torch.fx.Node, Any]] = []
        self.late: list[Any] = []  # where sizes come from that data decides
        self.counted: dict[torch.fx.Node, tuple[Size, Result]] = {}  # how many are not zero
        self.places: dict[torch.fx.Node, Fake] = {}  # and which, where the program does not see it
        self.soft_sizes = SoftSizes(self.facts)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return (
            False  # PyTorch would wrap __torch_dispatch__ in a helper that imports its own compiler
        )

    # Entered for every recorded call: TorchDispatchMode's own methods also keep what modes inside modes need.
    def __enter__(self) -> Recorder:
        _push_mode(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _pop_mode()

    # ---- what the interpreter calls

    def input(self, tensor: torch.Tensor, key: object, pattern: Pattern | None = None) -> Fake:
        """The Fake of a real tensor; `key` says where the tensor comes from.  One Fake per tensor object."""
        found = self._input_of.get(id(tensor))
        if found is not None:
            return found
        check_supported(tensor)
        with torch.inference_mode(False):
            fake = fake_like(tensor) if pattern is None else pattern.fake(self.facts, tensor, key)
        self.placeholder(f"input_{len(self._inputs)}", fake)
        if pattern is not None:
            pattern.placeholder = fake.node
        fake.memory.input, fake.memory.inference = len(self._inputs), tensor.is_inference()
        self._inputs.append((key, tensor, fake))
        self._input_of[id(tensor)] = fake
        return fake

    def origin_of(self, placeholder: torch.fx.Node) -> Any:
        """Where an input comes from."""
        return self._inputs[placeholder.meta["val"].memory.input][0]

    def real_of(self, placeholder: torch.fx.Node) -> torch.Tensor:
        """The tensor that an input was in the captured call."""
        return self._inputs[placeholder.meta["val"].memory.input][1]

    @property
    def n_inputs(self) -> int:
        return len(self._inputs)

    def adopt(self, fake: Fake, node: torch.fx.Node) -> None:
        """A tensor of its own that `node` makes."""
        fake.node, fake.memory = node, self._memory(fake)
        self._fakes.append(fake)

    def placeholder(self, name: str, fake: Fake) -> Fake:
        """A fresh Fake, which the graph is given."""
        with self.graph.inserting_before(self._marker):
            fake.node = self.graph.placeholder(name)
        fake.node.meta["val"] = fake
        fake.memory = Memory(fake)
        self._fakes.append(fake)
        return fake

    def memory_owner(self, fake: Fake) -> tuple[Any, torch.Tensor] | None:
        """Key and tensor of the input whose memory it shares, None if it shares none."""
        number = fake.memory.input
        return None if number is None else self._inputs[number][:2]

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], where: object
    ) -> Any:
        """`fn(*args, **kwargs)` on Fakes, recorded.  Raises Break where that is impossible."""
        self._where, self._old, self.function = where, len(self._fakes), fn
        self._last, self._outs, self.assumes = self.graph._root.prev, set(), False
        self.inference = torch.is_inference_mode_enabled()
        self.relies_on = set(ATTENTION_SETTINGS) if fn in ATTENTION else set()
        if fn is torch.Tensor.cuda or any(map(names_no_index, (*args, *kwargs.values()))):
            self.relies_on.add(CURRENT_DEVICE)
        wanted = torch.is_grad_enabled() and any(f.requires_grad for f in fakes_in((args, kwargs)))
        if wanted and not config.gradients:
            # Found here and not at dispatch: autograd comes before that, and would call the user's hooks for saved tensors.
            raise Break("gradient", getattr(fn, "__name__", str(fn)))
        self.is_followed = wanted
        self.soft_sizes.begin()
        whole = WHOLE.get(fn)
        if self.facts.symbols:
            whole = WHOLE_OVER_SIZES.get(fn, whole)
        if any(f.device.type == "cuda" for f in fakes_in((args, kwargs))):
            whole = WHOLE_ON_GPU.get(fn, whole)
        given = None if wanted or whole is not None else self.calls.arguments(fn, args, kwargs)
        if given is not None and (known := self.calls.again(given)) is not None:
            return known[0]
        before, self.looks_at_data = self.snapshot(), False
        try:
            if whole is not None:
                result = whole(self, *args, **kwargs)
            else:
                result = self.run(fn, args, kwargs)
        except (Break, Avoid):
            raise
        except Exception as error:
            # Most likely the program's own error: run plainly, it raises at the right place with the right state.
            name = getattr(fn, "__name__", str(fn))
            raise Break(
                "op_error",
                f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            ) from error
        check_result(result, fn)
        if self.facts.soft or self.facts.soft_0:
            self.soft_sizes.end(fn, tuple(fakes_in((args, kwargs))), tuple(fakes_in((result,))))
        if any(id(f) not in self._outs for f in fakes_in((kwargs.get("out"),))):
            # Composite functions handle tensors that are not plain ones otherwise, and may leave `out` alone.
            raise Break("unsupported_op", f"{getattr(fn, '__name__', fn)} with out=")
        if given is not None:
            self.calls.keep(given, result, before)
        return result

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`fn(*args, **kwargs)`, every op of it recorded."""
        if self.inference:
            # Inference mode hides the decomposition of composite ops from dispatch modes.
            with torch.inference_mode(False), torch.no_grad(), self:
                return fn(*args, **kwargs)
        with self:
            return fn(*args, **kwargs)

    def made_in_call(self) -> set[int]:
        """The identities of the Fakes that the last call has made."""
        return {id(fake) for fake in self._fakes[self._old :]}

    def snapshot(self) -> tuple[Any, int, int]:
        return (self.graph._root.prev, self.n_ops, len(self._undo))

    def restore(self, snapshot: tuple[Any, int, int]) -> None:
        """Take back everything recorded since; inputs stay known (unused ones are dropped at the end)."""
        last, self.n_ops, undo = snapshot
        while len(self._undo) > undo:
            fake, fake.node, fake.version, fake.memory.version = self._undo.pop()
        while self.graph._root.prev is not last:
            self.graph.erase_node(self.graph._root.prev)

    def finish(self, outputs: Sequence[Fake]) -> CapturedGraph:
        """Close the graph.  Outputs alias inputs and each other as the program's tensors do."""
        if wants_gradients(outputs):
            avoid_all(self)
        self.soft_sizes.settle(outputs)
        mutated = self._write_back()
        for fake in outputs:
            if fake.memory.version:
                _forget_views(fake)
        backward = None
        if config.gradients:
            check_inputs(self._inputs)
        if wants_gradients(outputs):
            # A backward graph is given what the call has, and nothing that is computed from that.
            self.facts.settle_some(lambda symbol: symbol.source.origin is None)
            nodes, backward = Joint(self, Outputs(outputs)).cut()
        else:
            nodes = [current(fake, self) for fake in outputs]
        self.graph.output(tuple(nodes))
        self._drop_dead()
        read = backward.read_inputs() if backward is not None else ()
        placeholders = self.all_placeholders()
        used = [i for i, p in enumerate(placeholders) if p.users or i in read]
        for i in set(range(len(placeholders))) - set(used):
            self.graph.erase_node(placeholders[i])
        given = [
            *((key, real) for key, real, _ in self._inputs),
            *((key, n) for key, n, _ in self.numbers.inputs),
        ]
        for fake in self._fakes:
            fake.node = fake.memory = fake.view_of = None
        return CapturedGraph(
            graph=self.graph,
            constants=self._constants,
            inputs=tuple(given[i][0] for i in used),
            examples=tuple(given[i][1] for i in used),
            mutated=tuple(used.index(i) for i in mutated),
            n_ops=self.n_ops,
            facts=self.facts,
            backward=backward and backward.renumbered(used),
        )

    def release(self) -> None:
        """The captured call's tensors are the caller's again."""
        self._inputs.clear()
        self.known.clear()
        self.facts.release()
        self.soft_sizes.release()
        self.unknown.clear()
        self.late.clear()
        self.parts.clear()
        self.counted.clear()
        self.places.clear()
        self.numbers.release()

    # ---- recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            raise Break("unsupported_op", str(func))
        if self.facts.symbols:
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
        facts = facts_of(func)
        if facts.data_dependent or selects_by_mask(func, args):
            return asks_for_data(self, func, args, kwargs)
        if facts.resizes:
            return self._reshape(func, *args, **kwargs)
        if facts.behaviour == "write":
            return self._write(func, args, kwargs)
        if facts.behaviour == "view":
            return self._view(func, args, kwargs)
        if (special := SPECIAL.get(func)) is not None:
            return special(self, func, args, kwargs)
        return self._pure(func, args, kwargs)

    def emit(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Fake | None = None
    ) -> Any:
        if torch.get_default_dtype() is not self.default_dtype:
            args, kwargs = self._with_dtype(func, args, kwargs)
        if names_no_index(kwargs.get("device")):
            self.relies_on.add(CURRENT_DEVICE)
            kwargs = {**kwargs, "device": torch.device("cuda", torch.cuda.current_device())}
        node_args = torch.fx.node.map_aggregate(args, self._node)
        node_kwargs = torch.fx.node.map_aggregate(kwargs, self._node) if kwargs else kwargs
        # Arguments are set afterwards: handed over here, they would be searched for symbolic sizes.
        node = self.graph.create_node("call_function", func, name=facts_of(func).name)
        node.args = node_args
        if node_kwargs:
            node.kwargs = dict(node_kwargs)
        node.meta["stack"] = self._where
        if not torch.is_grad_enabled():
            node.meta["grad"] = False
        if like is None:
            device = device_of(func, node_args, node_kwargs)
            meta = infer_node(func, node_args, node_kwargs)
            if (layout := LAYOUTS.get((device.type, func))) is not None:
                meta = as_known(layout(meta, *args, **kwargs))
            if self.facts.has_late and device.type != "cpu":
                check_device(node, meta)
            like = self._new(meta, device)
        node.meta["val"] = like
        return node

    def _assumed(self, text: str) -> object:
        """The line that makes an assumption about sizes."""
        if "sizes" in config.logs:
            log("sizes", f"{text}  {self._where}")
        return self._where

    def _memory(self, fake: Fake) -> Memory:
        return Memory(fake, inference=self.inference)

    def _with_dtype(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The program has changed the default dtype, and graphs run under the one before: an op that depends on it is given its dtype."""
        plain = torch.fx.node.map_aggregate((args, kwargs), self._node)
        now = torch.get_default_dtype()
        wanted = dtypes_of(infer_node(func, *plain))
        try:
            torch.set_default_dtype(self.default_dtype)
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
        self._undo.append((fake, fake.node, fake.version, fake.memory.version))

    def _node(self, a: Any) -> Any:
        if isinstance(a, Fake):
            return current(a, self)
        if isinstance(a, Size):
            return self.numbers.size(self.facts.resolved(a))
        return self.numbers.node(a.node.number) if isinstance(a, SYMBOLS) else a

    def all_placeholders(self) -> list[torch.fx.Node]:
        """Those of tensors, then those of numbers."""
        return [*self._placeholders, *(p for _, _, p in self.numbers.inputs)]

    def _new(self, meta: Any, device: torch.device) -> Any:
        if isinstance(meta, torch.Tensor):
            fake = Fake(meta, device)
            self._fakes.append(fake)
            return fake
        if isinstance(meta, list | tuple):
            return tuple(self._new(m, device) for m in meta)
        return meta

    def _pure(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Any = None
    ) -> Any:
        node = self.emit(func, args, kwargs, like)
        self.n_ops += 1
        value = node.meta["val"]
        if isinstance(value, Fake):
            value.node, value.memory = node, self._memory(value)
            return value
        if not isinstance(value, tuple):
            raise Break("data_dependent", f"{func} returns {type(value).__name__}")
        for i, part in enumerate(value):
            if isinstance(part, tuple):
                raise Break("unsupported_op", f"{func} returns nested lists")
            if isinstance(part, Fake):
                part.node = self.graph.call_function(operator.getitem, (node, i))
                part.node.meta.update(val=part, stack=self._where)
                part.memory = self._memory(part)
        return list(value) if facts_of(func).returns_list else value

    def _view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parent, *rest = args
        if func in SPLITS:
            return [
                self._view(f, (parent, *a), {}) for f, a in SPLITS[func](parent, *rest, **kwargs)
            ]
        if func is aten._unsafe_view.default:
            func = aten.view.default
        if func is aten.as_strided.default and reaches_beyond(parent, *rest, **kwargs):
            raise Break("data_pointer", "as_strided(...) beyond the tensor")
        if func is aten.lift_fresh.default:
            func = aten.alias.default
        node = self.emit(func, args, kwargs)
        fake = node.meta["val"]
        if not isinstance(fake, Fake):
            raise Break("unsupported_op", f"{func} returns several views")
        fake.node, fake.memory = node, parent.memory
        depth = 1 if parent.view_of is None else parent.view_of.depth + 1
        if depth > MAX_VIEWS:  # PyTorch takes ever longer for each
            raise Break("too_large", f"views of views, {depth} deep")
        grad = torch.is_grad_enabled()
        fake.view_of = ViewOf(parent, func, tuple(rest), dict(kwargs), depth, grad)
        fake.version = parent.memory.version
        return fake

    def _reshape(self, func: Any, fake: Fake, *args: Any, **kwargs: Any) -> Fake:
        """`squeeze_`, `as_strided_` and the like on a fresh result, as PyTorch's own functions use them: the tensor becomes a view of what it was."""
        fresh = self._fakes[self._old :]
        view = functional_form_of_view(func)
        if view is None or not any(f is fake for f in fresh) or fake.version != fake.memory.version:
            raise Break("metadata_mutation", str(func))
        before = Fake(fake.meta, fake.device)
        before.node, before.memory, before.view_of = fake.node, fake.memory, fake.view_of
        before.version = fake.version
        self._rename(fake, before)
        if fake.memory.root is fake:
            fake.memory.root = before
        for f in fresh:
            if f.view_of is not None and f.view_of.parent is fake:
                f.view_of = replace(f.view_of, parent=before)
        self._fakes.append(before)
        seen = self._view(view, (before, *args), kwargs)
        with torch._C._DisableTorchDispatch():
            torch.as_strided_(fake, seen.shape, seen.stride(), seen.storage_offset())
        if isinstance(fake, SizedFake):
            fake.lie_as(seen)
        fake.meta, fake.node, fake.view_of = seen.meta, seen.node, seen.view_of
        fake.node.meta["val"] = fake
        return fake

    def _rename(self, fake: Fake, other: Fake) -> None:
        """The nodes of the current call whose value is `fake` have `other`, which stands for what it was."""
        for node in reversed(self.graph.nodes):
            if node is self._last:
                return
            val = node.meta.get("val")
            if val is fake:
                node.meta["val"] = other
            elif isinstance(val, tuple):
                node.meta["val"] = tuple(other if v is fake else v for v in val)

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """In-place and out= ops: compute the functional form, then give its results to the written tensors."""
        schema = func._schema
        named = {**dict(zip((a.name for a in schema.arguments), args, strict=False)), **kwargs}
        targets: list[Fake] = []
        for a in schema.arguments:
            if a.alias_info is not None and a.alias_info.is_write and named.get(a.name) is not None:
                value = named[a.name]
                targets.extend(value if isinstance(value, list | tuple) else [value])
        if isinstance(args[0], list | tuple) and one_needs_another(args, kwargs):
            for k in range(len(args[0])):
                own = (a[k : k + 1] if isinstance(a, list | tuple) else a for a in args)
                self._write(func, tuple(own), kwargs)
            return args[0] if schema.returns else None
        if (reason := refusal(func, targets, tensors_of(func, args, kwargs))) is not None:
            raise Break("unsupported_op", f"{func} {reason}")
        if func is aten.copy_.default:
            values = [self._copied(args[0], args[1])]
        else:
            form = functional_form(func)
            if form is None:
                raise Break("unsupported_op", f"{func} has no functional form")
            result = self._pure(form, *plain_arguments(schema, named))
            results = list(result) if isinstance(result, list | tuple) else [result]
            values = [
                self._conform(r, t, func)
                for r, t in zip(results[-len(targets) :], targets, strict=True)
            ]
        if is_out(func):
            self._outs.update(map(id, targets))
        for target, value in zip(targets, values, strict=True):
            if target.memory.inference and not self.inference:
                raise Break("op_error", f"{func} writes a tensor made in inference mode")
            if target.memory.root.requires_grad and not (
                target.requires_grad and torch.is_grad_enabled()
            ):
                self.hidden_writes = True
            write(target, value, self)
        if not schema.returns:
            return None
        if schema.returns[0].alias_info is None:
            # Behind them: the new values of what is written.
            results = results[: len(schema.returns)]
            return tuple(results) if len(results) > 1 else results[0]
        if len(schema.returns) == 1:
            return args[0] if isinstance(args[0], list | tuple) else targets[0]
        return tuple(targets)

    def _conform(self, value: Fake, target: Fake, func: Any) -> Any:
        """A node with `value`'s elements in `target`'s dtype and layout."""
        if value.shape != target.shape:
            raise Break("metadata_mutation", f"{func} resizes its output")
        if value.dtype != target.dtype:
            if is_out(func):  # some ops cast, others refuse
                raise Break("unsupported_op", f"{func} into a tensor of another dtype")
            if not torch.can_cast(value.dtype, target.dtype):
                raise Break(
                    "op_error", f"{func}: result type {value.dtype} can't be cast to {target.dtype}"
                )
            value = self._pure(aten._to_copy.default, (value,), {"dtype": target.dtype})
        if same_layout(value, target):
            return current(value, self)
        return self.emit(aten.copy.default, (target, value), {}, like=target)

    def _copied(self, target: Fake, source: Any) -> Any:
        if not isinstance(source, Fake) or source.device != target.device:
            raise Break("unsupported_op", "copy_ between devices")
        self.n_ops += 1
        if (
            source.shape == target.shape
            and source.dtype == target.dtype
            and same_layout(source, target)
        ):
            return self.emit(aten.clone.default, (source,), {}, like=target)
        return self.emit(aten.copy.default, (target, source), {}, like=target)

    def constant(self, name: str) -> torch.Tensor:
        """What a `get_attr` node stands for."""
        return self._constants.get_buffer(name)

    def new_constant(self, tensor: torch.Tensor) -> Fake:
        """A tensor made from Python numbers: kept in the graph module, copied afresh in every call."""
        if tensor.device.type == "cuda":
            self.relies_on.add(CURRENT_DEVICE)
        name = f"constant_{len(self._constants._buffers)}"
        self._constants.register_buffer(name, tensor)
        node = self.graph.get_attr(name)
        fake = fake_like(tensor)
        node.meta["val"], node.meta["stack"] = fake, self._where
        fake.node, fake.memory = node, self._memory(fake)
        self._fakes.append(fake)
        return self._pure(aten.clone.default, (fake,), {})

    # ---- the end of a graph

    def _write_back(self) -> list[int]:
        mutated = []
        numbers = {p for _, _, p in self.numbers.inputs}
        self._placeholders = [
            n for n in self.graph.nodes if n.op == "placeholder" and n not in numbers
        ]
        self._where = ""
        for i, (_, _, fake) in enumerate(self._inputs):
            memory, placeholder = fake.memory, self._placeholders[i]
            if memory.version:
                self.emit(aten.copy_.default, (placeholder, memory.root.node), {}, like=fake)
                mutated.append(i)
                memory.root.node = placeholder
                memory.version += 1
                memory.root.version = memory.version
        return mutated

    def _drop_dead(self) -> None:
        stays = self.numbers.check() | {source.node for source in assumed(self)}
        for node in reversed(self.graph.nodes):
            if node.users or node.op in ("placeholder", "output") or node in stays:
                continue
            if node.target is aten.copy_.default or may_raise(node):
                continue
            tags = getattr(node.target, "tags", ())
            if torch.Tag.nondeterministic_seeded not in tags:
                self.graph.erase_node(node)


def _forget_views(fake: Fake) -> None:
    """Make every view between `fake` and its memory's root replay: a written view holds a value of its own."""
    while fake.view_of is not None:
        fake.version = -1
        fake = fake.view_of.parent
