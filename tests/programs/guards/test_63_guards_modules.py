"""Every change of a module that its output depends on is noticed.

PYTEST_DONT_REWRITE
"""

import torch
from torch import nn

from tests.programs.changing import SAME, changes


def network():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    return net.eval()


@changes
def hooks_of_a_module():
    net = network()
    yield lambda x: net(x)
    after = net[0].register_forward_hook(lambda module, args, out: out * 2)
    yield
    before = net[0].register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    yield
    after.remove()
    yield
    before.remove()
    yield SAME


@changes
def hooks_of_all_modules():
    from torch.nn.modules import module as nn_module

    net = network()
    yield lambda x: net(x)
    hook = nn_module.register_module_forward_hook(
        lambda module, args, out: out * 2 if isinstance(module, nn.ReLU) else None
    )
    yield
    hook.remove()
    yield
    hook = nn_module.register_module_forward_pre_hook(lambda module, args: (args[0] + 1,))
    yield
    hook.remove()
    yield


@changes
def parameters():
    net = network()
    yield lambda x: net(x)
    net[0].weight.data = torch.ones(4, 4)
    yield SAME
    net[0].weight = nn.Parameter(torch.zeros(4, 4))
    yield SAME
    net[0].weight.data.fill_(2.0)
    yield SAME
    net[0].weight.requires_grad_(False)
    yield
    net[0].weight.data = torch.ones(4, 4).t().contiguous().t()
    yield
    net[0].bias = None
    yield
    net[3].weight = nn.Parameter(net[0].weight[:2])
    yield


@changes
def conversion_of_a_whole_module():
    net = network()
    yield lambda x: net(x.to(net[0].weight.dtype))
    net.double()
    yield
    net.float()
    yield


@changes
def mode_settings_and_structure():
    net = network()
    yield lambda x: net(x)
    net.train()
    yield
    net.eval()
    yield
    net[1].eps = 1.0
    yield
    net[2] = nn.Sigmoid()
    yield
    net.append(nn.Tanh())
    yield
    net.pop(0)
    yield
    net[0].forward = lambda x: x * 2
    yield
    del net[0].forward
    yield


@changes
def buffers():
    net = network()
    yield lambda x: net(x)
    net[1].running_mean = torch.ones(4) * 3
    yield SAME
    net[1].running_mean.fill_(1.0)
    yield SAME
    net[1].register_buffer("running_var", torch.ones(4).double().float())
    yield


@changes
def names_that_shadow():
    net = network()
    yield lambda x: net(x)
    net[0].__dict__["weight"] = torch.ones(4, 4)
    yield
    del net[0].__dict__["weight"]
    yield
    nn.Linear.weight = torch.ones(4, 4) * 2
    yield
    del nn.Linear.weight
    yield


@changes
def methods_of_the_class():
    net = network()

    class Activation(nn.Module):
        def forward(self, x):
            return x.relu()

    net[2] = Activation()
    yield lambda x: net(x)
    Activation.forward = lambda self, x: x.sigmoid()
    yield
    Activation.__call__ = lambda self, x: x * 5
    yield
    del Activation.__call__
    yield
    Activation._call_impl = lambda self, x: x * 6
    yield
    del Activation._call_impl
    yield
    net[2]._compiled_call_impl = lambda x: x * 7
    yield
    net[2]._compiled_call_impl = None
    yield


@changes
def class_and_dictionary_of_an_instance():
    net = network()

    class Other(nn.Sequential):
        def forward(self, x):
            return super().forward(x) + 100

    yield lambda x: net(x)
    net.__class__ = Other
    yield
    net[1]._parameters = {**net[1]._parameters, "weight": torch.ones(4) * 3}
    yield
    net[1].__dict__ = {**net[1].__dict__, "eps": 2.0}
    yield


@changes
def a_counter_written_by_the_program():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.seen = None

        def forward(self, x):
            self.seen = x.shape[0]
            return self.layer(x)

    net = Net()
    yield lambda x: (net(x), net.seen)
    yield SAME
    net.seen = 7
    yield SAME
    net.layer.weight.data *= 2
    yield SAME


@changes
def things_beside_the_path():
    net = network()
    net.unused = nn.Linear(3, 3)
    yield lambda x: net[3](net[0](x))
    net.unused = None
    yield SAME
    net[2] = nn.Tanh()
    yield
    net[1].eps = 0.5
    yield SAME
    net.note = "text"
    yield SAME


@changes
def tied_and_untied():
    net = network()
    net[1] = nn.Linear(4, 4)
    net[1].weight = net[0].weight
    yield lambda x: net(x)
    net[1].weight = nn.Parameter(net[0].weight.detach().clone() * 2)
    yield
    net[1].weight = net[0].weight
    yield


@changes
def module_list_and_dict():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.table = nn.ModuleDict({"a": nn.Tanh(), "b": nn.Sigmoid()})

        def forward(self, x):
            for item in self.items:
                x = item(x)
            for key, item in self.table.items():
                x = item(x) + len(key)
            return x

    net = Net()
    yield lambda x: net(x)
    net.items.append(nn.Linear(4, 4))
    yield
    net.table["a"] = nn.ReLU()
    yield
    net.table["cc"] = nn.Tanh()
    yield
    net.table["a"] = net.table.pop("a")
    yield
