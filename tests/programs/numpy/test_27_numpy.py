"""numpy: its numbers are constants, and its arrays are computed in graphs.

PYTEST_DONT_REWRITE
"""

import numpy as np
import torch

from tests.programs.changing import changes
from tests.programs.program import X, program


@program()
def tensor_to_numpy_and_back(x):
    y = x + 1
    a = y.numpy()
    return torch.from_numpy(a) * 2


@program(args=lambda: (X, np.arange(4.0, dtype=np.float32)))
def array_argument_becomes_a_tensor(x, a):
    return x + torch.from_numpy(a)


@program(args=lambda: (X, np.float32(2.5)), graphs=1, breaks="numpy")
def numpy_scalar_argument(x, n):
    return x * float(n)


@program()
def numpy_function_in_between(x):
    y = x + 1
    a = np.sqrt(np.abs(y.numpy())).sum()
    return y * float(a)


@program()
def numpy_constants(x):
    return x * np.pi + np.e, np.inf > 1


@program(args=lambda: (X, np.array([[1, 2], [3, 4]])))
def shape_of_an_array(x, a):
    return x + a.shape[0]


SCALE, COUNT, FLAG = np.float32(2.5), np.int64(3), np.bool_(True)


class Settings:
    scale = np.float64(0.5)

    def __init__(self):
        self.count = np.int32(4)
        self.factor = np.float32(1.5)


SETTINGS = Settings()


@program()
def numpy_scalars_of_globals_and_attributes(x):
    f = SETTINGS.factor
    return (
        x * SCALE + COUNT, SCALE * COUNT, x * SETTINGS.scale, f * SETTINGS.count, f + 1, float(f), int(COUNT), f.item(), FLAG,
        -SCALE, abs(SCALE), SCALE > 2, COUNT // 2, COUNT**2, x[COUNT - 2], x.reshape(SETTINGS.count, 3), [1, 2, 3, 4][COUNT],
        range(COUNT), round(SCALE), isinstance(SETTINGS.scale, float), type(SCALE * 2),
    )  # fmt: skip


@program()
def numpy_scalars_made_in_the_call(x):
    return x * np.float32(0.5), np.int64(7) + 1, np.float64(1) / 3, type(np.float32(1) + 1)


@program()
def numpy_functions_of_numbers(x):
    n = int(np.prod(x.shape))
    return (
        x.reshape(n) + 1,
        np.prod([2, 3]),
        np.ceil(2.5),
        int(np.floor(7 / 2)),
        np.sqrt(SCALE),
        np.mean([1, 2]),
        np.max((3, 4)),
    )


@program()
def arrays_are_made_anew_in_each_call(x):
    y = x + 1
    a = np.sqrt([1.0, 4.0])
    a += 1
    return y, a


@program(graphs=1, breaks="warning")
def numpy_warns(x):
    y = x + 1
    return y, np.float32(3e38) * 10


@program()
def as_tensor_of_an_array(x):
    return x + 1, torch.as_tensor(TABLE)


TABLE = np.arange(4.0)


@changes
def numpy_scalar_replaced():
    settings = Settings()
    yield lambda x: x * settings.factor
    settings.factor = np.float32(2)
    yield
    settings.factor = np.float64(2)
    yield
    settings.factor = 2.0
    yield
