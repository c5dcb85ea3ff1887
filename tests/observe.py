"""One call and everything that can be seen of it, in a form in which a plain and a jitted call can be compared.

Compared: result and arguments (type, value, dtype, strides, aliasing, identity of objects, attributes, iterators' positions), exception, what was
printed, warned and logged in its order, random stream, and PyTorch's global state.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import enum
import io
import itertools
import logging
import warnings
import weakref
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

MAX_DRAWN = 50  # items looked at in an iterator, which may have no end


_HAS_GPU = torch.cuda.is_available()


def seed(number: int) -> None:
    """As `torch.manual_seed`, which writes down the whole stack at each call, for a GPU that may come into use."""
    (torch.manual_seed if _HAS_GPU else torch.default_generator.manual_seed)(number)


class observe:
    """Call `fn` with copies of `args` and `kwargs`; or, where `args` is a function, with what it makes.  `state` gives what else to compare
    after the call; `grad`: whether gradients are recorded."""

    def __init__(
        self, fn: Any, args: Any, kwargs: Any = None, state: Any = None, grad: bool = False
    ) -> None:
        seed(0)
        RemovableHandle.next_id = 1000
        self.arguments = (
            (tuple(args()), {}) if callable(args) else copy.deepcopy((args, kwargs or {}))
        )
        self.result = self.error = None
        seed(0)
        out = io.StringIO()
        with _into(out), torch.set_grad_enabled(grad):
            try:
                self.result = fn(*self.arguments[0], **self.arguments[1])
            except Exception as error:
                self.error = error
            self.world = global_state()
        self.printed = out.getvalue()
        self.random_state = torch.get_rng_state()
        self.state = copy.copy(state()) if state is not None else None


@contextlib.contextmanager
def _into(out: io.StringIO) -> Any:
    """Everything printed, warned and logged goes to `out`."""

    def show(message: Any, category: Any, filename: Any, lineno: Any, *rest: Any) -> None:
        print(f"{category.__name__}: {message}", file=out)

    handler, root = logging.StreamHandler(out), logging.getLogger()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        warnings.showwarning = show
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)


def without_stack(text: str) -> str:
    """An error's text without the stack of C++ frames, full of addresses, that some errors of PyTorch bring."""
    return text.partition("\nException raised from ")[0]


def global_state() -> dict[str, Any]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "modes": torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def assert_same_call(
    got: observe, want: observe, where: str, rtol: float = 1e-5, atol: float = 1e-5
) -> None:
    if type(got.error) is not type(want.error):
        raise AssertionError(f"{where}: {got.error!r} instead of {want.error!r}") from got.error
    assert str(got.error) == str(want.error), f"{where}: {got.error!r} instead of {want.error!r}"
    assert got.printed == want.printed, f"{where}: printed {got.printed!r} for {want.printed!r}"
    assert got.world == want.world, f"{where}: global state {got.world} instead of {want.world}"
    assert torch.equal(got.random_state, want.random_state), f"{where}: random stream differs"
    same(
        [*got.arguments, got.result, got.error, got.state],
        [*want.arguments, want.result, want.error, want.state],
        rtol,
        atol,
        f"{where}: [*args, kwargs, result, exception, state]",
    )


def same(got: Any, want: Any, rtol: float, atol: float, where: str) -> None:
    """Two object graphs look alike in every way."""
    a, b = Picture(got), Picture(want)
    if (found := _difference(a.tree, b.tree)) is not None:
        raise AssertionError(f"{where}{found}")
    for g, w in zip(a.leaves, b.leaves, strict=True):
        _same_leaf(g, w, rtol, atol, where)
    assert aliasing_of(a.tensors) == aliasing_of(b.tensors), f"{where}: aliasing differs"
    assert array_aliasing(a) == array_aliasing(b), f"{where}: aliasing of arrays differs"


