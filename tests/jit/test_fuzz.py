"""Random small programs over views, changes in place, aliasing, reductions, masks and dtypes: jitted as plain.

A program is made line by line, and a line that plain PyTorch refuses is left out.  Empty and single-element dimensions come
contiguous: what their strides are differs even among PyTorch's own implementations of one op.
"""

import linecache
import random
import re

import pytest
import torch

from tests.helpers import check

SHAPES = [(), (1,), (0,), (3,), (4, 3), (3, 4), (1, 3), (4, 1), (0, 3), (2, 3, 4), (2, 1, 4)]
DTYPES = ["float32"] * 6 + ["float64", "int64", "int64", "int32", "bool", "bool", "bfloat16", "uint8"]  # fmt: skip
# x, y: earlier tensors; c: a number; d: a dimension; t: a dtype.  A line without "v =" changes something in place.
LINES = """
v = x + y;  v = x * c;  v = x - y;  v = x / 3;  v = x // 3;  v = x % 3;  v = c - x;  v = -x;  v = x.abs();  v = x ** 2
v = x > y;  v = x <= y;  v = x == y;  v = ~(x > 0);  v = (x > 0) & (y < 1);  v = torch.where(x > 0, x, y)
v = torch.where(x > 0, c, y);  v = torch.maximum(x, y);  v = x.clamp(-1, 1);  v = x.sigmoid();  v = x.tanh();  v = x.floor()
v = x.sum();  v = x.sum(d);  v = x.sum(d, keepdim=True);  v = x.mean(d);  v = x.amax(d, keepdim=True);  v = x.max(d)[0]
v = x.argmax(d);  v = x.any(d);  v = x.all();  v = x.prod(d);  v = x.cumsum(d);  v = x.float().softmax(d)
v = x.float().var(d, keepdim=True);  v = x.float().logsumexp(d);  v = torch.nn.functional.layer_norm(x.float(), x.shape[-1:])
v = x.t();  v = x[1:];  v = x[..., ::2];  v = x[None];  v = x.unsqueeze(d);  v = x.squeeze(d);  v = x.reshape(-1)
v = x.view(-1);  v = x.expand(2, *x.shape);  v = x.transpose(0, -1);  v = x[0];  v = x.flip(0);  v = x.roll(1, d)
v = x.diagonal();  v = x.select(d, 0);  v = x.narrow(d, 0, 2);  v = x.chunk(2, d)[-1];  v = x.unbind(d)[0];  v = x.tril()
v = x.contiguous();  v = x.clone();  v = x.detach();  v = x.repeat(2, 1);  v = torch.cat([x, y], d)
v = torch.stack([x, y], d);  v = torch.cat([x, x[:1]], 0);  v = x.to(torch.t);  v = x.type_as(y);  v = x.bool()
v = x.add_(y);  v = x.mul_(2);  v = x.relu_();  x[0] = c;  x[..., 0] = y.sum();  x[x > 1] = 0;  v = x.copy_(y)
x.masked_fill_(x > 0, 1);  x += 1;  x *= y;  x[1:] = x[:-1].clone();  x.t().add_(1);  x[0].mul_(3);  v = x.zero_()
v = x.gather(0, (x > 0).long());  v = torch.zeros_like(x);  v = torch.arange(x.numel()).reshape(x.shape) + x;  v = x @ y
v = x.isnan() | x.isinf();  v = x.sort(d)[0];  v = x.nan_to_num();  v = torch.addcmul(x, y, x);  v = x * x.sum().item()
"""
LINES = [line.strip() for line in LINES.replace("\n", ";").split(";") if line.strip()]


def random_tensor(choose):
    shape, dtype = choose.choice(SHAPES), getattr(torch, choose.choice(DTYPES))
    layout = (
        "contiguous"
        if any(n < 2 for n in shape)
        else choose.choice(["transposed", "strided", "contiguous"])
    )
    numbers = torch.Generator().manual_seed(choose.randrange(1 << 30))
    order = tuple(range(len(shape)))[::-1]
    x = torch.randn([2 * n for n in shape], generator=numbers) * 2
    x = x > 0 if dtype is torch.bool else (x.abs() if dtype is torch.uint8 else x).to(dtype)
    if layout == "transposed":
        return x[tuple(slice(0, n) for n in shape)].permute(order).contiguous().permute(order)
    x = x[tuple(slice(0, n) for n in shape[:-1])][..., ::2] if shape else x
    return x if layout == "strided" else x.clone(memory_format=torch.contiguous_format)


def random_program(seed):
    """(source text of a function f, its arguments)."""
    choose = random.Random(seed)
    arguments = [random_tensor(choose) for _ in range(choose.randint(1, 3))]
    if len(arguments) > 1 and choose.random() < 0.15:
        arguments[1] = arguments[0].t() if arguments[0].dim() == 2 else arguments[0]
    names = [f"a{i}" for i in range(len(arguments))]
    head = f"def f({', '.join(names)}):\n"
    scope = {"torch": torch} | dict(zip(names, (x.clone() for x in arguments), strict=True))
    lines = []
    for number in range(choose.randint(2, 9)):
        words = {
            "v": f"v{number}", "x": choose.choice(names[-4:]), "y": choose.choice(names), "d": choose.choice("01") ,
            "c": choose.choice(["2", "-1", "0.5", "True", "0"]), "t": choose.choice(DTYPES),
        }  # fmt: skip
        line = _filled(choose.choice(LINES), words)
        try:
            with torch.no_grad():
                exec(line, scope)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            continue
        lines.append(line)
        if line.startswith(words["v"]):
            names.append(words["v"])
    if choose.random() < 0.1:
        lines.insert(choose.randint(0, len(lines)), "print('between')")
    results = [name for name in names if choose.random() < 0.5] or names[-1:]
    return head + "".join(
        f"    {line}\n" for line in lines
    ) + f"    return {', '.join(results)}\n", arguments


def _filled(line, words):
    """The line with its one-letter words replaced."""
    return re.sub(r"(?<![\w'])[vxydct](?!\w|\()", lambda m: words[m[0]], line)


def defined(source, seed):
    filename = f"<random program {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope = {"torch": torch}
    exec(compile(source, filename, "exec"), scope)
    return scope["f"]


def run(seed):
    source, arguments = random_program(seed)
    coarse = "bfloat16" in source or any(x.dtype is torch.bfloat16 for x in arguments)
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if coarse else {}
    try:
        check(defined(source, seed), *arguments, **tolerance)
    except Exception as error:
        shapes = [(tuple(x.shape), x.stride(), x.dtype) for x in arguments]
        raise AssertionError(f"{error}\nseed {seed}, arguments {shapes}\n{source}") from error


@pytest.mark.parametrize("first", range(100, 160, 10))
def test_random_programs(first):
    for seed in range(first, first + 10):
        run(seed)
