# ranks: 2
# options: --gpu
"""Attention on DTensors that are sharded by heads: the same as on one device."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention

mesh = init_device_mesh("cuda", (2,))
torch.manual_seed(0)
whole = [torch.randn(2, 4, 8, 16, device="cuda", requires_grad=True) for _ in range(3)]
for dimension in (0, 1):
    shards = [distribute_tensor(one.detach(), mesh, [Shard(dimension)]).requires_grad_() for one in whole]
    found = scaled_dot_product_attention(*shards, is_causal=True)
    alone = scaled_dot_product_attention(*whole, is_causal=True)
    found.square().sum().backward()
    gradients = torch.autograd.grad(alone.square().sum(), whole)
    assert found.placements == (Shard(dimension),) and torch.allclose(found.full_tensor(), alone, atol=1e-5)
    for shard, gradient in zip(shards, gradients, strict=True):
        assert torch.allclose(shard.grad.full_tensor(), gradient, atol=1e-5)
