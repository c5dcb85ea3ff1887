"""nn.Module: containers, state, buffers, parameters, shared and lazily made parts, attributes set in forward.

PYTEST_DONT_REWRITE
"""

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.program import X, program


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.calls = 0
        self.last = None

    def forward(self, x):
        self.calls += 1
        y = self.fc2(F.gelu(self.fc1(self.norm(x))))
        self.last = y
        return x + y


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Identity()})
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
        self.params = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
        self.named = nn.ParameterDict({"w": torch.full((4,), 2.0)})

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x) * (i + 1)
        x = self.seq(x)
        for p in self.params:
            x = x + p
        x = x * self.named["w"] + self.params[0] - self.blocks[-1].bias
        return (
            {name: head(x) for name, head in self.heads.items()},
            len(self.blocks),
            len(self.seq),
            "a" in self.heads,
        )


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("cache", None)
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, x):
        self.steps += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        if self.cache is None:
            self.cache = x * 2
        return x + self.mean + self.cache, self.steps


@program(args=lambda: (Block(), X))
def module_with_attributes_set_in_forward(net, x):
    return net(x), net.calls, net.last


@program(args=lambda: (Block().eval(), X))
def module_called_twice(net, x):
    return net(net(x)), net.calls


@program(args=lambda: (Containers(), X))
def containers_in_training(net, x):
    return net(x)


@program(args=lambda: (Containers().eval(), X))
def containers_in_evaluation(net, x):
    return net(x)


@program(args=lambda: (Containers(), X))
def container_questions(net, x):
    names = [name for name, _ in net.named_children()]
    return (
        x + len(net.blocks),
        names,
        list(net.heads.keys()),
        [type(m).__name__ for m in net.seq],
        isinstance(net.seq[1], nn.ReLU),
        net.seq[:2](x),
        net.seq[-1].p,
        list(net.named.keys()),
    )


@program(args=lambda: (Buffers(), X))
def buffers_change(net, x):
    return net(x)


@program(args=lambda: (Block(), X))
def parameters_are_walked(net, x):
    total = sum(p.numel() for p in net.parameters())
    norms = [(name, p.norm()) for name, p in net.named_parameters()]
    return (
        x + total,
        norms,
        [n for n, _ in net.named_modules()],
        len(list(net.buffers())),
        [type(c).__name__ for c in net.children()],
        len(list(net.modules())),
    )


@program(args=lambda: (Block(), X), breaks="attribute_write")
def state_access(net, x):
    w = net.get_parameter("fc1.weight")
    m = net.get_submodule("fc2")
    return x + w.sum(), m is net.fc2, list(net.state_dict().keys()), net.training


@program(args=lambda: (Containers(), X))
def train_and_eval_inside(net, x):
    was = net.training
    net.eval()
    out = net(x)[0]["a"]
    net.train(was)
    return out, net.training, net.seq[2].training


@program(args=lambda: (Block(), X))
def apply_inside(net, x):
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    return net(x), seen


@program(args=lambda: (Block(), X))
def requires_grad_switched(net, x):
    return net(x), [p.requires_grad for p in net.parameters()]


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = self.a
        self.w = self.a.weight

    def forward(self, x):
        return self.b(self.a(x)) @ self.w


@program(args=lambda: (Shared(), X))
def shared_submodules_and_weights(net, x):
    return net(x), net.a is net.b, net.w is net.b.weight, len(list(net.parameters()))


class LazyPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None
        self.sizes = {}

    def forward(self, x):
        n = x.shape[-1]
        if n not in self.sizes:
            self.sizes[n] = torch.arange(n, dtype=x.dtype)
        if self.table is None:
            self.table = torch.ones(n) * 3
        return x * self.sizes[n] + self.table


@program(args=lambda: (LazyPart(), X))
def lazily_made_tensors(net, x):
    return net(x), net(x + 1), net.sizes[4] is net.sizes[4]


class MadeInForward(nn.Module):
    def forward(self, x):
        act = nn.ReLU()
        norm = nn.LayerNorm(4, elementwise_affine=False)
        return norm(act(x))


@program(args=lambda: (MadeInForward(), X))
def modules_made_in_forward(net, x):
    return net(x)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.config = {"scale": 2.0, "layers": [1, 2]}

    def forward(self, x, *, mask=None, **kwargs):
        y = self.inner(x * self.config["scale"])
        return (y if mask is None else y * mask), kwargs

    def extra_repr(self):
        return "outer"


@program(args=lambda: (Outer(nn.Linear(4, 4)), X))
def keyword_arguments(net, x):
    return net(x), net(x, mask=x > 0), net(x, more=1)[1]


@program(args=lambda: (Outer(nn.Linear(4, 4)), X))
def module_representation(net, x):
    return net(x)[0], repr(net.inner), str(type(net).__name__)


class WithGetattr(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) + self.bias + self.weight.sum() + self.in_features


@program(args=lambda: (WithGetattr(), X))
def module_with_its_own_getattr(net, x):
    return net(x)


class Override(nn.Linear):
    def __call__(self, x):
        return super().__call__(x) + 1

    def forward(self, x):
        return super().forward(x) * 2


@program(args=lambda: (Override(4, 4), X))
def overridden_call_and_forward(net, x):
    return net(x), nn.Linear.forward(net, x), net.forward(x)


@program(
    args=lambda: (
        nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1),
            nn.BatchNorm2d(2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8, 3),
        ),
        torch.arange(32.0).reshape(2, 1, 4, 4),
    )
)
def small_convolutional_net_in_training(net, x):
    return net(x), net[1].running_mean, net[1].num_batches_tracked


@program(args=lambda: (nn.Embedding(10, 4, padding_idx=0), torch.tensor([[1, 0, 3]])))
def embedding(net, ids):
    return net(ids).sum(1), net.weight[ids].mean(), F.embedding(ids, net.weight)


@program(args=lambda: (Block(), X))
def missing_attribute_of_a_module_is_caught(net, x):
    try:
        net.nothing
    except AttributeError as error:
        return net(x), str(error)


@program(args=lambda: (Block(), X))
def functional_call_style(net, x):
    params = dict(net.named_parameters())
    y = F.linear(x, params["fc1.weight"], params["fc1.bias"])
    return F.linear(F.relu(y), params["fc2.weight"])


@program(args=lambda: (nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), X))
def module_list_sliced_and_reversed(layers, x):
    for layer in reversed(layers):
        x = layer(x)
    for layer in layers[1:]:
        x = layer(x)
    return x, layers[0].weight is layers[-2].weight


@program(args=lambda: (Block(), X), calls=None)
def parameter_data_updated(net, x):
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(0.5)
    net.fc1.weight.data.add_(1)
    return net(x)
