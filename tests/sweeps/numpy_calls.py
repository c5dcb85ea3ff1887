"""Calls the functions of NumPy's main namespace, jitted and plainly, with arrays of several dtypes and layouts.

`python -m tests.sweeps numpy` prints what differs; `python -m tests.sweeps.numpy_calls [NAME ...]` also prints the
names that are captured in one graph.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from frameloom import jit
from tests.observe import assert_same_call, observe, with_tolerance

DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64")
# They write files or to the screen, wait, change settings of the process, or return what memory happened to hold.
LEFT_OUT = frozenset(
    "save savez savez_compressed savetxt load loadtxt genfromtxt fromfile tofile show_config show_runtime info "
    "empty empty_like test set_printoptions setbufsize seterr seterrcall set_string_function memmap fromregex "
    "ndarray nditer nested_iters frombuffer getbufsize geterr geterrcall printoptions errstate".split()
)


def arrays(dtype: str) -> Iterator[tuple[str, Any]]:
    base = np.array([3, 0, 1, 2, 2, 5, 4, 7, 1, 6, 0, 3]).astype(dtype).reshape(3, 4)
    special = base.copy()
    if special.dtype.kind in "fc":
        special[0] = [np.nan, np.inf, -np.inf, -0.0]
        special[1] *= -1
    yield "matrix", base
    yield "vector", special[0].copy()
    yield "special", special
    yield "transposed", base.T
    yield "strided", np.repeat(base, 2, axis=1)[:, ::2]
    yield "square", base[:, :3].copy()
    yield "number", base[0, 0]
    yield "zero_dim", np.array(base[0, 0])


FORMS: dict[str, Any] = {
    "fn(a)": lambda fn, a, b: fn(a),
    "fn(a, b)": lambda fn, a, b: fn(a, b),
    "fn(a, 1)": lambda fn, a, b: fn(a, 1),
    "fn(2, a)": lambda fn, a, b: fn(2, a),
    "fn(a, axis=0)": lambda fn, a, b: fn(a, axis=0),
    "fn(a, axis=-1, keepdims=True)": lambda fn, a, b: fn(a, axis=-1, keepdims=True),
    "fn([a, b])": lambda fn, a, b: fn([a, b]),
    "fn(a, out=b)": lambda fn, a, b: fn(a, out=b),
    "fn(a, b, b)": lambda fn, a, b: fn(a, b, b),
}


def functions() -> dict[str, Any]:
    return {
        name: fn
        for name, fn in sorted(vars(np).items())
        if callable(fn) and not isinstance(fn, type) and name not in LEFT_OUT and name[0] != "_"
    }


def differences(
    names: list[str], dtypes: tuple[str, ...] = DTYPES, layouts: int = 8
) -> tuple[list[str], set[str]]:
    """Returns what differs, and the names of functions of which some call is one graph."""
    wrong: list[str] = []
    whole: set[str] = set()
    for name, (form, call) in itertools.product(names, FORMS.items()):
        fn = functions()[name]

        def program(a: Any, b: Any, call: Any = call, fn: Any = fn) -> Any:
            return call(fn, a, b)

        jitted, strict = jit(program), jit(program, fullgraph=True)
        for dtype in dtypes:
            for layout, array in itertools.islice(arrays(dtype), layouts):
                if "out=" in form and not array.shape:
                    continue  # `np.nancumsum(a, out=b)` ends the process
                given = (array.copy("K"), array.copy("K")) if array.shape else (array, array)
                want = observe(program, given)
                if want.error is not None:
                    continue
                where = f"{name}: {form} of {layout} {dtype}"
                got = observe(jitted, given)
                got.result, want.result = map(with_tolerance, (got.result, want.result))
                got.printed = want.printed = ""  # NumPy's warnings about numbers are not compared
                try:
                    tolerance = 2e-3 if dtype == "float16" else 1e-5
                    assert_same_call(got, want, where, tolerance, tolerance)
                except AssertionError as error:
                    wrong.append(str(error)[:300])
                if name not in whole:
                    whole |= {name} if observe(strict, given).error is None else set()
    return wrong, whole


def sweep_numpy_calls() -> Iterator[str]:
    for name in functions():
        yield from differences([name])[0]


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count = 0
    whole: set[str] = set()
    for name in names or functions():
        wrong, captured = differences([name])
        count, whole = count + len(wrong), whole | captured
        for text in wrong:
            print(text, flush=True)
    print(f"{count} calls differ. In one graph, for some arguments: {' '.join(sorted(whole))}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
