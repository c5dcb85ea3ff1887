"""Function modes of the program: `TorchFunctionMode` entered inside.

PYTEST_DONT_REWRITE
"""

import torch
import torch.nn.functional as F
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

from tests.programs.program import X, program


class Log(TorchFunctionMode):
    """Keeps what PyTorch shows it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append((func.__name__, types, len(args), kwargs and sorted(kwargs)))
        return func(*args, **(kwargs or {}))


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.add:
            return result * 2
        return result


class Replacing(TorchFunctionMode):
    def __init__(self, table):
        self.table = table

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in self.table:
            return self.table[func](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@program()
def a_mode_that_changes_results(x):
    y = torch.add(x, 1)
    with Doubling():
        z = torch.add(y, 1)
    return torch.add(z, 1), y * 3


@program()
def what_a_mode_sees(x):
    with Log() as mode:
        y = x + 1
        y = 2 - y
        y += x.shape[0]
        y = F.relu(y.sin().T) @ torch.ones(3, 2)
        y = F.dropout(y, 0.5, False)
        z = y[0].to(torch.float64)
        z[1] = 3
        kind = torch.promote_types(y.dtype, torch.int64)
        device = torch.device("cpu", index=0)
    return y, z, kind, device, mode.seen, torch.zeros(2)


@program(grad=True)
def gradient_modes_are_seen(x):
    with Log() as mode:
        with torch.no_grad():
            y = x * 2
            inside = torch.is_grad_enabled()
        z = x * 3
    return y, z, inside, mode.seen, torch.is_grad_enabled()


@program()
def one_mode_in_another(x):
    with Log() as outer:
        with Doubling():
            y = torch.add(x, 1)
        with Log() as inner, Replacing({torch.sin: torch.cos}):
            z = torch.sin(y)
    return y, z, outer.seen, inner.seen


@program(args=lambda: (torch.nn.Linear(4, 2).requires_grad_(False), X))
def a_module_in_a_mode(linear, x):
    with Log() as mode:
        y = linear(x)
        n = linear.weight.shape
    return y.shape, n, mode.seen


class OfBase(BaseTorchFunctionMode):
    pass


@program()
def the_base_mode(x):
    with OfBase():
        return x.sin() + 1


class WithBlocks(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.events = []

    def __enter__(self):
        self.events.append("enter")
        return super().__enter__()

    def __exit__(self, *exception):
        self.events.append(exception[0])
        super().__exit__(*exception)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) if func is not torch.sin else args[0]


@program()
def methods_of_the_mode(x):
    mode = WithBlocks()
    try:
        with mode:
            y = torch.sin(x) + 1
            raise KeyError(1)
    except KeyError:
        z = torch.sin(x)
    with mode:
        w = torch.sin(x)
    return y, z, w is x, mode.events


SHARED = Log()


@program(before=SHARED.seen.clear, state=lambda: list(SHARED.seen))
def a_mode_from_before_the_call(x):
    with SHARED:
        return x.sin() * 2


@program(calls=[(X, Doubling()), (X, Replacing({torch.add: torch.sub})), (X, Doubling())], graphs=2)
def another_mode_each_time(x, mode):
    with mode:
        return torch.add(x, 1)


@program()
def a_mode_in_a_device(x):
    with torch.device("cpu"), Log() as mode:
        z = torch.zeros(4) + x[0]
    return z, z.device, mode.seen


@program(graphs=0, breaks="context_manager", plain=True)
def a_device_in_a_mode(x):
    with Log() as mode, torch.device("cpu"):
        y = torch.ones(2, 4)
    return y + x[0], y.device, mode.seen


class Raising(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.cos:
            raise ValueError("no cosine")
        return func(*args, **(kwargs or {}))


@program()
def a_mode_that_raises(x):
    try:
        with Raising():
            y = x.sin()
            torch.cos(y)
    except ValueError as error:
        return y, str(error), torch.cos(y)


class WithoutAnswer(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return NotImplemented


@program(graphs=0, breaks="tensor_subclass")
def a_mode_without_an_answer(x):
    with WithoutAnswer():
        return x + 1


@program(graphs=1, breaks="print", plain=True)
def a_break_inside(x):
    y = x * 2
    with Log() as mode:
        z = y.sin()
        print("inside", len(mode.seen))
        z = z + 1
    return z, mode.seen


@program()
def a_number_of_a_tensor(x):
    with Log() as mode:
        y = x.sum().item()
    return x + y, mode.seen


def in_a_mode(what, graphs=1, breaks="", plain=False):
    def run(x):
        with Log() as mode:
            result = what(x)
        return result, x * 3, mode.seen

    return program(graphs=graphs, breaks=breaks, plain=plain)(run)


rows = in_a_mode(lambda x: [row * 2 for row in x], 0, "tensor_subclass", plain=True)
truth = in_a_mode(lambda x: 1 if x.sum() > 0 else 2, 1, "tensor_subclass", plain=True)
length = in_a_mode(lambda x: len(x), 0, "tensor_subclass", plain=True)
as_float = in_a_mode(lambda x: float(x.sum()), 1, "tensor_subclass", plain=True)
as_int = in_a_mode(lambda x: int(x.sum()), 1, "item", plain=True)
as_bool = in_a_mode(lambda x: bool(x.sum()), 1, "tensor_subclass", plain=True)
as_list = in_a_mode(lambda x: list(x), 0, "tensor_subclass", plain=True)
unpacked = in_a_mode(lambda x: [*x], 0, "tensor_subclass", plain=True)
absolute = in_a_mode(lambda x: abs(x), 0, "tensor_subclass", plain=True)
rounded = in_a_mode(lambda x: round(x, 1), 0, "unknown_call")
power = in_a_mode(lambda x: pow(x, 2), 0, "unknown_call", plain=True)
divided = in_a_mode(lambda x: divmod(x, 2), 0, "unknown_call")
added = in_a_mode(lambda x: sum([x, x]))
smaller = in_a_mode(lambda x: max(x.sum(), x.prod()), 1, "tensor_subclass", plain=True)
text = in_a_mode(lambda x: str(x), 0, "unknown_call", plain=True)
formatted = in_a_mode(lambda x: f"{x.sum()}", 1, "unknown_call", plain=True)
contained = in_a_mode(lambda x: 3.0 in x, 0, "tensor_subclass", plain=True)
reverse = in_a_mode(lambda x: list(reversed(x)), 1, "tensor_subclass", plain=True)
hashed = in_a_mode(lambda x: {x: 1}[x])
an_index = in_a_mode(lambda x: [1, 2, 3][x.argmin()], 1, "item", plain=True)
a_gradient = in_a_mode(lambda x: x.grad)
data = in_a_mode(lambda x: x.data)
is_inference = in_a_mode(lambda x: x.is_inference())
offset = in_a_mode(lambda x: x.storage_offset())
base = in_a_mode(lambda x: x[0]._base is None, 1, "tensor_attribute", plain=True)
sized = in_a_mode(lambda x: (x.size(0), x.dim(), x.numel(), x.stride(), x.T.mT.ndim))
likes = in_a_mode(
    lambda x: torch.zeros_like(x) + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.as_tensor(x)
)
number_class = in_a_mode(
    lambda x: torch.is_tensor(x) and isinstance(x, torch.Tensor) and torch.is_floating_point(x),
    0,
    "library_call",
    plain=True,
)
named = in_a_mode(lambda x: getattr(x, "shape") if hasattr(x, "dtype") else None)
numbers = in_a_mode(lambda x: x.tolist(), 0, "item", plain=True)
array = in_a_mode(lambda x: x.numpy())
operators = in_a_mode(lambda x: torch.ops.aten.sin(x) + torch.ops.aten.cos.default(x))
parameter = in_a_mode(lambda x: torch.nn.Parameter(x).shape, 0, "tensor_subclass", plain=True)
inference = in_a_mode(
    lambda x: torch.inference_mode()(lambda: x + 1)(), 0, "unknown_call", plain=True
)
losses = in_a_mode(
    lambda x: F.mse_loss(x, x + 1) + F.cross_entropy(x, x.softmax(1)) + F.layer_norm(x, (4,)).sum()
)
attention = in_a_mode(lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]))
pooled = in_a_mode(
    lambda x: (
        F.adaptive_avg_pool2d(x[None, None], 1)
        + F.max_pool1d(x[None], 2).sum()
        + F.pad(x, (1, 1)).sum()
    )
)
einsum = in_a_mode(
    lambda x: torch.einsum("ij,kj->ik", x, x) + torch.norm(x) + torch.stack(torch.split(x, 1)).sum()
)
initial = in_a_mode(lambda x: torch.nn.init.ones_(torch.empty(2)))
random = in_a_mode(
    lambda x: (torch.manual_seed(0), torch.rand(2))[1], 0, "library_call", plain=True
)
derived = in_a_mode(
    lambda x: torch.func.grad(lambda y: (y * y).sum())(x), 0, "library_call", plain=True
)
mapped = in_a_mode(lambda x: torch.vmap(torch.sin)(x), 0, "library_call", plain=True)
checked = in_a_mode(lambda x: torch._check(x.shape[0] == 3), 0, "library_call", plain=True)
deterministic = in_a_mode(lambda x: torch.are_deterministic_algorithms_enabled())


@program()
def left_early(x):
    with Doubling():
        if x.shape[0] == 3:
            return torch.add(x, 1)
    return x


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@program(args=lambda: (X.as_subclass(Tagged), X), graphs=0, breaks="tensor_subclass", plain=True)
def a_subclass_in_a_mode(tagged, x):
    with Log() as mode:
        y = tagged + 1
    return type(y), x * 2, mode.seen
