# %% [markdown]
# # 5. Trees, halving, and the right algorithm for a size
#
# The ring of lesson 4 pays alpha 2 (p - 1) times: fine for 8 MiB, bad for a loss of 4 bytes on 64 ranks. A tree pays it
# log2(p) times each way.
#
# **Question.** 64 hosts, 10 Gbit/s, 10 us. How long does an all_reduce of 4 bytes take by the ring, and how long by a
# binomial tree up and down? From which size on is the ring better?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds by the ring": None, "seconds by the tree": None, "bytes from which the ring is better": None}

# %% [markdown]
# ## Your turn

# %%
import math
import os

import torch
import torch.distributed as dist


def tree_broadcast(tensor: torch.Tensor) -> None:
    """Give all ranks the tensor of rank 0 in ceil(log2(p)) rounds: whoever has it sends it to one who has not.

    For any number of ranks, with ``dist.send`` and ``dist.recv``.
    """
    raise NotImplementedError


def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    """Give all ranks the sum, for world sizes that are powers of two, in 2 log2(p) steps.

    In the first step exchange half of the buffer with the rank p / 2 away and add what comes, then a quarter with the
    rank p / 4 away, and so on; then the same way back, without adding. The tensor's length is a multiple of p.
    """
    raise NotImplementedError


def tree_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    """Return how long an all_reduce by a binomial tree takes: up to rank 0 and down again, p a power of two."""
    raise NotImplementedError


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    """Return the bytes from which the ring, 2 (p - 1) (alpha + n / p beta), is faster than that tree."""
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Broadcast by the tree and sum by halving and doubling, beside torch's own."""
    dist.init_process_group("gloo")
    tensor = torch.full((8,), float(dist.get_rank() + 1))
    tree_broadcast(tensor)
    print("broadcast is right" if (tensor == 1).all() else f"broadcast gave {tensor.tolist()}")
    mine = torch.arange(1 << 12, dtype=torch.float32) % 7 + dist.get_rank()
    torchs = mine.clone()
    halving_doubling_all_reduce(mine)
    dist.all_reduce(torchs)
    print("equal to torch's" if torch.equal(mine, torchs) else "not what torch's all_reduce gives")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# NCCL takes trees for small and rings for large messages, by a model with a table of latencies of its own:
# `ringlab explain two-p5` lists its candidates. For 8 KiB on those 16 H100 its tree is predicted to take 85 us, a plain
# ring 2.1 ms (`ringlab predict two-p5`; docs/nccl.md holds such predictions against published tables). By alpha and
# beta alone, halving and doubling is never slower than the ring; yet its first step crosses the whole network with half
# of the buffer. Behind a thin trunk that decides: of 8 MiB it takes 2.5 times as long as the ring there,
# `ringlab predict two-racks --set 'collective.algorithms=["ring", "halving_doubling"]'`.
#
# ## Beyond
#
# 1. Let `tree_broadcast` start at any rank.
# 2. `ringlab predict star8 --set 'collective.algorithms=["ring", "binomial"]' --sweep collective.sizes=1..65536KiB*4`
#    names the sizes at which each is fastest; `--plot sizes.png` draws them. Find your crossing.
