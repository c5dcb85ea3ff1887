"""PyTorch's own larger layers: attention, transformers, recurrent nets, pooling, losses.

PYTEST_DONT_REWRITE
"""

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.program import X, program

S = torch.linspace(-1, 1, 2 * 3 * 8).reshape(2, 3, 8)


@program(args=lambda: (nn.MultiheadAttention(8, 2, batch_first=True).eval(), S))
def multi_head_attention(net, s):
    out, weights = net(s, s, s)
    return out, weights, net(s, s, s, need_weights=False)[0]


@program(args=lambda: (nn.MultiheadAttention(8, 2), S))
def multi_head_attention_with_mask(net, s):
    mask = torch.triu(torch.ones(2, 2, dtype=torch.bool), 1)
    return net(s, s, s, attn_mask=mask)[0]


@program(args=lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), S))
def transformer_encoder_layer_in_evaluation(net, s):
    return net(s)


@program(args=lambda: (nn.TransformerEncoderLayer(8, 2, 16, 0.0, norm_first=True), S))
def transformer_encoder_layer_in_training(net, s):
    return net(s)


@program(
    args=lambda: (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
            2,
            enable_nested_tensor=False,
        ),
        S,
    )
)
def transformer_encoder(net, s):
    return net(s)


@program(args=lambda: (nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True), S))
def transformer_decoder_layer(net, s):
    return net(s, s + 1)


@program(args=lambda: (nn.LSTM(8, 4, num_layers=2, batch_first=True), S))
def lstm(net, s):
    out, (h, c) = net(s)
    return out, h, c


@program(args=lambda: (nn.GRU(8, 4, bidirectional=True), S))
def gru(net, s):
    return net(s)


@program(args=lambda: (nn.RNN(8, 4), S, torch.zeros(1, 3, 4)))
def rnn_with_a_state(net, s, h):
    return net(s, h)


@program(args=lambda: (nn.LSTMCell(8, 4), S))
def lstm_cell_in_a_loop(cell, s):
    h = c = s.new_zeros(2, 4)
    out = []
    for t in range(s.shape[1]):
        h, c = cell(s[:, t], (h, c))
        out.append(h)
    return torch.stack(out, 1), c


@program(
    args=lambda: (nn.AdaptiveAvgPool1d(2), nn.AdaptiveAvgPool2d((1, 1)), nn.AdaptiveMaxPool1d(2), S)
)
def adaptive_pools(a, b, c, s):
    return a(s), b(s.unsqueeze(0)), c(s), F.adaptive_avg_pool1d(s, 4)


@program(
    args=lambda: (
        nn.Conv1d(3, 4, 3, padding="same"),
        nn.ConvTranspose1d(3, 2, 2),
        nn.Upsample(scale_factor=2),
        S,
    )
)
def convolutions(a, b, c, s):
    return a(s), b(s), c(s)


@program(
    args=lambda: (
        nn.GroupNorm(3, 3),
        nn.InstanceNorm1d(3, affine=True),
        nn.BatchNorm1d(3),
        nn.RMSNorm(8),
        S,
    )
)
def normalisations(g, i, b, r, s):
    return g(s), i(s), b(s), r(s), b.running_var


@program(args=lambda: (S, torch.tensor([1, 0])))
def losses(s, target):
    logits = s.sum(1)
    return (
        F.cross_entropy(logits, target),
        nn.MSELoss()(s, s + 1),
        F.nll_loss(logits.log_softmax(-1), target),
        nn.BCEWithLogitsLoss()(logits, (logits > 0).float()),
        F.smooth_l1_loss(s, -s),
        nn.CrossEntropyLoss(label_smoothing=0.1)(logits, target),
    )


@program(args=lambda: (S,))
def activations(s):
    acts = [
        nn.ReLU(),
        nn.GELU(),
        nn.SiLU(),
        nn.Softmax(-1),
        nn.LeakyReLU(0.1),
        nn.Hardswish(),
        nn.ELU(),
        nn.GLU(),
        nn.Softplus(),
        nn.Tanh(),
    ]
    return [act(s) for act in acts]


@program(args=lambda: (S,))
def attention_written_out(s):
    q, k, v = s.chunk(3, dim=1)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return F.scaled_dot_product_attention(q, k, v), scores.softmax(-1) @ v


@program(args=lambda: (nn.Dropout(0.5), nn.Dropout(0.5).eval(), S))
def dropout_in_both_modes(train, evaluation, s):
    return train(s), evaluation(s), F.dropout(s, 0.3, training=True)


@program(
    args=lambda: (
        nn.Bilinear(4, 4, 2),
        nn.CosineSimilarity(),
        nn.PairwiseDistance(),
        nn.PixelShuffle(2),
        nn.Unfold(2),
        X,
    )
)
def rarer_layers(a, b, c, d, e, x):
    return a(x, x), b(x, x + 1), c(x, -x), d(torch.ones(1, 4, 2, 2)), e(x[None, None])


@program(
    args=lambda: (nn.EmbeddingBag(10, 4, mode="sum"), torch.tensor([1, 2, 4]), torch.tensor([0, 2]))
)
def embedding_bag(net, ids, offsets):
    return net(ids, offsets)


@program(args=lambda: (torch.ones(2, 4, 5, 5), torch.ones(3, 4, 3, 3)))
def convolution_of_channels_last(x, w):
    last = torch.channels_last
    return F.conv2d(x.to(memory_format=last), w), F.conv2d(x, w.to(memory_format=last)).relu()


PADDED = torch.tensor([[False, False, True], [False, False, True]])


@program(args=lambda: (torch.nn.MultiheadAttention(4, 2, batch_first=True).eval(), torch.ones(2, 3, 4), PADDED))  # fmt: skip
def attention_without_weights(attention, x, padded):
    return attention(x, x, x, key_padding_mask=padded, need_weights=False)
