"""What an op refuses, it refuses in a jitted call, too, where nobody uses its result as well: PyTorch's own wrong inputs."""

import warnings

import pytest
import torch

import frameloom


def outcome(fn, sample):
    try:
        fn(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("part", range(4))
def test_wrong_inputs_are_refused(part):
    from torch.testing._internal.common_methods_invocations import op_db

    wrong = []
    chosen = [op for op in op_db if op.error_inputs_func is not None][part::12]
    for op in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = [e.sample_input for e in op.error_inputs("cpu")][:8]

            def unused(*args, op=op.op, **kwargs):
                op(*args, **kwargs)
                return 3

            for number, sample in enumerate(samples):
                for fn in (op.op, unused):
                    expected = outcome(fn, sample)
                    for dynamic in (None, True):
                        jitted = frameloom.jit(
                            lambda *a, fn=fn, **k: fn(*a, **k), backend="eager", dynamic=dynamic
                        )
                        found = outcome(jitted, sample)
                        if found is not expected:
                            wrong.append((op.name, number, dynamic, expected, found))
    assert not wrong


def test_a_refused_call_whose_result_is_not_used():
    def unused(x):
        torch.roll(x, 1, 5)
        return x + 1

    with pytest.raises(IndexError):
        frameloom.jit(unused)(torch.ones(3))
