"""numpy: what must happen outside of graphs breaks, and nothing is lost.

PYTEST_DONT_REWRITE
"""

import numpy as np
import torch

from tests.programs.program import X, program


@program(graphs=2, breaks="numpy unknown_call")
def tensor_to_numpy_and_back(x):
    y = x + 1
    a = y.numpy()
    return torch.from_numpy(a) * 2


@program(args=lambda: (X, np.arange(4.0, dtype=np.float32)), graphs=1, breaks="unknown_call")
def array_argument_becomes_a_tensor(x, a):
    return x + torch.from_numpy(a)


@program(args=lambda: (X, np.float32(2.5)), graphs=1, breaks="unknown_call")
def numpy_scalar_argument(x, n):
    return x * float(n)


@program(graphs=2, breaks="numpy unknown_call unknown_call attribute unknown_call unknown_call")
def numpy_function_in_between(x):
    y = x + 1
    a = np.sqrt(np.abs(y.numpy())).sum()
    return y * float(a)


@program()
def numpy_constants(x):
    return x * np.pi + np.e, np.inf > 1


@program(args=lambda: (X, np.array([[1, 2], [3, 4]])), graphs=1, breaks="attribute")
def shape_of_an_array(x, a):
    return x + a.shape[0]
