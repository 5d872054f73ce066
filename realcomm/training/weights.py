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
    """Copy rank 0's values of these tensors, of any type and layout, to all ranks, as one message's bytes."""
    copied = [tensor.detach() for tensor in tensors]
    if not copied:
        return
    sent = torch.cat([to_bytes(tensor) for tensor in copied])
    execute(find_algorithm("broadcast/naive"), sent)
    for tensor, piece in zip(copied, sent.split([tensor.nbytes for tensor in copied]), strict=True):
        tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))  # a copy begins where its type may begin


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state_dict to a file, all of it or nothing."""
    content = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, content)
    write_bytes(path, content.getvalue())


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers, in hexadecimal."""
    summed = hashlib.sha256()
    for tensor in model.state_dict().values():
        summed.update(to_bytes(tensor).cpu().numpy().tobytes())
    return summed.hexdigest()


def to_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a tensor in the order of its indices, as bytes [nbytes]; it may share their memory."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
