"""What NCCL needs otherwise than gloo: messages in groups, a communicator for each channel, connections made before.

NCCL does what is asked of a communicator in that order, one group of messages after the other. So a step's messages are
one group, or the first would wait for a peer that waits for the second; and channels, which must not wait for each
other, have a communicator each (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html).
"""

import weakref
from collections.abc import Sequence

import torch
import torch.distributed as dist

from collectives.step import Kind, Step
from realcomm.execution.group_memory import is_destroyed, keep_for

Addressed = tuple[int, torch.Tensor]  # the peer in the group, and what is sent to it or received from it


class GroupWork:
    """The works of a group of messages as one, for each message to wait for; each is awaited once, as gloo demands."""

    def __init__(self, works: list[dist.Work]) -> None:
        self._works = works

    def wait(self) -> None:
        """Wait for all messages, the first time only."""
        works, self._works = self._works, []
        for work in works:
            work.wait()


def needs_groups(device: torch.device) -> bool:
    """Return whether the messages of a step must be posted as one group: on GPUs, where NCCL carries them."""
    return device.type == "cuda"


def post_group(group: dist.ProcessGroup, receives: Sequence[Addressed], sends: Sequence[Addressed]) -> GroupWork:
    """Post messages as one group, as bytes, since NCCL does not know every dtype of torch."""
    calls = [dist.P2POp(dist.irecv, data.view(torch.uint8), group=group, group_peer=peer) for peer, data in receives]
    calls += [dist.P2POp(dist.isend, data.view(torch.uint8), group=group, group_peer=peer) for peer, data in sends]
    return GroupWork(dist.batch_isend_irecv(calls) if calls else [])


def make_communicators(group: dist.ProcessGroup, channels: int, device: torch.device) -> tuple[dist.ProcessGroup, ...]:
    """Return a communicator for each channel, the first ``group`` itself; all ranks of the group must call this.

    The others are made once, whatever programs use them, and destroyed when ``group`` is destroyed and nothing refers
    to it any more. All are initialised by a call that all ranks take part in, as the messages of a program may not be.
    """
    others: list[dist.ProcessGroup] = keep_for(group, ("communicators", device), lambda: _first(group, device))
    for _ in range(channels - 1 - len(others)):
        others.append(_initialised(_like(group), device))
    return group, *others[: channels - 1]


def _first(group: dist.ProcessGroup, device: torch.device) -> list[dist.ProcessGroup]:
    """Initialise ``group`` and return the list of its other communicators, still empty; it ends with the group."""
    others: list[dist.ProcessGroup] = []
    _initialised(group, device)
    weakref.finalize(group, _destroy, others).atexit = False
    return others


def _like(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Return a new group of the same ranks and backend."""
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend_config(group)
    other = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
    assert isinstance(other, dist.ProcessGroup)
    return other


def _initialised(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    dist.all_reduce(torch.zeros(1, device=device), group=group)
    return group


def _destroy(groups: Sequence[dist.ProcessGroup]) -> None:
    for group in groups:
        if not is_destroyed(group):
            dist.destroy_process_group(group)


def connect(groups: Sequence[dist.ProcessGroup], programs: Sequence[Sequence[Step]], device: torch.device) -> None:
    """Connect this rank to all peers that its programs, one a channel, name.

    NCCL connects two ranks by their first message, and keeps both from going on until the other has asked for it too.
    In the midst of programs of several channels one rank could wait in this channel, and the other in that.
    """
    for group, program in zip(groups, programs, strict=True):
        named = {(op.kind is Kind.SEND, op.peer) for step in program for op in step if not op.kind.is_local}
        sends, receives = (sorted(peer for sent, peer in named if sent is wanted) for wanted in (True, False))
        tokens = torch.zeros(len(receives) + 1, device=device).split(1)
        messages = zip(receives, tokens[1:], strict=True)
        post_group(group, [*messages], [(peer, tokens[0]) for peer in sends]).wait()
