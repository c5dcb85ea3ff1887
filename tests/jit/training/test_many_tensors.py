"""Programs over hundreds of tensors are one graph."""

import torch

import frameloom


def test_an_optimizer_of_many_parameters():
    def parameters():
        torch.manual_seed(0)
        return [torch.nn.Parameter(torch.randn(2 + k % 3)) for k in range(150)]

    pairs = [(ps, torch.optim.AdamW(ps, foreach=True)) for ps in (parameters(), parameters())]
    frameloom.reset()
    steps = frameloom.jit(pairs[0][1].step), pairs[1][1].step
    for k in range(3):
        for step, (ps, _) in zip(steps, pairs, strict=True):
            torch.manual_seed(k)
            for p in ps:
                p.grad = torch.randn_like(p)
            step()
    assert frameloom.stats()["breaks"] == 0
    for a, b in zip(*(ps for ps, _ in pairs), strict=True):
        torch.testing.assert_close(a, b)
