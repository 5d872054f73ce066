"""Collectives with the signatures of a class: every rank passes its number and how many there are.

They work in place on the default group of ``torch.distributed`` and send nothing but point-to-point messages. All
raise InputError, a ValueError, when the numbers are not the group's.
"""

import torch
import torch.distributed as dist

from collectives.errors import InputError
from realcomm.functions import tensor_collectives


def broadcast(tensor: torch.Tensor, rank: int, world_size: int, src: int = 0) -> None:
    """``tensor`` holds what it holds on ``src``, which sent it to every other rank, one after the other."""
    _check(rank, world_size)
    tensor_collectives.broadcast(tensor, src, algorithm="naive")


def reduce(tensor: torch.Tensor, rank: int, world_size: int, dst: int = 0, op: str = "sum") -> None:
    """On ``dst``, ``tensor`` holds the ``op`` ("sum", "mean", ...) of all, sent there; elsewhere it holds anything."""
    _check(rank, world_size)
    tensor_collectives.reduce(tensor, dst, algorithm="naive", op=op)


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int, op: str = "sum") -> None:
    """``tensor`` holds the ``op`` of all ranks': reduced to rank 0, and broadcast from there."""
    _check(rank, world_size)
    tensor_collectives.all_reduce(tensor, algorithm="naive", op=op)


def ring_all_reduce(tensor: torch.Tensor, rank: int, world_size: int, op: str = "sum") -> None:
    """The same by a ring: each rank sends to its right neighbour only, 2 (p - 1) times a p-th of the tensor."""
    _check(rank, world_size)
    tensor_collectives.all_reduce(tensor, algorithm="ring", op=op)


def _check(rank: int, world_size: int) -> None:
    if not dist.is_initialized():
        raise InputError("there is no process group; call torch.distributed.init_process_group first")
    if (rank, world_size) != (found := (dist.get_rank(), dist.get_world_size())):
        raise InputError(
            f"rank {rank!r} of {world_size!r} was given, but this process is rank {found[0]} of {found[1]}"
        )
