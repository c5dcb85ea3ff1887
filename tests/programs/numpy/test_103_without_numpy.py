"""What needs no arrays works where NumPy is not installed; and NumPy draws its random numbers itself."""

import subprocess
import sys

import numpy as np
import torch

from frameloom import jit
from tests.programs.program import X, program

WITHOUT = """
import sys
sys.modules["numpy"] = None
import torch, frameloom
x = torch.linspace(-2, 2, 12).reshape(1, 1, 3, 4)
def f(x):
    y = torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")
    return torch.nn.functional.hardsigmoid(y) + x.sum() * 2
assert torch.allclose(frameloom.jit(f, fullgraph=True)(x), f(x))
def g(x):
    y = x * 2
    return y.max().item(), x.tolist(), x[x > 0]
assert frameloom.jit(g)(x)[:2] == g(x)[:2]
try:
    frameloom.jit(lambda x: (x + 1).numpy())(x)
except RuntimeError as error:
    assert "Numpy is not available" in str(error)
print("done")
"""


def test_without_numpy():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_random_numbers_are_drawn_in_each_call():
    def legacy(x):
        return x + 1, np.random.rand(2), np.random.randint(0, 1000, 3), np.random.uniform()

    def generator(x, rng=np.random.default_rng(0)):
        return x + 1, rng.normal(size=2), rng.integers(0, 1000, 3)

    for fn in (legacy, generator):
        results = []
        for call in (fn, jit(fn)):
            np.random.seed(0)
            rest = (np.random.default_rng(0),) if fn is generator else ()
            results.append([call(X, *rest)[1:] for _ in range(3)])
        for plain, got in zip(*results, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(plain, got, strict=True))


@program(args=lambda: (X.clone(),))
def tensors_as_arrays(x):
    y = x + 1
    a = y.__array__()
    a[0] = 7
    return a, y * 2, torch.from_numpy(a) + 1
