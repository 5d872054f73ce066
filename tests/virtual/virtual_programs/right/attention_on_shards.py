# ranks: 2
# options: --gpu
"""Attention on DTensors that are sharded by samples or by heads: the same as on one device."""
from itertools import product

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention

mesh = init_device_mesh("cuda", (2,))
torch.manual_seed(0)
tensors = [torch.randn(2, 4, 8, 16, device="cuda", requires_grad=True) for _ in range(3)]
masks = [None, torch.ones(8, 8, dtype=torch.bool).tril()]
for dimension, mask in product((0, 1), masks):
    of_shards = None if mask is None else distribute_tensor(mask.cuda(), mesh, [Replicate()])
    whole_mask = None if mask is None else mask.cuda()
    shards = [distribute_tensor(tensor.detach(), mesh, [Shard(dimension)]).requires_grad_() for tensor in tensors]
    result = scaled_dot_product_attention(*shards, of_shards, is_causal=mask is None)
    alone = scaled_dot_product_attention(*tensors, whole_mask, is_causal=mask is None)
    result.square().sum().backward()
    gradients = torch.autograd.grad(alone.square().sum(), tensors)
    assert result.placements == (Shard(dimension),)
    assert torch.allclose(result.full_tensor(), alone, atol=1e-5)
    for shard, gradient in zip(shards, gradients, strict=True):
        assert torch.allclose(shard.grad.full_tensor(), gradient, atol=1e-5)
