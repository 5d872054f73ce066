# %% [markdown]
# # 2. Deadlocks, and how to read them
#
# Assume that `dist.send` waits until the other rank receives. NCCL does. Gloo sometimes buffers a message, but a
# program must not depend on that.
#
# **Question.** Four ranks form a ring. Each one sends a tensor to its right neighbor, then receives one from its left
# neighbor. Which rank gets its tensor first?
#
# **Predict first.** How many of the four ranks will end? How many will end if only rank 0 receives before it sends?

# %%
PREDICTIONS = {"ranks that end if all send first": None, "ranks that end if rank 0 receives first": None}

# %% [markdown]
# ## Your turn
#
# Many people write `exchange` and `shift` as below, and both hang. Run the file as it is: `ringlab learn 2 --show`
# prints which rank waits for which, and in which line. (Real processes hang silently, until a timeout of minutes.) Then
# repair both functions. `find_cycle` does what the report did: it finds ranks that wait for each other.

# %%
import os

import torch
import torch.distributed as dist


def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    """Exchange tensors with the peer: send ``mine``, receive ``theirs``. Use only ``dist.send`` and ``dist.recv``.

    The peer calls the same function with this rank as its peer.
    """
    dist.send(mine, peer)
    dist.recv(theirs, peer)


def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    """Send ``mine`` to the right neighbor (rank + 1; rank 0 for the last rank) and receive the left neighbor's tensor.

    Your function must work for any number of ranks, in the time of one message: all ranks send at the same time. Use
    messages only, no collectives.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dist.send(mine, (rank + 1) % world_size)
    dist.recv(received, (rank - 1) % world_size)


def find_cycle(waits_for: dict[int, int]) -> list[int]:
    """Return ranks that wait for each other in a cycle, starting with the smallest, or [] if there is no cycle.

    ``waits_for[rank]`` is the one rank that ``rank`` waits for. A rank that does not wait has no entry.
    """
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Exchange with a peer, then shift around the ring, and print what each rank received."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine, other = torch.full((4,), float(rank)), torch.zeros(4)
    exchange(mine, other, rank ^ 1)
    print(f"exchanged with rank {int(other[0])}")
    shift(mine, other)
    print(f"the left neighbor is rank {int(other[0])}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# A collective that one rank skips is a larger cycle: the other ranks wait for that rank, and it waits for them in its
# next call. The timeout of a process group ends such a job after ten minutes (NCCL) or thirty (gloo); these are the
# defaults of `torch.distributed.init_process_group`. NCCL's Flight Recorder then reports which rank reached which
# collective.
#
# ## Beyond
#
# 1. Let rank 0 call `dist.barrier()` and the other ranks `dist.all_reduce(x)`. What does `--show` report?
# 2. Make two groups, {0, 1, 2} and {0, 2, 3}. Rank 0 calls a collective of the first group, then one of the second.
#    Rank 2 does it in the other order. Which rank waits for which?
