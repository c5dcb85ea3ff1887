"""What capture hands to a backend: the recorded graph, the sources of its inputs, and conditions for guards
and autograd."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.fx

from frameloom.capture.symbolic.saved_sizes import SavedSize
from frameloom.capture.tensors.sized import dense_strides, has_sizes
from frameloom.ir.symbolic.expr import Int, Symbol, hint_of

# On nodes: the results under which other nodes read what was written to views.
READ_AS = "read as"
# On nodes that write to an input: the input is an inference tensor.
INFERENCE = "inference"
RANDOM_FROM = getattr(torch.ops.aten.random, "from")

T = TypeVar("T")


@dataclass(frozen=True)
class Layout:
    """The layout of a tensor: shape, strides in elements, dtype and device."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    # With symbolic sizes: the dimensions from the innermost outwards, which have no gaps, and the expanded
    # ones (stride 0).
    order: tuple[int, ...] | None = None
    repeated: frozenset[int] = frozenset()

    @staticmethod
    def of(like: torch.Tensor) -> Layout:
        """Returns the layout of a recorded tensor; with symbolic sizes, the layout is dense."""
        shape, strides, order = tuple(like.shape), like.stride(), None
        if has_sizes(shape, strides):
            hints = [(hint_of(s), hint_of(n)) for s, n in zip(strides, shape, strict=True)]
            order = tuple(sorted(range(len(shape)), key=lambda d: (*hints[d], -d)))
        return Layout(shape, strides, like.dtype, like.device, order)

    def with_strides_of(self, tensor: torch.Tensor) -> Layout:
        """Returns the layout of a tensor that replaces this one; with symbolic sizes, a layout without
        gaps."""
        if self.order is None:
            return replace(self, strides=tensor.stride())
        strides, shape, dims = tensor.stride(), tensor.shape, range(tensor.dim())
        repeated = frozenset(d for d in dims if not strides[d])
        key = [(0, 0, -d) if d in repeated else (strides[d], shape[d], -d) for d in dims]
        order = tuple(sorted(dims, key=key.__getitem__))
        if (order, repeated) == (self.order, self.repeated):
            return self
        symbolic_strides = _repeating(self.shape, order, repeated)
        return replace(self, strides=symbolic_strides, order=order, repeated=repeated)

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` has these strides."""
        return tensor.stride() == self.strides_at(tensor.shape)

    def strides_at(self, shape: Sequence[int]) -> Any:
        """Returns the strides that a tensor with these sizes has."""
        return self.strides if self.order is None else _repeating(shape, self.order, self.repeated)

    def fit(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns `tensor`, or a copy of it where its layout is another one."""
        own, wanted = tensor.stride(), self.strides_at(tensor.shape)
        fits = own == wanted or all(
            size == 1 or ours == theirs
            for size, ours, theirs in zip(tensor.shape, own, wanted, strict=True)
        )
        if fits and not tensor.is_conj() and not tensor.is_neg():
            return tensor
        whole, strides = tensor.shape, self.strides
        for d in self.repeated:
            tensor = tensor.narrow(d, 0, 1)
        if self.order is not None:
            strides = dense_strides(tensor.shape, self.order)
        # Made from the tensor, because it may be a batch of gradients.
        made = tensor.new_empty_strided(tensor.shape, strides, dtype=self.dtype, device=self.device)
        made.copy_(tensor)
        return made.expand(whole) if self.repeated else made


def _repeating(shape: Sequence[Int], order: Sequence[int], repeated: Collection[int]) -> Any:
    """Returns the strides of a tensor without gaps in which the dimensions of `repeated` have stride 0."""
    if not repeated:
        return dense_strides(shape, order)
    strides = dense_strides([1 if d in repeated else n for d, n in enumerate(shape)], order)
    return tuple([0 if d in repeated else s for d, s in enumerate(strides)])


@dataclass(frozen=True)
class ViewStep:
    """`func(tensor, *args, **kwargs)`, or its result number `split_index` where one `call` gives several
    views. `grad`: whether the program made the view with gradient mode on; `inference`: in inference mode."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool
    inference: bool = False
    split_index: int | None = None
    call: object = None


@dataclass(frozen=True)
class ViewOutput:
    """An output that each call rebuilds, as a chain of views of an input or of a result of the forward
    graph."""

    of_input: bool
    number: int
    steps: tuple[ViewStep, ...]
    # Whether the program makes it before all other readers of the input: autograd then reaches its gradient
    # after that of the graph.
    early: bool = False

    def renumbered(self, place: Mapping[int, int]) -> ViewOutput:
        return replace(self, number=place[self.number]) if self.of_input else self


@dataclass(frozen=True)
class Noticed:
    """An input or a result that the backward graph does not read, but that eager checks for changes before
    the backward pass. `tangents`: the entries of `Backward.tangents` whose passes check it."""

    of_input: bool
    number: int
    tangents: frozenset[int]


@dataclass(frozen=True)
class ChangeChecks:
    """How a backward pass notices that the program has changed what it needs."""

    noticed: tuple[Noticed, ...] = ()
    # The saved inputs that are not checked for changes.
    unwatched: frozenset[int] = frozenset()
    # The saved leaf inputs that eager does not save themselves: it saves views of them, or tensors computed
    # from them. Eager does not notice that such a leaf gets other data after the call (`w.data = other`).
    pinned_leaves: frozenset[int] = frozenset()

    def renumbered(self, place: Mapping[int, int]) -> ChangeChecks:
        """Returns a copy with the inputs' new numbers."""
        return ChangeChecks(
            tuple(replace(n, number=place[n.number]) if n.of_input else n for n in self.noticed),
            frozenset(place[i] for i in self.unwatched),
            frozenset(place[i] for i in self.pinned_leaves),
        )


@dataclass(frozen=True)
class Backward:
    """How gradients are computed.

    The forward graph returns `n_results` tensors that become the program's `outputs`, `n_unbacked` sizes, and
    then the saved tensors. `graph` takes the saved tensors, then `sizes`, then a gradient per entry of
    `tangents`. It returns gradients of the first of `inputs`: backward passes reach the other inputs without
    one."""

    # `graph`; built on demand, because many parts of a large graph never need it
    build: Callable[[], torch.fx.Graph]
    outputs: tuple[int | ViewOutput, ...]  # numbers are those of results
    saved_inputs: tuple[int, ...]  # positions of the forward graph's inputs, saved first
    saved_outputs: tuple[int, ...]  # positions of what it returns, saved next
    n_results: int
    tangents: tuple[int, ...]  # results that have a gradient, as the program computes them
    inputs: tuple[int, ...]  # that backward passes reach
    n_inputs: int  # of the forward graph
    layouts: tuple[Layout, ...]  # per entry of `tangents`
    # Per result of `graph`: the entries of `tangents` whose history leads to that input.
    leading: tuple[frozenset[int], ...]
    # Per node of eager's that saves tensors: the entries of `tangents` that lead to it. A backward pass from
    # one of them frees what it saves.
    saving: tuple[frozenset[int], ...]
    # The results that other results are computed from, as far as gradients flow.
    between: tuple[int, ...] = ()
    # The results that are views made after the node: autograd's own nodes propagate their gradients.
    view_results: Mapping[int, ViewOutput] = field(default_factory=dict)
    checks: ChangeChecks = ChangeChecks()
    sizes: tuple[SavedSize, ...] = ()  # the symbolic ones
    n_unbacked: int = 0
    turns_on: bool = False  # whether the program turns gradient mode on itself
    # whether it has checkpointed regions of the kind that autograd.grad refuses
    reentrant: bool = False
    # The forward graph with calls of the program's autograd Functions; None if it has none.
    with_functions: torch.fx.Graph | None = None

    @cached_property
    def graph(self) -> torch.fx.Graph:
        return self.build()

    def renumbered(self, used: Sequence[int]) -> Backward:
        """Returns a copy whose inputs are numbered by their position in `used`."""
        place = {number: k for k, number in enumerate(used)}
        if self.with_functions is not None:
            for number, node in enumerate(self.with_functions.find_nodes(op="placeholder")):
                if number not in place:
                    self.with_functions.erase_node(node)
        return replace(
            self,
            saved_inputs=tuple(place[i] for i in self.saved_inputs),
            inputs=tuple(place[i] for i in self.inputs),
            checks=self.checks.renumbered(place),
            sizes=tuple(
                s if s.kind == "unbacked" else replace(s, input=place[s.input]) for s in self.sizes
            ),
            outputs=tuple(o if isinstance(o, int) else o.renumbered(place) for o in self.outputs),
            view_results={k: view.renumbered(place) for k, view in self.view_results.items()},
            n_inputs=len(used),
        )

    @cached_property
    def frees(self) -> tuple[frozenset[int], ...]:
        """Per entry of `tangents`: the entries whose backward pass frees parts of this entry's history in
        eager."""
        nothing: frozenset[int] = frozenset()
        count = range(len(self.tangents))
        return tuple(nothing.union(*(s for s in self.saving if k in s)) for k in count)

    @property
    def n_needed(self) -> int:
        """How many of the forward graph's results a call still needs after the graph has run."""
        return self.n_results + self.n_unbacked

    def sizes_of(self, inputs: Sequence[Any], results: Sequence[Any]) -> dict[Symbol, int]:
        """Returns the values of the symbolic sizes in one call of the forward graph."""
        return {size.symbol: size.read(inputs, results) for size in self.sizes}

    def read_inputs(self) -> set[int]:
        """Returns the inputs that a call needs in addition to those that the forward graph reads."""
        made = (*self.outputs, *self.view_results.values())
        views = (o.number for o in made if isinstance(o, ViewOutput) and o.of_input)
        graph = self.with_functions
        nodes = [] if graph is None else graph.find_nodes(op="placeholder")
        called = (k for k, node in enumerate(nodes) if node.users)
        sizes = (s.input for s in self.sizes if s.kind != "unbacked")
        noticed = (n.number for n in self.checks.noticed if n.of_input)
        return {*self.saved_inputs, *self.inputs, *views, *called, *sizes, *noticed}


@dataclass(frozen=True)
class CapturedGraph:
    """One captured part of a program.

    `graph` is a functional ATen graph. It has one placeholder per entry of `inputs`: tensors, then dynamic
    Python numbers, with which Python's own functions compute. It returns tensors as one tuple. Mutations of
    inputs are `aten.copy_` nodes at its end, in program order. Running it on the real inputs does what the
    program did: values, strides, aliasing of the outputs, mutation. The meta of every node has "val" (the
    fake value; a tuple for several results) and "stack" (the user's line)."""

    graph: torch.fx.Graph
    constants: torch.nn.Module  # the tensors that `get_attr` nodes name
    inputs: tuple[Any, ...]  # the key with which each input was registered (an origin)
    # the real tensors and numbers of the captured call, in the same order
    examples: tuple[Any, ...]
    mutated: tuple[int, ...]  # positions of inputs that the graph writes to
    n_ops: int  # recorded ATen ops, views not counted
    shape_env: Any = None  # a ShapeEnv about the symbolic sizes of the graph
    # names of constants that are parameters and buffers of modules (freezing)
    frozen: tuple[str, ...] = ()
    visible: int | None = None  # how many of the first outputs the program sees; None: all
    # Whether a call that fails before it writes bails out: the code that runs the graph then raises
    # RunPlainly.
    restarts: bool = False
    owned: bool = False  # whether calls give up their inputs, which are freed after their last use
    # Among the outputs that are views: those that the program made with gradient mode on.
    recorded_views: frozenset[int] = frozenset()
    # Per output that is a view: autograd's note of how the program made it, where a new view would get
    # another note.
    creation: Mapping[int, str] = field(default_factory=dict)
    # the outputs that are views even where no other output shares their memory
    views: frozenset[int] = frozenset()
    # per entry of `mutated`: how many writes autograd counts; it does not count writes through `.data`
    counts: tuple[int, ...] = ()
    # Per output that the graph makes and the program wrote to: how many writes autograd counts. Of outputs
    # that share a count, the first has it.
    written: Mapping[int, int] = field(default_factory=dict)
    # Set where the outputs need gradients; the graph then also returns the tensors that are saved for them.
    backward: Backward | None = None

    @property
    def versions(self) -> dict[int, int]:
        """Per input that the graph writes to: by how much its version counter rises."""
        return dict(zip(self.mutated, self.counts, strict=True))

    @cached_property
    def repeated(self) -> dict[int, int]:
        """Maps an output to the earlier output that is the same tensor object, as where autograd passes one
        gradient to several inputs. Views of that tensor have nodes of their own."""
        nodes: Any = self.graph.output_node().args[0]
        first = {n: k for k, n in reversed([*enumerate(nodes)])}
        return {k: first[n] for k, n in enumerate(nodes) if first[n] < k}

    @cached_property
    def gm(self) -> torch.fx.GraphModule:
        """The graph as a module. It is made on demand, because making one writes and compiles its Python
        code."""
        return module_of(self.constants, self.graph)


def module_of(
    constants: torch.nn.Module, graph: torch.fx.Graph, instead: Mapping[Any, Any] | None = None
) -> torch.fx.GraphModule:
    """Returns a graph as a module, whose Python code is written and compiled. `instead`: what it calls in
    place of ops."""
    return torch.fx.GraphModule(constants, runnable_graph(graph, instead))


def runnable_graph(
    graph: torch.fx.Graph, instead: Mapping[Any, Any] | None = None
) -> torch.fx.Graph:
    """Returns a graph that plain PyTorch can run node by node. `instead`: what it calls in place of ops.

    `torch.ops.aten.random.from` is not valid Python, so it is called by another name. Offsets of `as_strided`
    count from the start of inputs, as in the recording. Inference tensors are written in inference mode."""
    instead = {RANDOM_FROM: random_from, **(instead or {})}
    others = {*instead, *STRIDED}
    if any(node.target in others or INFERENCE in node.meta for node in graph.nodes):
        copy = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        copy.output(copy.graph_copy(graph, copies))
        for node, made in copies.items():
            if node.target in instead:
                made.target = instead[node.target]
            elif INFERENCE in node.meta:
                made.target = copy_in_inference_mode
            elif node.target in STRIDED and (recorded := _recorded_offset(node)) is not None:
                made.target, made.args = STRIDED[node.target], (recorded, *made.args)
        graph = copy
    return graph


def _recorded_offset(node: torch.fx.Node) -> int | None:
    """Returns the recorded storage offset of the viewed tensor, if the view gives an offset of its own."""
    operand: Any = node.args[0]
    is_given = len(node.args) == len(node.target._schema.arguments) and node.args[-1] is not None  # type: ignore[union-attr]
    offset = operand.meta["val"].storage_offset() if is_given and "val" in operand.meta else None
    return offset if isinstance(offset, int) else None


def _counted_from(op: Callable[..., Any]) -> Callable[..., Any]:
    def run(recorded: int, x: Any, *given: Any) -> Any:
        *others, offset = given
        return op(x, *others, x.storage_offset() + offset - recorded)

    run.__name__ = str(op._schema.name).partition("::")[2]  # type: ignore[attr-defined]
    return run


STRIDED = {op: _counted_from(op) for op in (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default)}  # fmt: skip


def copy_in_inference_mode(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return tensor.copy_(source)


def random_from(*args: Any, **kwargs: Any) -> Any:
    return RANDOM_FROM(*args, **kwargs)


def function_of(
    constants: torch.nn.Module, graph: torch.fx.Graph, instead: Mapping[Any, Any] | None = None
) -> Callable[..., Any]:
    """Returns a graph as a Python function that the frame hook skips: it is our code, and each run gets other
    tensors."""
    forward: Any = module_of(constants, graph, instead).forward
    forward.__func__.__frameloom_disable__ = True
    return forward  # type: ignore[no-any-return]


def without_examples(captured: CapturedGraph) -> CapturedGraph:
    """Returns a copy without the example inputs, so that a stored report does not keep the user's tensors
    alive."""
    return replace(captured, examples=())


def behind(ends: Iterable[T], operands: Callable[[T], Iterable[T]]) -> set[T]:
    """Returns `ends` and everything that they are computed from; `operands` gives the direct operands."""
    seen = set(ends)
    stack = list(seen)
    while stack:
        new = [n for n in dict.fromkeys(operands(stack.pop())) if n not in seen]
        seen.update(new)
        stack += new
    return seen


def recorded_behind(last: torch.fx.Node) -> list[torch.fx.Node]:
    """Returns the nodes that were recorded after `last`."""
    nodes, node = [], last.next
    while node.op != "root":
        nodes.append(node)
        node = node.next
    return nodes


def copy_node(
    graph: torch.fx.Graph, node: torch.fx.Node, instead: Callable[[torch.fx.Node], Any]
) -> torch.fx.Node:
    """Does the work of `graph.node_copy`, without its search of the arguments for symbolic sizes."""
    # Arguments come first, because `instead` may create nodes.
    args, kwargs = (torch.fx.node.map_arg(x, instead) for x in (node.args, node.kwargs))
    made = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
    made.args, made.kwargs, made.meta = args, kwargs, dict(node.meta)
    return made


def call_like(
    graph: torch.fx.Graph, like: torch.fx.Node, target: Any, args: tuple[Any, ...], kwargs: Any = None, **meta: Any
) -> torch.fx.Node:  # fmt: skip
    """Adds a call whose result stands for that of `like`, with its meta apart from `meta`."""
    made = graph.create_node("call_function", target, args, kwargs)
    made.meta.update(like.meta, **meta)
    return made


def placeholder_like(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    """Adds a placeholder for the value of a node of another graph."""
    made = graph.placeholder(node.name)
    made.meta.update(node.meta)
    return made


def graph_of(
    inputs: Iterable[torch.fx.Node], own: Iterable[torch.fx.Node], ends: Iterable[torch.fx.Node]
) -> torch.fx.Graph:
    """Returns a graph that computes `ends` from `inputs` by copies of the nodes `own` of another graph."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in inputs:
        copies[node] = placeholder_like(graph, node)
    for node in own:
        copies[node] = copy_node(graph, node, copies.__getitem__)
    graph.output(tuple(copies[n] for n in ends))
    return graph