def _same_leaf(g: Any, w: Any, rtol: float, atol: float, where: str) -> None:
    if isinstance(w, torch.Tensor):
        with torch.no_grad():
            if w.is_floating_point() or w.is_complex():
                torch.testing.assert_close(
                    g, w, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{where}: {m}"
                )
            else:
                assert torch.equal(g, w), f"{where}: {g} instead of {w}"
    elif isinstance(w, np.ndarray):
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, err_msg=where)
    else:
        assert g == w or (g != g and w != w) or abs(g - w) <= atol + rtol * abs(w), (
            f"{where}: {g} instead of {w}"
        )


def with_tolerance(result: Any) -> Any:
    """Returns a result with arrays in place of NumPy's numbers, which are otherwise compared exactly."""
    if isinstance(result, np.inexact):
        return type(result), np.array(result)
    return type(result)(map(with_tolerance, result)) if type(result) in (tuple, list) else result


def aliasing_of(found: list[torch.Tensor]) -> list[int]:
    """Which tensors share memory, by their order."""
    storages = [t.untyped_storage()._cdata for t in found]
    return [storages.index(s) for s in storages]


def array_aliasing(picture: Picture) -> list[list[bool]]:
    """With which arrays and tensors each array shares memory."""
    arrays = [leaf for leaf in picture.leaves if isinstance(leaf, np.ndarray)]
    if not arrays:
        return []
    known = [t for t in picture.tensors if t.layout is torch.strided and t.device.type == "cpu"]
    storages = [t.untyped_storage() for t in known]
    places = [
        *(np.lib.array_utils.byte_bounds(a) if a.size else (0, 0) for a in arrays),
        *((s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages),
    ]
    return [[a < d and c < b for c, d in places] for a, b in places[: len(arrays)]]


def _difference(got: Any, want: Any, path: str = "") -> str | None:
    if isinstance(got, tuple) and isinstance(want, tuple) and len(got) == len(want):
        for n, (a, b) in enumerate(zip(got, want, strict=True)):
            if (found := _difference(a, b, f"{path}.{n}")) is not None:
                return found
        return None
    return None if got == want else f" at {path}: {got!r} instead of {want!r}"


ATOMS = (type(None), bool, int, str, bytes, type(Ellipsis), type(NotImplemented), range, complex)
NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)
ITERATORS = (
    *(type(iter(c)) for c in ([], (), {}, {}.values(), {}.items(), set(), "", b"", range(0), bytearray())),
    *(type(reversed(c)) for c in ([], {}, {}.values(), {}.items())), type(iter(collections.deque())), type(iter("é")),
    type(iter(int, 1)), type(iter(range(1 << 70))), reversed, enumerate, zip, map, filter, GeneratorType,
    *(v for v in vars(itertools).values() if isinstance(v, type)), type(itertools.groupby([])),
)  # fmt: skip
CONTAINERS = (tuple, list, collections.deque)
KEPT_APART = ("__dict__", "__weakref__")


def is_leaf(value: torch.Tensor) -> bool | str:
    """Autograd refuses to say it of some views that were made and written in different modes."""
    try:
        return value.is_leaf
    except RuntimeError as error:
        return str(error)


