"""The function transforms of torch.func: one graph, equal to eager.

PYTEST_DONT_REWRITE
"""

import collections
import copy
import functools

import torch
import torch._decomp.decompositions_for_jvp  # otherwise the first use imports it, with warnings
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn import functional as F

from tests.programs.program import X, program

Y = torch.linspace(-1, 2, 12).reshape(3, 4)
V = torch.linspace(-1, 1, 4)
W = torch.linspace(0.5, 1.5, 4).requires_grad_()
NEEDS = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()


class Net(torch.nn.Module):
    def __init__(self, n_in=4, n_out=3, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b = torch.nn.Linear(n_in, 8), torch.nn.Linear(8, n_out)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


class Scale:
    def __call__(self, a):
        return a * 2


NET = Net()
SCALAR = Net(2, 1)
NETS = [Net(seed=k) for k in range(3)]
STATE = {name: p.detach() for name, p in NET.named_parameters()}
STACKED = stack_module_state(NETS)
EMPTY = copy.deepcopy(NET).to("meta")


def dot(a, b):
    return (a * b).sum()


def power(a):
    return (a.sin() ** 2).sum()


# --- vmap


@program(args=(X, Y))
def vmap_of_a_dot_product(x, y):
    return vmap(lambda a, b: (a * b).sum())(x, y)


@program(args=(X, Y))
def vmap_of_a_function_with_named_results(x, y):
    pair = vmap(lambda a: torch.max(a, 0))(x)
    return pair, pair.indices, vmap(lambda a: a.cummax(0))(y), vmap(torch.frexp)(x).exponent


program(args=(X, Y))(vmap_jitted := vmap(dot))


@program(args=(X, Y))
def vmap_with_dims(x, y):
    one = vmap(lambda a, b: (a * b, a + b), in_dims=(1, 1), out_dims=(0, 1))(x, y)
    return one, vmap(lambda a, b: a * b, in_dims=(0, None), out_dims=-1)(x, y[0])


@program(args=({"a": X, "b": Y[0]},))
def vmap_of_dictionaries(given):
    return vmap(lambda d: {"sum": d["a"] + d["b"]}, in_dims=({"a": 0, "b": None},))(given)


@program(args=(X, Y))
def vmap_with_keywords_and_partial(x, y):
    scaled = functools.partial(lambda a, b, k: a * b * k, k=2.0)
    return vmap(lambda a, *, scale: a * scale)(x, scale=y[0]), vmap(scaled)(x, y)


@program(args=(X, Y))
def nested_vmap(x, y):
    return vmap(vmap(dot, in_dims=(None, 0)), in_dims=(0, None))(x, y)


@program()
def vmap_in_chunks(x):
    return vmap(power, chunk_size=2)(x)


@program()
def vmap_of_functions_of_torch_and_modules(x):
    return vmap(torch.sin)(x), vmap(NET)(x), vmap(jacrev(NET))(x), vmap(jacfwd(NET))(x)


@program()
def vmap_of_python_numbers(x):
    return vmap(lambda a: sum(v * i for i, v in enumerate(a)) + len(a) + a.ndim)(x)


@program()
def vmap_with_writes_inside(x):
    def f(a):
        b = a * 2
        b += 1
        b[0] = 3.0
        return b

    return vmap(f)(x)


@program(args=(X, torch.tensor([0, 2, 1])))
def vmap_of_an_index(x, places):
    return vmap(lambda a, i: a[i])(x, places)


@program()
def vmap_of_layers(x):
    def f(a):
        cat = torch.cat([a, a.new_zeros(2)])
        return F.softmax(cat, 0), F.conv1d(a[None], torch.ones(1, 1, 3)), a.max(), a.argmax()

    return vmap(f)(x)


@program()
def results_of_vmap_go_on(x):
    y = vmap(lambda a: a.sin())(x)
    y[0] = 1
    return y, y.view(-1) + 1


# --- grad


@program()
def gradient(x):
    return grad(lambda a: (a.sin() ** 2).sum())(x)


program()(gradient_jitted := grad(power))


@program(args=(X, Y))
def gradient_and_value(x, y):
    with_aux = grad(lambda a: ((a**2).sum(), a + 1), has_aux=True)(x)
    both = grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(x, y)
    return grad_and_value(power)(x), with_aux, both


@program()
def gradient_of_a_gradient(x):
    return grad(lambda a: grad(power)(a).sin().sum())(x)


@program()
def gradient_without_a_part(x):
    def f(a):
        with torch.no_grad():
            c = a**2
        return ((a - c + a.detach()) ** 2).sum()

    with torch.no_grad():
        return grad(f)(x)


@program(args=(STATE, X, torch.tensor([0, 2, 1])))
def gradients_of_samples(state, x, classes):
    def loss(state, x, target):
        out = functional_call(NET, state, (x.unsqueeze(0),))
        return F.cross_entropy(out, target.unsqueeze(0))

    return vmap(grad(loss), in_dims=(None, 0, 0))(state, x, classes)


@program(args=(*STACKED, X))
def ensemble(parameters, buffers, x):
    def f(p, b, x):
        return functional_call(EMPTY, (p, b), (x,))

    return vmap(f, in_dims=(0, 0, None))(parameters, buffers, x)


# --- Jacobians


@program(args=(V,))
def jacobians(v):
    def f(a):
        return a.sin() * a.sum()

    return jacrev(f)(v), jacfwd(f)(v), jacrev(f, chunk_size=3)(v)


program(args=(V,))(hessian_jitted := hessian(lambda a: (a.sin() ** 3).sum()))


@program(args=(V, Y))
def jacobians_with_options(v, y):
    both = jacrev(lambda a, b: a.sin() * b, argnums=(0, 1))(v, y[0])
    with_aux = jacrev(lambda a: (a.sin(), a.cos()), has_aux=True)(v)
    return both, with_aux, jacrev(lambda d: d["a"].sin() * d["b"])({"a": v, "b": y[0]})


@program()
def batched_jacobians(x):
    return vmap(jacrev(lambda a: a.sin() * a.sum()))(x), vmap(hessian(power))(x)


@program(args=(X[:, :2],))
def laplacian(x):
    return vmap(lambda v: torch.trace(hessian(lambda u: SCALAR(u).sum())(v)))(x)


@program(args=(X, Y))
def products(x, y):
    value, back = vjp(lambda a: a.sin() * a.sum(), x)
    return value, back(y), jvp(power, (x,), (y,)), jvp(grad(power), (x,), (y,))


# --- around and inside


@program(args=(NEEDS,))
def gradients_of_tensors_that_need_gradients(x):
    return grad(power)(x), vmap(power)(x), grad(lambda a: (a * W).sum())(x[0])


@program(args=(NEEDS, Y))
def history_through_transforms(x, y):
    loss = (
        (vmap(grad(power))(x) * y).sum() + jvp(power, (x,), (y,))[1] + vmap(hessian(power))(x).sum()
    )
    return loss, hessian(power)(x[0]).sin()


@program(args=(X[:, :2],))
def residual_of_a_differential_equation(t):
    def u(t):
        return SCALAR(t).squeeze()

    first = vmap(grad(u))(t)
    second = vmap(grad(lambda t: grad(u)(t)[0]))(t)
    return ((first[:, 1] - 0.1 * second[:, 0]) ** 2).mean()


@program()
def lists_outside(x):
    seen, results = [], []

    def f(a):
        seen.append(len(seen))
        return a.sum()

    results.append(vmap(f)(x))
    return results, seen


@program(args=(X,), calls=[(X,), (X.double(),), (X.T,), (X[:2],)], graphs=4)
def other_tensors(x):
    return vmap(grad(power))(x)


# --- what breaks


@program(graphs=0, breaks="data_dependent_branch")
def a_branch_on_data(x):
    return grad(lambda a: (a if a.sum() > 0 else -a).sum())(x)


@program(graphs=0, breaks="item")
def numbers_from_data(x):
    return grad(lambda a: (a * a.sum().item()).sum())(x)


@program(graphs=0, breaks="item")
def numbers_from_batched_data(x):
    return vmap(lambda a: a * a.sum().item())(x)


@program(graphs=0, breaks="print")
def print_inside(x):
    return vmap(lambda a: (print("inside"), a.sum())[1])(x)


@program(graphs=0, breaks="library_call unsupported_tensor unsupported_tensor")
def a_wrapped_tensor_that_leaves(x):
    seen = []
    vmap(lambda a: (seen.append(a), a.sum())[1])(x)
    return seen[0].shape


@program()
def an_exception_inside(x):
    def f(a):
        raise ValueError("inside")

    try:
        return vmap(f)(x)
    except ValueError as error:
        return x + 1, str(error)


@program(graphs=0, breaks="op_error")
def wrong_dims(x):
    return vmap(lambda a: a, in_dims=3)(x)


@program(graphs=0, breaks="op_error")
def a_gradient_of_several_numbers(x):
    return grad(torch.sin)(x)


@program(graphs=0, breaks="op_error")
def a_refused_draw(x):
    return vmap(lambda a: a + torch.randn(4))(x)


@program(before=lambda: torch.manual_seed(0))
def draws(x):
    many = vmap(lambda a: F.dropout(a) + torch.randn(4), randomness="different")(x)
    return many, vmap(lambda a: torch.rand_like(a), randomness="same")(x)


@program(graphs=0, breaks="op_error")
def a_write_to_what_is_differentiated(x):
    return grad(lambda a: a.mul_(2).sum())(x)


@program()
def writes_to_the_input(x):
    vmap(lambda a: a.add_(1))(x)
    vmap(lambda a: a.zero_())(x[1:])
    return x * 2


@program(graphs=0, breaks="library_call")
def a_leaf_inside(x):
    return vmap(lambda a: a.requires_grad_().sum())(x)


@program()
def questions_inside(x):
    return grad(lambda a: ((a is x) + isinstance(a, torch.Tensor) + a * a.requires_grad).sum())(x)


@program()
def names_of_transformed_functions(x):
    made = [vmap(dot), vmap(torch.sin), grad(functools.partial(dot, x))]
    return x + 1, [getattr(f, "__name__", "") for f in made]


@program(graphs=0, breaks="library_call")
def under_inference_mode(x):
    with torch.inference_mode():
        return vmap(lambda a: a @ torch.eye(4))(x)


@program(args=(X, 1.5), calls=[(X, 1.5), (X, 2.5), (X, 3)], graphs=3)
def numbers_inside(x, k):
    return vmap(lambda a, k: a * k, in_dims=(0, None))(x, k)


@program(graphs=0, breaks="library_call unsupported_tensor unsupported_tensor")
def a_dead_tensor_is_used(x):
    seen = []
    vmap(lambda a: (seen.append(a), a.sum())[1])(x)
    return seen[0] + 1


@program()
def containers_and_callables(x):
    ordered = vmap(lambda d: collections.OrderedDict(a=d["a"] * 2))(collections.OrderedDict(a=x))
    scaled = vmap(lambda scale, a: scale(a), in_dims=(None, 0))(Scale(), x)
    return ordered, scaled, vmap(Scale())(x), vmap(lambda pair: [pair[0] * 2, pair[1]])([x, x])


@program(args=(torch.tensor([4, 4]),))
def number_that_is_expanded(x):
    """It keeps the precision of Python's number."""
    made = vmap(lambda end: torch.linspace(0.1, end, 3, dtype=torch.float64))(x)
    return made, (made[:, 0] - 0.1) * 1e12
