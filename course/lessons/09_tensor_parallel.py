# %% [markdown]
# # 9. Tensor and sequence parallel
#
# A layer that is too large, or too slow, for one device is cut: of two matrices one after the other, the first by
# columns, the second by rows. Each rank computes with its part alone, and one sum at the end makes the result whole.
#
# **Question.** How many collectives does such a pair of layers need in forward, how many in backward? And with sequence
# parallel, where between two pairs each rank holds a part of the sequence: do more bytes move, or fewer?
#
# **Predict first.**

# %%
PREDICTIONS = {"collectives in forward": None, "collectives in backward": None}

# %% [markdown]
# ## Your turn
#
# All four are `torch.autograd.Function`s, used by their `apply`; the group is the whole world.

# %%
import os

import torch
import torch.distributed as dist
from torch import nn


class Copy(torch.autograd.Function):
    """Where the input enters the cut layers: forward gives it as it is; backward sums its gradient over the ranks."""


class Sum(torch.autograd.Function):
    """Where the results leave the cut layers: forward sums over the ranks; backward gives the gradient as it is."""


class GatherSequence(torch.autograd.Function):
    """In place of Copy: forward gathers the ranks' parts of dimension 0; backward sums and gives each rank its part."""


class ScatterSequence(torch.autograd.Function):
    """In place of Sum: forward sums and gives each rank its part of dimension 0; backward gathers the parts."""


class ParallelMLP(nn.Module):
    """relu(x @ first.T) @ second.T, cut over the ranks.

    ``first`` [hidden, width] is cut by its rows (the columns of what it computes), ``second`` [width, hidden] by its
    columns. This rank's parts are the parameters ``self.first`` and ``self.second``. With ``sequence`` each rank holds
    its part of dimension 0 of input and output, otherwise all hold all.
    """

    def __init__(self, first: torch.Tensor, second: torch.Tensor, sequence: bool = False) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Compute a cut MLP beside the whole one."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    first, second, inputs = torch.randn(32, 8), torch.randn(8, 32), torch.randn(16, 8)
    whole = torch.relu(inputs @ first.T) @ second.T
    far = (ParallelMLP(first, second)(inputs) - whole).abs().max().item()
    print(f"largest difference to the whole layer: {far:.1e}")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = ParallelMLP(first, second, sequence=True)(inputs.chunk(world_size)[rank])
    print(f"by parts of the sequence: {(mine - whole.chunk(world_size)[rank]).abs().max().item():.1e}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# These sums stand in the middle of every layer and nothing hides them, so tensor parallel stays inside a host. Llama 2
# 70B on 64 H100, hosts of eight: with a tensor size of 16 a step is predicted to be 78 % longer than on the fastest
# mesh, 64 of them for the sums (`ringlab init llama2-70b`, then `ringlab search llama2_70b.toml --devices 64 --why`;
# by a fit to published runs, 5 % off in the median: docs/meshes.md).
#
# ## Beyond
#
# 1. Cut attention by heads with the same two functions. What if the heads do not divide by the ranks?
# 2. Cut the embedding by its vocabulary: which rank holds a token, and what do the others add?
