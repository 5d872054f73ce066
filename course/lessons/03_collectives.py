# %% [markdown]
# # 3. broadcast, reduce and all_reduce by hand
#
# Eight hosts are connected to one switch, with 10 Gbit/s and 10 us as in lesson 1. Every rank holds 8 MiB of gradients,
# and every rank needs their sum.
#
# **Question.** Rank 0 receives the tensors of all others one after the other, adds them up, and sends the sum back. How
# long does this take? Which part of that time would twice the bandwidth save?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds of the all_reduce of 8 MiB on 8 ranks": None}

# %% [markdown]
# ## Your turn
#
# Use `dist.send` and `dist.recv` only. The functions change their tensor in place. On a rank that does not receive a
# result, the tensor must not change. Tensors may have any number of elements and any type.

# %%
import os

import torch
import torch.distributed as dist


def broadcast(tensor: torch.Tensor, src: int) -> None:
    """Copy the tensor of rank ``src`` to all ranks."""
    raise NotImplementedError


def reduce(tensor: torch.Tensor, dst: int) -> None:
    """Add up the tensors of all ranks on rank ``dst``. Do not change the tensors of other ranks."""
    raise NotImplementedError


def all_reduce(tensor: torch.Tensor) -> None:
    """Replace the tensor on every rank with the sum of all tensors."""
    raise NotImplementedError


def all_reduce_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    """Return the seconds of an all_reduce through rank 0, which sends or receives one message at a time."""
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Sum 8 MiB over all ranks with your all_reduce."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    numbers = torch.arange(1 << 21, dtype=torch.float32) % 7
    mine = numbers + rank
    all_reduce(mine)
    is_right = torch.equal(mine, world_size * numbers + world_size * (world_size - 1) / 2)
    print("the sum is right" if is_right else f"the sum is wrong: it begins with {mine[:4].tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# Nobody sums gradients through one rank, but checkpoints and metrics still go through rank 0. On sixteen H100 in two
# hosts, 256 MiB would take 113 ms through rank 0, and NCCL takes 1.6 ms. `ringlab predict two-p5 --set
# 'collective.algorithms=["nccl", "naive"]'` predicts both. The documentation compares such predictions with published
# tables. `ringlab predict star8` compares this algorithm (`naive`) with better ones on eight hosts.
#
# ## Beyond
#
# 1. Let rank 0 post all receives at once (`dist.irecv`). What does that save: alpha, beta, or both?
# 2. An `all_reduce` made of `reduce` and `broadcast` moves 2 (p - 1) n bytes over the link of rank 0. How few bytes can
#    the busiest rank send and receive? (Lesson 4 reaches that minimum.)
