# %% [markdown]
# # 4. The ring, and when it wins
#
# Through rank 0, eight hosts summed 8 MiB with one link full and seven idle. In a ring all links carry at once: the
# buffer is cut into as many chunks as there are ranks, and in every step each rank sends one chunk to its right
# neighbour. After p - 1 steps every rank holds one chunk summed; after p - 1 more all hold all.
#
# **Question.** How long do the eight hosts take now? And is there a size for which summing through rank 0 is faster?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds of the ring, 8 MiB on 8 ranks": None, "bytes that a rank sends": None}

# %% [markdown]
# ## Your turn
#
# Send to the right neighbour only, and both directions of a step at once (`dist.batch_isend_irecv`). Lengths need not
# be a multiple of the ranks: `tensor.tensor_split(world_size)`.

# %%
import os

import torch
import torch.distributed as dist


def ring_all_reduce(tensor: torch.Tensor) -> None:
    """Give all ranks the sum of all tensors (one dimension), each rank sending about 2 (p - 1) / p of its bytes."""
    raise NotImplementedError


def ring_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    """Return how long the ring takes where a message of n bytes takes alpha + n * beta."""
    raise NotImplementedError


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    """Return the bytes from which the ring is faster than rank 0 with all messages at once.

    That one takes 2 (alpha + (p - 1) n beta): all p - 1 messages wait for alpha together and share the link.
    """
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Sum 8 MiB by the ring."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    numbers = torch.arange(1 << 21, dtype=torch.float32) % 7
    mine = numbers + rank
    ring_all_reduce(mine)
    is_right = torch.equal(mine, world_size * numbers + world_size * (world_size - 1) / 2)
    print("the sum is right" if is_right else f"the sum begins with {mine[:4].tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# NCCL's ring is this one with many channels and slices, so that a step need not wait for the whole chunk.
# `ringlab explain two-p5` says what NCCL takes there at which size, and how far behind the ring is;
# `ringlab predict two-racks --sweep collective.sizes=1..65536KiB*4 --plot sizes.png` draws time against size.
#
# ## Beyond
#
# 1. Double the ranks and keep the bytes. Which part of the time doubles, and which does not?
# 2. Of eight hosts four are in each of two racks, and the link between the racks is thin: `ringlab learn 4 --show --on
#    two-racks`. Which steps wait for that link? And what does it cost summing through rank 0 (`ringlab learn 3 --show
#    --on two-racks`)?
