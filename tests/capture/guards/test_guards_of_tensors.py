"""Guards of tensors: what tells them apart, how they lie in memory, and what the messages say."""

import torch

from frameloom.capture import _capture as c
from tests.capture.guards.one_guard import Guard, check
from tests.capture.guards.program import Program


def tensors():
    base = torch.randn(4, 8)
    return {
        "plain": base,
        "other shape": torch.randn(5, 8),
        "fewer dims": torch.randn(32),
        "strides": torch.randn(8, 4).t(),
        "dtype": base.double(),
        "parameter": torch.nn.Parameter(base),
        "grad": base.clone().requires_grad_(),
        "negative": torch._neg_view(base),
        "meta": torch.empty(4, 8, device="meta"),
        "sparse": base.to_sparse(),
        "seven dims": torch.randn(1, 1, 1, 1, 1, 4, 8),
        "seven dims, other": torch.randn(1, 1, 1, 1, 1, 8, 4),
        "scalar": torch.tensor(1.0),
        "empty": torch.empty(0, 8),
        "conj": torch.randn(4, 8, dtype=torch.complex64).conj(),
        "complex": torch.randn(4, 8, dtype=torch.complex64),
        "half": base.half(),
    }


def test_tensors_are_told_apart():
    samples = tensors()
    with torch.inference_mode():
        samples["inference"] = torch.randn(4, 8)
    for name, sample in samples.items():
        guard = check("tensor", sample)
        for other, tensor in samples.items():
            assert (guard(tensor) is None) == (name == other), (name, other)
        assert guard(sample.numpy if name == "plain" else 3) is not None


def test_storage_offset_is_free_and_size_one_strides_count():
    base = torch.randn(10, 8)
    guard = check("tensor", base[:4])
    assert guard(base[3:7]) is None
    assert check("tensor", torch.empty_strided((1, 8), (8, 1)))(torch.empty_strided((1, 8), (1, 1)))


def test_requires_grad_toggles():
    x = torch.randn(3)
    guard = check("tensor", x)
    x.requires_grad_(True)
    assert guard(x) == "x: expected tensor float32 [3], found tensor float32 [3] requires_grad"
    x.requires_grad_(False)
    assert guard(x) is None
    p = torch.nn.Parameter(torch.randn(3), requires_grad=False)
    guard = check("tensor", p)
    assert guard(p) is None
    p.requires_grad_(True)
    assert guard(p) is not None


def test_functorch_wrappers_and_fakes_fail():
    x = torch.randn(4, 8)
    guard = check("tensor", x)
    seen = []
    torch.func.vmap(lambda row: (seen.append(guard(row)), row)[1])(torch.randn(3, 4, 8))
    torch.func.grad(lambda t: (seen.append(guard(t)), t.sum())[1])(torch.randn(4, 8))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        seen.append(guard(mode.from_tensor(x)))
    assert len(seen) == 3 and all(seen)


def test_tensor_messages():
    guard = check("tensor", torch.randn(4, 8))
    assert (
        guard(torch.randn(5, 8)) == "x: expected tensor float32 [4, 8], found tensor float32 [5, 8]"
    )
    assert guard(torch.randn(8, 4).t()).endswith("found tensor float32 [4, 8] strides [1, 4]")
    assert guard(3) == "x: expected tensor float32 [4, 8], found 3"
    assert "Negative" in guard(torch._neg_view(torch.randn(4, 8)))


def test_no_overlap():
    guard = Guard(lambda g, x: g.check(x, "no_overlap", [x, g.arg(1)]))
    base = torch.randn(10, 4)
    assert guard(base[:5], base[5:]) is None
    assert guard(base[5:], base[:5]) is None
    assert guard(base[:6], base[5:]) == "x and y share memory"
    assert guard(base, base) is not None
    assert guard(base[:0], base) is None
    assert guard(torch.randn(3), torch.randn(3)) is None
    shared = base.numpy()
    assert guard(torch.from_numpy(shared), torch.from_numpy(shared)) is not None
    assert guard(base, 3) is not None


def test_no_overlap_of_many():
    base = torch.randn(300)
    parts = [base[i : i + 1] for i in range(300)]

    def build(g, x):
        g.check(x, "no_overlap", [g.child(x, "item", i) for i in range(len(parts))])

    guard = Guard(build)
    for _ in range(2):
        assert guard(parts) is None
        assert guard(parts[::-1]) is None
        assert guard([*parts[:-1], parts[7]]) == "x[299] and x[7] share memory"
    assert guard.guards.texts() == ["x[0], x[100], x[101], x[102] and 296 more share no memory"]


def test_distinct():
    guard = Guard(lambda g, x: g.check(x, "distinct", [x, g.arg(1)]))
    a, b = [], []
    assert guard(a, b) is None
    assert guard(b, a) is None
    assert guard(a, a) == "x and y are one object"
    assert guard.guards.texts() == ["x, y are different objects"]


def test_a_tensor_that_nobody_wrote_to():
    assert c.tracks_versions()
    guards = Program(lambda x: x)
    p = torch.nn.Parameter(torch.randn(3, 4))
    guards.check(guards.arg(0), "unchanged", (p.detach(), p._version))

    def passes(tensor):
        return guards.passes((tensor,), lambda x: x)

    assert passes(p) and passes(p.detach())
    assert not passes(torch.nn.Parameter(p.data)) and not passes(p[1:]) and not passes(3)
    old, p.data = p.data, torch.zeros(3, 4)
    assert not passes(p)
    p.data = old
    assert passes(p)
    with torch.no_grad():
        p[0, 0] = 1
    assert not passes(p)
