"""What a tensor is compared with: numbers and arrays of all kinds by an op, all else as an object.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import decimal
import enum
import fractions

import numpy as np
import pytest
import torch

from frameloom import jit


class Int(int):
    pass


class Float(float):
    pass


class Sub(torch.Tensor):
    pass


class One(enum.IntEnum):
    ONE = 1


class Plain:
    pass


class Answers:
    def __eq__(self, other):
        return "equal"

    __hash__ = None


OTHERS = {
    "int": 1, "bool": True, "complex": 1 + 0j, "large": 10**30, "Int": Int(1), "Float": Float(1), "enum": One.ONE, "np.int32": np.int32(1),
    "np.float32": np.float32(1), "np.float64": np.float64(1), "np.bool_": np.bool_(True), "array": np.ones(3, np.float32), "array of one": np.array(1.0),
    "Fraction": fractions.Fraction(1), "Decimal": decimal.Decimal(1), "object": Plain(), "Answers": Answers(), "list": [1.0, 1.0, 1.0], "tuple": (1.0,),
    "None": None, "str": "1", "dict": {}, "set": {1}, "Size": torch.Size([3]), "dtype": torch.float32, "subclass": torch.ones(3).as_subclass(Sub), "class": int,
    "function": len, "method": Plain().__init__, "keys": {}.keys(), "slice": slice(1), "range": range(3), "nan": float("nan"),
}  # fmt: skip
USES = [
    lambda x, other: x == other, lambda x, other: other == x, lambda x, other: x != other, lambda x, other: other != x,
    lambda x, other: x in [other], lambda x, other: other in [x], lambda x, other: [other].count(x),
    lambda x, other: x == id(other), lambda x, other: x in [id(other), 1],
]  # fmt: skip


def told(use, x, other):
    try:
        found = use(x, other)
    except Exception as error:
        return type(error), str(error)
    return type(found), getattr(found, "dtype", None), repr(found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHERS)
def test_tensors_are_compared_as_in_plain_python(name):
    other = OTHERS[name]
    for use in USES:

        def run(x, use=use):
            return told(use, x, other), x + 1

        target = jit(run, backend="eager")
        for x in (torch.ones(3), torch.tensor(1)):
            assert target(x)[0] == run(x)[0], use


def test_indices_out_of_a_shape_are_told_as_those_of_a_tuple():
    def run(x):
        try:
            return x.shape[2]
        except IndexError as error:
            return str(error), x + 1

    assert jit(run, backend="eager")(torch.ones(2))[0] == run(torch.ones(2))[0]
