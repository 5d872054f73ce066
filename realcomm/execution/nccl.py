"""Adapt the executor to NCCL: group messages, create one communicator per channel, and connect ranks in advance.

A communicator executes its calls or groups of calls in order. Without groups, a step's first message could wait for a
peer that waits for the second one. So each step's messages are one group. Channels must not wait for each other, so
each has its own communicator (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html).
"""

import weakref
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from collectives.step import Kind, Step
from realcomm.execution.group_memory import GroupReference, keep_for, refer
from realcomm.launching.group import backends

Addressed = tuple[int, list[torch.Tensor]]  # the peer in the group, and a tensor of bytes

# the group of each further communicator
_copied: weakref.WeakKeyDictionary[dist.ProcessGroup, GroupReference] = weakref.WeakKeyDictionary()


class GroupWork:
    """The work handle that the messages of one NCCL group share."""

    def __init__(self, work: dist.Work | None) -> None:
        self._work = work

    def wait(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None


def needs_groups(device: torch.device) -> bool:
    """Return whether a step's messages must be one NCCL group, as on GPUs."""
    return device.type == "cuda"


def as_bytes(data: torch.Tensor) -> list[torch.Tensor]:
    """Return a list with a uint8 view of the tensor, because NCCL does not support every dtype of torch."""
    return [data.view(torch.uint8)]


def post_group(
    group: dist.ProcessGroup, receives: Sequence[Addressed], sends: Sequence[Addressed], device: torch.device
) -> GroupWork:
    """Post messages as one NCCL group."""
    if not receives and not sends:
        return GroupWork(None)
    group._start_coalescing(device)
    for peer, data in receives:
        group.recv(data, peer, 0)
    for peer, data in sends:
        group.send(data, peer, 0)
    return GroupWork(group._end_coalescing(device))


def make_communicators(group: dist.ProcessGroup, channels: int, device: torch.device) -> tuple[dist.ProcessGroup, ...]:
    """Return one communicator per channel. The first is ``group`` itself. All ranks of the group must call this.

    Communicators are created once and then shared by all programs. They exist until ``group`` is destroyed and no
    variable refers to it. An all_reduce of all ranks initializes each communicator, because a program may not involve
    all ranks.
    """
    others: list[dist.ProcessGroup] = keep_for(group, ("communicators", device), lambda: _first(group, device))
    for _ in range(channels - 1 - len(others)):
        others.append(_initialized(_like(group, device), device))
    return group, *others[: channels - 1]


def ranks_of(group: dist.ProcessGroup) -> list[int]:
    """Return the world ranks of a group, or of a communicator that ``make_communicators`` has created for a group."""
    return dist.get_process_group_ranks(_copied[group]() if group in _copied else group)


def _first(group: dist.ProcessGroup, device: torch.device) -> list[dist.ProcessGroup]:
    """Initialize ``group``. Return a new list for its further communicators, which are shut down with ``group``."""
    others: list[dist.ProcessGroup] = []
    _initialized(group, device)
    weakref.finalize(group, _destroy, others).atexit = False
    return others


def _like(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """Return a new communicator with the same ranks and backend. It is not registered as a group of torch.distributed.

    Torch numbers its registered groups on each rank. If only a subgroup's ranks registered a group, later groups would
    have different numbers on different ranks, and ranks would wait forever.
    """
    backend = _backend_of(group, device)
    name = f"{group.group_name} communicator {next(keep_for(group, 'numbers', lambda: count(1)))}"
    store = dist.PrefixStore(f"{name}/", group.get_group_store())  # type: ignore[attr-defined]
    make: Any = type(backend)
    other = dist.ProcessGroup(store, group.rank(), group.size())
    kind = dist.Backend.backend_type_map[backends(group)[device.type]]
    new_backend = make(store, group.rank(), group.size(), timeout=backend.options._timeout)
    other._register_backend(device, kind, new_backend)
    other._set_group_name(name)  # type: ignore[arg-type]
    _copied[other] = refer(group)
    return other


def _backend_of(group: dist.ProcessGroup, device: torch.device) -> Any:
    backend = group._get_backend(device)
    return getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL


def timeout_of(group: dist.ProcessGroup, device: torch.device) -> float:
    """Return the timeout of the group's calls in seconds. Torch's watchdog ends the process after this time."""
    timeout: timedelta = _backend_of(group, device).options._timeout
    return timeout.total_seconds()


def _initialized(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    group.allreduce([torch.zeros(1, device=device)]).wait()
    return group


def _destroy(communicators: Sequence[dist.ProcessGroup]) -> None:
    for communicator in communicators:
        communicator.shutdown()


def connect(groups: Sequence[dist.ProcessGroup], programs: Sequence[Sequence[Step]], device: torch.device) -> None:
    """Connect this rank to all peers of its programs. ``programs`` has one program per channel.

    NCCL connects two ranks at their first message, and each rank blocks until the other posts the same message. If this
    happened within a program, two ranks could block forever, each waiting in another channel.
    """
    for group, program in zip(groups, programs, strict=True):
        named = {(op.kind is Kind.SEND, op.peer) for step in program for op in step if not op.kind.is_local}
        sends, receives = (sorted(peer for sent, peer in named if sent is wanted) for wanted in (True, False))
        token, *tokens = map(as_bytes, torch.zeros(len(receives) + 1, device=device).split(1))
        messages = [*zip(receives, tokens, strict=True)]
        post_group(group, messages, [(peer, token) for peer in sends], device).wait()
