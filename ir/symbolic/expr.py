"""Symbolic sizes, known only at a call: integers as polynomials over symbols, in one canonical form.

    Size      a sum of products of atoms with integer coefficients; never a constant, which is a plain int
    Symbol    an atom: the size of a dimension of an input, or an int that the call passes
    Apply     an atom: floordiv, mod, max or min of sizes that the algebra does not resolve

A Size is used like an int: it adds and multiplies, and PyTorch's functions accept it (it is a torch.SymInt).
Its `hint` is its value in the captured call.  Equal sizes of one capture are the same object.  If the form
does not decide a question, the hint does, and `shape_env` (symbolic/shape_env.py) notes the answer as a
condition of the compiled code.  Such questions are comparisons (`<`), truth values and `int(n)`.  Decisions
that only cost time if they are wrong use `hint_of(n)` and note nothing.

(One file: the operators of a Size are its algebra, and they depend on each other.)

Inside loops and for strides, results of divisions by a size hold if the size is at least 1: a loop over an
empty dimension does nothing.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from frameloom.ir.symbolic.equalities import Equalities
    from frameloom.ir.symbolic.shape_env import ShapeEnv

Int = Any  # int | Size: a number of either kind
Monomial = tuple["Atom", ...]  # a product, sorted


class Atom:
    """One factor of a product: `name` identifies it and is its sort key."""

    __slots__ = ("hint", "name", "shape_env")

    def __init__(self, shape_env: ShapeEnv, name: str, hint: int) -> None:
        self.shape_env = shape_env
        self.name = name
        self.hint = hint

    def __lt__(self, other: Atom) -> bool:
        return (len(self.name), self.name) < (len(other.name), other.name)

    def __repr__(self) -> str:
        return self.name


class Symbol(Atom):
    """`source`: where a call has its value; only the capture uses it.  `unbacked`: its value is known only
    after an op of the graph (`nonzero`)."""

    __slots__ = ("__weakref__", "source", "unbacked")

    def __init__(
        self, shape_env: ShapeEnv, name: str, hint: int, source: Any, unbacked: bool = False
    ) -> None:
        super().__init__(shape_env, name, hint)
        self.source = source
        self.unbacked = unbacked


class Apply(Atom):
    __slots__ = ("args", "op")

    def __init__(self, shape_env: ShapeEnv, op: str, args: tuple[Int, Int]) -> None:
        super().__init__(
            shape_env, f"{op}({args[0]!r}, {args[1]!r})", MEANING[op](*map(hint_of, args))
        )
        self.op = op
        self.args = args


MEANING: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "max": max,
    "min": min,
}


def hint_product(sizes: Iterable[Int]) -> int:
    """Returns the product of sizes in the captured call, for choices that only affect speed."""
    return math.prod(map(hint_of, sizes))


def hint_of(n: Int) -> int:
    """Returns the value in the captured call: for decisions where any answer is correct."""
    return n.hint if isinstance(n, Size) else n


def number(n: Any) -> Int:
    """Returns `n` as an int, or the Size itself."""
    return n if isinstance(n, Size) else int(n)


def may_exceed_1(n: Int) -> bool:
    """Whether `n` may be more than 1, so that a loop of `n` rounds must stay."""
    return isinstance(n, Size) or n > 1


def is_size(n: object) -> bool:
    return isinstance(n, Size)


_numbered: weakref.WeakValueDictionary[int, Size] = weakref.WeakValueDictionary()
_count = itertools.count(1)


def numbered(size: Size) -> int:
    """Registers a new size and returns its number."""
    number = next(_count)
    _numbered[number] = size
    return number


def size_called(name: str) -> Size:
    """Returns the size that has this name in the text of a program."""
    return _numbered[int(name[1:])]


class Size(torch.SymInt):
    """See the top of the file.  Made by arithmetic and by `ShapeEnv.symbol`."""

    shape_env: ShapeEnv
    terms: tuple[tuple[Monomial, int], ...]
    hint: int
    number: int  # the size's name in the text of programs contains it

    def __new__(cls, *_: object) -> Size:
        raise TypeError("sizes are made by arithmetic")

    @property
    def node(self) -> Any:
        """The object that answers PyTorch's C++ code."""
        return self.shape_env.node_of(self)

    # ---- text

    def __repr__(self) -> str:
        parts: list[str] = []
        for monomial, factor in self.terms:
            names = [a.name for a in monomial]
            text = "*".join(names if abs(factor) == 1 and names else [str(abs(factor)), *names])
            parts.append((" - " if factor < 0 else " + ") + text)
        first = parts[0][3:] if parts[0].startswith(" + ") else "-" + parts[0][3:]
        return first + "".join(parts[1:])

    def __str__(self) -> str:
        return f"z{self.number}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    # ---- arithmetic

    def __add__(self, other: Int) -> Int:
        return _sum(self, 1, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Int) -> Int:
        return _sum(self, 1, other, -1)

    def __rsub__(self, other: Int) -> Int:
        return _sum(self, -1, other, 1)

    def __neg__(self) -> Int:
        return linear(self.shape_env, ((self, -1),))

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Int:
        return self if self >= 0 else -self

    def __mul__(self, other: Int) -> Int:
        return product(self.shape_env, self, other) if isinstance(other, INTS) else NotImplemented

    __rmul__ = __mul__

    def __pow__(self, exponent: Int) -> Int:
        if type(exponent) is not int or exponent < 0:
            return int(self) ** exponent
        result: Int = 1
        for _ in range(exponent):
            result = result * self
        return result

    def __floordiv__(self, other: Int) -> Int:
        return divide(self.shape_env, self, other)[0] if isinstance(other, INTS) else NotImplemented

    def __rfloordiv__(self, other: Int) -> Int:
        return divide(self.shape_env, other, self)[0] if isinstance(other, INTS) else NotImplemented

    def __mod__(self, other: Int) -> Int:
        return divide(self.shape_env, self, other)[1] if isinstance(other, INTS) else NotImplemented

    def __rmod__(self, other: Int) -> Int:
        return divide(self.shape_env, other, self)[1] if isinstance(other, INTS) else NotImplemented

    def __divmod__(self, other: Int) -> tuple[Int, Int]:
        return divide(self.shape_env, self, other)

    def __rdivmod__(self, other: Int) -> tuple[Int, Int]:
        return divide(self.shape_env, other, self)

    # ---- what needs the value

    def __truediv__(self, other: Any) -> Any:
        return int(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / int(self)

    def __int__(self) -> int:
        return self.shape_env.specialize(self)

    __index__ = __trunc__ = __round__ = __int__  # type: ignore[assignment]

    def __float__(self) -> float:
        return float(int(self))

    def __bool__(self) -> bool:
        return not self.shape_env.is_zero(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self.shape_env.is_zero(self - other) if isinstance(other, INTS) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def __lt__(self, other: Int) -> bool:
        return self.shape_env.is_positive(other - self)

    def __le__(self, other: Int) -> bool:
        return not self.shape_env.is_positive(self - other)

    def __gt__(self, other: Int) -> bool:
        return self.shape_env.is_positive(self - other)

    def __ge__(self, other: Int) -> bool:
        return not self.shape_env.is_positive(other - self)

    def is_integer(self) -> bool:
        return True

    def __sym_max__(self, other: Int) -> Int:
        return largest(self, other)

    def __sym_min__(self, other: Int) -> Int:
        return smallest(self, other)

    def __deepcopy__(self, memo: Any) -> Size:
        return self

    def __copy__(self) -> Size:
        return self


INTS = (int, Size)


# --- sums and products


def terms_of(n: Int) -> Mapping[Monomial, int]:
    if isinstance(n, Size):
        n = n.shape_env.resolved(n)
    if isinstance(n, Size):
        return dict(n.terms)
    return {(): int(n)} if n else {}


def linear(shape_env: Equalities, parts: tuple[tuple[Int, int], ...]) -> Int:
    """Returns the sum of `factor * number`."""
    result = shape_env.computed.get(parts)
    if result is None:
        total: dict[Monomial, int] = {}
        for n, factor in parts:
            for monomial, c in terms_of(n).items():
                total[monomial] = total.get(monomial, 0) + factor * c
        result = shape_env.computed[parts] = shape_env.make(total)
    return result


def _sum(a: Size, times: int, b: Any, times_b: int) -> Int:
    """Returns `times * a + times_b * b`, as an operator does."""
    return (
        linear(a.shape_env, ((a, times), (b, times_b))) if isinstance(b, INTS) else NotImplemented
    )


def product(shape_env: Equalities, a: Int, b: Int) -> Int:
    result = shape_env.computed.get((a, b))
    if result is None:
        total: dict[Monomial, int] = {}
        for x, c in terms_of(a).items():
            for y, d in terms_of(b).items():
                monomial = tuple(sorted((*x, *y))) if x and y else x or y
                total[monomial] = total.get(monomial, 0) + c * d
        result = shape_env.computed[a, b] = shape_env.make(total)
    return result


# --- division


def divide(shape_env: Equalities, a: Int, b: Int) -> tuple[Int, Int]:
    """Returns the quotient, rounded to minus infinity, and the remainder."""
    a, b = shape_env.resolved(a), shape_env.resolved(b)
    if not isinstance(a, Size) and not isinstance(b, Size):
        return a // b, a % b
    if not isinstance(b, Size) and b == 1:
        return a, 0
    return shape_env.memoized(_divide, a, b)  # type: ignore[no-any-return]


def _divide(shape_env: Equalities, a: Int, b: Int) -> tuple[Int, Int]:
    shared = _shared(shape_env, a, b)
    if (isinstance(shared, Size) or shared > 1) and shape_env.surely_positive(shared):
        whole, rest = divide(shape_env, *(_whole(shape_env, n, shared)[0] for n in (a, b)))
        return whole, rest * shared
    whole, rest = _whole(shape_env, a, b)
    if not isinstance(rest, Size) and rest == 0:
        return whole, 0
    for k in (0, -1, 1):  # moves k from the remainder to the quotient
        low, _ = shape_env.range_of(rest - k * b)
        if low >= 0 and shape_env.surely_positive(b - (rest - k * b)):
            return whole + k, rest - k * b
    quotient = shape_env.apply("floordiv", rest, b)
    return whole + quotient, shape_env.apply("mod", rest, b)


def _whole(shape_env: Equalities, a: Int, b: Int) -> tuple[Int, Int]:
    """Returns (whole, rest) with `a == whole * b + rest`, as far as the forms show."""
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    if not isinstance(b, Size):
        for monomial, factor in terms_of(a).items():
            if monomial and factor % b:
                known = shape_env.quotient(monomial, factor, b)
                if known is None:
                    rest[monomial] = factor
                    continue
                monomial, factor = known
            q, r = divmod(factor, b)
            whole[monomial] = whole.get(monomial, 0) + q
            rest[monomial] = rest.get(monomial, 0) + r
        return shape_env.make(whole), shape_env.make(rest)
    divisor = dict(terms_of(b))
    lead = max(divisor, key=lambda m: (len(m), [a.name for a in m]))
    rest = dict(terms_of(a))
    # It works on terms: if a product is known to be a number, arithmetic would not remove it from the sum.
    for _ in range(len(rest) if len(divisor) == 1 else 8):
        over, factor = next(
            (
                (over, f // divisor[lead])
                for m, f in rest.items()
                if f % divisor[lead] == 0 and (over := without(m, lead)) is not None
            ),
            ((), 0),
        )
        if not factor:
            break
        whole[over] = whole.get(over, 0) + factor
        for part, times in divisor.items():
            product = tuple(sorted((*over, *part)))
            rest[product] = rest.get(product, 0) - factor * times
            if not rest[product]:
                del rest[product]
    return (
        (shape_env.make(whole), shape_env.make(rest)) if not rest or len(divisor) == 1 else (0, a)
    )


def without(monomial: Monomial, lead: Monomial) -> Monomial | None:
    """Returns the product divided by another one; None if that does not divide it."""
    rest = list(monomial)
    for atom in lead:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def gcd(a: Int, b: Int) -> Int:
    """Returns a common divisor: of ints the greatest, of sizes the greatest that the forms show."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return math.gcd(a, b)
    shape_env: Any = shape_env_of(a, b)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Size) and shape_env.surely_zero(divide(shape_env, other, one)[1]):
            return one
    return _shared(shape_env, a, b)


def _shared(shape_env: Equalities, a: Int, b: Int) -> Int:
    """Returns the product of the factors that all terms of the two sums share."""
    monomials = [*terms_of(a).items(), *terms_of(b).items()]
    if not terms_of(a) or not terms_of(b):
        return a if terms_of(a) else b
    common = shared_atoms([monomial for monomial, _ in monomials])
    return shape_env.make({tuple(common): math.gcd(*(c for _, c in monomials))})


def shared_atoms(monomials: Sequence[Monomial]) -> list[Atom]:
    """Returns the factors that all of the products share."""
    common = list(monomials[0])
    for monomial in monomials[1:]:
        rest, common_atoms = list(monomial), []
        for atom in common:
            if atom in rest:
                rest.remove(atom)
                common_atoms.append(atom)
        common = common_atoms
    return common


def shape_env_of(*numbers: Int) -> ShapeEnv | None:
    """Returns the shape environment of the symbolic numbers; None if all are ints."""
    return next((n.shape_env for n in numbers if isinstance(n, Size)), None)


def largest(a: Int, *more: Int) -> Int:
    for b in more:
        shape_env = shape_env_of(a, b)
        a = max(a, b) if shape_env is None else shape_env.extreme("max", a, b)
    return a


def smallest(a: Int, *more: Int) -> Int:
    for b in more:
        shape_env = shape_env_of(a, b)
        a = min(a, b) if shape_env is None else shape_env.extreme("min", a, b)
    return a
