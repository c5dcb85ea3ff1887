"""`MyFunction.apply(...)` of a `torch.autograd.Function` that the program defines.

If a gradient is needed, `backward` is interpreted right after `forward`, with tensors that stand for the
later gradients. It may only compute: then its ops may run later, in the backward pass. Python runs
functions that cannot be captured so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
import torch.fx
from torch._library.custom_ops import OPDEFS
from torch.autograd.function import once_differentiable

from frameloom.capture.autograd.backward_python import hand_over, same_nodes, site_of
from frameloom.capture.autograd.custom_function import Derivative, attach
from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows, knows_kind
from frameloom.capture.interpreter.context_managers import GRAD
from frameloom.capture.library import interpreted
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.library.torch_api.gradient_layout_queries import read_pinned
from frameloom.capture.library.torch_api.watched import Watched
from frameloom.capture.recording.captured_graph import Layout, graph_of, recorded_behind
from frameloom.capture.recording.special_ops import is_checked
from frameloom.capture.shapes.iteration import is_dense
from frameloom.capture.tensors.cast_cache import without_autocast
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.schema import draws
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import NONE, boolean, is_none
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.policy import OPS
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.config import config
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Function = torch.autograd.Function
ONCE = once_differentiable(lambda *_: None).__code__  # the code of every function marked so
ASSERTION = torch.ops.aten._assert_async.msg


@knows(Function.apply.__func__, least=1, keywords="*")  # type: ignore[attr-defined]
def _apply(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls, *given = map(t.look, args)
    if not isinstance(cls, ClassValue) or torch._C._are_functorch_transforms_active():
        raise Break("unknown_call", "autograd.Function.apply(...)")
    has_setup = class_attribute(cls.real, "setup_context") is not _own("setup_context")
    if kwargs and has_setup:
        raise Break("unknown_call", f"{cls.describe()}.apply(...) with keywords")
    tensors = [v for v in map(t.look, [*given, *kwargs.values()]) if isinstance(v, TensorValue)]
    if not torch.is_grad_enabled() or not any(v.fake.requires_grad for v in tensors):
        return interpret(t, interpreted.apply_function, [cls, boolean(has_setup), *given], kwargs)
    if not config.gradients:
        raise Break("gradient", f"{cls.describe()}.apply(...)")
    if kwargs or class_attribute(cls.real, "vjp") is not _own("vjp"):
        raise Break("autograd_function", f"{cls.describe()}.apply(...)")
    return _Call(t, cls, given).run(has_setup)


_FUNCTIONS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # keys: definitions of operators


@knows_kind(*OPS)
def _with_formula(t: Tracer, op: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """Captures a call of an operator that the program has defined with a derivative in Python; None if it is
    not such a call. Notes a call without a derivative, which is recorded where no gradient needs it."""
    if not torch.is_grad_enabled() or not config.gradients:
        return None
    if isinstance(op, torch._ops.OpOverloadPacket):
        op = getattr(op, "default", None)
    definition = op and OPDEFS.get(op.name())
    if definition is None or definition._opoverload is not op:
        return None
    arguments = op._schema.arguments
    if any("[]" in str(a.type) or a.kwarg_only or a.alias_info is not None for a in arguments):
        return None
    given = [*args]
    for a in arguments[len(args) :]:
        given.append(kwargs[a.name] if a.name in kwargs else t.from_python(a.default_value))
    tensors = [v for v in map(t.look, given) if isinstance(v, TensorValue)]
    if not any(v.fake.requires_grad for v in tensors) or len(given) != len(arguments):
        return None
    if definition._backward_fn is None:
        t.backward.underived.append(
            t.site_or(Break("autograd_function", f"{op} without a derivative"))
        )
        t.on_undo(t.backward.underived.pop)
        return None
    made = _FUNCTIONS.get(definition)
    if made is None or made[0] is not definition._backward_fn:
        parts = (op, definition._setup_context_fn, definition._backward_fn)
        made = (definition._backward_fn, interpreted.function_of(*parts))
        _FUNCTIONS[definition] = made
    return _apply(t, [t.pinned(made[1]), *given], {})


def _own(name: str) -> Any:
    return class_attribute(Function, name)


@knows(interpreted.unknown_of_context, least=1, most=1)
def _unknown_of_context(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise Break("autograd_function", f"ctx.{t.look(args[0]).constant()}")


@contextmanager
def _without_gradients(t: Tracer) -> Iterator[None]:
    """Turns gradient mode off inside. A break inside undoes this with everything else."""
    before = torch.is_grad_enabled()
    t.settings.set(t, *GRAD, False)
    try:
        yield
    except Raised:
        t.settings.set(t, *GRAD, before)
        raise
    t.settings.set(t, *GRAD, before)


class _Call:
    """A call that autograd tracks."""

    def __init__(self, t: Tracer, cls: ClassValue, args: Args) -> None:
        self.t, self.cls, self.args = t, cls, args
        self.tensors = [v for v in args if isinstance(v, TensorValue)]

    def left(self, why: str) -> Break:
        return Break("autograd_function", f"{self.cls.describe()}.apply(...), {why}")

    def run(self, has_setup: bool) -> Value:
        t, hidden = self.t, self.t.recorder.history.hidden_writes
        if t.session.is_avoided(*site_of(t.frame)):
            raise self.left("whose backward finds other objects when it is called")
        t.on_undo(lambda: setattr(t.recorder.history, "hidden_writes", hidden))
        needs = [boolean(v in self.tensors and v.fake.requires_grad) for v in self.args]  # type: ignore[attr-defined]
        given = [
            self.cls,
            boolean(has_setup),
            TupleValue(needs),
            TupleValue(self.args),
            t.table_of({}),
        ]
        with _without_gradients(t):
            made = t.look(interpret(t, interpreted.forward_of, given, {}))
        self.context, result = map(t.look, t.items(made))
        parts = result.items if isinstance(result, TupleValue) else [result]
        if isinstance(result, TupleValue) and result.cls is not tuple:
            raise self.left("which returns a tuple of a class of its own")
        self.results = self._results([t.look(v) for v in parts])
        saved = [v for v in self._tuple("saved_tensors") if not is_none(v)]
        if any(not isinstance(v, TensorValue) for v in saved):
            raise self.left("which saves something else than tensors")
        entered = len(t.entered)
        derivative = self._derivative(needs)
        recorder = t.recorder

        def records_the_same() -> bool:
            other = self._derivative(needs)
            return derivative.reads == other.reads and same_nodes(
                [*derivative.graph.nodes], [*other.graph.nodes]
            )

        hand_over(t, [self.cls, self.context, *self.args], entered, records_the_same)

        def applied(results: Any, saved: Any, operands: Any) -> Any:
            return attach(recorder, derivative, results, saved, operands)

        applied.__name__ = f"{self.cls.describe()}.apply"
        outputs = t.torch_call(
            applied, [ListValue(list(v)) for v in (self.results, saved, self.tensors)], {}
        )
        t.on_undo(recorder.history.functions.pop)
        made = t.items(outputs)
        return TupleValue(made) if isinstance(result, TupleValue) else made[0]

    def _tuple(self, name: str) -> list[Value]:
        return [
            self.t.look(v) for v in self.t.items(self.t.look(self.context.getattr(self.t, name)))
        ]

    def _results(self, values: list[Value]) -> list[TensorValue]:
        results = [v for v in values if isinstance(v, TensorValue)]
        if len(results) != len(values) or len({id(v) for v in results}) != len(results):
            raise self.left("which returns something else than tensors, or one twice")
        if self._tuple("_dirty"):
            raise self.left("which changes its arguments")
        for v in results:
            fake: Any = v.fake
            with_history = fake.requires_grad and fake.view_of is None
            if v not in self.tensors and (v.real is not None or with_history):
                raise self.left("which returns a tensor that was there before")
        return results

    def _derivative(self, needs: list[Value]) -> Derivative:
        """Returns the derivative: interprets `backward` now, with tensors that stand for the later
        gradients."""
        t, recorder = self.t, self.t.recorder
        constant = [id(v) for v in self._tuple("_constant")]
        materializes = self.t.look(self.context.getattr(t, "_materializes")).truth(t)
        has_gradient = [
            id(v) not in constant and (v.fake.is_floating_point() or v.fake.is_complex())
            for v in self.results
        ]
        if not materializes and sum(has_gradient) > 1:
            raise self.left("some of whose results may have no gradient")
        if not any(has_gradient):
            raise self.left("none of whose results has a gradient")
        mark, last, sites = t.mark(), recorder.graph._root.prev, len(t.speculation.rerun_sites)
        places = {f.node: f for f in recorder.fakes if f.memory is not None}
        before = {id(f.memory) for f in places.values()}
        gradients: list[Value] = []
        for v, has in zip(self.results, has_gradient, strict=True):
            if has or materializes:
                gradients.append(t.torch_call(_like if has else _zeros, [v], {}))
            else:
                gradients.append(NONE)
        given = [g for g, has in zip(gradients, has_gradient, strict=True) if has]
        assert all(isinstance(g, TensorValue) for g in given)
        watched = Watched(t, [self.cls, self.context, *self.args, *self.results, *gradients])
        known = len(t.guards)
        try:
            with without_autocast(), _without_gradients(t):
                parts = [self.cls, self.context, TupleValue(gradients)]
                returned = t.look(interpret(t, interpreted.backward_of, parts, {}))
        except Raised as raised:
            t.take_back(mark)
            raise self.left("whose backward raises an exception") from raised
        if (changed := watched.changed()) is not None or len(t.speculation.rerun_sites) != sites:
            raise self.left(f"whose backward changes {changed or 'what it finds'}")
        if t.guards.compares_numbers(known):
            raise self.left("whose backward reads numbers that may be others by then")
        returned_parts = returned.items if isinstance(returned, TupleValue) else [returned]
        made = self._gradients([t.look(v) for v in returned_parts], needs)
        fakes = [v.fake for v in given]  # type: ignore[attr-defined]
        for v in made:
            if v is not None and id(v.fake.memory) in before:
                raise self.left("whose backward returns a tensor that was there before")
        layouts = tuple(map(Layout.of, fakes))
        ends = list(dict.fromkeys(current(v.fake, recorder) for v in made if v is not None))
        graph, reads = self._cut(last, [f.node for f in fakes], ends)
        memories = {id(f.memory): f.memory for n in reads if (f := places.get(n)) is not None}
        derivative = Derivative(
            name=self.cls.describe(),
            function=self.cls.real.__name__,
            graph=graph,
            reads=tuple(reads),
            memories=tuple((m, m.version) for m in memories.values()),
            given=tuple(k for k, has in enumerate(has_gradient) if has),
            layouts=layouts,
            made=tuple(None if v is None else ends.index(current(v.fake, recorder)) for v in made),
            materializes=materializes,
            constant=tuple(k for k, v in enumerate(self.results) if id(v) in constant),
            once=getattr(self.cls.real.backward, "__code__", None) is ONCE,
        )
        t.take_back(mark)
        return derivative

    def _gradients(self, returned: list[Value], needs: list[Value]) -> list[TensorValue | None]:
        """Returns a gradient or None for each argument that is a tensor, like autograd."""
        count = len(self.args)
        if len(returned) < count or not all(map(is_none, returned[count:])):
            raise self.left("whose backward returns another number of gradients")
        made: list[TensorValue | None] = []
        for arg, value, needed in zip(self.args, returned, needs, strict=False):
            if not isinstance(value, TensorValue) and not is_none(value):
                raise self.left("whose backward returns something else than tensors")
            if arg in self.tensors:
                wanted = isinstance(value, TensorValue) and needed.truth(self.t)
                made.append(value if wanted else None)  # type: ignore[arg-type]
            elif not is_none(value):
                raise self.left("whose backward returns a gradient of something else than a tensor")
        return made

    def _cut(
        self, last: torch.fx.Node, gradients: list[torch.fx.Node], ends: list[torch.fx.Node]
    ) -> tuple[torch.fx.Graph, list[torch.fx.Node]]:
        """Returns the ops recorded after `last` as a separate graph, and the other nodes that it reads."""
        inside = dict.fromkeys(recorded_behind(last))
        ends = read_pinned([*inside], ends)
        wanted: set[torch.fx.Node] = set(ends)
        for node in reversed(inside):
            if node in wanted and node not in gradients:
                wanted.update(node.all_input_nodes)
            elif node.target is ASSERTION or draws(node):
                raise self.left("whose backward checks data or draws random numbers")
        own = [n for n in inside if n in wanted and n not in gradients]
        if any(n.target is ASSERTION or draws(n) or is_checked(n) for n in own):
            raise self.left("whose backward checks data or draws random numbers")
        reads = list(dict.fromkeys(a for n in own for a in n.all_input_nodes if a not in inside))
        graph = graph_of((*reads, *gradients), own, ends)
        return graph, reads


def _zeros(result: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of a result that has none, for any layout of the result."""
    return torch.zeros(result.shape, dtype=result.dtype, device=result.device)


def _like(result: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that stands for the gradient of a result."""
    shape, given = result.shape, {"dtype": result.dtype, "device": result.device}
    if is_dense(result):
        return torch.empty_strided(shape, result.stride(), **given)  # type: ignore[call-overload, no-any-return]
    return torch.empty(shape, **given)  # type: ignore[call-overload, no-any-return]
