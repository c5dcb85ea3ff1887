"""The first sample of every op in float32, captured, and run as recorded and as loops; `make ops` does the rest."""

import pytest

pytest.importorskip("expecttest")  # which PyTorch's op database imports

import torch

from tests.ops.cases import all_ops
from tests.ops.undefined import undefined_leaves
from tests.ops.work import do_unit

OPS = all_ops()
GROUPS = 16  # of ops: a test each would cost more than the ops


@pytest.mark.parametrize("group", range(GROUPS))
def test_first_sample(group):
    failures = []
    for op in list(OPS.values())[group::GROUPS]:
        supported = [str(d)[6:] for d in op.supported_dtypes("cpu")]
        dtype = "float32" if "float32" in supported else "int64"
        if dtype not in supported:
            continue
        for form in ("function", "strided"):
            unit = do_unit(op, dtype, form, first=1)
            failures += [
                f"{op.full_name} {form}: {text}" for text in unit["wrong"] + unit["crashed"]
            ]
    assert not failures, "\n".join(failures)


def test_elements_that_eager_leaves_undefined_are_found():
    # More than glibc keeps for a thread: that is given out as it was left.
    argument, result = undefined_leaves(
        lambda x: torch.ones(2).resize_(x.numel()), lambda: [torch.zeros(1000)]
    )
    assert not argument.any() and not result[:2].any() and result[2:].all()
    assert undefined_leaves(torch.ones, lambda: [(2, 3)]) is None
