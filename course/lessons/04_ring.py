# %% [markdown]
# # 4. The ring, and when it wins
#
# In lesson 3, eight hosts summed 8 MiB through rank 0: one link was full and seven were idle. A ring uses all links at
# the same time. It cuts the buffer into one chunk per rank, and in every step each rank sends one chunk to its right
# neighbor. After p - 1 steps, every rank holds one chunk of the sum. After p - 1 more steps, every rank holds them all.
#
# **Question.** How long do the eight hosts take now? Is there a size for which summing through rank 0 is faster?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds of the ring, 8 MiB on 8 ranks": None, "bytes that a rank sends": None}

# %% [markdown]
# ## Your turn
#
# Send messages to the right neighbor only, no collectives. Send and receive at the same time in each step
# (`dist.batch_isend_irecv`). The length need not be a multiple of the number of ranks, and may be smaller:
# `tensor.tensor_split(world_size)` always returns one chunk per rank. The tensor may have any type.

# %%
import os

import torch
import torch.distributed as dist


def ring_all_reduce(tensor: torch.Tensor) -> None:
    """Sum the 1-D tensor over all p ranks, in place. Each rank sends about 2 (p - 1) / p times the tensor's bytes."""
    raise NotImplementedError


def ring_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    """Return the time in seconds of the ring all_reduce; a message of n bytes takes alpha + n * beta."""
    raise NotImplementedError


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    """Return the size in bytes above which the ring is faster than an all_reduce through rank 0.

    That all_reduce takes 2 (alpha + (p - 1) n beta) for n bytes: its p - 1 concurrent messages share rank 0's link.
    """
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Sum 8 MiB with your ring."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    numbers = torch.arange(1 << 21, dtype=torch.float32) % 7
    mine = numbers + rank
    ring_all_reduce(mine)
    is_right = torch.equal(mine, world_size * numbers + world_size * (world_size - 1) / 2)
    print("the sum is right" if is_right else f"the sum is wrong: it begins with {mine[:4].tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# NCCL uses this ring with many channels and slices, so a step need not wait for a whole chunk. `ringlab explain two-p5`
# prints NCCL's choice and the time of its ring for each size. `ringlab predict two-racks --sweep
# collective.sizes=1..65536KiB*4 --plot sizes.png` draws time against size.
#
# ## Beyond
#
# 1. Double the ranks and keep the bytes. Which part of the time doubles, and which part does not?
# 2. Put four hosts into each of two racks, with a thin link between the racks: `ringlab learn 4 --show --on two-racks`.
#    Which steps wait for that link? How much does the link cost the sum through rank 0 (`ringlab learn 3 --show --on
#    two-racks`)?
