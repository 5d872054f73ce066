"""The weights of a model: sent to all ranks, written, and summed up."""

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from collectives.catalogue import find_algorithm
from collectives.output_files import write_bytes
from realcomm.execution.executor import execute


def broadcast(tensors: Iterable[torch.Tensor]) -> None:
    """Copy rank 0's values of these tensors to all ranks."""
    algorithm = find_algorithm("broadcast/naive")
    for tensor in tensors:
        execute(algorithm, tensor)


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state_dict to a file, all of it or nothing."""
    content = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, content)
    write_bytes(path, content.getvalue())


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers, in hexadecimal."""
    summed = hashlib.sha256()
    for tensor in model.state_dict().values():
        summed.update(tensor.cpu().numpy().tobytes())
    return summed.hexdigest()
