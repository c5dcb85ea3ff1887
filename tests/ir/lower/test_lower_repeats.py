"""Parts of a graph that do the same for other tensors: lowered once, and said again for all."""

import pytest
import torch

from frameloom.ir.passes.batch import expand
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.program import Extern, Kernel
from tests.ir.helpers import check

SHAPES = [(3, 4), (5,), (2, 3, 4), (7, 8), (300,)]


def tensors(shapes=SHAPES, n=2):
    torch.manual_seed(0)
    return [torch.randn(s) for s in shapes for _ in range(n)]


def checked(function, *inputs, lowered=True, **options):
    """The lowered program; what comes of fusing it has been run, too."""
    programs = []

    def keep(program):
        programs.append(program)
        return fuse(program)

    last = check(function, *inputs, passes=(keep,), lowered=lowered, **options)
    assert not last.isomorphic_parts
    return programs[0]


def sizes(program):
    """How many parts each group has."""
    return sorted(1 + len(group.others) for group in program.isomorphic_parts)


def pairs(given):
    return zip(given[::2], given[1::2], strict=True)


def update(*given):
    return [p.mul(0.9).add(g * g + 1, alpha=-0.1) for p, g in pairs(given)]


def test_elementwise_parts_are_one_whatever_their_shapes():
    program = checked(update, *tensors())
    assert sizes(program) == [len(SHAPES)]
    assert len(program.steps) == 4


def test_what_the_program_writes():
    def write(*given):
        for p, g in pairs(given):
            p.mul_(0.9).add_(g, alpha=-0.1)
        return given[0] + 1

    program = checked(write, *tensors(SHAPES + SHAPES), functional=True)
    assert sizes(program) == [2 * len(SHAPES) - 1]  # of one, another value is returned


def test_list_ops_are_ops_for_each_item():
    def update(*given):
        ps, gs = given[::2], given[1::2]
        out = torch._foreach_mul(ps, 0.9)
        out = torch._foreach_addcmul(out, gs, gs, -0.5)
        return torch._foreach_add(out, [1.0] * len(out))

    program = checked(update, *tensors())
    assert sizes(program) == [len(SHAPES)]


def test_other_numbers_make_other_parts():
    def update(*given):
        return [p * (0.5 if k % 2 else 1.5) for k, p in enumerate(given)]

    assert sizes(checked(update, *tensors([(3,), (4, 5)] * 4, 1))) == [4, 4]
    assert sizes(checked(lambda *given: [p * k for k, p in enumerate(given)], *tensors())) == []


def test_signed_zeros_and_types_of_numbers_are_told_apart():
    def update(*given):
        return [p.pow(2) * (0.0, -0.0, 0, False)[k % 4] for k, p in enumerate(given)]

    assert sizes(checked(update, *tensors([(3,)] * 16, 1))) == [4, 4, 4, 4]


def test_other_dtypes_make_other_parts():
    given = [
        t.to((torch.float32, torch.float64)[k % 2])
        for k, t in enumerate(tensors([(3,), (4,)] * 4, 1))
    ]
    assert sizes(checked(lambda *given: [t.exp() + 1 for t in given], *given)) == [4, 4]


def test_tensors_of_no_dimensions_are_promoted_otherwise():
    given = [torch.randn(s) for s in [()] * 4 + [(1,)] * 4 + [(2,)] * 4]
    program = checked(lambda *given: [t.mul(torch.float64 and 2.0).sin() for t in given], *given)
    assert sizes(program) == [4, 4, 4]


def test_a_large_tensor_that_all_read_is_a_reason_to_look_at_all():
    given = tensors([(4, 5)] * 6, 1)
    assert sizes(checked(lambda s, *given: [t * s for t in given], *given)) == []


def test_a_number_may_be_shared():
    given = [torch.tensor(2.0), *tensors(n=1)]
    assert sizes(checked(lambda s, *given: [t * s for t in given], *given)) == [len(SHAPES)]


def test_what_is_no_elementwise_part_has_one_geometry():
    def update(*given):
        return [(p @ p.T).div(p.norm() + 1) for p in given]

    given = tensors([(4, 6)] * 4 + [(5, 6)] * 5 + [(3, 2)], 1)
    program = checked(update, *given, lowered=False)
    assert sizes(program) == [4, 5]
    whole = expand(program)
    assert sum(isinstance(s, Extern) for s in whole.steps) == 10
    names = [s.name for s in whole.steps if isinstance(s, Kernel)]
    assert len(names) == len(set(names))


def test_views_and_strides():
    def update(*given):
        return [p.t() * 2 + g.t() for p, g in pairs(given)]

    a, b = tensors([(4, 6)] * 4, 2), [t.t() for t in tensors([(6, 4)] * 4, 2)]
    assert sizes(checked(update, *a, *b)) == [4, 4]


def test_an_input_that_is_a_slice():
    whole = torch.randn(6, 8, 5)
    given = [whole[k, :, 1:] for k in range(6)]
    assert sizes(checked(lambda *given: [t.sin() + 1 for t in given], *given)) == [6]


def test_parts_without_elements():
    given = [torch.randn(s) for s in [(0, 3)] * 4 + [(2, 0)] * 4 + [(2,)] * 4]
    checked(lambda *given: [t.sin() + 1 for t in given], *given)


def test_reductions_of_parts():
    def update(*given):
        return [p.softmax(-1).sum() + p.amax(0) for p in given]

    assert sizes(checked(update, *tensors([(4, 6)] * 5, 1))) == [5]


@pytest.mark.parametrize("n", [1, 3])
def test_few_are_not_worth_it(n):
    assert sizes(checked(update, *tensors(SHAPES[:n]))) == []


def test_what_returns_its_input():
    given = tensors([(4,)] * 5, 1)
    checked(lambda *given: [v for t in given for v in (t, t + 1, t.view(2, 2))], *given)


def test_the_same_tensor_under_another_name_is_elementwise():
    def update(*given):
        return [t.detach().mul(2).detach() + 1 for t in given]

    assert sizes(checked(update, *tensors(n=1))) == [len(SHAPES)]


def test_elements_that_a_mask_selects():
    def update(*given):
        out = []
        for p, g in pairs(given):
            sign = (p * g).sign()
            sign[sign.gt(0)] = 1.2
            sign[sign.lt(0)] = 0.5
            out.append(p * sign)
        return out

    assert sizes(checked(update, *tensors(), functional=True)) == [len(SHAPES)]
