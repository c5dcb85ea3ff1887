"""`flex_attention`, and masks made of functions: one graph, equal to eager. Eager runs them through PyTorch's own
compiler, so a test runs these programs in a fresh process.

PYTEST_DONT_REWRITE
"""

import functools

import torch
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)

from tests.programs.program import program


def made(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


Q, K, V = (made(2, 4, 10, 8, seed=k) for k in range(3))
QKV = (Q, K, V)
SLOPES = 0.5 ** torch.arange(1.0, 5.0)
DOCUMENTS = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2])


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return q - kv <= 3


def of_document(b, h, q, kv):
    return DOCUMENTS[q] == DOCUMENTS[kv]


def mask_of(mask_mod, n=10, m=10, **options):
    return create_block_mask(mask_mod, None, None, n, m, device="cpu", **options)


CAUSAL = mask_of(causal, BLOCK_SIZE=4)
# Eager warns once per process. Compiled, it does not.
flex_attention.__globals__["_WARNINGS_SHOWN"].update(
    {"flex_attention_performance", "deprecated_return_lse"}
)


def parts(mask):
    tensors = (
        "kv_num_blocks",
        "kv_indices",
        "full_kv_num_blocks",
        "full_kv_indices",
        "q_num_blocks",
        "q_indices",
    )
    return [getattr(mask, name) for name in tensors], mask.shape, mask.BLOCK_SIZE  # fmt: skip


# --- scores


@program(args=QKV)
def plain_attention(q, k, v):
    return flex_attention(q, k, v)


@program(args=QKV)
def scaled(q, k, v):
    return flex_attention(q, k, v, scale=0.3) + 1


@program(args=QKV)
def relative_places(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (j - i))


@program(args=QKV)
def slopes_per_head(q, k, v):
    return flex_attention(q, k, v, lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs())


@program(args=QKV)
def soft_cap(q, k, v):
    return flex_attention(q, k, v, lambda s, b, h, i, j: 2.0 * torch.tanh(s / 2.0))


@program(args=QKV)
def causal_by_scores(q, k, v):
    return flex_attention(
        q, k, v, lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf")), return_lse=True
    )


@program(args=(*QKV, made(2, 4, 10, 10)))
def table_of_all_indices(q, k, v, table):
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + table[b, h, i, j] + table[b][h][i, 0])


@program(args=(*QKV, made(2, 10, 3)))
def table_of_rows(q, k, v, table):
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + (table[b, i] * table[b, j]).sum())


@program(args=QKV)
def score_written_in_place(q, k, v):
    return flex_attention(q, k, v, lambda s, b, h, i, j: s.mul_(2).add_(h))


@program(args=QKV)
def score_of_another_type(q, k, v):
    wide = flex_attention(q, k, v, lambda s, b, h, i, j: s.double())
    return wide, flex_attention(q, k, v, lambda s, b, h, i, j: s.bfloat16())


class Learned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(made(4, seed=5))

    def forward(self, s, b, h, i, j):
        return s * self.table[h]


LEARNED = Learned()


@program(args=QKV)
def module_as_score(q, k, v):
    return flex_attention(q, k, v, LEARNED)


def shifted(by, s, b, h, i, j):
    return s + by * i


@program(calls=[(*QKV, 1), (*QKV, 2), (*QKV, 1)], graphs=2)
def partial_of_a_number(q, k, v, by):
    return flex_attention(q, k, v, functools.partial(shifted, by))


def nothing_early(b, h, q, kv):
    return (q > 2) & (kv < 5)


# --- masks


@program(args=QKV)
def causal_mask(q, k, v):
    return flex_attention(q, k, v, block_mask=mask_of(causal))


@program(args=QKV)
def causal_mask_made_before(q, k, v):
    return flex_attention(q, k, v, block_mask=CAUSAL)


@program(args=QKV)
def sliding_window(q, k, v):
    return flex_attention(q, k, v, block_mask=mask_of(and_masks(causal, window)))


@program(args=QKV)
def documents(q, k, v):
    return flex_attention(q, k, v, block_mask=mask_of(or_masks(of_document, window)))


@program(args=QKV)
def mask_of_some_batches_and_heads(q, k, v):
    def mask(b, h, i, j):
        return (i >= j) | (b == 1) | (h == 2)

    return flex_attention(q, k, v, block_mask=create_block_mask(mask, 2, 4, 10, 10, "cpu"))


