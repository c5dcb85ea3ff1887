"""Sizes that the kernels of a backward pass cannot have: it runs op by op."""

import pytest
import torch
import torch.nn.functional as F

import frameloom


def pooled(x):
    return F.adaptive_avg_pool1d(x.prod(1, keepdim=True), 5)


@pytest.mark.parametrize("again", [False, True])
def test_a_size_that_becomes_1(again):
    jitted = frameloom.jit(pooled)
    for shape in ((4, 6), (4, 1), (3, 1), (5, 2)):
        made = []
        for side in (jitted, pooled):
            x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
            total = side(x).square().sum()
            if again:
                total.backward(retain_graph=True)
            total.backward()
            made.append(x.grad)
        torch.testing.assert_close(*made)
