"""Build models: torchvision's ResNets, and models from users' files.

Batch norm can use the joint batch of all ranks. This also works on CPUs, where torch's SyncBatchNorm does not.
"""

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce  # its backward sums the gradients over all ranks
from torch.nn.modules.batchnorm import _BatchNorm

from collectives.errors import InputError, describe_error, text_of
from collectives.programs.recorder import is_about_memory
from collectives.training.workload import Training, is_file_reference
from realcomm.launching.group import own_device
from realcomm.launching.torch_process import import_compiler


def build_model(training: Training, seed: int) -> nn.Module:
    """Build the model of ``training`` on this rank's device, with random weights from ``seed``.

    If the model comes from a user's file, each rank executes the file. Raise InputError if the file fails.
    """
    with torch.random.fork_rng(devices=()):  # keeps the caller's random state
        torch.manual_seed(seed)
        model = _build_by_file(training) if is_file_reference(training.model) else build_resnet(training)
    _store_repeats(model)
    if training.sync_batch_norm:
        model = synchronize_batch_norm(model)
    return model.to(own_device())


def _store_repeats(model: nn.Module) -> None:
    """Copy expanded buffers, whose elements share memory, so that they can be written."""
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if any(stride == 0 and size > 1 for size, stride in zip(buffer.shape, buffer.stride(), strict=True)):
                setattr(module, name, buffer.contiguous())


def build_resnet(training: Training) -> nn.Module:
    """Return torchvision's ResNet with random weights, with the stem and the number of classes of ``training``."""
    import_compiler()
    from torchvision.models import get_model  # slow to import, and not needed for a user's model

    model: nn.Module = get_model(training.model, weights=None, num_classes=training.classes)
    if training.stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    return model


def _build_by_file(training: Training) -> nn.Module:
    """Return the model of a user's file. Raise InputError if the number or dtype of its parameters is wrong."""
    model = build_from_file(training.model)
    count = _count(model)
    if training.parameters not in (None, count):
        raise InputError(f"parameters must be {count}, as in model {training.model!r}, not {training.parameters}")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise InputError(
                f"model {training.model!r}: parameter {name} must be torch.float32, not {parameter.dtype}; to compute "
                "in 16 bits, set precision to 'bf16' or 'fp16'"
            )
    return model


def try_model(path: Path, name: str) -> int | str:
    """Build a user's model on the meta device. This runs in the subprocess that executes the user's file.

    Return the number of trained parameters, or an error message if the model cannot be built. Ranks may still be able
    to build it, because they have real data. Errors about memory are raised.
    """
    try:
        with torch.device("meta"):
            return _count(build_from_file(f"{path}:{name}"))
    except Exception as error:
        if is_about_memory(error):
            raise
        return text_of(error) if isinstance(error, InputError) else describe_error(error, path)


def _count(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters() if each.requires_grad)


def _is_raised_in(path: str, error: BaseException) -> bool:
    """Return whether a line of this file raised the error, for example with ``sys.exit()``."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and Path(frames[-1].f_code.co_filename).resolve() == Path(path).resolve()


def build_from_file(reference: str) -> nn.Module:
    """Execute ``FILE.py`` and return the model that its function NAME builds. Raise InputError if it fails."""
    path, _, name = reference.rpartition(":")
    folder = str(Path(path).absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # it may import its neighbors
    spec = importlib.util.spec_from_file_location(f"model_of_{Path(path).stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        build = getattr(module, name, None)
        if not callable(build):
            raise InputError(f"model {reference!r}: {path} has no function {name}")
        model: object = build()
    except InputError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or not (isinstance(error, Exception) or _is_raised_in(path, error)):
            raise
        raise InputError(f"model {reference!r}: {describe_error(error, Path(module.__file__ or path))}") from error
    if not isinstance(model, nn.Module) or not any(each.requires_grad for each in model.parameters()):
        raise InputError(
            f"model {reference!r} returns {type(model).__name__}; return a torch.nn.Module with trainable parameters"
        )
    return model


class JoinedBatchNorm(nn.Module):
    """Batch norm over the joint batch of all ranks. All ranks must have batches of equal size.

    Its collectives use a separate group, so that gradient buckets can be in flight at the same time.
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
        """Return the normalized images [batch, channels, ...]. In evaluation, use the running statistics."""
        shape = [1, -1, *[1] * (images.dim() - 2)]
        mean, variance = cast(torch.Tensor, self.running_mean), cast(torch.Tensor, self.running_var)
        if self.training:
            axes = [axis for axis in range(images.dim()) if axis != 1]
            count = images.numel() // images.shape[1] * dist.get_world_size()
            mean = all_reduce(images.sum(axes), group=self._group) / count
            squares = (images - mean.view(shape)).square().sum(axes)
            variance = all_reduce(squares, group=self._group) / count
            self._note(mean.detach(), variance.detach() * count / max(1, count - 1))
        normalized = (images - mean.view(shape)) * (variance.view(shape) + self.eps).rsqrt()
        if self.weight is None or self.bias is None:
            return normalized
        return normalized * self.weight.view(shape) + self.bias.view(shape)

    def _note(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if not isinstance(self.running_mean, torch.Tensor):
            return
        cast(torch.Tensor, self.num_batches_tracked).add_(1)
        share = (
            self.momentum if self.momentum is not None else 1.0 / float(cast(torch.Tensor, self.num_batches_tracked))
        )
        self.running_mean.lerp_(mean, share)
        cast(torch.Tensor, self.running_var).lerp_(variance, share)


def synchronize_batch_norm(model: nn.Module) -> nn.Module:
    """Return the model with batch norm over the batches of all ranks. All ranks of the default group must call this."""
    if not dist.is_initialized():  # a rank alone
        return model
    group = dist.new_group()  # separate, so that its messages do not wait for gradients
    assert isinstance(group, dist.ProcessGroup)
    if own_device().type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model, group)
        return converted
    return _replace(model, group)


def _replace(model: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    if isinstance(model, _BatchNorm):
        return JoinedBatchNorm(model, group)
    for name, child in model.named_children():
        setattr(model, name, _replace(child, group))
    return model
