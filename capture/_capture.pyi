"""The C half of capture: guards, entries, the callable that `jit` returns, and the frame hook.

This stub is the contract with the Python half.  Nothing in C runs Python code while checking guards.
"""

from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

class RunPlainly(Exception):
    """Raised by a graph that has changed nothing yet: the jitted call starts anew as the function was written."""

class Guards:
    """A tree of checks over what a call can reach, walked in C in the order of creation.

    Nodes are small ints.  A node loads one object from its parent; a failed load is a failed guard.  Checks are made
    right after the load.  `slot(node)` says that the loaded object is wanted by the plan (Entry.direct).
    Objects pinned by "is"/"type" checks are held weakly where their type allows (a dead one fails), else strongly.
    """

    def load(self, parent: int | None, kind: str, key: object, path: str) -> int:
        """A new node.  `kind` is a row of capture/native/guard_loads.c; a comment at the row says what `key` is.  `parent`: None for
        a root, which comes from the call.  `path`: the node in the user's words ("self.layers[3].weight"), for messages."""
    def check(self, node: int, kind: str, value: object = None) -> None:
        """`kind` is a row of capture/native/guard_objects.c, guard_containers.c, guard_tensors.c, guard_lengths.c,
        guard_numbers.c or guard_sizes.c; a comment at the row says what `value` is."""
    def global_state(self) -> None:
        """As now: thread's dispatch key sets, grad mode, default dtype and device, torch-function modes, deterministic mode,
        autocast.  Checked before anything else."""
    def slot(self, node: int) -> int:
        """Collect the loaded object; returns its position among the collected ones."""
    def explain_failure(self, slots: tuple[Any, ...], function: FunctionType) -> str | None:
        """The first check that fails for these bound arguments, in words with expected and found values; None if all pass."""
    def is_stale(self) -> bool:
        """Whether no call is ever accepted again, as after a write to a tensor that must be unchanged."""
    def texts(self) -> list[str]:
        """Every check in words, for `explain` and guards.txt."""

class Lengths:
    """The lengths that a container was met with: those compiled for, and some of the others, the newest ones."""

    def is_new(self, length: int) -> bool:
        """Whether a call with this length is to run plainly; it is remembered.  Not one that is compiled for, nor one that comes
        back after another one, or has stayed for many calls."""
    def add(self, length: int) -> None:
        """It has an entry of its own."""
    def grows(self) -> bool:
        """Whether it was longer each time, for some calls.  Said once; until it is asked for, no further length is new."""
    def close(self) -> None:
        """Nothing is new any more."""
    def known(self) -> list[int]:
        """Those that have one."""

class Entry:
    """One compiled case: guards and what to do when they pass."""

    guards: Guards
    kind: str  # "direct" | "code" | "plain"
    target: object  # the plan, the function (or code) of the rewritten code, or the reason for running plainly
    calls: int
    varies: bool  # whether it holds for several sizes
    @staticmethod
    def direct(guards: Guards, plan: Callable[..., Sequence[Any]], recipe: object) -> Entry:
        """plan(*slots) by vectorcall gives a tuple of outputs; the result is built after `recipe`:
        ("out", i) | ("slot", i) | ("const", obj) | ("tuple", recipes) | ("list", recipes) | ("dict", keys, recipes)."""
    @staticmethod
    def code(guards: Guards, function: FunctionType) -> Entry:
        """function(*args, **kwargs): same signature, rewritten code.  For a frame met by the hook its code replaces the frame's,
        and the entry then keeps the code alone: an entry is either a JitFunction's or the hook's."""
    @staticmethod
    def plain(guards: Guards, reason: str) -> Entry:
        """The original function, as it is."""

class JitFunction:
    """What `jit(function)` returns: guards, newest entry first, then `on_miss`.

    A descriptor like a Python function (`obj.method` binds).  Has __wrapped__, __name__, __qualname__, __doc__, __module__,
    __dict__, weak references, GC, deepcopy (returns itself) and pickle (by qualified name, as functions are).
    """

    __wrapped__: FunctionType
    entries: list[Entry]  # oldest first; the newest is tried first.  A copy
    on_miss: Callable[..., Entry | None]
    enabled: bool  # False: always the plain function
    called_by: CodeType | None  # what calls it as a method found in an object's dictionary
    is_call: bool  # it is the `__call__` of its first argument's class, while that says so
    look_inside: bool  # True: of the plain function the hook looks at the frames that it calls
    def __init__(
        self,
        function: FunctionType,
        on_miss: Callable[[JitFunction, tuple[Any, ...]], Entry | None],
        takes_state: bool = False,
    ) -> None:
        """on_miss(self, slots): `slots` are the bound arguments in localsplus order (defaults filled in).  It returns the
        Entry to run for this call (already added by it, or not), or None for the plain function.  Wrong arguments
        never reach it: the plain function is called and raises its own TypeError.
        `takes_state`: it is called with one list, whose items are the slots; the function that runs empties it."""
    def add(self, entry: Entry) -> None: ...
    def clear(self) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

