"""DTensors on a mesh of one process: their Python code runs, and results, placements and gradients are those of the plain call."""

import pytest
import torch
import torch.distributed as dist

from frameloom import jit

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")


@pytest.fixture
def mesh():
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def elementwise(x, mesh, tensor):
    return (x * 2).sin()


def product_and_local(x, mesh, tensor):
    return (x @ x.T).redistribute(mesh, [tensor.Replicate()]).to_local()


def distributed_inside(x, mesh, tensor):
    y = tensor.distribute_tensor(x.to_local().detach() * 3, mesh, [tensor.Shard(0)])
    return (y + 1).to_local()


def made_of_local_parts(x, mesh, tensor):
    return tensor.DTensor.from_local(x.to_local() * 2, mesh, [tensor.Replicate()]).sum()


def facts(x):
    local = x.to_local() if hasattr(x, "to_local") else x
    return type(x), getattr(x, "placements", None), x.shape, x.requires_grad, local.detach()


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize(
    "fn", [elementwise, product_and_local, distributed_inside, made_of_local_parts]
)
def test_equal_to_plain(fn, needs_gradient, mesh):
    from torch.distributed import tensor

    compiled = jit(fn)
    for _ in range(2):
        seen = []
        for side in (compiled, fn):
            x = tensor.distribute_tensor(torch.ones(3, 4) + 0.5, mesh, [tensor.Shard(0)])
            x.requires_grad_(needs_gradient)
            result = side(x, mesh, tensor)
            seen.append([*facts(result)])
            if result.requires_grad:
                total = result.to_local() if hasattr(result, "to_local") else result
                total.sum().backward()
                seen[-1] += facts(x.grad)
        for got, want in zip(*seen, strict=True):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want)
            else:
                assert got == want
