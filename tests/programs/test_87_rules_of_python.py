"""Rules of Python that a capture has to keep: identity, truth, text, exceptions, attributes of functions and methods.

Each is a small program beside a little tensor work, called twice, plainly and jitted.
"""

import pytest

from tests.programs.against_python import LOG, X, differences

SCOPE = """
import copy, types
from collections import OrderedDict, defaultdict
from tests.programs.against_python import LOG
class LenBig:
    def __len__(self): return 2**70
class FormatsAsInt:
    def __format__(self, spec): return 3
class Named:
    def say(self): return super().nothing
def test_builtins_of_the_program_are_not_called_by_a_compile():
    import builtins
    import functools

    def f(x):
        y, before = x + 1, builtins.len
        try:
            builtins.len = functools.lru_cache(4)(len)
            return y, [len("abcdef"[:i]) for i in (0, 0, 1, 2)]
        finally:
            builtins.len = before

    assert not differences(f, lambda: (X,), calls=2)


class Never:
    def __eq__(self, other): return False
    __hash__ = object.__hash__
"""
PROGRAMS = [
    # one tuple of the same items, one empty tuple
    "t = (1, 2); return y, t[:] is t, t * 1 is t, t + () is t, () + t is t, t[0:2] is t, t[::-1] is t, t[0:0] is (), t[1:] is t",
    "t = tuple(range(1)); return y, t[::-1] is t, t[::2] is t, (t * 0) is (), copy.copy(t) is t",
    # what is not equal to itself
    "n = float('nan'); return y, [n] == [n], n in [n], n == n, {1: n} == {1: n}, [float('nan')] == [float('nan')]",
    "k = Never(); return y, k in [k], [k] == [k], Never() in [k], {k: 1}[k], (k, 1) == (k, 1), [k].count(k)",
    # dictionaries
    "d = defaultdict(list); e = {1: 2} | d; return y, e, e[5], type(OrderedDict() | d).__name__, type(d | OrderedDict()).__name__",
    "d = {1: 2}; d |= [(3, 4)]; return y, d",
    "d = {1: 2}; d |= 5; return y, d",
    # lengths and text
    "return y, bool(LenBig())", "return y, len(LenBig())", "return y, f'{FormatsAsInt()}'", "return y, format(FormatsAsInt(), 'x')",
    # exceptions
    "try: ExceptionGroup('a', None)\nexcept TypeError as e: return y, str(e)",
    "ExceptionGroup('g', [KeyboardInterrupt()]); return y", "g = BaseExceptionGroup('g', [ValueError(1)]); return y, type(g).__name__",
    "try: raise OSError(2, 'x')\nexcept FileNotFoundError as e: return y, e.errno\nexcept OSError as e: return y, 'os'",
    "UnicodeDecodeError(1, 2); return y", "SyntaxError('a', 5); return y", "KeyError(a=1); return y",
    "def g(): return free\ntry: g()\nexcept NameError as e: return y, str(e)\nfree = 1",
    "def g():\n  print()\n  return free\ntry: g()\nexcept NameError as e: return y, repr(e)\nfree = 1",
    "print(); k = [1]\ntry: return y, [free for _ in k]\nexcept NameError as e: return y, repr(e)\nfree = 1; lambda: free",
    "super().nothing; return y", "Named().say(); return y",
    # functions and methods
    "m = types.MethodType(len, [1, 2]); return y, m(), type(m).__name__, m.__self__, m.__func__ is len",
    "o = Named(); o.f = types.MethodType(len, 'abc'); return y, o.f()", "[].append.__func__; return y", "return y, [].append.__class__.__name__",
    "def h(): pass\nreturn y, h.__class__.__name__, type(h).__name__", "return y, Named.say.__class__.__name__",
]  # fmt: skip


@pytest.mark.parametrize("text", PROGRAMS)
def test_a_jitted_program_keeps_the_rules(text):
    lines = text.replace("; ", "\n").splitlines()
    scope = {"__name__": "program"}
    exec(SCOPE + "def f(x):\n    y = x + 1\n" + "".join(f"    {line}\n" for line in lines), scope)
    found = differences(scope["f"], lambda: (X,), calls=2)
    assert not found, found


class Never:
    def __eq__(self, other):
        LOG.append("asked")
        return False


def test_whether_two_arguments_are_one_object_is_guarded():
    from frameloom import jit

    def f(x, a, b):
        return x + 1, a in [b], [a] == [b]

    jitted = jit(f)
    one, other, nan = Never(), Never(), float("nan")
    for a, b in ((one, other), (one, one), (other, one), (nan, nan), (nan, float("nan"))):
        assert jitted(X, a, b)[1:] == f(X, a, b)[1:]
