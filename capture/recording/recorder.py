"""The recorder: runs torch calls on Fakes and writes down the ATen ops they come to, as a functional graph.

A call is run at once, under a dispatch mode that meets every ATen op below autograd and above the kernels: there is one
trace, of what the call really does.  Views, in-place and out= ops become functions (recording/views.py, recording/writes.py);
sizes come from shapes/registry.py.  What cannot be recorded raises Break, and the caller takes the half-recorded call back with
`restore`.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from frameloom.capture.autograd.gradient_flow import note_node
from frameloom.capture.autograd.gradient_sums import note_sum, summed
from frameloom.capture.autograd.history import check_inputs
from frameloom.capture.autograd.outputs import (
    Outputs,
    creation_of,
    meet_histories,
    recorded_views,
    told_views,
)
from frameloom.capture.autograd.trace import Joint, wants_gradients
from frameloom.capture.graph_passes.attention_masks import check_mask
from frameloom.capture.graph_passes.cast_cache import Casts, without_cache
from frameloom.capture.guards.thread_warnings import OF_PYTHON, warnings_here
from frameloom.capture.recording.call_cache import Calls
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.capture.recording.data_dependent import asks_for_data
from frameloom.capture.recording.dead_calls import has_no_elements, is_refused, is_unread
from frameloom.capture.recording.eager_derivatives import derive_as_eager
from frameloom.capture.recording.special_ops import (
    POOLS_OF_ROWS,
    SPECIAL,
    WHOLE,
    WHOLE_ON_GPU,
    pools_as_image,
)
from frameloom.capture.recording.views import check_bits, check_memory_behind, reshape, view
from frameloom.capture.recording.writes import forget_values, write_back, write_op
from frameloom.capture.recording.written_parts import WrittenPart
from frameloom.capture.shapes.device_layouts import on_device
from frameloom.capture.shapes.refused_dtypes import check_arguments
from frameloom.capture.symbolic.custom_op_sizes import special_of
from frameloom.capture.symbolic.dynamic_policy import Pattern
from frameloom.capture.symbolic.layout_assumptions import SoftSizes
from frameloom.capture.symbolic.number_inputs import (
    NumberInputs,
    has_symbols,
    takes_bits,
    takes_numbers,
    with_sizes,
    without_numbers,
    without_symbols,
)
from frameloom.capture.symbolic.number_ranges import check_filled, check_numbers, guard_ranges
from frameloom.capture.symbolic.products import products_over
from frameloom.capture.symbolic.saved_sizes import needed_for_sizes, symbols_in
from frameloom.capture.symbolic.torch_functions import WHOLE_OVER_SIZES
from frameloom.capture.symbolic.unbacked_sizes import (
    Result,
    assumed,
    avoid_parts,
    check_device,
    check_returned,
    numbers_compared,
    undecided,
)
from frameloom.capture.tensors.fake import Fake, fake_like
from frameloom.capture.tensors.functionalize import Memory, Written, current, is_inference
from frameloom.capture.tensors.schema import (
    check_derivative,
    device_of,
    facts_of,
    fakes_in,
    infer_node,
    may_raise,
    names_no_index,
    selects_by_mask,
    stays_unused,
    tensors_of,
)
from frameloom.capture.tensors.supported import (
    check_compiled,
    check_layouts,
    check_result,
    check_supported,
    check_together,
    dtypes_of,
)
from frameloom.capture.tensors.zero_tensors import call_with_zeros
from frameloom.capture.values.base import Avoid
from frameloom.capture.values.numbers.symbolic import SYMBOLS
from frameloom.config import config
from frameloom.debug import log
from frameloom.errors import Break, first_line, let_mistakes_through
from frameloom.ir.fallible import KNOWN
from frameloom.ir.symbolic.expr import Int, Size
from frameloom.ir.symbolic.shape_env import Facts
from frameloom.ir.symbolic.symint import SizeNode

aten = torch.ops.aten
COMPARED: dict[Any, Callable[..., Any]] = {
    operator.lt: torch.Tensor.__lt__, operator.le: torch.Tensor.__le__, operator.eq: torch.Tensor.__eq__,
    operator.ne: torch.Tensor.__ne__, operator.gt: torch.Tensor.__gt__, operator.ge: torch.Tensor.__ge__,
}  # fmt: skip
CURRENT_DEVICE = getattr(torch._C, "_cuda_getDevice", None)
# Functions that choose among implementations, and what that depends on.
ATTENTION = (F.scaled_dot_product_attention, F.multi_head_attention_forward)
# What PyTorch computes in one go for plain tensors that nobody follows.
OTHERWISE = {F.scaled_dot_product_attention}
ATTENTION_SETTINGS = tuple(
    getattr(torch._C, f"_get_{kind}_sdp_enabled") for kind in ("flash", "mem_efficient", "math", "cudnn")
)  # fmt: skip


def takes(whole: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether what is recorded for a function as a whole is known for these arguments, which may be given by other names, or wrong."""
    try:
        _signature(whole).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