@program(args=QKV)
def empty_rows(q, k, v):
    return flex_attention(
        q, k, v, block_mask=mask_of(nothing_early), return_aux=AuxRequest(lse=True)
    )


@program(args=(Q, K[:, :2], V[:, :2]))
def grouped_heads(q, k, v):
    return flex_attention(q, k, v, block_mask=CAUSAL, enable_gqa=True)


@program(args=(Q, K[:1], V[:1]))
def one_batch_of_keys(q, k, v):
    mask = create_block_mask(causal, 2, None, 10, 10, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


@program(args=(Q, K[:, :, :7], V[:, :, :7, :5]))
def other_sizes(q, k, v):
    return flex_attention(q, k, v, block_mask=mask_of(causal, 10, 7))


@program(args=tuple(x.to(torch.bfloat16) for x in QKV))
def narrow(q, k, v):
    return flex_attention(q, k, v, block_mask=CAUSAL, return_lse=True)


@program(args=tuple(x.double() for x in QKV))
def wide(q, k, v):
    return flex_attention(q, k, v, block_mask=CAUSAL, return_lse=True)


@program(args=tuple(x.transpose(1, 2).contiguous() for x in QKV))
def heads_inside(q, k, v):
    return flex_attention(*(x.transpose(1, 2) for x in (q, k, v)), block_mask=CAUSAL)


@program(args=(Q.transpose(2, 3).contiguous().transpose(2, 3), K, V[..., :3]))
def order_of_the_query(q, k, v):
    return flex_attention(q, k, v), flex_attention(q[:, :, :, :1], k[:, :, :, :1], v)


@program(args=(Q[:, :1].expand(-1, 4, -1, -1), K, V))
def equal_strides(q, k, v):
    return flex_attention(q, k, v)


@program()
def blocks_of_a_mask(x):
    whole = mask_of(causal, 40, 24, BLOCK_SIZE=8)
    return parts(whole), parts(
        mask_of(window, 40, 24, BLOCK_SIZE=(4, 8), separate_full_blocks=False)
    )


@program()
def blocks_read(x):
    mask = mask_of(causal, 40, 40, BLOCK_SIZE=8)
    return mask.to_dense(), parts(mask[0, 0, :2]), mask.numel()


@program(args=(torch.tensor([[[1, 2]]]).int(), torch.tensor([[[[0, 1], [0, 1]]]]).int()))
def mask_of_given_blocks(count, indices):
    return parts(BlockMask.from_kv_blocks(count, indices, BLOCK_SIZE=8, mask_mod=causal))


@program()
def masks_as_tensors(x):
    of_scores = create_mask(
        lambda s, b, h, i, j: torch.where(i > j, s, -float("inf")), 1, 2, 3, 4, "cpu"
    )
    return of_scores, create_mask(causal, None, 2, KV_LEN=4, Q_LEN=3, device="cpu")


# --- what changes between calls


@program(calls=[(*QKV, CAUSAL), (*QKV, mask_of(window)), (*QKV, CAUSAL), (*QKV, None)], graphs=3)
def mask_given(q, k, v, mask):
    return flex_attention(q, k, v, block_mask=mask)


@program(calls=[(*QKV, 1), (*QKV, 4), (*QKV, 1)], graphs=2)
def number_in_the_mask(q, k, v, width):
    return flex_attention(q, k, v, block_mask=mask_of(lambda b, h, i, j: i - j < width))


@program(calls=[(Q[:, :, :n], K[:, :, :n], V[:, :, :n]) for n in (4, 7, 9, 4, 8)], graphs=2)
def lengths_that_vary(q, k, v):
    n = q.shape[2]
    return flex_attention(q, k, v, block_mask=mask_of(causal, n, n))


@program(calls=[(*QKV, SLOPES), (*QKV, SLOPES * 2)])
def tensor_that_varies(q, k, v, slopes):
    return flex_attention(q, k, v, lambda s, b, h, i, j: s * slopes[h])


# --- errors, and functions with effects


@program(args=QKV)
def refused_by_checks(q, k, v):
    errors = []
    for given in ((q, k[:, :2], v), (q, k[..., :2], v), (q[0], k[0], v[0])):
        try:
            flex_attention(*given)
        except (ValueError, NotImplementedError) as error:
            errors.append(str(error))
    return q + 1, errors


@program(args=QKV)
def mask_of_other_lengths(q, k, v):
    try:
        return flex_attention(q, k, v, block_mask=mask_of(causal, 16, 16))
    except ValueError as error:
        return q + 1, str(error)


@program(args=(Q.clone().requires_grad_(), K, V))
def refused_gradient_of_a_query(q, k, v):
    try:
        return flex_attention(q, k, v)
    except NotImplementedError as error:
        return k + 1, str(error)


@program(args=QKV, breaks="library_call", state=lambda: SEEN)
def score_with_effects(q, k, v):
    y = q + 1
    try:
        return flex_attention(q, k, v, lambda s, b, h, i, j: SEEN.append(1) or s)
    except Exception as error:
        return y, type(error).__name__


@program(args=QKV, breaks="print")
def score_that_prints(q, k, v):
    y = q + 1
    try:
        return flex_attention(q, k, v, lambda s, b, h, i, j: print("score") or s)
    except Exception as error:
        return y, type(error).__name__


@program(args=QKV, breaks="data_dependent_branch")
def score_that_decides(q, k, v):
    y = q + 1
    try:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s if s > 0 else s * 2)
    except Exception as error:
        return y, type(error).__name__


