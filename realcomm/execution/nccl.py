"""What NCCL needs to be told differently from gloo: messages in groups, a communicator a channel, connections before.

NCCL does what is asked of a communicator in that order, one group of messages after the other. So a step's messages are
one group, or the first would wait for a peer that waits for the second; and channels, which must not wait for each
other, have a communicator each (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html).
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.distributed as dist

from collectives.step import Kind, Step

Addressed = tuple[int, torch.Tensor]  # the peer in the group, and what is sent to it or received from it


class Together:
    """Several works as one, which every one of their messages may wait for; each is awaited once, as gloo demands."""

    def __init__(self, works: list[dist.Work]) -> None:
        self._works = works

    def wait(self) -> None:
        works, self._works = self._works, []
        for work in works:
            work.wait()


def posts_together(device: torch.device) -> bool:
    """Whether the messages of a step go in one group: on GPUs, where otherwise one would wait for the other."""
    return device.type == "cuda"


def posted_together(group: dist.ProcessGroup, receives: Sequence[Addressed], sends: Sequence[Addressed]) -> Together:
    """These messages are under way as one group. They travel as bytes, as NCCL does not know every dtype of torch."""
    calls = [dist.P2POp(dist.irecv, data.view(torch.uint8), group=group, group_peer=peer) for peer, data in receives]
    calls += [dist.P2POp(dist.isend, data.view(torch.uint8), group=group, group_peer=peer) for peer, data in sends]
    return Together(dist.batch_isend_irecv(calls) if calls else [])


@lru_cache(maxsize=8)
def communicators(group: dist.ProcessGroup, channels: int, device: torch.device) -> tuple[dist.ProcessGroup, ...]:
    """One for each channel, the first ``group`` itself, ready for messages; all ranks of the group come here.

    A communicator is made by the first call, which needs all ranks, and messages may be among few.
    """
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend_config(group)
    others = [dist.new_group(ranks, backend=backend, use_local_synchronization=True) for _ in range(channels - 1)]
    whole = (group, *(other for other in others if isinstance(other, dist.ProcessGroup)))
    for communicator in whole:
        dist.all_reduce(torch.zeros(1, device=device), group=communicator)
    return whole


def connect(groups: Sequence[dist.ProcessGroup], programs: Sequence[Sequence[Step]], device: torch.device) -> None:
    """Each rank is connected to all peers that its programs, one a channel, name.

    NCCL connects two ranks by their first message, and keeps both from going on until the other has asked for it too.
    In the midst of programs of several channels one could be kept by this channel, and the other by that.
    """
    for group, program in zip(groups, programs, strict=True):
        named = {(op.kind is Kind.SEND, op.peer) for step in program for op in step if not op.kind.is_local}
        sends, receives = (sorted(peer for sent, peer in named if sent is wanted) for wanted in (True, False))
        tokens = torch.zeros(len(receives) + 1, device=device).split(1)
        messages = zip(receives, tokens[1:], strict=True)
        posted_together(group, [*messages], [(peer, tokens[0]) for peer in sends]).wait()
