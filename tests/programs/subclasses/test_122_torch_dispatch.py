"""Tensors whose classes compute ops by `__torch_dispatch__`.

PYTEST_DONT_REWRITE
"""

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import return_and_correct_aliasing

from tests.programs.program import X, program


def plain(args, name):
    return [getattr(a, name) if isinstance(a, Two) else a for a in args]


class Two(torch.Tensor):
    """Two tensors of one shape; ops work on both."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device
        )

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, outer_size, outer_stride):
        return Two(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        a = func(*plain(args, "a"), **kwargs)
        b = func(*plain(args, "b"), **kwargs)
        if not isinstance(a, torch.Tensor):
            return a
        return return_and_correct_aliasing(func, args, kwargs, cls(a, b))


class Scaled(torch.Tensor):
    """Data and a Python number; ops compute with the product."""

    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.size(), dtype=data.dtype)

    def __init__(self, data, scale):
        self.data_, self.scale = data, scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        if func is torch.ops.aten.mul.Tensor and not isinstance(args[1], torch.Tensor):
            return cls(args[0].data_, args[0].scale * args[1])
        if func is torch.ops.aten.detach.default:
            return cls(args[0].data_.detach(), args[0].scale)
        args = [a.data_ * a.scale if isinstance(a, Scaled) else a for a in args]
        return func(*args, **kwargs)


CALLS = []


class Noting(Two):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        CALLS.append((str(func), types, len(args), kwargs))
        out = func(*[Two(a.a, a.b) if isinstance(a, Noting) else a for a in args], **kwargs)
        return cls(out.a, out.b) if isinstance(out, Two) else out


class Refusing(Two):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.add.Tensor:
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)


def two(cls=Two, *more):
    return lambda: (cls(X.clone(), X + 1), *more)


def scaled(scale):
    return lambda: (Scaled(X.clone(), scale),)


def parts(x):
    return type(x), x.a, x.b, x.shape, x.dtype, x.stride()


@program(args=two())
def ops_on_both(x):
    return parts(x.sin() * 2 + x)


@program(args=two())
def a_wrapper_is_the_result(x):
    y = x + 1
    return y, y.a


@program(args=two())
def composite_functions(x):
    return parts(F.linear(F.relu(x), x)), parts(F.softmax(x, dim=1)), x.size(0), x.numel(), len(x)


@program(args=two(Two, X))
def with_plain_tensors(x, y):
    return parts(x + y), parts(y + x), parts(y @ x.T), parts(2 - x)


@program(args=two())
def views_inside(x):
    return parts(x.t().contiguous() @ x), parts(x[1:] + 1), parts(x.view(-1).sum(0))


@program(args=two(), breaks="tensor_subclass")
def a_view_is_the_result(x):
    y = x * 2
    return y.t(), y


@program(args=two())
def writes(x):
    y = x.add_(1)
    z = x + 1
    z.mul_(3)
    return y is x, parts(z), z


@program(args=two())
def attributes_replaced(x):
    x.a = x.b + 1
    return parts(x * 2)


@program()
def made_inside(x):
    y = Two(x, x * 2)
    y.note = "n"
    return parts(y + 1), y, y.note


@program(args=scaled(2.0))
def a_number_in_the_wrapper(x):
    y = x * 3
    return torch.exp(y), y.scale, y @ X.T, y.data.scale, y


@program(calls=[scaled(2.0), scaled(3.0), scaled(2.0)], graphs=2)
def a_number_is_guarded(x):
    return x + 1


@program(calls=[two(), (X,), two(Noting), two()], graphs=3, before=CALLS.clear)
def another_class_later(x):
    return torch.sin(x)


@program(calls=[two(), lambda: (Two(X[:2], X[:2]),), two()], graphs=2)
def another_shape_later(x):
    return parts(x + 1)


@program(args=two(Noting), before=CALLS.clear, state=lambda: CALLS)
def effects_of_the_program(x):
    y = F.linear(x, x, X[0, :3])
    return parts(x + y.sum())


@program(args=lambda: (Two(X, X), Noting(X, X)), before=CALLS.clear, state=lambda: CALLS)
def classes_in_order(x, y):
    return parts(x + y), parts(y * x)


@program(args=two(Refusing, Two(X, X)))
def the_next_class_answers(x, y):
    return parts(y + 1), parts(y * 2)


@program(args=two(Refusing), breaks="exception")
def no_answer(x):
    y = X * 2
    return y, x + 1


@program(args=two(), graphs=2, breaks="print")
def break_between(x):
    y = x * 2
    print("here")
    return parts(y + 1), y


@program(args=two(), breaks="tensor_subclass")
def data_of_a_wrapper(x):
    y = X * 2
    if x.sum() > 3:
        return y
    return y + 1


@program(args=two())
def inference_mode(x):
    with torch.inference_mode():
        y = F.linear(x, x) + 1
    return parts(y), y


class Weight(torch.Tensor):
    """Weights as int8 with a scale for each row."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, rows, scale, dtype):
        return torch.Tensor._make_wrapper_subclass(cls, rows.shape, dtype=dtype)

    def __init__(self, rows, scale, dtype):
        self.rows, self.scale = rows, scale

    @classmethod
    def of(cls, weight):
        scale = weight.abs().amax(dim=1) / 127
        rows = (weight / scale[:, None]).round().to(torch.int8)
        return cls(rows, scale, weight.dtype)

    def plain(self):
        return self.rows.to(self.dtype) * self.scale[:, None]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        aten = torch.ops.aten
        if func is aten.detach.default:
            return args[0]
        if func is aten.t.default:
            return Transposed(args[0].rows, args[0].scale, args[0].dtype)
        args = [a.plain() if isinstance(a, Weight) else a for a in args]
        return func(*args, **(kwargs or {}))


class Transposed(Weight):
    @staticmethod
    def __new__(cls, rows, scale, dtype):
        return torch.Tensor._make_wrapper_subclass(cls, rows.t().shape, dtype=dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.addmm.default:
            bias, x, w = args
            return x @ w.rows.to(x.dtype).t() * w.scale + bias
        if func is torch.ops.aten.t.default:
            return args[0].plain()
        return NotImplemented


def quantized():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            weight = Weight.of(layer.weight.detach())
            layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return net


@program(args=lambda: (quantized(), X))
def quantized_linear(net, x):
    return net(x)


@program()
def quantized_inside(x):
    w = Weight.of(x)
    return F.linear(x, w, x[0, :3]), w.scale, w
