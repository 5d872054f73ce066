"""Batch norm over the joined batch of all ranks, on CPUs too, where torch's own SyncBatchNorm does not work."""

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from realcomm.launching.group import own_device


class _SumOverRanks(torch.autograd.Function):
    """The sum over all ranks, whose gradient is the sum of the gradients."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        summed = values.clone()
        dist.all_reduce(summed, group=group)
        return summed

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        summed = gradients[0].clone()
        dist.all_reduce(summed, group=context.group)
        return summed, None


class JoinedBatchNorm(nn.Module):
    """Batch norm whose mean and variance are those of all ranks' batches together, which are equally long.

    Its collectives are on a group of their own, so that buckets of gradients may travel meanwhile.
    """

    def __init__(self, norm: _BatchNorm, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = norm.weight
        self.bias: nn.Parameter | None = norm.bias
        self.eps, self.momentum = norm.eps, norm.momentum
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        self._group = group

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images [batch, channels, ...] normalised; in evaluation by the running statistics."""
        shape = [1, -1, *[1] * (images.dim() - 2)]
        mean, variance = cast(torch.Tensor, self.running_mean), cast(torch.Tensor, self.running_var)
        if self.training:
            axes = [axis for axis in range(images.dim()) if axis != 1]
            count = images.numel() // images.shape[1] * dist.get_world_size()
            mean = cast(torch.Tensor, _SumOverRanks.apply(images.sum(axes), self._group)) / count
            squares = (images - mean.view(shape)).square().sum(axes)
            variance = cast(torch.Tensor, _SumOverRanks.apply(squares, self._group)) / count
            self._note(mean.detach(), variance.detach() * count / max(1, count - 1))
        normalised = (images - mean.view(shape)) * (variance.view(shape) + self.eps).rsqrt()
        if self.weight is None or self.bias is None:
            return normalised
        return normalised * self.weight.view(shape) + self.bias.view(shape)

    def _note(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        if not isinstance(self.running_mean, torch.Tensor):
            return
        cast(torch.Tensor, self.num_batches_tracked).add_(1)
        share = (
            self.momentum if self.momentum is not None else 1.0 / float(cast(torch.Tensor, self.num_batches_tracked))
        )
        self.running_mean.lerp_(mean, share)
        cast(torch.Tensor, self.running_var).lerp_(variance, share)


def synchronise_batch_norm(model: nn.Module) -> nn.Module:
    """Return the model with batch norm over the batches of all ranks. All ranks of the default group call this."""
    if not dist.is_initialized():  # one rank by itself
        return model
    if own_device().type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return converted
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    return _replace(model, group)


def _replace(model: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    if isinstance(model, _BatchNorm):
        return JoinedBatchNorm(model, group)
    for name, child in model.named_children():
        setattr(model, name, _replace(child, group))
    return model
