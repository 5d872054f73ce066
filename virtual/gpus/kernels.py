"""CPU versions of kernels that torch has only for GPUs: SyncBatchNorm, and attention on DTensors.

The ``batch_norm_...`` functions replace the operators that ``torch.nn.modules._functions.SyncBatchNorm`` calls.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.nn.modules._functions import SyncBatchNorm as Synchronised
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from virtual.process.replaced import Replaced


def install_batch_norm(replaced: Replaced) -> None:
    for function in (
        batch_norm_stats,
        batch_norm_gather_stats_with_counts,
        batch_norm_elemt,
        batch_norm_backward_reduce,
        batch_norm_backward_elemt,
    ):
        replaced.put(torch, function.__name__, function)
    replaced.put(SyncBatchNorm, "forward", forward)
    replaced.put(torch.nn.parallel.DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda *args: None)


def forward(self: Any, data: Tensor) -> Any:
    group = self.process_group or dist.group.WORLD
    ranks = dist.get_world_size(group) if self.training and dist.is_initialized() else 1
    if ranks == 1:
        return _BatchNorm.forward(self, data)
    mean, variance, momentum = None, None, self.momentum or 0.0
    if self.track_running_stats:
        mean, variance = self.running_mean, self.running_var
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
    return Synchronised.apply(data, self.weight, self.bias, mean, variance, self.eps, momentum, group, ranks)


def _over_channels(data: Tensor) -> list[int]:
    return [place for place in range(data.dim()) if place != 1]


def _as_channels(values: Tensor, data: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (data.dim() - 2))


def batch_norm_stats(data: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(data.float(), _over_channels(data), correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_gather_stats_with_counts(
    data: Tensor,
    means: Tensor,
    inverses: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    shares, total = (counts / counts.sum()).view(-1, 1), counts.sum()
    mean = (shares * means).sum(0)
    variance = (shares * (inverses.pow(-2) - eps + (means - mean).square())).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_elemt(
    data: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor, eps: float
) -> Tensor:
    normalized = (data - _as_channels(mean, data)) * _as_channels(inverse, data)
    normalized = normalized if weight is None else normalized * _as_channels(weight, data)
    return (normalized if bias is None else normalized + _as_channels(bias, data)).to(data.dtype)


def batch_norm_backward_reduce(
    gradient: Tensor, data: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor | None, *wanted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return per-channel sums of ``gradient`` and ``gradient * (data - mean)``, and weight and bias gradients."""
    places = _over_channels(data)
    total = gradient.sum(places, dtype=mean.dtype)
    weighted = (gradient * (data - _as_channels(mean, data))).sum(places, dtype=mean.dtype)
    dtype = mean.dtype if weight is None else weight.dtype
    return total, weighted, (weighted * inverse).to(dtype), total.to(dtype)


def batch_norm_backward_elemt(
    gradient: Tensor,
    data: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    total: Tensor,
    weighted: Tensor,
    counts: Tensor,
) -> Tensor:
    """Return the gradient with respect to ``data``. ``total`` and ``weighted`` are summed over all ranks."""
    count = counts.sum()
    slope = _as_channels(inverse.square() * weighted / count, data)
    input_gradient = gradient - _as_channels(total / count, data) - (data - _as_channels(mean, data)) * slope
    scale = inverse if weight is None else inverse * weight
    return (input_gradient * _as_channels(scale, data)).to(data.dtype)


FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def shard_attention() -> None:
    """Let DTensor shard attention on the CPU as it does on GPUs: by samples or by heads."""
    register_sharding(FORWARD)(lambda *args, attn_mask=None, scale=None: _allow(3, 2, attn_mask))
    register_sharding(BACKWARD)(lambda *args, attn_mask=None, scale=None: _allow(6, 3, attn_mask))


def _allow(inputs: int, outputs: int, mask: Any) -> list[tuple[list[Any], list[Any]]]:
    """Return the allowed placements: pairs of output placements and input placements.

    A mask stays replicated, so a dimension (samples or heads) in which the mask varies is not sharded.
    """
    sizes = [1] * 4 if mask is None else [1] * (4 - len(mask.shape)) + list(mask.shape)
    placements = [Replicate(), *(Shard(dim) for dim in (0, 1) if sizes[dim] == 1)]
    masks = [] if mask is None else [Replicate()]
    return [([placement] * outputs, [placement] * inputs + masks) for placement in placements]
