# seed 1930114: a size of the data that is taken for equal to one that is known later

import warnings
from tests.fuzz.support import DEVICE, ERRORS, Box, Pair, near, tensor


def warn(n):
    warnings.warn("told ")


def fn(x, y, z, n, f, flag, items, parts, box, table):
    i2 = n
    x = z
    t8 = z
    i15 = i2
    t17 = x
    if "a" in table:
        t18 = z[t17 > 0]
    else:
        pass
    t20 = t8
    t22 = t8
    t26 = t22
    t29 = t26
    t30 = y
    t32 = t20[t30.sum(1) > 0]
    l34 = [t26[: int((t22 > 0).sum())] for k in range(i15)]
    t35 = sum(l34) + t32
    warn(t29)
    match 1:
        case k if k:
            v48 = t35


def arguments_0():
    x = "float32"
    y = tensor([40, 40], "float32", 1, "column")
    z = tensor([40, 40], "float32", 2, "expanded")
    return (x, y, z, 3, 1.0, True, 1, 1, 1, {"a": tensor([40, 40], "float32", 80)})


STEPS = [(arguments_0, "", None)]
OPTIONS = dict(dynamic=True)
