"""dtype, device, Size, layout, memory format, finfo, tensor facts and constructors.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


@program()
def dtypes(x):
    d = x.dtype
    y = x.to(torch.float64 if d is torch.float32 else torch.float32)
    return (
        y,
        d == torch.float32,
        d.is_floating_point,
        d.itemsize,
        str(d),
        d in (torch.float16, torch.float32),
        {torch.int64: 1}.get(d, 2),
        torch.promote_types(d, torch.int32),
        torch.float64.is_complex,
        x.int().dtype,
        torch.complex64.to_real(),
    )


@program()
def devices(x):
    d = x.device
    return (
        torch.zeros(2, device=d),
        d,
        d.type,
        d.index,
        d == torch.device("cpu"),
        torch.device("cpu", 0).index,
        x.to("cpu") is x,
        x.is_cuda,
        str(d),
        x.to(d) is x,
    )


@program()
def size_arithmetic_of_torch(x):
    s = x.shape
    return (
        x.reshape(s[::-1]) + 1,
        s + (1,),
        s[0] * s[1],
        s.numel(),
        len(s),
        list(s),
        s == (3, 4),
        s[1:],
        torch.Size([1, 2]) + torch.Size([3]),
        isinstance(s, tuple),
        hash(s) == hash((3, 4)),
        s.index(4),
        max(s),
        sum(s),
        type(s[:1]),
        type(s + (1,)),
        ((1,) + s, type((1,) + s), type(() + s)),
        (s[:0] + (1,), (1,) + s[:0], () + s[:0], s[:0] + ()),
        3 in s,
        s.count(3),
        [*s, 1],
        tuple(s),
    )


@program()
def size_and_what_is_no_int(x):
    try:
        return x + 1, x.shape + (1.5,)
    except TypeError as error:
        return x + 1, str(error)


@program()
def finfo_and_iinfo(x):
    return (
        x.clamp(min=torch.finfo(x.dtype).min) + torch.finfo(x.dtype).eps,
        torch.iinfo(torch.int8).max,
        torch.finfo(torch.float16).tiny,
        torch.finfo(x.dtype).bits,
        torch.masked_fill(x, x > 0, torch.finfo(x.dtype).max),
    )


@program()
def layouts_and_memory_formats(x):
    y = x.reshape(1, 1, 3, 4)
    return (
        y.contiguous(memory_format=torch.channels_last),
        x.layout is torch.strided,
        y.is_contiguous(memory_format=torch.channels_last),
        x.t().is_contiguous(),
        torch.empty_like(y, memory_format=torch.contiguous_format).shape,
        x.stride(),
        x.storage_offset(),
        x[1:].storage_offset(),
    )


@program()
def tensor_facts(x):
    return (
        x + x.ndim + x.numel() + x.dim() + x.element_size() + x.nelement(),
        x.size(),
        x.size(0),
        x.is_floating_point(),
        x.is_complex(),
        x.requires_grad,
        x.is_leaf,
        x.grad,
        x.grad_fn,
        x.T.shape,
        x.mT.shape,
        len(x),
        x.is_contiguous(),
        x.itemsize,
        x.nbytes,
        x.is_sparse,
        x.is_signed(),
    )


@program()
def constructors(x):
    return (
        torch.zeros(2, 3),
        torch.ones_like(x),
        torch.full((2,), 3.0),
        torch.arange(3),
        torch.linspace(0, 1, 3),
        torch.eye(2),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor(2.5),
        x.new_zeros(2),
        x.new_tensor([1.0]),
        torch.empty(0),
        torch.zeros((), dtype=torch.bool),
        torch.as_tensor(3),
        torch.scalar_tensor(2.0),
        torch.arange(0, 1, 0.25),
        torch.complex(x, x),
        torch.tensor([True, False]),
        torch.zeros(2, 2, dtype=torch.int8),
    )


@program()
def tensors_from_shapes(x):
    rows, columns = x.shape
    return (
        torch.arange(rows) * columns,
        torch.zeros(rows * columns).view(rows, columns),
        torch.tensor(x.shape),
        torch.tensor([rows, columns]) + 1,
    )


@program()
def tensor_from_tensors(x):
    return (
        torch.stack([x[0], x[1]]),
        torch.cat([x, x], 1),
        torch.hstack((x, x)),
        torch.vstack([x, x]),
        torch.meshgrid(x[0], x[0], indexing="ij")[0],
        torch.block_diag(x, x),
        torch.broadcast_tensors(x[0], x)[0],
    )


@program()
def named_results(x):
    m = x.max(dim=1)
    values, indices = x.topk(2)
    s = torch.sort(x, dim=0, descending=True)
    return (
        m.values,
        m.indices,
        values,
        s[0],
        m[1],
        torch.min(x, 1).values,
        type(m).__name__,
        x.median(dim=1).values,
        torch.linalg.qr(x)[1].shape,
        x.aminmax(),
        m,
    )


@program()
def conversions_of_dtype(x):
    return (
        x.int(),
        x.double(),
        x.half().float(),
        x.bool(),
        x.to(torch.int64),
        x.type(torch.float64),
        x.type(),
        x.to(x.double()),
        x.long().float(),
        x.bfloat16(),
        x.byte(),
        x.to(dtype=torch.float16, copy=True),
        x.float() is x,
    )


@program()
def methods_by_name_and_unbound(x):
    return (
        torch.Tensor.add(x, 1),
        x.__add__(1),
        torch.add(x, other=1),
        x.__getitem__(0),
        torch.Tensor.sum(x, 0),
        getattr(x, "mul")(2),
        x.__len__(),
        x.__neg__(),
        x.__class__ is torch.Tensor,
        x.__rsub__(1),
    )


@program()
def iteration_and_unpacking(x):
    a, b, c = x
    first, *rest = x
    (p, q), (r, s) = x[:2, :2]
    return (
        a + b * c,
        first,
        rest,
        p + q + r + s,
        [row.sum() for row in x],
        list(x[0]),
        len([*x]),
        max(len(r) for r in x),
        dict(enumerate(x)),
        sum(x),
        [v for row in x for v in row[:1]],
        torch.stack(list(reversed(x))),
    )


@program()
def unpacking_the_wrong_number_is_caught(x):
    try:
        a, b = [x[0], x[1], x[2]]
    except ValueError as error:
        return x + 1, str(error)


@program()
def nonzero_has_no_fixed_shape(x):
    return (x + 1).nonzero() * 2


@program()
def item_is_a_number(x):
    n = (x + 1).max().item()
    return x * n


@program(graphs=2, breaks="item")
def item_is_a_number_to_round(x):
    n = round((x + 1).max().item(), 2)
    return x * n


@program()
def boolean_mask_selects(x):
    y = x * 2
    return y[y > 0] + 1


@program(graphs=2, breaks="metadata_mutation")
def metadata_changed_in_place(x):
    y = (x + 1).clone()
    y.t_()
    return y * 2


@program(graphs=1, breaks="op_error")
def wrong_shapes_raise(x):
    return (x + 1) @ x


@program(args=lambda: (X, torch.nn.Parameter(X[0])))
def parameter_as_argument(x, p):
    return (
        x * p,
        type(p) is torch.nn.Parameter,
        isinstance(p, torch.Tensor),
        isinstance(p, torch.nn.Parameter),
        p.requires_grad,
        p.data + 1,
        p.detach(),
    )


@program(args=lambda: (X, X), graphs=1)
def the_same_tensor_twice(a, b):
    return a + b, a is b


@program(args=lambda: (X.clone(), X[1:], X.t()))
def inputs_that_share_memory(a, b, c):
    return a + 1, b * 2, c - 1


@program()
def comparison_and_logic(x):
    m = x > 0
    return (
        m & (x < 3),
        m | (x == -5),
        ~m,
        m ^ m,
        torch.where(m, x, -x),
        x.eq(1),
        torch.logical_and(m, m),
        m.any(),
        m.all(),
        m.sum(),
        x.isnan(),
        torch.equal is not None,
        x.clamp(0, 2),
        torch.isclose(x, x).all(),
    )


@program(graphs=2, breaks="data_dependent")
def equal_gives_a_python_bool(x):
    y = x + 1
    if torch.equal(y, x):
        return y
    return y * 2


@program()
def reductions(x):
    return (
        x.sum(),
        x.mean(0),
        x.std(),
        x.var(1, keepdim=True),
        x.prod(1),
        x.norm(),
        x.argmax(),
        x.amax((0, 1)),
        x.logsumexp(1),
        x.cumsum(0),
        torch.std_mean(x, dim=0),
        x.count_nonzero(),
        x.flatten().dot(x.flatten()),
        x.softmax(-1),
        x.trace(),
        x.nansum(),
        x.any(1),
        x.unique_consecutive is not None,
    )


@program()
def shapes_are_changed(x):
    return (
        x.view(4, 3),
        x.reshape(-1),
        x.unsqueeze(0).squeeze(),
        x.permute(1, 0),
        x.transpose(0, 1),
        x.expand(2, 3, 4),
        x.repeat(2, 1),
        x.flip(0),
        x.roll(1),
        x.unfold(1, 2, 1),
        x.split(2, 1),
        x.chunk(3),
        x.unbind(1),
        x.movedim(0, 1),
        x.flatten(),
        x.unflatten(1, (2, 2)),
        x.tile(2),
        x.repeat_interleave(2, 0),
        x.narrow(1, 1, 2),
        x.diagonal(),
        x.rot90(),
        x.swapaxes(0, 1),
        x.view_as(x),
        x.ravel(),
        x.tensor_split(2, 1),
        x.select(0, 1),
        x.swapdims(0, 1),
        x.broadcast_to(2, 3, 4),
    )
