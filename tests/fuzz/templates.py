"""What statements and expressions look like, by subject: text with holes.

Holes: $x a tensor, $t a tensor expression, $i an int, $n a float, $b a bool, $v any value, $w a statement that changes something, $d a dimension, $c an int as text,
$s a small one, $D a dtype, $l a list of tensors, $g one of functions and modules, $e a statement that may raise.  A statement has lines between ";"; S is a nested block, and T, I, V, L, Q are new names of a tensor, an int, a
value, a list and a generator.
"""

from __future__ import annotations


def rows(text: str) -> list[str]:
    return [
        part.strip() for line in text.splitlines() for part in line.split(" | ") if part.strip()
    ]


INTS = rows("""
$c | $c | $x.shape[$d] | $x.shape[$d] | $x.shape[-1] | len($x) | $x.numel() | $x.dim() | n | n | n | items[0] | len(items) | $i + $i | $i - $i | $i * $c
$x.stride($d) | $x.storage_offset() | sum($x.shape) | max($x.shape) | $i // $i | $i % $i | max($i, $i) | min($i, $i, $c) | $i // 2 | $i % 3 | -$i | abs($i) | divmod($i, 3)[1]
($i if $b else $i) | $i & 3 | $i >> 1 | $i ** 2 | int($i / 2) | math.gcd($i, $i) | clip($i) | $i + $b | len(range(0, $i, 2)) | ($i or $i) | sorted([$i, $i, 3])[1] | holder.count | len(holder.seen) | counter[0]
$x.element_size() | sum(k for k in $x.shape if k > 1) | len(parts) | box.n | len([k for k in items if k < $i]) | next(ticks) | functools.reduce(lambda a, b: a * b, $x.shape, 1)
""")
FLOATS = rows("""
$i / 2 | f | f | f | f * $i | float($i) | math.sqrt(abs($i)) | f + $i | max(f, 0.0) | abs($i) ** 0.5 | round($i / 3, 2) | holder.scale | math.sin(f) | SCALE | 0.5 | -1.5 | f if $b else $n
""")
BOOLS = rows("""
$i < $i | $i >= $i | $i == $i | $i != $c | $i > $c | $i <= $c | flag | flag | $i in (1, 2, 3) | $i % 2 == 0 | f < $i | not $i | ($b and $b) | ($b or $b) | (not $b)
$x.is_contiguous() | $x.shape == $x.shape | any(s == 1 for s in $x.shape) | $x is $x | $x.stride() == $x.stride() | $i in $x.shape | $x.dtype == torch.$D | $x.dtype.is_floating_point | $x.requires_grad
net.training | torch.is_grad_enabled() | box.x is $x | "a" in table | isinstance($x, torch.Tensor) | $x.dim() > 1 | all($x.shape) | 1 < $i < $i | hasattr(holder, "extra") | $x._base is None | $x.is_leaf
""")
ELEMENTWISE = rows("""
$t + $i | $t * $n | $t + $t | $t - $t | $t * $t | -$t | $t / 3 | $t // $s | $t % $s | $t.abs() | $t.sigmoid() | $t.tanh() | $t.exp().clamp(max=50) | $t.relu() | $t.sin() | $t.clamp(-2, 2) | $t ** 2 | $t > $t
$t == $t | $t != 0 | $t >= $i | torch.where($t > 0, $t, $i) | torch.where($t > 0, $t, $t) | torch.maximum($t, $t) | ~($t > 0) | ($t > 0) & ($t < 2) | $t.to(torch.$D) | $t.float() | $t.double() | $t.int()
F.gelu($t) | F.silu($t) | F.softplus($t) | F.leaky_relu($t, 0.1) | $t.floor() | $t.round() | $t.sqrt() | $t.abs().sqrt() | $t.abs().log1p() | torch.lerp($t, $t, 0.25) | torch.addcmul($t, $t, $t, value=0.5) | $t.sign() | $t.square().rsqrt()
$t.masked_fill($t > 1, $i) | torch.atan2($t, $t) | $t.nan_to_num(0.5) | $t.erf() | $i - $t | $n / ($t.abs() + 1) | $t.type_as($t) | $t.long() | $t.bool() | $t.half() | torch.bitwise_xor($t.int(), $i) | $t.long() << 1 | $t.bfloat16() * 2
$t.logical_not() | $t.frac() | torch.fmod($t, 3) | $t.trunc() | $t.expm1().clamp(max=9) | torch.hypot($t, $t) | $t.reciprocal() | torch.isfinite($t) | torch.clamp($t, $t, $t) | $t.exp2().clamp(max=64) | $t.cos() | $t.pow(3) | $t.pow(0.5)
""")
VIEWS = rows("""
$x[:$i] | $x[$i:] | $x[$i:$i] | $x[::$s] | $x[..., :$i] | $x[-$s:] | $x.reshape(-1) | $x.view(-1) | $x.transpose(0, -1) | $x.t() | $x.mT | $x.unsqueeze($d) | $x.squeeze($d) | $x.squeeze() | $x[None] | $x[0] | $x[..., 0] | $x[-1] | $x[:, $i]
$x.expand($s, *$x.shape) | $x.expand(-1, 3) | $x.narrow($d, 0, $i) | $x.select($d, $i) | $x.diagonal() | $x.unfold(0, 2, 1) | $x.as_strided((2, 2), (1, 1)) | $x.as_strided((2,), (1,), 1) | $x.as_strided((2, 1), (1, 2), 0) | $x.permute(*range($x.dim())[::-1])
$x.chunk(2, $d)[-1] | $x.split($i, $d)[0] | $x.unbind($d)[-1] | $x.unbind(0)[$i] | $x.view(-1, $x.shape[-1]) | $x.view($x.shape) | $x.flatten() | $x.reshape($x.shape[::-1]) | $x.unflatten(-1, (-1, 1)) | $x.movedim(0, -1) | $x.detach() | $x.view_as($x) | $x.data
$x[1:, 1:] | $x[:, None] | $x[..., ::2] | $x.swapaxes(0, -1) | $x.expand_as($x) | $x.broadcast_to(2, *$x.shape) | $x.tensor_split(2, $d)[1] | torch.split($x, 1)[-1] | $x.contiguous() | $x.reshape($i, -1) | $x.real | $x.view(torch.int32) | $x.split([1, $x.shape[0] - 1])[1] | $x.T | $x.hsplit(2)[0]
""")
REDUCTIONS = rows("""
$t.sum() | $t.sum($d) | $t.sum($d, keepdim=True) | $t.mean($d) | $t.mean() | $t.amax($d) | $t.amin($d, keepdim=True) | $t.max($d)[0] | $t.max() | $t.argmax($d) | $t.argmin() | $t.any($d) | $t.all() | $t.prod($d) | $t.cumsum($d) | $t.softmax($d) | $t.log_softmax($d)
$t.var($d, keepdim=True) | $t.std() | $t.logsumexp($d) | F.layer_norm($t, $t.shape[-1:]) | $t - $t.mean($d, keepdim=True) | $t / ($t.norm() + 1) | $t.norm(dim=$d) | $t.cumprod($d) | $t.cummax($d)[0] | $t.sort($d)[0] | $t.argsort($d) | $t.topk(1, $d)[0] | $t.median() | $t.var_mean($d)[1] | $t.count_nonzero()
$t @ $t.transpose(-1, -2) | $t.flatten(1) @ $t.flatten(1).t() | torch.einsum("ij,kj->ik", $x, $x) | $x.mm($x.t()) | torch.outer($x.flatten(), $x.flatten()) | torch.bmm($x, $x.mT) | F.linear($x, $x) | $x.matmul($x[0]) | torch.addmm($x, $x, $x.t() @ $x) | $t.sum((0, -1)) | $t.nansum() | $t.quantile(0.5)
torch.cdist($x, $x) | $x.diff(dim=$d) | $t.aminmax()[1] | F.normalize($t, dim=$d) | F.rms_norm($t, $t.shape[-1:]) | F.avg_pool1d($x[None], 2) | F.max_pool1d($x[None], 2) | F.cosine_similarity($t, $t, dim=$d)
""")
MAKERS = rows("""
torch.zeros($i, $i) | torch.ones($x.shape) * $i | torch.arange($i) | torch.full(($i, 2), $n) | $x.new_zeros($x.shape[0], $s) | torch.zeros_like($x) | torch.empty_like($x).fill_($i) | torch.tensor([$i, $i]) | torch.tensor($n) | torch.tensor($i) + $x | torch.eye($s) | torch.linspace(0, 1, $s) | $x.new_tensor([$n, 1])
torch.cat([$x, $x], $d) | torch.stack([$x, $x]) | torch.cat($l) | sum($l) | torch.stack($l) | $l[-1] | $l[0] | $x.clone() | $x.roll($i, $d) | $x.flip($d) | $x.tril($i) | $x.triu() | F.pad($x, (0, $i)) | F.pad($x, (1, 1), value=$n) | $x.repeat($s, 1) | $x.tile($s) | $x.repeat_interleave($s, 0)
$x.gather(0, torch.zeros_like($x, dtype=torch.int64)) | $x[torch.tensor([0, -1])] | $x.index_select(0, torch.arange($s)) | $x.take(torch.tensor([0])) | $x.index_add(0, torch.tensor([0]), $x[:1]) | $x.scatter(0, torch.zeros(1, $x.shape[-1], dtype=torch.int64), $n) | F.one_hot($x.long().clamp(0, 3), 4) | F.embedding($x.long().abs() % 3, torch.eye(3))
torch.meshgrid($x.flatten(), $x.flatten(), indexing="ij")[0] | $x.select_scatter($x[0], 0, 0) | $x.slice_scatter($x[:1], 0, 0, 1) | torch.where($x > 0, 1, 0) | torch.broadcast_tensors($x, $x)[0] | torch.complex($x.float(), $x.float()) | torch.full_like($x, $i) | torch.block_diag($x.flatten()[:2], $x.flatten()[:2]) | $x.index_fill(0, torch.tensor([0]), $i) | $x.masked_scatter($x > 0, $x.flatten())
helper($x, $i) | helper($x, m=$i) | scaled($x) | net($x) | holder.buf + holder.count | holder.step($x) | box.x * $i | table["a"] * $i | compose($x, $i) | Square.apply($x) | checkpoint(lambda q: (q * 1.5).tanh(), $x, use_reentrant=False) | twice(helper, $x) | recursive($x, $s) | memo($x, $s)
""")
RANDOM = rows("""
torch.rand($s, 3) | torch.randn_like($x.float()) | F.dropout($t.float(), 0.5) | torch.randint(0, 5, ($s,)) | torch.randperm($s) | torch.bernoulli($t.sigmoid()) | torch.rand($x.shape) + $x | torch.empty($s).uniform_() | torch.empty_like($x).normal_() | torch.multinomial(torch.ones(4), 2) | torch.normal(0.0, 1.0, ($s,))
""")
DATA = rows("""
$x[$x > $n] | $x.nonzero() | $x.masked_select($x > 0) | $x[$x.sum(-1) > 0] | $x.unique() | $x.flatten().bincount(minlength=2) | $x[: int(($x > 0).sum())] | torch.arange(int($x.sum().abs()) % 7) | torch.zeros(int($x.abs().max()) % 5 + 1) | torch.where($x > 0)[0] | $x[$x.nonzero()[:, 0]] | $x.repeat_interleave($x.flatten().long().abs() % 3 if $x.dim() == 1 else 2, 0)
$x * $x.max().item() | $x + int($x.sum()) % 3 | $x[$x.argmax() % $x.shape[0]] | torch.cat([$x[$x > 0], $x[$x <= 0]]) | ($x > 0).nonzero().sum() + $x | $x.flatten()[$x.flatten() > 1].sum() | torch.zeros($x.nonzero().shape[0], 2) | $x[($x > 0).any(-1)] | $x.tolist() and $x | $x.argwhere() | torch.isin($x, $x.unique())
""")
VALUES = rows("""
$x.shape | $x.stride() | f"{$i} {$x.shape}" | f"{$n:.2f}" | str($i) | list($x.shape) | [s + 1 for s in $x.shape] | divmod($i, 3) | tuple($x.shape) | ($i, $b) | {"a": $i, "b": [$b, $x]} | Pair($i, $x) | Box($x, $i) | {$i: $x} | list(range(clip($i))) | sorted($x.shape) | $l | [$x, $x] | $x.dtype | items
collections.deque([$i, $x], maxlen=3) | [k * 2 for k in items] | {k: $i for k in items} | set(items) | dict(a=$x, **{"b": $i}) | ([*$l, $x], $x) | list(zip(items, $l)) | [(k, p) for k, p in enumerate($l)] | $x.requires_grad | $x._is_view() | $x.names | (lambda: $x) | functools.partial(helper, $x) | sorted(table) | box | $x.grad_fn is None | type($x).__name__
""")
WRITES = rows("""
$x.add_($i) | $x.add_($x) | $x.mul_($n) | $x[:$i] = $i | $x[$i:$i] = $c | $x[..., 0] = $i | $x[0] = $x[-1] | $x.copy_($x) | $x.fill_($i) | $x.zero_() | $x += $i | $x *= $x | $x[::2] += $i | $x[:$i].mul_(2) | $x[1:] = $x[:-1].clone() | $x[$x > 0] = $i | $x.transpose(0, -1).copy_($x) | $x.clamp_(-1, $s) | $x.t().add_($x)
$x[:, 1:] += $x[:, :-1] | torch.add($x, $i, out=$x) | torch.mul($x, $x, out=$x) | $x.view(-1)[$i] = $n | $x.masked_fill_($x > 1, $n) | $x.index_add_(0, torch.tensor([0]), $x[:1]) | $x.index_fill_(0, torch.tensor([0]), $i) | $x.unsqueeze(0)[0].add_($x) | $x[-1].neg_() | $x.diagonal().fill_($i) | $x.relu_() | $x.sub_($x.mean()) | $x.unsqueeze_(0) | $x.squeeze_() | $x.t_() | $x.detach().add_(1)
$x.as_strided((2,), (1,)).add_($i) | $x.chunk(2)[0].mul_(3) | $x.split(1)[-1].add_($x.sum()) | $x.unbind(0)[0].sub_(1) | torch.sin($x, out=$x) | $x[torch.tensor([0])] = $n | $x[torch.tensor([0]), ...] += $i | $x.index_put_((torch.tensor([0]),), $x[-1]) | $x.scatter_(0, torch.zeros(1, $x.shape[-1], dtype=torch.int64), $n) | $x.cumsum_(0) | $x.sigmoid_() | $x.expand(2, *$x.shape)[0].add_(1) | $x.flip(0).add_(1) | $x.data.mul_(2) | $x.bernoulli_(0.5) | $x.uniform_()
$x.T.mul_($n) | $x[..., None].add_($i) | $x.movedim(0, -1)[..., 0].add_($i) | $x[::2].copy_($x[::2].flip(0)) | $x.narrow(0, 0, 1).copy_($x[-1:]) | $x.lerp_($x, 0.5) | $x.addcmul_($x, $x) | $x.pow_(2) | $x.swapaxes_(0, -1) | $x.tril_() | $x.abs_() | $x.set_($x) | $x.resize_($x.shape).fill_(1).mul_($i) | torch.cat([$x, $x], out=$x) | $x.scatter_add_(0, torch.zeros_like($x, dtype=torch.int64), $x) | torch._foreach_add_([$x, $x] if DEVICE == "cpu" else [$x], 1) | torch.maximum($x, $x, out=$x)
""")
OBJECTS = rows("""
items.append($i) | items[0] = $i | parts.append($x) | parts[0] = $x | box.n += $i | box.x = $x | table["z"] = $x | table["a"] = $x | holder.count += 1 | holder.seen.append($i) | holder.buf = torch.zeros($s) | holder.buf.add_(1) | holder.scale *= 0.5 | holder.last = $x | counter[0] += 1 | n += $s | items.pop() | items.extend([$i, $i]) | parts[-1].mul_(2) | $l.append($x)
items.insert(0, $i) | items.reverse() | items.sort() | table.pop("b", None) | table.setdefault("q", []).append($i) | table.update(r=$x) | del items[0] | parts.clear() | holder.extra = $i | holder.seen = [$i] | holder.bump() | log.append($i) | log.append($x) | tally[$i] += 1 | recent.append($x) | net.buf.add_(1) | net.buf.copy_(torch.ones(3) * $i) | net.calls += 1 | box.x = box.x + 1 | items += [$i] | table |= {"k": $i} | box.later = $x
print($i) | print("shape", $x.shape) | print($x.sum()) | frameloom.graph_break() | log.append(float($x.sum())) | globals().__setitem__("SCALE", $n) | setattr(holder, "late", $i) | change_scale($n) | $l[0] = $x | $l.reverse() | $l.insert(0, $x) | names.add($i) | warn($i)
""")
AUTOGRAD = rows("""
T = $x.detach().clone().requires_grad_();V, = torch.autograd.grad(($t * T).sum(), T, allow_unused=True)
T = torch.autograd.grad($t.sum(), $x, create_graph=True)[0]
with torch.no_grad():;    T = $t
with torch.no_grad():;    $w
with torch.enable_grad():;    T = $t
with torch.inference_mode():;    T = $t
with torch.set_grad_enabled($b):;    T = $t
if $x.requires_grad:;    $x.register_hook(lambda g: g * 2)
T = $t;if T.requires_grad:;    T.register_hook(lambda g: log.append(g.shape))
T = $t;if T.requires_grad:;    T.retain_grad()
T = Square.apply($x)
T = Swap.apply($x, $x)[0]
T = checkpoint(lambda q, r=$x.view_as($x): (q * r).tanh(), $x, use_reentrant=False)
T = checkpoint(net, $x, use_reentrant=False)
T = $t.detach()
T = ($t * net.weight.sum())
T = $t;T.sum().backward()
T = ($t * net.weight.sum()).sum();T.backward()
net.weight.grad = None
with torch.no_grad():;    net.weight.mul_(0.5)
with torch.no_grad():;    net.weight -= 0.1 * net.weight
with torch.autocast(DEVICE, torch.bfloat16):;    T = $t @ $t.transpose(-1, -2)
with torch.autocast(DEVICE, torch.bfloat16):;    T = net($x)
T = $x.detach().requires_grad_();L = [T * 2];L[0].sum().backward();V = T.grad
T = StraightThrough.apply($t)
with torch.no_grad():;    T = $x[1:];T = T * 2
T = $t.requires_grad_()
V = $x.requires_grad, $x.is_leaf
T = $x * 1;T[0] = $n
T = $x * 1;T[:1].mul_($x[-1:])
T = $x.clone();T.view(-1)[0].mul_(3)
""")
STATEMENTS = rows("""
T = $t | T = $t | T = $t | T = $t | T = $t | T = $t | I = $i | I = $i | V = $v | $w | $w | $w | $x = $t | $x = $t
""")
CONTROL = rows("""
if $b:;    T = $t;else:;    T = $t
if $b:;    S
if $b:;    S;else:;    S
if $b:;    S;elif $b:;    S;else:;    S
for k in range(clip($i, 0, 4)):;    S
T = $t;for k in range(clip($i, 0, 4)):;    T = T + k * $i;    if k > 1:;        break;    S
for k, _ in zip(items, range(40)):;    S
for k, p in enumerate($l):;    S
I = $i;for k in $x.shape:;    I += k * $c
I = abs($i) % 100;while I > 2:;    I //= 2;    S
try:;    S;    $e;except ERRORS as error:;    V = type(error).__name__;finally:;    S
try:;    T = $t;    $e;except ERRORS:;    T = $t
try:;    $w;    $e;    S;except (RuntimeError, IndexError) as error:;    log.append(type(error).__name__);    $w
T = (lambda q, s=2: q * s + $i)($x, $i)
def inner(q, r=$i):;    S;    return q + r;T = inner($x)
I = 0;def add(k):;    nonlocal I;    I += k;    return I * $i;T = $x + add($i) + add(2)
if $b:;    return $v, $x
if $b:;    raise ValueError(f"no {$i}")
L = [$t for k in range(clip($i, 0, 3))];T = sum(L) + $x
L = [$x, $t]
L = list($x.unbind(0))
L = [p for p in $x.split(1, 0)]
T = sum([p * k for k, p in enumerate($l)], $x)
def gen(q):;    for k in range(clip($i, 0, 3)):;        yield q + k;        S;Q = gen($x);T = next(Q, $x);L = list(Q)
Q = (p * $s for p in $l);T = sum(Q, $x)
V = [];for k in $x.shape:;    if k == $c:;        continue;    V.append(k)
match $i:;    case 1|2:;        S;    case k if k > 3:;        S;    case _:;        T = $t
with scope($i):;    S
with scope($i):;    T = $t
I, *rest = $x.shape
T = $x;T += $i
T = $x;$w;T = T + $x
L = [$x, $x];L[0] += $i
V = {"a": $x};V["a"] = V["a"] + 1
assert $b, f"not {$i}"
T, I = $t, $i
for p in $l:;    p.add_($i)
for k, p in table.items():;    if isinstance(p, torch.Tensor):;        T = p * 2;T = $x
T = $x if $b else $t
if (T := $t).dim() > 1:;    S
""")
RAISING = rows("""
$t @ torch.ones(17) | $x[torch.tensor([99])] | $x.view(7, 11) | torch.cat([$x, torch.ones(3, 1, 2, 1)]) | raise ValueError($i) | items[99] | table["missing"] | 1 // ($i - $i) | torch.linalg.cholesky(-torch.eye(2)) | F.embedding(torch.tensor([5]), torch.eye(2)) | $x.expand(1, 3, 0, 7) | int("x") | $x.add_(torch.ones(9, 8, 7)) | assert not $b, $i | $x.squeeze(5) | ($x.int() // torch.tensor([0])) | holder.missing
""")
TRAINING = rows("""
for batch in range($s):;    optimizer.zero_grad();    loss = net(data()).square().mean();    loss.backward();    optimizer.step();    log.append(loss.detach())
optimizer.zero_grad(set_to_none=$b);loss = F.mse_loss(net(data()), data());loss.backward();optimizer.step();T = loss.detach()
loss = F.cross_entropy(net(data()), torch.tensor([0, 2, 1, 1]));loss.backward();T = loss.detach()
loss = net(data()).abs().sum() + $t.float().sum();loss.backward();T = net.weight.grad.clone()
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
optimizer.step();optimizer.zero_grad()
net.train($b) | net.eval() | net.train()
T = F.l1_loss(net(data()), torch.zeros(4, 3)) | T = F.smooth_l1_loss(net(data()), data()) | T = F.huber_loss(net(data()), data()) | T = F.nll_loss(net(data()).log_softmax(-1), torch.tensor([0, 1, 2, 0])) | T = F.kl_div(net(data()).log_softmax(-1), data().softmax(-1), reduction="batchmean")
optimizer.param_groups[0]["lr"] *= 0.5 | scheduler.step() | T = net(data()) | T = net(net(data())) | net.buf.mul_(0.9).add_(net(data()).detach().mean(0), alpha=0.1)
with torch.no_grad():;    for p in net.parameters():;        p.add_(torch.ones_like(p), alpha=-0.01)
for p in net.parameters():;    if p.grad is not None:;        p.grad.mul_(0.5)
average = {k: v.detach().clone() for k, v in net.state_dict().items()};V = average
T = sum(p.square().sum() for p in net.parameters())
net.weight.grad = torch.ones_like(net.weight)
optimizer.zero_grad();checkpoint(net, data(), use_reentrant=False).sum().backward();T = net.weight.grad.clone()
net.weight.requires_grad_($b)
with torch.autocast(DEVICE, torch.bfloat16):;    loss = net(data()).sum();loss.backward();T = loss
""")