_signature = functools.cache(inspect.signature)


def autocast_devices() -> list[str]:
    if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
        return []  # most often
    return [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]


class Recorder(TorchDispatchMode):
    """Records one graph.  `n_ops` counts recorded ops that are not views; 0 means there is nothing to compile."""

    # For what is saved for the backward pass (capture/autograd/partition.py).
    budget: int | float | None = None
    writes_unnoticed = False  # whether what is behind a break may, before a backward pass

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.n_ops = 0
        self.default_dtype = torch.get_default_dtype()  # as the graph will find it
        self.grad = torch.is_grad_enabled()
        self.inference = False  # whether the call being recorded is made in inference mode
        self.autocast: list[str] = []  # devices for which it is made under autocast
        self.around = autocast_devices()  # and those for which the graph runs under it
        self.casts = Casts()
        self.constants = torch.nn.Module()
        self.inputs: list[tuple[Any, torch.Tensor, Fake]] = []
        self._input_of: dict[int, Fake] = {}
        self.fakes: list[Fake] = []
        self.undo: list[Written] = []
        self.where = ""
        self.site: Any = None  # of the call being recorded (dead_calls.py)
        self.function: Any = None  # whose call is being recorded
        self.last: Any = None  # node before the current call
        # Tensors that the current call was given as out= and an op has written.
        self.outs: set[int] = set()
        # What nodes hold at every call (recording/constant_folding.py).
        self.known: dict[torch.fx.Node, Any] = {}
        self.unknown: set[torch.fx.Node] = set()  # of which that was asked in vain
        # Whether one changed a tensor that has a history without changing that.
        self.hidden_writes = False
        self.data_sites: list[Any] = []  # where the `.data` of tensors was taken
        self.zeros: dict[int, Fake] = {}  # without memory
        # The memory of a tensor that gets other data right behind the graph: autograd sees that in what it has saved of it.
        self.replaced: Any = None
        # By the memory of what autograd saves of the recording: the one that it saves in eager, and its version then.
        self.instead: dict[Any, tuple[Memory, int]] = {}
        # By the numbers of autograd's nodes that put into its base what is written to a view.
        self.written_parts: dict[int, WrittenPart] = {}
        self.old = 0  # how many Fakes there were before the current call
        # C functions that tell settings on which the current call depends
        self.relies_on: dict[Any, None] = {}
        self.notes_nodes = False  # whether the nodes of autograd's that compute something are told
        # Inputs that the program makes leaves of autograd's (leaves.py).
        self.turned_on: dict[int, Any] = {}
        # Whether the current call goes the same way for plain tensors that nobody follows.
        self.goes_as_eager = True
        self.is_followed = False  # whether autograd follows the current call
        self.looks_at_data = False  # whether what was recorded follows from what tensors hold
        self.assumes = False  # whether the current call is recorded as if a condition held
        self.placeholders: list[torch.fx.Node] = []  # of tensors, at the end of the graph
        # Placeholders of tensors go before it.
        self._marker = self.graph.create_node("call_function", operator.pos, (0,))
        self.numbers = NumberInputs(self.graph)
        self.functions: list[Any] = []  # calls of the program's autograd Functions, as Derivatives
        self.calls = Calls(self)
        self.facts = Facts(lambda size: SizeNode(size.facts, size))  # of sizes that vary
        self.facts.note = self._assumed
        self.facts.undecided = functools.partial(undecided, self)
        # Calls of parts of the program, and the instructions that make them.
        self.parts: list[tuple[torch.fx.Node, Any]] = []
        self.late: list[Any] = []  # where sizes come from that data decides
        self.refuses_late = False  # whether the current call may make none
        self.counted: dict[Any, tuple[Int, Result]] = {}  # how many are not zero
        self.places: dict[Any, Fake] = {}  # and which, where the program does not see it
        self.soft_sizes = SoftSizes(self.facts, self.graph)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would wrap __torch_dispatch__ in a helper that imports its own compiler.
        return False

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
        if tensor.requires_grad and tensor.is_inference() and torch.is_inference_mode_enabled():
            raise Break("unsupported_tensor", "an inference tensor that requires gradients, as its views do not")  # fmt: skip
        with torch.inference_mode(False):
            fake = fake_like(tensor) if pattern is None else pattern.fake(self.facts, tensor, key)
        self.give(fake, tensor, key)
        if pattern is not None:
            pattern.placeholder = fake.node
        return fake

    def give(self, fake: Fake, tensor: torch.Tensor, key: object) -> None:
        """Make it the Fake of an input."""
        self.placeholder(f"input_{len(self.inputs)}", fake)
        fake.memory.input, fake.memory.inference = len(self.inputs), tensor.is_inference()
        self.inputs.append((key, tensor, fake))
        self._input_of[id(tensor)] = fake

    def origin_of(self, placeholder: torch.fx.Node) -> Any:
        """Where an input comes from."""
        return self.inputs[placeholder.meta["val"].memory.input][0]

    def real_of(self, placeholder: torch.fx.Node) -> torch.Tensor:
        """The tensor that an input was in the captured call."""
        return self.inputs[placeholder.meta["val"].memory.input][1]

    @property
    def n_inputs(self) -> int:
        return len(self.inputs)

    def is_given_nothing(self) -> bool:
        """Whether an input, which is no module's own, has no elements."""
        own = ("_buffers", "_parameters")
        return any(
            0 in tensor.shape and not any(link in own for _, link in key.links())
            for key, tensor, _ in self.inputs
        )

    def adopt(self, fake: Fake, node: torch.fx.Node) -> None:
        """A tensor of its own that `node` makes."""
        fake.node, fake.memory = node, self.memory_of(fake)
        self.fakes.append(fake)

    def placeholder(self, name: str, fake: Fake) -> Fake:
        """A fresh Fake, which the graph is given."""
        with self.graph.inserting_before(self._marker):
            fake.node = self.graph.placeholder(name)
        fake.node.meta["val"] = fake
        fake.memory = Memory(fake)
        self.fakes.append(fake)
        return fake

    def memory_owner(self, fake: Fake) -> tuple[Any, torch.Tensor] | None:
        """Key and tensor of the input whose memory it shares, None if it shares none."""
        number = fake.memory.input
        return None if number is None else self.inputs[number][:2]

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], where: object
    ) -> Any:
        """`fn(*args, **kwargs)` on Fakes, recorded.  Raises Break where that is impossible."""
        if takes_bits(fn, args, kwargs):
            args = without_symbols(args)
            kwargs = {name: without_symbols(a) for name, a in kwargs.items()}
        self.where, self.old, self.function = where, len(self.fakes), fn
        self.last, self.outs, self.assumes = self.graph._root.prev, set(), False
        self.inference = torch.is_inference_mode_enabled()
        self.autocast = autocast_devices()
        if self.autocast:
            self.casts.before(self, args, kwargs)
        self.relies_on = dict.fromkeys(ATTENTION_SETTINGS if fn in ATTENTION else ())
        if fn is F.scaled_dot_product_attention:
            check_mask(*args, **kwargs)
        if CURRENT_DEVICE is not None and (
            fn is torch.Tensor.cuda or any(map(names_no_index, (*args, *kwargs.values())))
        ):
            self.relies_on[CURRENT_DEVICE] = None
        given = list(fakes_in((args, kwargs))) if torch.is_grad_enabled() else []
        wanted = any(f.requires_grad for f in given)
        # Autograd refuses to save them, and inputs that other dtypes are read from.
        if wanted and any(is_inference(f) or f.memory.inference for f in given):
            raise Break("unsupported_op", f"{getattr(fn, '__name__', fn)}(...) of an inference tensor with gradients")  # fmt: skip
        if wanted and not config.gradients:
            # Found here and not at dispatch: autograd comes before that, and would call the user's hooks for saved tensors.
            raise Break("gradient", getattr(fn, "__name__", str(fn)))
        self.is_followed = wanted
        self.soft_sizes.begin()
        whole = WHOLE.get(fn)
        if self.facts.symbols:
            whole = WHOLE_OVER_SIZES.get(fn, whole)
        if fn in WHOLE_ON_GPU and any(f.device.type == "cuda" for f in fakes_in((args, kwargs))):
            whole = WHOLE_ON_GPU[fn]
        if whole is not None and not takes(whole, (self, *args), kwargs):
            whole = None
        self.goes_as_eager = whole is None and fn not in OTHERWISE
        if fn in POOLS_OF_ROWS and (fake := next(fakes_in((args, kwargs)), None)) is not None:
            self.goes_as_eager = pools_as_image(fake, args, kwargs, wanted)
        given = None if wanted or whole is not None else self.calls.arguments(fn, args, kwargs)
        if given is not None:
            if (known := self.calls.again(given)) is not None:
                return known[0]
            given.watch()
        before, self.looks_at_data = self.snapshot(), False
        try:
            if whole is not None:
                result = whole(self, *args, **kwargs)
            else:
                result = self.run(fn, args, kwargs)
        except (Break, Avoid):
            raise
        except Exception as error:
            let_mistakes_through(error)
            # Most likely the program's own error: run plainly, it raises at the right place with the right state.
            name = getattr(fn, "__name__", str(fn))
            raise Break(
                "op_error",
                f"{name}: {type(error).__name__}: {first_line(error)}",
            ) from error
        check_result(result, fn)
        if self.facts.symbols or self.is_followed:  # a gradient may lead back from sizes met later
            called, results = (args, kwargs), (*fakes_in((result,)),)
            self.soft_sizes.called(fn, called, (*fakes_in(called),), results)
        if self.facts.soft:
            results = tuple(fakes_in((result,)))
            is_answer = not results and result is not None
            called = (args, kwargs)
            self.soft_sizes.end(self.last, fn, called, tuple(fakes_in(called)), results, is_answer)
        if any(id(f) not in self.outs for f in fakes_in((kwargs.get("out"),))):
            # Composite functions handle tensors that are not plain ones otherwise, and may leave `out` alone.
            raise Break("unsupported_op", f"{getattr(fn, '__name__', fn)} with out=")
        if given is not None:
            self.calls.keep(given, result, before)
        return result

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`fn(*args, **kwargs)`, every op of it recorded."""
        if fn in COMPARED and all(isinstance(a, Fake) for a in args):
            # The operator would ask the second first if its class is a subclass, as that of tensors whose sizes vary.
            fn = COMPARED[fn]
        # What PyTorch's Python code warns of it says in each call, of that call's sizes, and with the program's line.
        with warnings_here("error", OF_PYTHON):
            try:
                if self.inference:
                    # Inference mode hides the decomposition of composite ops from dispatch modes.
                    # And autocast keeps no casts there.
                    with torch.inference_mode(False), torch.no_grad(), without_cache(self.autocast), products_over(self.facts, self.casts), self:  # fmt: skip
                        return fn(*args, **kwargs)
                with products_over(self.facts, self.casts), self:
                    result = fn(*args, **kwargs)
                    if self.is_followed:
                        derive_as_eager(result)
                    return result
            except Warning as warning:
                raise Break("warning", f"{getattr(fn, '__name__', fn)}: {warning}") from None

    def made_in_call(self) -> set[int]:
        """The identities of the Fakes that the last call has made."""
        return {id(fake) for fake in self.fakes[self.old :]}

    def snapshot(self) -> tuple[Any, int, int, tuple[int, int]]:
        return (self.graph._root.prev, self.n_ops, len(self.undo), self.soft_sizes.mark())

    def restore(self, snapshot: tuple[Any, int, int, tuple[int, int]]) -> None:
        """Take back everything recorded since; inputs stay known (unused ones are dropped at the end)."""
        last, self.n_ops, undo, soft = snapshot
        self.soft_sizes.take_back(soft)
        lost = None
        while len(self.undo) > undo:
            was = self.undo.pop()
            fake, fake.node, fake.version = was.fake, was.node, was.version
            fake.memory.version, fake.memory.counted = was.of_memory
            if was.owner.grad_fn is not was.history:
                lost = was
        while self.graph._root.prev is not last:
            self.graph.erase_node(self.graph._root.prev)
        if lost is not None and lost.site is not None:
            # Autograd does not take back what a write has made of a history.
            raise Avoid(lost.site)

    def meet_histories(self, outputs: Sequence[Fake]) -> None:
        """Autograd makes those of views anew where their base was written to."""
        self.site = None
        with self:
            meet_histories(outputs)

    def finish(self, outputs: Sequence[Fake]) -> CapturedGraph:
        """Close the graph.  Outputs alias inputs and each other as the program's tensors do."""
        self.meet_histories(outputs)
        if wants_gradients(outputs):
            avoid_parts(self)
        check_memory_behind(outputs)
        check_bits(outputs)
        self.soft_sizes.settle(outputs)
        mutated = write_back(self)
        counts = {i: self.inputs[i][2].memory.counted for i in mutated}
        recorded, pieces = recorded_views(outputs)
        views = told_views(outputs, recorded | pieces)
        # Plans make views in the mode in which they are called.
        creation = creation_of(outputs, pieces, () if self.grad else recorded)
        values = forget_values(outputs)
        backward = None
        if config.gradients:
            check_inputs(self)
        if wants_gradients(outputs):
            # A backward graph is given what the call has, and nothing that is computed from that.
            self.facts.settle_some(lambda symbol: symbol.source.origin is None)
            nodes, backward = Joint(self, Outputs(outputs), values).cut()
        else:
            nodes = [current(fake, self) for fake in outputs]
        check_returned(self, nodes)
        self.graph.output(tuple(nodes))
        self._drop_dead()
        read = backward.read_inputs() if backward is not None else ()
        if numbers := [s for s in self.facts.symbols if hasattr(s.source, "number")]:
            # Sizes that turned out to equal others may depend on some that no op is given.
            used = {*symbols_in([n.meta.get("val") for n in self.graph.nodes])}
            for symbol in numbers:
                if symbol in used:
                    self.numbers.size(self.facts.make({(symbol,): 1}))
        placeholders = self.all_placeholders()
        given = [
            *((key, real) for key, real, _ in self.inputs),
            *((key, n) for key, n, _ in self.numbers.inputs),
        ]
        kept = {p for i, p in enumerate(placeholders) if p.users or i in read}
        unread = {given[i][0]: p for i, p in enumerate(placeholders) if p not in kept}
        kept.update(needed_for_sizes(self.graph.nodes, unread, self.facts.late_conditions()))
        used = [i for i, p in enumerate(placeholders) if p in kept]
        for p in unread.values():
            if p not in kept:
                self.graph.erase_node(p)
        for fake in self.fakes:
            fake.node = fake.memory = fake.view_of = None
        return CapturedGraph(
            graph=self.graph,
            constants=self.constants,
            inputs=tuple(given[i][0] for i in used),
            examples=tuple(given[i][1] for i in used),
            mutated=tuple(used.index(i) for i in mutated),
            counts=tuple(counts.values()),
            recorded_views=recorded if backward is None else frozenset(),
            creation=creation if backward is None else {},
            views=views if backward is None else frozenset(),
            n_ops=self.n_ops,
            facts=self.facts,
            backward=backward and backward.renumbered(used),
        )

    def release(self) -> None:
        """The captured call's tensors are the caller's again."""
        self.inputs.clear()
        self.undo.clear()
        self.known.clear()
        self.facts.release()
        self.soft_sizes.release()
        self.unknown.clear()
        self.late.clear()
        self.parts.clear()
        self.counted.clear()
        self.places.clear()
        self.instead.clear()
        self.written_parts.clear()
        self.turned_on.clear()
        self.zeros.clear()
        self.numbers.release()

    # ---- recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.zeros:
            return call_with_zeros(self, func, args, kwargs or {})
        made = self.dispatched(func, args, kwargs or {})
        if self.is_followed and not facts_of(func).has_derivative:
            check_derivative(func, (*args, kwargs or {}), made)
        return made

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(func, torch._ops.OpOverload):
            raise Break("unsupported_op", str(func))
        if func is aten.size.default:  # C++ code wants plain sizes
            return [int(n) for n in args[0].shape]
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
        if self.autocast != self.around and not str(func).startswith(KNOWN):
            # What its code calls is cast, or not, as where the program calls it.
            raise Break(
                "unsupported_op", f"{func} under autocast that the graph does not run under"
            )
        if kwargs.get("pin_memory"):
            raise Break("unsupported_op", f"{func} in pinned memory")
        check_arguments(func, args, kwargs)
        check_filled(func, args, self)
        if self.autocast and func is aten._to_copy.default:
            self.casts.note(self, args[0])
        facts = facts_of(func)
        check_layouts(func, facts.sparse, args, kwargs, self.is_followed)
        if facts.data_dependent or selects_by_mask(func, args):
            return asks_for_data(self, func, args, kwargs)
        if facts.resizes:
            return reshape(self, func, *args, **kwargs)
        if facts.behaviour == "write":
            number = torch._C._autograd._get_sequence_nr() if self.is_followed else 0
            result = write_op(self, func, args, kwargs)
            if self.is_followed and isinstance(result, Fake) and result.view_of is not None:
                self.written_parts[number] = WrittenPart.of(func, args, kwargs)
            return result
        if facts.behaviour == "view":
            if facts.is_composite:  # others stand for it, and some of them may be no views
                raise Break("unsupported_op", f"{func} as one op")
            return view(self, func, args, kwargs)
        if (special := SPECIAL.get(func) or special_of(func)) is not None:
            return special(self, func, args, kwargs)
        return self.pure(func, args, kwargs)

    def emit(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Fake | None = None
    ) -> Any:
        if torch.get_default_dtype() is not self.default_dtype:
            args, kwargs = self._with_dtype(func, args, kwargs)
        if names_no_index(kwargs.get("device")):
            self.relies_on[CURRENT_DEVICE] = None
            kwargs = {**kwargs, "device": torch.device("cuda", torch.cuda.current_device())}
        if has_symbols(args) or has_symbols(kwargs.values()):
            guard_ranges(func, args, kwargs)
        node_args = torch.fx.node.map_aggregate(args, self.node_of)
        node_kwargs = torch.fx.node.map_aggregate(kwargs, self.node_of) if kwargs else kwargs
        # Arguments are set afterwards: handed over here, they would be searched for symbolic sizes.
        node = self.graph.create_node("call_function", func, name=facts_of(func).name)
        node.args = node_args
        if node_kwargs:
            node.kwargs = dict(node_kwargs)
        node.meta["stack"], node.meta["site"] = self.where, self.site
        if not torch.is_grad_enabled():
            node.meta["grad"] = False
        if self.notes_nodes:
            note_node(node)
        if like is None:
            device = device_of(func, node_args, node_kwargs)
            check_compiled(device)
            if device.type != "cpu":
                check_together(func, args, kwargs)
            meta = infer_node(func, node_args, node_kwargs)
            meta = on_device(device, func, meta, args, kwargs)
            if self.notes_nodes:
                note_sum(node)
                meta = summed(node, meta)
            if self.facts.has_late and device.type != "cpu":
                check_device(node, meta)
            like = self.new(meta, device)
        check_numbers(func, args, kwargs, like)
        node.meta["val"] = like
        return node

    def _assumed(self, text: str) -> object:
        """The line that makes an assumption about sizes."""
        if "sizes" in config.logs:
            log("sizes", f"{text}  {self.where}")
        return self.where

    def memory_of(self, fake: Fake) -> Memory:
        return Memory(fake, inference=self.inference)

    def _with_dtype(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The program has changed the default dtype, and graphs run under the one before: an op that depends on it is given its dtype."""
        plain = torch.fx.node.map_aggregate((args, kwargs), self.node_of)
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
        memory = fake.memory
        owner = fake._base if fake._is_view() else fake
        counts = memory.version, memory.counted
        self.undo.append(
            Written(fake, fake.node, fake.version, counts, owner, owner.grad_fn, self.site)
        )

    def node_of(self, a: Any) -> Any:
        if isinstance(a, Fake):
            return current(a, self)
        if isinstance(a, Size):
            return self.numbers.size(self.facts.resolved(a))
        return self.numbers.node(a.node.number) if isinstance(a, SYMBOLS) else a

    def all_placeholders(self) -> list[torch.fx.Node]:
        """Those of tensors, then those of numbers."""
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
                part.node.meta.update(val=part, stack=self.where)
                part.memory = self.memory_of(part)
        return list(value) if facts_of(func).returns_list else value

    def constant(self, name: str) -> torch.Tensor:
        """What a `get_attr` node stands for."""
        return self.constants.get_buffer(name)

    def new_constant(self, tensor: torch.Tensor) -> Fake:
        """A tensor made from Python numbers: kept in the graph module, copied afresh in every call."""
        if tensor.device.type == "cuda":
            self.relies_on[CURRENT_DEVICE] = None
        name = f"constant_{len(self.constants._buffers)}"
        self.constants.register_buffer(name, tensor)
        node = self.graph.get_attr(name)
        fake = fake_like(tensor)
        node.meta["val"], node.meta["stack"] = fake, self.where
        fake.node, fake.memory = node, self.memory_of(fake)
        self.fakes.append(fake)
        return self.pure(aten.clone.default, (fake,), {})

    def _drop_dead(self) -> None:
        stays = self.numbers.check() | {source.node for source in assumed(self)}
        stays |= numbers_compared(self)
        unread: set[torch.fx.Node] = set()
        for node in reversed(self.graph.nodes):
            if node.op in ("placeholder", "output"):
                continue
            # Where no kernel would say so; what data decides is looked at in each call.
            if has_no_elements(node) and not may_raise(node) and is_refused(node):
                raise Avoid(node.meta["site"])
            if node in stays or not is_unread(node, unread):
                continue
            if stays_unused(node):
                continue
            if is_refused(node):
                raise Avoid(node.meta["site"])
            unread.add(node)
            if not node.users:
                self.graph.erase_node(node)