class Picture:
    """A tree of tuples that says what an object is; objects met again are told by number.  Tensors and floats are collected apart."""

    def __init__(self, root: Any) -> None:
        self.leaves: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self.tree = self._of(root)

    def _of(self, value: Any) -> Any:
        cls = type(value)
        if cls in ATOMS:
            return (cls.__name__, repr(value) if cls is complex else value)
        if cls is float:
            self.leaves.append(value)
            return "float"
        if isinstance(value, NAMED):
            return (cls.__name__, repr(value))
        if isinstance(value, enum.Enum | type | ModuleType | BuiltinFunctionType | CodeType):
            return (cls.__name__, getattr(value, "__qualname__", None) or str(value))
        number = self._numbers.get(id(value))
        if number is not None:
            return ("seen", number)
        if cls is not tuple and cls is not MethodType:  # constant tuples and methods come and go
            self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        return (cls.__qualname__, *self._content(value, cls))

    def _content(self, value: Any, cls: type) -> tuple[Any, ...]:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            self.leaves.append(value)
            return (str(value.dtype), value.shape, value.strides, value.flags.writeable)
        if isinstance(value, np.generic):
            return (value.item(),)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return (self._of(value.__func__), self._of(value.__self__))
        if isinstance(value, CellType):
            try:
                return (self._of(value.cell_contents),)
            except ValueError:
                return ()
        if isinstance(value, partial):
            return (
                self._of(value.func),
                self._of(value.args),
                self._of(value.keywords),
                *self._own(value),
            )
        if isinstance(value, ITERATORS):
            try:
                return tuple(self._of(item) for item in itertools.islice(value, MAX_DRAWN))
            except Exception as error:
                return (type(error).__name__, str(error))
        if isinstance(value, torch.Generator):
            return (self._of(value.get_state()),)
        if isinstance(value, weakref.ref):
            return (self._of(value()),)
        if isinstance(value, slice):
            return (self._of(value.start), self._of(value.stop), self._of(value.step))
        return (*self._items(value), *self._own(value))

    def _items(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, dict):
            factory = (
                (self._of(value.default_factory),)
                if isinstance(value, collections.defaultdict)
                else ()
            )
            pairs = collections.OrderedDict.items if isinstance(value, collections.OrderedDict) else dict.items  # fmt: skip
            return (
                *factory,
                *((self._of(key), self._of(item)) for key, item in list(pairs(value))),
            )
        if isinstance(value, CONTAINERS):
            base = next(c for c in CONTAINERS if isinstance(value, c))
            limit = (value.maxlen,) if isinstance(value, collections.deque) else ()
            return (*limit, *(self._of(item) for item in base.__iter__(value)))
        if isinstance(value, set | frozenset):
            pictures = [self._of(item) for item in value]
            return tuple(sorted(pictures, key=repr))
        if isinstance(value, type({}.keys()) | type({}.values()) | type({}.items())):
            return tuple(self._of(item) for item in value)
        if isinstance(value, BaseException):
            return self._exception(value)
        if isinstance(value, str | bytes | int | float | complex):
            return (repr(value),)
        return ()

    def _own(self, value: Any) -> tuple[Any, ...]:
        """Attributes and slots."""
        slots = [
            (name, self._of(member.__get__(value)))
            for base in type(value).__mro__
            for name, member in vars(base).items()
            if type(member).__name__ == "member_descriptor"
            and name not in KEPT_APART
            and base.__flags__ & 1 << 9
            and hasattr(value, name)
        ]
        table = getattr(value, "__dict__", None)
        return (
            *slots,
            *((name, self._of(item)) for name, item in (table or {}).items()),
        )

    def _exception(self, value: BaseException) -> tuple[Any, ...]:
        return (
            *(without_stack(x) if isinstance(x, str) else self._of(x) for x in value.args),
            self._of(value.__cause__),
            self._of(value.__context__),
            value.__suppress_context__,
        )

    def _function(self, value: FunctionType) -> tuple[Any, ...]:
        if value.__globals__.get(value.__name__) is value:
            return (value.__qualname__,)
        return (
            value.__qualname__,
            value.__code__.co_firstlineno,
            self._of(value.__defaults__),
            self._of(value.__kwdefaults__),
            self._of(value.__closure__),
            *self._own(value),
        )

    def _tensor(self, value: torch.Tensor) -> tuple[Any, ...]:
        facts = (
            value.dtype,
            tuple(value.shape),
            str(value.layout),
            value.requires_grad,
            is_leaf(value),
            value.is_inference(),
        )
        if value.layout is not torch.strided or value.device.type == "meta":
            return facts
        self.leaves.append(value.detach())
        self.tensors.append(value)
        return (
            *facts,
            value.stride(),
            value.storage_offset(),
            *(() if value.grad is None else (self._of(value.grad),)),
            *self._own(value),
        )
