# %% [markdown]
# # 7. A thin trunk: hierarchical all_reduce
#
# Two racks have four hosts each, with 10 Gbit/s per host and one trunk of 10 Gbit/s between the racks. A careless
# scheduler assigns the ranks to the racks alternately: 0, 2, 4, 6 to one, and 1, 3, 5, 7 to the other.
#
# **Question.** How often does each byte of lesson 4's ring cross the trunk? How often must it cross?
#
# **Predict first.** The seconds of an all_reduce of 8 MiB: with that ring, and with the three stages below.

# %%
PREDICTIONS = {"seconds of the ring": None, "seconds of the three stages": None}

# %% [markdown]
# ## Your turn
#
# Write three stages:
#
# 1. Inside each rack, every rank gets the sum of one part of the tensor (`reduce_scatter_tensor`).
# 2. Across the racks, the ranks that hold the same part sum it (`all_reduce`).
# 3. Inside each rack, every rank gets all parts (`all_gather_into_tensor`).

# %%
import os

import torch
import torch.distributed as dist


def make_groups(racks: list[list[int]]) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Return two groups of this rank: all ranks of its rack, and the ranks with the same index in every rack.

    ``racks`` has a list of ranks for each rack, all of the same length. Every rank must create every group in the same
    order, including the groups that it does not belong to (``dist.new_group``).
    """
    raise NotImplementedError


def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    """Sum the tensor over all ranks, in place. Each rank sends only one shard of the tensor across the trunk.

    The length of the tensor is a multiple of the number of ranks in a rack. The tensor may have any type.
    """
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Sum 8 MiB over two racks."""
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    inside, across = make_groups([list(range(0, world_size, 2)), list(range(1, world_size, 2))])
    numbers = torch.arange(1 << 21, dtype=torch.float32) % 7
    mine = numbers + dist.get_rank()
    hierarchical_all_reduce(mine, inside, across)
    is_right = torch.equal(mine, world_size * numbers + world_size * (world_size - 1) / 2)
    print("the sum is right" if is_right else f"the sum is wrong: it begins with {mine[:4].tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# For hosts with eight H100, the trunk is the network: NVLink connects the GPUs of a host, and each GPU has one network
# card. NCCL does the three stages as rings that enter and leave a host through every card. `torch.distributed.fsdp`
# calls the same idea HSDP.
#
# `ringlab predict two-p5` compares three algorithms on two such hosts. For 256 MiB, it predicts 13.7 ms for a plain
# ring, 2.6 ms for your three stages (`hierarchical[gpus=8]`), and 1.6 ms for NCCL (80 % interval: 1.3 to 3.2 ms).
# The documentation compares such predictions with published tables.
#
# ## Beyond
#
# 1. Renumber the ranks so that a plain ring crosses the trunk as rarely as your three stages. Which order does it need?
# 2. Which of the three stages takes longer with four racks of two hosts?