@program(args=QKV, breaks="library_call")
def mapped_attention(q, k, v):
    y = q + 1
    try:
        return torch.vmap(lambda q: flex_attention(q, k, v))(torch.stack([q, y]))
    except Exception as error:
        return y, type(error).__name__


LEARNED_MASK = torch.ones(10, requires_grad=True)


@program(args=QKV, breaks="library_call")
def mask_that_needs_a_gradient(q, k, v):
    y = q + 1
    try:
        with torch.enable_grad():
            return flex_attention(
                q, k, v, block_mask=mask_of(lambda b, h, i, j: LEARNED_MASK[i] > 0)
            )
    except Exception as error:
        return y, type(error).__name__


@program(args=QKV, breaks="library_call", graphs=0)
def under_autocast(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        return flex_attention(q, k, v, block_mask=CAUSAL)


@program(args=QKV)
def mask_adjusted_to_other_lengths(q, k, v):
    mask = mask_of(causal, BLOCK_SIZE=2)._adjust(6, 6)
    return flex_attention(*(x[:, :, :6] for x in (q, k, v)), block_mask=mask)


@program()
def masks_on_the_default_device(x):
    block_mask = create_block_mask(causal, None, None, 6, 6)
    return parts(block_mask), create_mask(causal, 1, 1, 3, 3)


@program(args=QKV)
def mask_with_a_default(q, k, v):
    masks = [lambda b, h, i, j, n=n: i - j < n for n in (2, 5)]
    return [flex_attention(q, k, v, block_mask=mask_of(mask)) for mask in masks]


@program(args=QKV)
def index_out_of_range(q, k, v):
    try:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + SLOPES[i])
    except Exception as error:
        return q + 1, type(error).__name__


SEEN = []


@program(args=QKV)
def arguments_get_no_marks(q, k, v):
    made = flex_attention(q, k, v)
    return made, [hasattr(x, "_dynamo_static_indices") for x in (q, k, v)]


# --- gradients: of tensors that the functions read, all that eager has on CPUs


def of_a_table(table):
    return flex_attention(*QKV, lambda s, b, h, i, j: s + table[i, j], CAUSAL)


def of_elements_read_often(table):
    return flex_attention(*QKV, lambda s, b, h, i, j: s * table[0, j] + table[h, b].exp())


def of_sums_of_weights(table):
    score = lambda s, b, h, i, j: s * table[0, j]  # noqa: E731
    result, sums = flex_attention(*QKV, score, mask_of(nothing_early), return_lse=True)
    return result.sin() + sums.nan_to_num(neginf=2.0)[..., None].cos()


def of_a_result(table):
    def score(s, b, h, i, j):
        return s + wide[i, j]

    wide = table.sin() * 2
    return flex_attention(*QKV, score) * wide.sum()


GRADIENTS = [of_a_table, of_elements_read_often, of_sums_of_weights, of_a_result]


def table():
    return made(10, 10, seed=4).requires_grad_()
