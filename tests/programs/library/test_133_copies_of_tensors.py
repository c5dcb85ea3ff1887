"""`copy.copy` and `copy.deepcopy` of tensors and modules, alone and inside of other objects.

PYTEST_DONT_REWRITE
"""

import copy
from dataclasses import asdict, astuple, dataclass

import torch

from tests.programs.changing import SAME, changes
from tests.programs.program import X, program


@program(args=lambda: (X.clone(),))
def a_deep_copy(x):
    y = copy.deepcopy(x)
    y.add_(1)
    return y, x, y is x


@program(args=lambda: (X.clone(),))
def of_a_result(x):
    y = x * 2
    z = copy.deepcopy(y)
    z.mul_(3)
    return y, z


@program(args=lambda: (X.clone(),))
def one_tensor_twice(x):
    y = x + 1
    a = copy.deepcopy([y, y, {"x": x}])
    a[0].add_(1)
    return a, y, a[0] is a[1]


@program(args=lambda: (X.clone(), torch.ones(3)))
def two_tensors(x, y):
    a, b = copy.deepcopy((x, y))
    a.add_(1)
    return a, b, x


@program(args=lambda: (X.t().clone(memory_format=torch.preserve_format),))
def strides_are_kept(x):
    return copy.deepcopy(x)


@program(args=lambda: (X[1:],), breaks="library_call", graphs=1)
def of_a_part(x):
    return copy.deepcopy(x) + 1


@program(args=lambda: (X.clone(),), breaks="library_call", graphs=2)
def of_a_view(x):
    y = copy.deepcopy((x * 2)[1:])
    return y + 1


def aliases():
    x = X.clone()
    return x, x.view(-1)


@program(args=aliases, breaks="library_call", graphs=1)
def of_two_that_share_memory(x, y):
    a, b = copy.deepcopy([x, y])
    a.add_(1)
    return a, b


@program(args=lambda: (X.clone(),))
def a_shallow_copy(x):
    y = copy.copy(x)
    y.add_(1)
    return y, x, y is x


@dataclass
class Record:
    a: torch.Tensor
    b: int
    c: list


@program(args=lambda: (X.clone(),))
def of_a_dataclass(x):
    record = Record(x, 2, [x + 1])
    d, e = asdict(record), astuple(record)
    d["a"].add_(1)
    return d, e, x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        self.note = [1]
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        return self.norm(self.linear(x)) * self.scale


@program(args=lambda: (Net(), X))
def of_a_module(net, x):
    other = copy.deepcopy(net)
    y = other(x)
    return y, net.norm.running_mean, other.norm.running_mean, other.note is net.note


@program(args=lambda: (Net(), X))
def a_shallow_copy_of_a_module(net, x):
    other = copy.copy(net)
    other.extra = 3
    return other(x), hasattr(net, "extra"), other.linear is net.linear, net.norm.running_mean


class Special(torch.nn.Module):
    def __deepcopy__(self, memo):
        return self

    def forward(self, x):
        return x + 1


@program(args=lambda: (Special(), X))
def of_a_module_that_copies_itself(net, x):
    return copy.deepcopy(net)(x)


def with_attribute():
    x = X.clone()
    x.note = [1]
    return (x,)


@program(args=with_attribute, breaks="library_call", graphs=1)
def with_an_attribute(x):
    y = copy.deepcopy(x)
    return y.note, y + 1


@changes
def what_a_deep_copy_relies_on():
    state = [X.clone(), torch.ones(3)]
    yield lambda x: copy.deepcopy(state)[0] + copy.deepcopy(state)[1][0] + x
    state[0] = X.clone()
    yield SAME
    state[0] = torch.cat([X, X])[3:]
    yield
    state[0] = X.clone()
    state[0].note = 1
    yield
    both = torch.ones(12)
    state[0], state[1] = both.view(3, 4), both[:3]
    yield


@changes
def tensors_that_begin_to_share_memory():
    state = [X.clone(), torch.ones(3, 4)]

    def program(x):
        a, b = copy.deepcopy(state)
        a.add_(1)
        return a, b, x + 1

    yield program
    state[1] = state[0].view(3, 4)
    yield