# --- frame hook (PEP 523).  Set while at least one user has it entered; a thread-local flag says whether frames of this
# thread are looked at.  A JitFunction enters it around a "code" entry while a frame callback is set.
def hook_enter() -> None:
    """Count one user of the hook in this thread (nests)."""

def hook_exit() -> None: ...
def hook_suspend(yes: bool) -> bool:
    """Whether frames of this thread are left alone, as while compiling; returns whether they were before."""

def stack_room() -> int:
    """How many more calls the recursion limit lets this thread make from here."""

def lend_calls(number: int) -> int:
    """Let this thread make so many calls more than the recursion limit says; how many more it could so far."""

def hook_owner() -> JitFunction | None:
    """The jitted function whose Python runs in this thread, as far as it is not captured."""

def set_frame_callback(
    callback: Callable[[FunctionType, tuple[Any, ...]], Entry | bool | None] | None,
) -> None:
    """callback(function, slots) for a fresh frame that no entry of its code fits: returns an Entry (kept on the code object), False for
    "not now", or None: it is not asked again for this code, whose entries stay.  Never called for generators, for the code of an
    Entry.code, or for the plain run of a JitFunction.  What it raises is reported once and means None."""

def code_entries(code: CodeType) -> list[Entry]: ...
def forget_code(code: CodeType) -> None: ...
def calls_suspend(yes: bool) -> bool:
    """Whether jitted calls of this thread run plainly from now on; returns whether they did before."""

# --- facts
def add_sequence_type(type: type) -> None:
    """Guards may read the length and the items of its exact instances. Its C code must run no Python, and the
    items that it returns must be held by the instance."""

LOADS: dict[str, tuple[str | Callable[..., Any], str]]
"""The kinds of loads from a parent: the name of the attribute that does the same in Python, or a function (object, key) that
does; and the format of the path, of the parent's path and the key."""

SIZE_OPS: tuple[str, ...]
"""The operations of a check "sizes" by their numbers: leaves by the kind of their source, operators, and the comparisons with 0."""

def async_generator_hooks() -> bool:
    """Whether this thread has hooks for asynchronous generators (`sys.set_asyncgen_hooks`)."""

def numpy_is_quiet(variable: Any, reader: Any, /) -> bool:
    """Whether NumPy's error state here only ignores or warns. `variable`: the context variable of the state, or None; `reader`: returns it."""

def compile_stance() -> str:
    """The stance that `torch.compiler.set_stance` has set, "default" if none. No entry runs under "force_eager"."""

def supported() -> str | None:
    """None if this interpreter is known, else why not (one line)."""

def tensors_written(tensors: tuple[Any, ...], places: tuple[int, ...]) -> bytes:
    """Three words for each of those: which tensor it is, how often it was written to, and where its memory is."""

def accumulator_hooked(tensor: object) -> bool:
    """Whether hooks run where autograd adds up gradients of that tensor; True if that is unknown."""

def ends_silently(object: object) -> bool:
    """Whether nothing shows when that object is freed, with all that only it holds: no finalizer, and no weak reference with a callback."""

def stored_ends_silently(object: object, name: str) -> bool:
    """The same for an attribute that the object stores in a slot or in its dictionary; True if there is none."""

def accumulates(tensor: object) -> bool:
    """Whether autograd adds up gradients in the `grad` of that tensor, which a view made with gradient mode off only seems to be ready for."""

def tensor_layout(
    like: Any, sizes: tuple[int | None, ...], strides: tuple[int | None, ...]
) -> bytes | None:
    """The dtype and device of `like`, and these sizes and strides, for `tensors_lie`; None: any.  None where headers cannot be read."""

def tensors_where(values: Sequence[Any], places: tuple[int, ...]) -> bytes:
    """Two words for each of those: in which storage it lies, and at which element; zeros where that cannot be read."""

def tensors_lie(values: list[Any], layouts: tuple[bytes | None, ...]) -> bool:
    """Whether the tensors among the first of these values have these layouts."""

def tracks_versions() -> bool:
    """Whether this PyTorch shows how often a tensor was written to."""

def calibrate() -> bool:
    """Find the offsets of the tensor header in this PyTorch (called once, lazily); False: tensors are checked through DLPack and
    attributes."""
