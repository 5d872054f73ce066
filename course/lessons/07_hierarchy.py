# %% [markdown]
# # 7. A thin trunk: hierarchical all_reduce
#
# Two racks of four hosts, 10 Gbit/s each, and one trunk of 10 Gbit/s between the racks. Ranks are dealt to the racks in
# turn (0, 2, 4, 6 in one, 1, 3, 5, 7 in the other), as a careless scheduler does.
#
# **Question.** How often does each byte of the ring of lesson 4 cross the trunk? How often must it?
#
# **Predict first.** The seconds of an all_reduce of 8 MiB: by that ring, and by the three stages below.

# %%
PREDICTIONS = {"seconds of the ring": None, "seconds of the three stages": None}

# %% [markdown]
# ## Your turn
#
# Three stages: inside each rack every rank gets the sum of one part (`reduce_scatter_tensor`); the ranks that hold the
# same part in different racks sum it (`all_reduce`); inside each rack all get all parts (`all_gather_into_tensor`).

# %%
import os

import torch
import torch.distributed as dist


def make_groups(racks: list[list[int]]) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Return this rank's group inside its rack, and its group of one rank of each rack, those at the same place.

    ``racks`` are lists of ranks, all of one length. Every rank must make every group, in the same order, also those
    that it is not in (``dist.new_group``).
    """
    raise NotImplementedError


def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    """Give all ranks the sum of all tensors, of whose bytes only a rack's part crosses the trunk.

    The length of the tensor is a multiple of the ranks in a rack.
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
    print("the sum is right" if is_right else f"the sum begins with {mine[:4].tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# Inside a DGX H100 the trunk is the network: NVLink within, a card for each GPU without. NCCL does the three stages as
# rings that enter and leave each host by every card; `torch.distributed.fsdp` calls the same idea HSDP.
# `ringlab predict two-p5` puts three ways beside each other on two hosts of eight H100: for 256 MiB a plain ring is
# predicted to take 13.7 ms, your three stages (`hierarchical[gpus=8]`) 2.6 ms, and NCCL 1.6 ms, 1.3 to 3.2 in 80 of 100
# cases (docs/nccl.md says how far off such predictions are from published tables).
#
# ## Beyond
#
# 1. Only by renumbering: in which order must a plain ring pass through the racks so that the trunk carries each byte as
#    seldom as in your three stages?
# 2. With four racks of two, which of the three stages grows?
