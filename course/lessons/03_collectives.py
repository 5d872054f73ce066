# %% [markdown]
# # 3. broadcast, reduce and all_reduce by hand
#
# Eight hosts at a switch, 10 Gbit/s and 10 us each, as in lesson 1. Every rank holds 8 MiB of gradients, and all need
# their sum.
#
# **Question.** Rank 0 receives all of them, one after the other, adds them up and sends the sum back. How long does it
# take? And which part of it would twice the bandwidth save?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds of the all_reduce of 8 MiB on 8 ranks": None}

# %% [markdown]
# ## Your turn
#
# With `dist.send` and `dist.recv` only. Tensors are changed in place; on ranks that are not asked to hold a result they
# must be as they were.

# %%
import os

import torch
import torch.distributed as dist


def broadcast(tensor: torch.Tensor, src: int) -> None:
    """Give all ranks the tensor of rank ``src``."""
    raise NotImplementedError


def reduce(tensor: torch.Tensor, dst: int) -> None:
    """Add up the tensors of all ranks on rank ``dst``; those of the others stay as they are."""
    raise NotImplementedError


def all_reduce(tensor: torch.Tensor) -> None:
    """Give all ranks the sum of all tensors."""
    raise NotImplementedError


def all_reduce_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    """Return how long your all_reduce takes: rank 0 receives one message at a time, each in alpha + n * beta."""
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Sum 8 MiB over all ranks by hand."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    numbers = torch.arange(1 << 21, dtype=torch.float32) % 7
    mine = numbers + rank
    all_reduce(mine)
    is_right = torch.equal(mine, world_size * numbers + world_size * (world_size - 1) / 2)
    print("the sum is right" if is_right else f"the sum begins with {mine[:4].tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# Nobody sums through one rank, but checkpoints and metrics still go there. On sixteen H100 in two hosts 256 MiB would
# take 113 ms through rank 0, where NCCL takes 1.6 (`ringlab predict two-p5 --set
# 'collective.algorithms=["nccl", "naive"]'`; docs/nccl.md holds such predictions against published tables).
# `ringlab predict star8` puts this algorithm (`naive`) beside better ones on eight hosts.
#
# ## Beyond
#
# 1. Let rank 0 post all receives at once (`dist.irecv`). What is saved: alpha, beta, or both?
# 2. `all_reduce` as `reduce` and `broadcast` moves 2 (p - 1) n bytes over the link of rank 0. What is the least that
#    any rank must send and receive? (Lesson 4 reaches it.)
