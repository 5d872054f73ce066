"""The models that are trained: torchvision's ResNets, and those that a user's file builds."""

import importlib.util
import sys
import traceback
from pathlib import Path

import torch
from torch import nn

from collectives.errors import InputError, describe_error
from collectives.programs.guest import is_about_memory
from collectives.training.workload import Training, is_file_reference
from realcomm.launching.compiler_folder import import_compiler
from realcomm.launching.group import own_device
from realcomm.training.sync_batch_norm import synchronise_batch_norm


def build_model(training: Training, seed: int) -> nn.Module:
    """Return the training's model with random weights from ``seed``, on this rank's device.

    A file of the user's is executed here, in the process of each rank. Raise InputError for one that fails.
    """
    with torch.random.fork_rng(devices=()):  # leaves the caller's random numbers as they are
        torch.manual_seed(seed)
        model = _build_by_file(training) if is_file_reference(training.model) else build_resnet(training)
    _store_repeats(model)
    if training.sync_batch_norm:
        model = synchronise_batch_norm(model)
    return model.to(own_device())


def _store_repeats(model: nn.Module) -> None:
    """Give buffers that ``expand`` made memory for each element, without which nothing can be copied into them."""
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if any(stride == 0 and size > 1 for size, stride in zip(buffer.shape, buffer.stride(), strict=True)):
                setattr(module, name, buffer.contiguous())


def build_resnet(training: Training) -> nn.Module:
    """Return torchvision's ResNet with random weights, and with the training's stem and classes."""
    import_compiler()
    from torchvision.models import get_model  # as slow to import as torch; what trains a model of one's own needs none

    model: nn.Module = get_model(training.model, weights=None, num_classes=training.classes)
    if training.stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    return model


def _build_by_file(training: Training) -> nn.Module:
    """Return the model of the user's file. Raise InputError unless its parameters are as the training says."""
    model = build_from_file(training.model)
    count = sum(each.numel() for each in model.parameters() if each.requires_grad)
    if training.parameters not in (None, count):
        raise InputError(f"parameters is {training.parameters}, but {training.model!r} has {count}; give that number")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise InputError(
                f"model {training.model!r}: its parameter {name} is {parameter.dtype}; parameters that are trained are "
                "torch.float32, with precision 'bf16' or 'fp16' to compute in these"
            )
    return model


def try_model(path: Path, name: str) -> None:
    """Build the model of a user's file without content, in the process that is there for the file.

    What fails is left to the ranks, which build it with its content; memory that is missing is told of.
    """
    try:
        with torch.device("meta"):
            build_from_file(f"{path}:{name}")
    except Exception as error:
        if is_about_memory(error):
            raise


def _is_raised_in(path: str, error: BaseException) -> bool:
    """Return whether a line of this file raises the error, as ``sys.exit()`` does."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and Path(frames[-1].f_code.co_filename).resolve() == Path(path).resolve()


def build_from_file(reference: str) -> nn.Module:
    """Return what ``FILE.py:NAME`` returns; the file is executed. Raise InputError unless that is a model to train."""
    path, _, name = reference.rpartition(":")
    folder = str(Path(path).absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # it may import what stands beside it
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
        raise InputError(f"model {reference!r}: {describe_error(error, Path(path))}") from error
    if not isinstance(model, nn.Module) or not any(each.requires_grad for each in model.parameters()):
        raise InputError(f"model {reference!r} returns {type(model).__name__}; return a torch.nn.Module to train")
    return model
