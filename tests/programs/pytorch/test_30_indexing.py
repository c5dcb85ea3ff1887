"""Indexing of every form, reading and writing.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program

I = torch.tensor([2, 0])


@program()
def integers_and_slices(x):
    x = x + 1
    return (
        x[0],
        x[-1],
        x[0, 1],
        x[:, 1],
        x[1:],
        x[::2],
        x[:, 1:3],
        x[-2:, :-1],
        x[0][1],
        x[1:1],
        x[:100],
    )


@program()
def ellipsis_and_none(x):
    x = x + 1
    return x[...], x[..., 0], x[None], x[:, None], x[..., None, :], x[None, ..., None], x[0, ..., 1]


@program()
def tensor_indices(x):
    i = torch.tensor([2, 0])
    return (
        x[i],
        x[:, i],
        x[i, i],
        x[i[:, None], i],
        x[[0, 2]],
        x[[0, 1], [1, 2]],
        x[(0, 1)],
        x[i, 1:3],
        x[..., i],
    )


@program()
def gather_and_friends(x):
    i = torch.tensor([[0, 1], [2, 3], [1, 0]])
    return (
        x.gather(1, i),
        x.index_select(0, i[0]),
        x.take(i),
        torch.take_along_dim(x, i, 1),
        x.scatter(1, i, 9.0),
        x.scatter_add(1, i, torch.ones(3, 2)),
        x.index_add(0, I, x[:2]),
        x.index_fill(1, I, 7.0),
        x.index_copy(0, I, x[:2]),
        x.masked_fill(x > 0, 0),
        x.put(i[0], torch.zeros(2)),
    )


@program()
def item_assignment(x):
    y = x.clone()
    y[0] = 1
    y[1, 2] = 5
    y[:, 0] = torch.arange(3.0)
    y[2, 1:3] = y[0, :2]
    y[..., -1] += 2
    return y


@program()
def assignment_by_tensor_and_mask(x):
    y = x.clone()
    y[torch.tensor([0, 2])] = -1
    y[y > 3] = 0
    y[[0, 1], [1, 2]] = torch.tensor([8.0, 9.0])
    y.masked_fill_(y == 8, 80)
    return y


@program(args=lambda: (X.clone(),))
def assignment_to_an_argument(x):
    x[0] = x[1]
    x[1:, 1:] = 0
    return x.sum()


@program()
def augmented_assignment_to_a_view(x):
    y = x.clone()
    row = y[0]
    row += 1
    y[1] *= 2
    y[2][0] = 100
    return y, row


@program()
def index_from_shape_arithmetic(x):
    rows, columns = x.shape
    x = x + 1
    return (
        x[rows // 2],
        x[:, columns - 1],
        x[: rows - 1, 1 : columns - 1],
        x[range(2)[1]],
        x[tuple([0, slice(1, None)])],
        x[slice(0, 2), 1],
    )


@program()
def boolean_scalar_and_empty_indices(x):
    return x[True], x[()], x[torch.tensor([], dtype=torch.long)], x[[]], x[False]


@program(graphs=1, breaks="op_error")
def index_errors_stay(x):
    y = x + 1
    try:
        y[5]
    except IndexError as error:
        return y, type(error).__name__


@program()
def where_forms(x):
    return (
        torch.where(x > 0, x, 0.0),
        torch.where(x > 0, 1, 2),
        x.where(x > 0, -x),
        torch.where(x > 0, x, x.double()),
    )


@program()
def where_of_one_argument(x):
    y = x + 1
    rows, columns = torch.where(y > 3)
    return rows + columns


@program()
def windows_and_strides(x):
    return (
        x.unfold(1, 2, 2),
        x.as_strided((2, 2), (1, 2)),
        x.diag(),
        x.tril(),
        x.triu(1),
        torch.diag_embed(x[0, :2]),
        x.narrow(0, 0, 2),
        x.reshape(2, 6)[:, ::3],
    )


@program(args=lambda: (X, torch.tensor([1, 3]), 2))
def index_arguments(x, i, n):
    return x[:, i], x[n], x[n, i], x[i // 2]


@program()
def rows_in_a_loop(x):
    out = torch.zeros_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * (i + j)
    return out


@program()
def swapping_rows_needs_a_copy(x):
    y = x.clone()
    y[0], y[1] = y[1].clone(), y[0].clone()
    z = x.clone()
    z[0], z[1] = z[1], z[0]
    return y, z


@program()
def delete_and_split_columns(x):
    left, right = x.split([1, 3], dim=1)
    a, b, c, d = x.unbind(1)
    return left * right, a + d, torch.cat([x[:, :1], x[:, 2:]], 1), b, c
