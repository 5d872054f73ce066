"""A group of all ranks whose messages go from host to host: they take nothing of GPUs, neither time nor memory."""

import torch.distributed as dist

from realcomm.execution.group_memory import keep_for
from realcomm.launching.group import own_device


def host_group() -> dist.ProcessGroup:
    """Return the default group, or where that works on GPUs one of gloo. All ranks call this together."""
    group = dist.group.WORLD
    assert group is not None
    return group if own_device().type == "cpu" else keep_for(group, "host group", _make)


def host_barrier() -> None:
    """Wait for all ranks; the GPU is left to those that still compute, where ``barrier`` of NCCL would keep it busy."""
    dist.barrier(host_group())


def _make() -> dist.ProcessGroup:
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)
    return group
