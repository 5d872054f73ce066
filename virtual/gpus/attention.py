"""Attention on DTensors: torch shards the kernels of GPUs, and on this machine another one computes it."""

from typing import Any

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def shard_attention() -> None:
    """Have DTensor shard this machine's kernel as it shards that of GPUs: by samples, or by heads."""
    register_sharding(FORWARD)(lambda *args, attn_mask=None, scale=None: _allow(3, 2, attn_mask))
    register_sharding(BACKWARD)(lambda *args, attn_mask=None, scale=None: _allow(6, 3, attn_mask))


def _allow(inputs: int, outputs: int, mask: Any) -> list[tuple[list[Any], list[Any]]]:
    """Return the placements of results, each with those of the tensors that it is computed from.

    A mask stays as it is: what it tells apart, samples or heads, is not sharded.
    """
    sizes = [1] * 4 if mask is None else [1] * (4 - len(mask.shape)) + list(mask.shape)
    placements = [Replicate(), *(Shard(dim) for dim in (0, 1) if sizes[dim] == 1)]
    masks = [] if mask is None else [Replicate()]
    return [([one] * outputs, [one] * inputs + masks) for one in placements]
