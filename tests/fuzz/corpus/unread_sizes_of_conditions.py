# seed 822894: a size that data decides is checked to equal that of an input which nothing reads

from tests.fuzz.support import tensor


def fn(x, y, z, parts, table):
    if y.numel() > 3:
        y = z[x.sum(-1) > 0]
    sum([p * k for k, p in enumerate(parts)], y)
    int(y.sum())
    table["missing"]


def first():
    x = [3, 3]
    return x, tensor([3, 3], "float32", 1, "column"), x[1:], [], {}


def second():
    parts = [tensor([3, 3], "float32", 52, "transposed"), tensor([3, 3], "float32", 53, "stepped")]
    x, z = tensor([3, 3], "float32", 20), tensor([3, 3], "float32", 22)
    return x, tensor([3, 3], "float32", 21, "expanded"), z, parts, {}


STEPS = [(first, "", None), (second, "", None)]
OPTIONS = dict(dynamic=True)
