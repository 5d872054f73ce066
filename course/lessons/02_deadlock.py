# %% [markdown]
# # 2. Deadlocks, and how to read them
#
# `dist.send` returns when the other side has begun to receive. This is true of NCCL, and of gloo for all but luck.
#
# **Question.** Four ranks stand in a circle. Each sends a tensor to its right neighbour, then receives one from its
# left. Which rank is the first that gets its tensor?
#
# **Predict first.** How many of the four will ever end? And how many, if only rank 0 receives before it sends?

# %%
PREDICTIONS = {"ranks that end if all send first": None, "ranks that end if rank 0 receives first": None}

# %% [markdown]
# ## Your turn
#
# `exchange` and `shift` below are as many write them, and both hang. Run the file as it is: `ringlab learn 2 --show`
# says at once who waits for whom, in which line. (On real processes a hang is silent until a timeout of minutes.)
# Then mend them. `circle` does what the report did: it finds who waits for whom all around.

# %%
import os

import torch
import torch.distributed as dist


def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    """Send ``mine`` to the peer and receive its tensor into ``theirs``, by ``dist.send`` and ``dist.recv`` alone.

    The peer calls the same function with this rank as its peer.
    """
    dist.send(mine, peer)
    dist.recv(theirs, peer)


def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    """Send ``mine`` to the right neighbour (rank + 1, the last one's is 0) and receive the left one's tensor.

    For any number of ranks, in the time of one message: all ranks send at the same time.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dist.send(mine, (rank + 1) % world_size)
    dist.recv(received, (rank - 1) % world_size)


def circle(waits_for: dict[int, int]) -> list[int]:
    """Return the ranks of a circle of waiting, in its order, beginning with the smallest; empty where there is none.

    ``waits_for[rank]`` is the one rank that ``rank`` waits for; ranks that wait for nobody are not in it.
    """
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Exchange with a peer, then shift around the circle, and print what each rank holds."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine, other = torch.full((4,), float(rank)), torch.zeros(4)
    exchange(mine, other, rank ^ 1)
    print(f"exchanged with rank {int(other[0])}")
    shift(mine, other)
    print(f"the left neighbour is rank {int(other[0])}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# A collective that not all ranks call is the same circle, drawn larger: those who called wait for the one who did not,
# and it waits for them at its next call. `TORCH_NCCL_ASYNC_ERROR_HANDLING` and the timeout of a process group end such
# a job after ten minutes (NCCL) or thirty (gloo), the defaults of `torch.distributed.init_process_group`; NCCL's
# Flight Recorder then says which rank came to which collective.
#
# ## Beyond
#
# 1. Let rank 0 call `dist.barrier()` and the others `dist.all_reduce(x)`. What is told? What if the group is of gloo?
# 2. Two groups, {0, 1, 2} and {0, 2, 3}: rank 0 calls a collective of the first, then of the second, rank 2 the other
#    way round. Who waits for whom?
