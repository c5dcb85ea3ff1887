"""Subclasses of torch.Tensor, with and without a `__torch_function__` of their own.

PYTEST_DONT_REWRITE
"""

import torch
import torch.nn.functional as F

from tests.programs.program import X, program


class Plain(torch.Tensor):
    pass


class Sub(Plain):
    def double(self):
        return self * 2

    @property
    def half(self):
        return self / 2


class Other(torch.Tensor):
    pass


class Logging(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((getattr(func, "__name__", None), len(types), len(args)))
        return super().__torch_function__(func, types, args, kwargs or {})


class WithScale(torch.Tensor):
    @staticmethod
    def __new__(cls, data, scale=1.0):
        made = torch.Tensor.as_subclass(data, cls)
        made.scale = scale
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        scales = [a.scale for a in args if isinstance(a, WithScale) and hasattr(a, "scale")]
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor):
            out = out.as_subclass(cls)
            out.scale = max(scales, default=0.0)
        return out


HANDLED = {}


class Handled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        return NotImplemented


HANDLED[torch.sin] = lambda x: "sin"
HANDLED[torch.Tensor.add] = lambda x, y: ("add", y)
HANDLED[F.relu] = lambda x, inplace=False: ("relu", inplace)


class Times(torch.Tensor):
    def __mul__(self, other):
        return "times"

    def __neg__(self):
        return "negative"

    def __len__(self):
        return 7

    def __getitem__(self, key):
        return key


def of(cls, *more, **attributes):
    def make():
        x = X.clone().as_subclass(cls)
        for name, value in attributes.items():
            setattr(x, name, value)
        return (x, *more)

    return make


@program(args=of(Plain))
def ops_keep_the_class(x):
    y = x.sin() + 1
    z = torch.cat([y, y]) @ x.T
    return y, z, type(z) is Plain, x.shape, x.dtype, y.max(dim=0), isinstance(y, Plain)


@program(args=of(Plain, X))
def with_plain_tensors(x, y):
    return x + y, y + x, 1 - x, y * 2, torch.where(y > 0, x, y), type(y - x), 2**x, x**2


@program()
def made_inside(x):
    y = x.as_subclass(Sub)
    z = y.double().half
    return y, z, z.as_subclass(torch.Tensor), type(z)


@program(args=of(Plain))
def the_input_itself(x):
    y = x.add_(1)
    return y, x, y is x, x.contiguous()


@program(args=of(Plain))
def views_share_memory(x):
    y = x[0]
    y.mul_(3)
    return y, x.view(-1), x.sum()


@program(args=of(Sub, X))
def classes_in_order(x, y):
    p = y.as_subclass(Plain)
    return x + p, p + x, torch.stack([p, x])


@program(args=of(Sub, X), graphs=1, breaks="exception")
def classes_without_relation(x, y):
    z = y * 2
    return z, x + y.as_subclass(Other)


@program(args=of(Plain))
def results_that_are_no_tensors(x):
    return x.size(), x.numel(), x.stride(), x.is_contiguous(), len(x), x.dim(), x + 1


@program(args=of(Plain))
def functions_of_python(x):
    return F.relu(x), F.softmax(x, dim=1), x.split(2), F.layer_norm(x, (4,)), [r for r in x][0]


@program(args=of(Plain, tag="t"))
def attributes(x):
    y = x + 1
    y.tag = x.tag + "u"
    return y, hasattr(y + 1, "tag"), x.tag


@program(args=of(Logging), before=Logging.calls.clear, state=lambda: Logging.calls)
def an_own_function_sees_calls(x):
    y = torch.sin(x) + 1
    z = 1 - y
    z = F.relu(z)
    return z.T @ y, y.shape, z[0], len(z)


@program(args=of(WithScale, scale=2.0))
def an_own_function_passes_attributes(x):
    y = x * 2
    z = WithScale(torch.ones(3, 4), 5.0)
    return y, y.scale, (y + z).scale, torch.cat([y, z]), torch.exp(z)


@program()
def a_table_of_functions(x):
    x = x.as_subclass(Handled)
    return torch.sin(x), x + 1, F.relu(x), X * 2


@program(breaks="exception")
def no_answer(x):
    y = x * 2
    return y, torch.cos(x.as_subclass(Handled))


@program(args=of(Times))
def operators_of_the_class(x):
    return x * 2, -x, len(x), x[3], x + 1, 2 * X


@program(args=of(Plain))
def turned_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
    return y, type(y), x + 1


@program(calls=[of(Plain), (X,), of(Sub), of(Plain)], graphs=3)
def another_class_later(x):
    return x * 2


class Duck:
    def __init__(self, n):
        self.n = n

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [a.n if isinstance(a, Duck) else a for a in args]


@program(args=lambda: (X, Duck(3)))
def an_object_that_is_no_tensor(x, d):
    return torch.add(x, d), torch.sin(d), x * 2


@program(args=of(Plain), graphs=2, breaks="print")
def break_between(x):
    y = x * 2
    print("here", type(y))
    return y + 1, y


@program(args=lambda: (torch.nn.Parameter(X.clone()),))
def a_parameter_made_a_subclass(p):
    return (p * 2).as_subclass(Plain) + 1


class OwnParameter(torch.nn.Parameter):
    kind = "own"

    @property
    def rows(self):
        return self.shape[0]


@program(args=lambda: (OwnParameter(X.clone()),))
def a_subclass_of_parameter(p):
    return p * 2, type(p * 2), p.kind, p.rows, isinstance(p, torch.nn.Parameter), p


class WithShape(torch.Tensor):
    @property
    def shape(self):
        return "none"


def shown(x):
    return x.shape, torch.Tensor.size(x, 0)


@program(breaks="tensor_subclass attribute unknown_call")
def a_class_that_computes_the_shape(x):
    y = x + 1
    return shown(x.as_subclass(WithShape)), y
