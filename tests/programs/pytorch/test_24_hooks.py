"""Hooks of all kinds, parametrizations, weight norm.

PYTEST_DONT_REWRITE
"""

import torch
from torch import nn
from torch.nn.modules import module as module_file
from torch.nn.utils import parametrizations, parametrize

from tests.programs.program import X, program


def linear(*hooks):
    net = nn.Linear(4, 4)
    for kind, hook, options in hooks:
        getattr(net, f"register_{kind}_hook")(hook, **options)
    return net


def doubles_output(module, args, output):
    return output * 2


def shifts_input(module, args):
    return (args[0] + 1,)


def counts(module, args, output):
    module.count = getattr(module, "count", 0) + 1


def with_kwargs_pre(module, args, kwargs):
    return (args[0] * kwargs.get("scale", 1),), {}


def with_kwargs(module, args, kwargs, output):
    return output + kwargs.get("shift", 0)


class Scaled(nn.Module):
    def forward(self, x, scale=1, shift=0):
        return x * scale + shift


@program(args=lambda: (linear(("forward", doubles_output, {})), X))
def forward_hook(net, x):
    return net(x)


@program(args=lambda: (linear(("forward_pre", shifts_input, {})), X))
def forward_pre_hook(net, x):
    return net(x)


@program(
    args=lambda: (
        linear(
            ("forward", counts, {}),
            ("forward", doubles_output, {}),
            ("forward_pre", shifts_input, {}),
        ),
        X,
    )
)
def several_hooks(net, x):
    return net(net(x)), net.count


def scaled():
    net = Scaled()
    net.register_forward_pre_hook(with_kwargs_pre, with_kwargs=True)
    net.register_forward_hook(with_kwargs, with_kwargs=True)
    return net


@program(args=lambda: (scaled(), X))
def hooks_with_keywords(net, x):
    return net(x, scale=3), net(x)


@program(args=lambda: (linear(("forward", counts, {"always_call": True})), X))
def hook_always_called(net, x):
    return net(x), net.count


@program(
    args=lambda: (
        linear(("forward", counts, {}), ("forward", doubles_output, {"prepend": True})),
        X,
    )
)
def hook_prepended(net, x):
    return net(x), net.count


@program(args=lambda: (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), X))
def hook_registered_and_removed_inside(net, x):
    seen = []
    handle = net[0].register_forward_hook(lambda m, a, o: seen.append(o.sum()))
    y = net(x)
    handle.remove()
    return net(y), seen


FEATURES = {}


def keep(name):
    def hook(module, args, output):
        FEATURES[name] = output

    return hook


def with_features():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    for i, part in enumerate(net):
        part.register_forward_hook(keep(i))
    return net


@program(
    args=lambda: (with_features(), X), before=FEATURES.clear, state=lambda: dict(FEATURES), graphs=2
)
def hooks_keep_features_in_a_global(net, x):
    return net(x)


class Seen:
    def __init__(self):
        self.shapes = []

    def __call__(self, module, args, output):
        self.shapes.append(tuple(output.shape))


def with_object_hook():
    net, seen = nn.Linear(4, 2), Seen()
    net.register_forward_hook(seen)
    return net, X, seen


@program(args=with_object_hook)
def hook_object_with_state(net, x, seen):
    return net(x), seen.shapes


def global_hooks():
    module_file._global_forward_hooks.clear()
    module_file._global_forward_pre_hooks.clear()
    nn.modules.module.register_module_forward_hook(
        lambda m, a, o: o + 1 if isinstance(m, nn.ReLU) else None
    )


def clear_global_hooks():
    module_file._global_forward_hooks.clear()


@program(args=lambda: (global_hooks(), nn.ReLU(), X), state=clear_global_hooks, graphs=2)
def global_forward_hook(_, net, x):
    return net(x)


@program(args=lambda: (linear(("full_backward", lambda m, gi, go: None, {})), X))
def backward_hook_without_gradients(net, x):
    return net(x)


@program(args=lambda: (linear(("forward_pre", prints, {})), X), graphs=2, breaks="print")
def hook_that_prints(net, x):
    return net(x + 1) * 2


def prints(module, args):
    print("pre")


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).t()


def symmetric():
    net = nn.Linear(4, 4)
    parametrize.register_parametrization(net, "weight", Symmetric())
    return net


@program(args=lambda: (symmetric(), X), graphs=2)
def parametrization(net, x):
    return net(x), net.weight


@program(args=lambda: (parametrizations.weight_norm(nn.Linear(4, 4)), X), graphs=2)
def weight_norm(net, x):
    return net(x)


@program(args=lambda: (torch.nn.utils.weight_norm(nn.Linear(4, 4)), X))
def old_weight_norm(net, x):
    return net(x)


@program(args=lambda: (parametrizations.orthogonal(nn.Linear(4, 4)), X), graphs=2)
def orthogonal(net, x):
    return net(x)


@program(args=lambda: (parametrizations.spectral_norm(nn.Linear(4, 4)).eval(), X), graphs=2)
def spectral_norm(net, x):
    return net(x)


CALLED: list = []


def _always():
    model = torch.nn.Linear(4, 4)
    model.register_forward_hook(lambda *_: CALLED.append("always"), always_call=True)
    return model


@program(args=lambda: (_always(), torch.ones(2, 5)), before=CALLED.clear, state=lambda: CALLED, graphs=0, breaks="op_error")  # fmt: skip
def hook_that_is_always_called(model, x):
    return model(x)
