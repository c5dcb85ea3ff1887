"""Results of NumPy's functions for arrays of which sizes vary.

PyTorch's function says how the sizes of a result depend on those of the arguments. NumPy says what the result
is for the captured sizes and for some others, and all of these answers must agree. Sizes of 0 and 1, for
which NumPy chooses other strides, get guards of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from frameloom.capture.library.numpy_api.samples import (
    Accessed,
    Known,
    Result,
    ask,
    parts_of,
    same,
)
from frameloom.capture.tensors.fake import Fake
from frameloom.errors import Break
from frameloom.ir.symbolic.atoms import atoms_of, evaluated, unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, Symbol, hint_of

if TYPE_CHECKING:
    from frameloom.ir.symbolic.shape_env import ShapeEnv


def note_sizes(argument: Any) -> bool:
    """Returns whether an argument has sizes that vary. If so, notes that they are neither 0 nor 1."""
    sizes = [*_sizes_in(argument)]
    _apart_from_1(sizes)
    return bool(sizes)


def has_unbacked(made: Any) -> bool:
    return any(unbacked_in(n) for n in _sizes_in(made))


def _sizes_in(argument: Any) -> Iterator[Size]:
    for part in parts_of(argument):
        fake = part.fake if isinstance(part, Accessed) else part
        numbers = (*fake.shape, *fake.stride()) if isinstance(fake, Fake) else (fake,)
        yield from (n for n in numbers if isinstance(n, Size))


def agreed(
    fn: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    writes: bool,
    known: Known,
    described: Any,
    made: Any,
) -> Any:
    """Returns NumPy's description of the results with symbolic sizes, which are those of `made`, what PyTorch
    computes. Breaks if it is not right for other sizes."""
    answer = _in_symbols(described, made)
    given = {s for n in _sizes_in([args, kwargs]) for s in atoms_of(n)}
    decided = {s for n in _sizes_in(made) for s in unbacked_in(n)} - given
    sizes = [*_sizes_in([args, kwargs, made])]
    if not sizes:  # PyTorch finds a size that for NumPy the elements decide
        raise _vary()
    for at in _assignments(sizes[0].shape_env):
        asked, _ = ask(fn, args, kwargs, writes, known, at)
        if not same(_numbered(answer, at), _with_decided_sizes(asked, answer, decided, at)):
            raise _vary()
    return answer


def _with_decided_sizes(
    described: Any, answer: Any, decided: set[Any], at: Callable[[Symbol], int]
) -> Any:
    """Returns a description in which sizes that the elements decide are those of `answer`."""
    if type(described) in (tuple, list):
        pairs = zip(described, answer, strict=True)
        return type(described)(_with_decided_sizes(d, a, decided, at) for d, a in pairs)
    if not isinstance(described, Result) or not decided:
        return described
    shape = tuple(
        evaluated(wanted, at) if not decided.isdisjoint(unbacked_in(wanted)) else n
        for n, wanted in zip(described.shape, answer.shape, strict=True)
    )
    if shape == described.shape:
        return described
    if 0 in shape:
        return described._replace(shape=shape, strides=(0,) * len(shape))
    return described._replace(shape=shape, strides=_dense(shape, described.strides))


def _assignments(env: ShapeEnv) -> Iterator[Callable[[Symbol], int]]:
    """Yields the captured sizes, and others that the conditions on sizes allow."""
    symbols = sorted(env.symbols)
    hints = {s: s.hint for s in symbols}
    yield hints.__getitem__
    others = [
        {s: s.hint + step + apart * k for k, s in enumerate(symbols)}
        for step, apart in ((1, 0), (3, 0), (1, 2))
    ]
    if any(s.unbacked for s in symbols):
        others += [{s: n if s.unbacked else s.hint for s in symbols} for n in (0, 1)]
    for other in others:
        if env.is_possible(other.__getitem__) and env.hold(other.__getitem__):
            yield other.__getitem__


def _vary() -> Break:
    return Break("numpy", "an array of which sizes vary")


def _apart_from_1(sizes: Iterable[Size]) -> None:
    for n in sizes:
        if not unbacked_in(n):  # NumPy is asked for 0 and 1 of those
            n.shape_env.assume_not_0(n)
            n.shape_env.assume_not_0(n - 1)


def _in_symbols(described: Any, made: Any) -> Any:
    """Returns a description with the sizes of `made` in place of the captured ones."""
    if type(described) in (tuple, list):
        if type(made) not in (tuple, list) or len(made) != len(described):
            raise _vary()
        return type(described)(map(_in_symbols, described, made))
    if not isinstance(described, Result):
        return described
    if (same_one := described.same) is not None:
        return _laid_out_as(described, same_one)
    if not isinstance(made, Fake) or made.ndim != len(described.shape):
        raise _vary()
    shape = tuple(made.shape)
    _apart_from_1([n for n in shape if isinstance(n, Size)])
    if described.shares is None:
        return described._replace(shape=shape, strides=_dense(shape, described.strides))
    if made.memory is not described.shares.memory:
        raise _vary()
    # NumPy has its own strides for dimensions of size 1.
    strides = tuple(
        wanted if not isinstance(n, Size) and n == 1 and hint_of(stride) != wanted else stride
        for n, stride, wanted in zip(shape, made.stride(), described.strides, strict=True)
    )
    return _laid_out_as(described, made)._replace(strides=strides)


def _laid_out_as(described: Result, fake: Fake) -> Result:
    return described._replace(
        shape=tuple(fake.shape), strides=tuple(fake.stride()), offset=fake.storage_offset()
    )


def _dense(shape: Sequence[Int], strides: Sequence[int]) -> tuple[Int, ...]:
    """Returns the strides of a dense tensor of which the dimensions are in the same order as with the given
    strides."""
    answer: list[Int] = [1] * len(shape)
    step: Int = 1
    inner_first = sorted(range(len(shape)), key=lambda d: (strides[d], hint_of(shape[d]), -d))
    for d in inner_first:
        answer[d] = step
        step = step * shape[d]
    return tuple(answer)


def _numbered(described: Any, at: Callable[[Symbol], int]) -> Any:
    """Returns a description for these values of the symbols."""
    if type(described) in (tuple, list):
        return type(described)(_numbered(item, at) for item in described)
    if not isinstance(described, Result):
        return described
    shape, strides = (
        tuple(evaluated(n, at) for n in numbers) for numbers in (described.shape, described.strides)
    )
    if 0 in shape and any(map(unbacked_in, described.shape)):  # as `Tensor.numpy` makes it
        strides = (0,) * len(shape)
        return described._replace(shape=shape, strides=strides, shares=None, offset=0)
    return described._replace(shape=shape, strides=strides, offset=evaluated(described.offset, at))
