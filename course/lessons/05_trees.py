# %% [markdown]
# # 5. Trees, halving, and the right algorithm for a size
#
# The ring of lesson 4 pays alpha 2 (p - 1) times. That is fine for 8 MiB, and slow for a loss of 4 bytes on 64 ranks. A
# tree pays alpha only log2(p) times in each direction.
#
# **Question.** Take 64 hosts with 10 Gbit/s and 10 us. How long does an all_reduce of 4 bytes take with the ring? How
# long does it take with a binomial tree, up to rank 0 and down again? From which size on is the ring better?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds by the ring": None, "seconds by the tree": None, "bytes from which the ring is better": None}

# %% [markdown]
# ## Your turn
#
# Use messages only, no collectives.

# %%
import math
import os

import torch
import torch.distributed as dist


def tree_broadcast(tensor: torch.Tensor) -> None:
    """Copy the tensor of rank 0 to all p ranks in ceil(log2(p)) rounds, for any p.

    In each round, every rank that has the tensor sends it to one rank that does not have it yet.
    """
    raise NotImplementedError


def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    """Sum the tensor over all p ranks, in place, in 2 log2(p) steps. p is a power of two and divides the length.

    In the first step, exchange half of the buffer with the rank at distance p / 2, and add what arrives. Then exchange
    a quarter with the rank at distance p / 4, and so on. Then repeat these steps in reverse order, without adding.
    """
    raise NotImplementedError


def tree_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    """Return the seconds of a reduce and a broadcast along a binomial tree. ``world_size`` is a power of two."""
    raise NotImplementedError


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    """Return the bytes n above which a ring beats a tree. The ring takes 2 (p - 1) (alpha + n / p beta) seconds."""
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Broadcast with the tree, sum with halving and doubling, and compare with torch's all_reduce."""
    dist.init_process_group("gloo")
    tensor = torch.full((8,), float(dist.get_rank() + 1))
    tree_broadcast(tensor)
    print("broadcast is right" if (tensor == 1).all() else f"broadcast gave {tensor.tolist()}")
    mine = torch.arange(1 << 12, dtype=torch.float32) % 7 + dist.get_rank()
    torchs = mine.clone()
    halving_doubling_all_reduce(mine)
    dist.all_reduce(torchs)
    print("equal to torch's" if torch.equal(mine, torchs) else "differs from torch's all_reduce")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# NCCL chooses trees for small messages and rings for large ones, from its own table of latencies. `ringlab explain
# two-p5` lists its candidates. For 8 KiB on 16 H100, its tree is predicted to take 85 us and a plain ring 2.1 ms
# (`ringlab predict two-p5`).
#
# With alpha and beta alone, halving and doubling is never slower than the ring. But its first step sends half of the
# buffer across the whole network. With a thin trunk, 8 MiB take 2.5 times as long as with the ring: `ringlab predict
# two-racks --set 'collective.algorithms=["ring", "halving_doubling"]'`.
#
# ## Beyond
#
# 1. Make `tree_broadcast` start at any rank.
# 2. `ringlab predict star8 --set 'collective.algorithms=["ring", "binomial"]' --sweep collective.sizes=1..65536KiB*4`
#    prints the sizes for which each is fastest, and `--plot sizes.png` draws them. Find your crossing.
