"""PyTorch's Python around its operators, as models use it: autograd functions, autocast, recurrent layers, attention, parametrizations.

PYTEST_DONT_REWRITE
"""

import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan

from tests.programs.program import X, program

T = torch.arange(24.0).reshape(2, 3, 4) / 10 - 1
IMAGE = torch.arange(48.0).reshape(1, 3, 4, 4) / 10
LSTM = nn.LSTM(4, 5, batch_first=True).eval()
GRU = nn.GRU(4, 5, bidirectional=True).eval()
WEIGHT_NORM = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)).eval()
LAST = IMAGE.to(memory_format=torch.channels_last)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class HandBack(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads):
        return grads


@program()
def autograd_function(x):
    return Double.apply(x, 3.0) + 1


@program(args=(X, X + 1))
def autograd_function_hands_its_input_back(x, y):
    same, total = HandBack.apply(x, y)
    return total, same is x, same.shape


@program()
def autocast_off(x):
    with torch.autocast(device_type=x.device.type, enabled=False):
        y = x @ x.T
    return y * 2


@program()
def autocast_on(x):
    with torch.autocast("cpu", dtype=torch.bfloat16) as mode:
        y = x @ x.T
        inside = torch.is_autocast_enabled("cpu")
    return y, y.dtype, inside, torch.is_autocast_enabled("cpu"), mode is None


@program(graphs=2, breaks="print")
def break_inside_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        print("inside")
        return y @ y


@program(args=(T,))
def lstm(x):
    return LSTM(x)


@program(args=(T,))
def gru(x):
    return GRU(x)


@program(args=lambda: (nn.MultiheadAttention(4, 2, batch_first=True).eval(), T))
def multihead_attention(module, x):
    return module(x, x, x)


@program(args=lambda: (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), T))
def transformer_encoder_layer(module, x):
    return module(x)


@program()
def weight_norm(x):
    return WEIGHT_NORM(x)


@program(args=lambda: (nn.Linear(4, 4).eval(), X))
def module_to_where_nothing_changes(module, x):
    return module.to(x.dtype)(x)


@program(args=(T,))
def scan_from_one_end(x):
    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    return associative_scan(combine, (x, x + 1), dim=1, combine_mode="generic")


@program(args=(T,))
def scan_from_the_other_end(x):
    return associative_scan(torch.add, x, dim=2, reverse=True, combine_mode="generic")


@program(args=(LAST,))
def pooling_of_channels_last(x):
    return nn.functional.adaptive_avg_pool2d(x, 1) * 2


@program(args=(T.reshape(2, 4, 3).transpose(1, 2),))
def pooling_of_a_transpose(x):
    return nn.functional.adaptive_avg_pool1d(x, 1)


@program(args=(torch.ones(2, 4, 3, 8), torch.ones(2, 3, 4, 8).transpose(1, 2)))
def attention_keeps_the_layout_of_the_query(x, y):
    attention = nn.functional.scaled_dot_product_attention
    return attention(x, x, x), attention(y, y, y)


@program(args=(torch.ones(2, 1, 4, 8).transpose(1, 2),))
def strides_of_dimensions_of_size_one(x):
    return x + 1, x.exp(), x * x, x == 2


@program()
def asserts_of_torch(x):
    torch._assert(x.shape[1] == 4, "four columns")
    torch._check(x.dim() == 2, lambda: "two dimensions")
    return x + 1


class Renamed:
    def __init__(self):
        self.old = 2


@program()
def delattr_of_a_new_object(x):
    obj = Renamed()
    value = obj.old
    delattr(obj, "old")
    obj.new = value
    return x * obj.new, hasattr(obj, "old")
