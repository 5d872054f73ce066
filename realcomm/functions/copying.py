"""Elements copied between tensors of any shape, in the order of their indices."""

import torch


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its memory holds the elements one after the other as they are, so that it can be worked on there."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def copy(data: torch.Tensor, into: torch.Tensor) -> None:
    """``into`` holds the same elements in the same order, whatever the shapes; nothing happens where it is ``data``."""
    if into is not data:
        into.detach().copy_(data.detach().reshape(into.shape))


def part(buffer: torch.Tensor, part: int, world_size: int) -> torch.Tensor:
    """One of ``world_size`` equal parts of a contiguous tensor."""
    size = buffer.numel() // world_size
    return buffer.detach().view(-1)[part * size : (part + 1) * size]
