"""In-place operations, views, aliasing, out=.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


@program(args=lambda: (X.clone(),))
def argument_written(x):
    x.add_(1)
    x.mul_(2).sub_(1)
    return x


@program(args=lambda: (X.clone(),))
def argument_written_through_a_view(x):
    v = x[0]
    v.zero_()
    x.t()[1].fill_(9)
    return v


@program(args=lambda: (X.clone(),))
def argument_returned_unchanged(x):
    y = x
    y + 1
    return x, y, y is x


@program(args=lambda: (X.clone(),))
def views_of_an_argument_returned(x):
    return x[0], x.t(), x.view(-1), x.detach(), x + 0


@program()
def views_alias_each_other(x):
    y = x + 1
    a, b = y[0], y.t()
    a.fill_(7)
    return y, a, b


@program()
def write_after_read(x):
    y = x.clone()
    z = y * 2
    y.zero_()
    w = y + 1
    return y, z, w


@program()
def in_place_operators(x):
    y = x.clone()
    z = y
    y += 1
    y *= 2
    y -= x
    y /= 3
    y **= 2
    y //= 2
    return y, z is y


@program()
def in_place_on_integers(x):
    i = x.long()
    i += 1
    i |= 4
    i <<= 1
    i ^= 3
    i &= 255
    return i


@program()
def in_place_keeps_dtype(x):
    y = x.half()
    y += x
    i = torch.zeros(3, 4)
    i += torch.ones(3, 4, dtype=torch.int32)
    return y, i


@program(breaks="op_error")
def in_place_dtype_error_is_caught(x):
    i = x.long()
    try:
        i += 0.5
    except RuntimeError as error:
        return x + 1, "cast" in str(error)


@program()
def out_arguments(x):
    y = torch.empty(3, 4)
    z = torch.add(x, 1, out=y)
    torch.mul(y, 2, out=y)
    return y, z is y


@program(args=lambda: (X, torch.zeros(3, 4)))
def out_is_an_argument(x, out):
    torch.sub(x, 1, out=out)
    return out.sum()


@program()
def copy_and_fill(x):
    y = torch.empty_like(x)
    y.copy_(x)
    y[0].copy_(y[1])
    z = torch.empty(2).fill_(3)
    return y, z, torch.zeros(2).copy_(torch.tensor([1, 2]))


@program()
def activations_in_place(x):
    y = x.clone()
    torch.relu_(y)
    y.clamp_(max=3).sqrt_()
    return (
        y,
        x.clone().sigmoid_(),
        torch.nn.functional.relu(x.clone(), inplace=True),
        x.clone().tanh_(),
    )


@program(args=lambda: (X.clone(), X.clone()))
def two_arguments_swapped(a, b):
    t = a.clone()
    a.copy_(b + 1)
    b.copy_(t)


@program(args=lambda: ((t := X.clone()), t[1:]), plain=True, graphs=0)
def written_arguments_that_overlap(a, b):
    a.add_(1)
    return b * 2


@program(args=lambda: ((t := X.clone()), t), graphs=1)
def one_argument_twice_and_written(a, b):
    a.add_(1)
    return b * 2, a is b


@program()
def expand_then_write_a_clone(x):
    y = x[0].expand(3, 4).clone()
    y[1] += 1
    return y


@program()
def scatter_in_place(x):
    y = x.clone()
    i = torch.tensor([[0, 1], [1, 2], [2, 3]])
    y.scatter_(1, i, 0.0)
    y.scatter_add_(1, i, torch.ones(3, 2))
    y.index_add_(0, torch.tensor([0]), x[:1])
    y.index_fill_(1, torch.tensor([3]), 5)
    return y


@program()
def accumulation_in_a_loop(x):
    total = torch.zeros(4)
    for row in x:
        total += row
        total.mul_(0.5)
    return total


@program(args=lambda: (X.clone(), {"w": torch.ones(4)}))
def tensor_in_a_dictionary_written(x, state):
    state["w"].mul_(0.9).add_(x.mean(0))
    state["n"] = state["w"]
    return state["n"] is state["w"]


@program(args=lambda: ([torch.ones(2), torch.zeros(2)], [torch.full((2,), 3.0)] * 2))
def foreach_in_place(params, grads):
    torch._foreach_add_(params, grads, alpha=-0.1)
    return [p * 2 for p in params]


@program(graphs=2, breaks="print", args=lambda: (X.clone(),))
def write_on_both_sides_of_a_break(x):
    v = x[0]
    x.add_(1)
    print("between")
    v.mul_(2)
    return v, x


@program()
def detached_and_data_share(x):
    y = x + 1
    d = y.detach()
    d.zero_()
    e = y.data
    e += 1
    return y, d


@program()
def contiguous_may_be_the_same(x):
    y = x + 1
    a, b = y.contiguous(), y.t().contiguous()
    a.add_(1)
    b.add_(1)
    return y, a is y, a, b


@program()
def reshape_may_copy(x):
    y = x + 1
    a, b = y.reshape(-1), y.t().reshape(-1)
    a[0] = 100
    b[1] = 200
    return y, a, b


@program()
def to_may_be_the_same(x):
    y = x + 1
    a, b = y.to(torch.float32), y.to(torch.float64)
    return a is y, a, b, y.float() is y, y.type_as(x) is y


def strided(*strides):
    return lambda: (torch.arange(5.0).as_strided((3, 3), strides),)


@program(args=strided(0, 1), graphs=2, breaks="unsupported_op unsupported_op")
def rows_that_are_one_row_written(x):
    x[0] = 4
    x[1:2].add_(1)
    return x * 2


@program(args=strided(1, 1), graphs=2, breaks="unsupported_op unsupported_op unsupported_op")
def elements_that_share_memory_written(x):
    x.add_(1)
    x[::2] += 1
    return x * 2


@program(args=lambda: (torch.arange(16.0).view(4, 4),), breaks="unsupported_op unsupported_op")
def neighbours_written_one_after_the_other(x):
    x[:, 1:] += x[:, :-1]
    x[:, 1:3].copy_(x[:, :2])
    return x * 2


@program(args=lambda: (torch.arange(16.0).view(4, 4),))
def neighbours_read_before_they_are_written(x):
    x[:, :-1] = x[:, 1:]
    x[:, ::2] += x[:, 1::2]
    x[:, 0].mul_(x[:, 1])
    x[:, :2].add_(x[:, 2:])
    x[1:, 2] -= x[:-1, 3]
    x[:2, 1:].add_(x[2:, 1:])
    return x * 2


@program(args=lambda: (torch.ones(3, 2, dtype=torch.complex64)[1:],), graphs=0, breaks="mutated_view")  # fmt: skip
def diagonal_of_a_part_that_is_complex(x):
    x.fill_diagonal_(3)
