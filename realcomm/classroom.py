"""Collectives for a first exercise, which take the rank and the world size as arguments.

They work in place on the default group of ``torch.distributed`` and send only point-to-point messages. All raise
InputError, a ValueError, if ``rank`` or ``world_size`` differs from the group's. The examples show rank 0 of two ranks.
"""

import torch
import torch.distributed as dist

from collectives.errors import InputError
from realcomm.functions import tensor_collectives


def broadcast(tensor: torch.Tensor, rank: int, world_size: int, src: int = 0) -> None:
    """Copy ``tensor`` from rank ``src`` to all ranks. Rank ``src`` sends its tensor to the others one after another.

    >>> tensor = torch.tensor([rank + 1.0])
    >>> classroom.broadcast(tensor, rank, world_size, src=1)
    >>> tensor
    tensor([2.])
    """
    _check(rank, world_size)
    tensor_collectives.broadcast(tensor, src, algorithm="naive")


def reduce(tensor: torch.Tensor, rank: int, world_size: int, dst: int = 0, op: str = "sum") -> None:
    """Reduce ``tensor`` over all ranks by ``op`` ("sum", "mean", ...). Only rank ``dst`` gets the result.

    On the other ranks, the content of ``tensor`` is undefined afterwards.

    >>> tensor = torch.tensor([rank + 1.0])
    >>> classroom.reduce(tensor, rank, world_size)
    >>> tensor
    tensor([3.])
    """
    _check(rank, world_size)
    tensor_collectives.reduce(tensor, dst, op, algorithm="naive")


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int, op: str = "sum") -> None:
    """Reduce ``tensor`` over all ranks by ``op``, then broadcast the result to every rank.

    >>> tensor = torch.tensor([rank + 1.0])
    >>> classroom.all_reduce(tensor, rank, world_size)
    >>> tensor
    tensor([3.])
    """
    _check(rank, world_size)
    tensor_collectives.all_reduce(tensor, op, algorithm="naive")


def ring_all_reduce(tensor: torch.Tensor, rank: int, world_size: int, op: str = "sum") -> None:
    """Reduce ``tensor`` over all ranks by ``op`` in a ring; every rank gets the result.

    Each of p ranks sends 2 (p - 1) messages to its right neighbor. Each message contains 1/p of the tensor.

    >>> tensor = torch.tensor([rank + 1.0, 1.0])
    >>> classroom.ring_all_reduce(tensor, rank, world_size, op="mean")
    >>> tensor
    tensor([1.5000, 1.0000])
    """
    _check(rank, world_size)
    tensor_collectives.all_reduce(tensor, op, algorithm="ring")


def _check(rank: int, world_size: int) -> None:
    if not dist.is_initialized():
        raise InputError("there is no process group; call torch.distributed.init_process_group first")
    if (rank, world_size) != (actual := (dist.get_rank(), dist.get_world_size())):
        raise InputError(
            f"rank and world_size must be {actual[0]} and {actual[1]} in this process, not {rank!r} and {world_size!r}"
        )
