# %% [markdown]
# # 9. Tensor and sequence parallel
#
# A layer that is too large or too slow for one device can be cut. Of two matrices in sequence, cut the first one by
# columns and the second one by rows. Each rank computes with its own part, and one sum at the end completes the result.
#
# **Question.** How many collectives does such a pair of layers need in forward? How many in backward? With sequence
# parallel, each rank holds a part of the sequence between two pairs. Does that move more bytes, or fewer?
#
# **Predict first.**

# %%
PREDICTIONS = {"collectives in forward": None, "collectives in backward": None}

# %% [markdown]
# ## Your turn
#
# Write four `torch.autograd.Function`s, which are called with `apply`, and a module that uses them. The group is the
# whole world. A function must change neither its input nor the gradient that it gets.

# %%
import os

import torch
import torch.distributed as dist
from torch import nn


class Copy(torch.autograd.Function):
    """Used before the cut layers. Forward returns the input, and backward sums the gradient over the ranks."""


class Sum(torch.autograd.Function):
    """Used after the cut layers. Forward sums the input over the ranks, and backward returns the gradient."""


class GatherSequence(torch.autograd.Function):
    """Replaces Copy. Forward gathers the input along dimension 0, and backward reduce-scatters the gradient."""


class ScatterSequence(torch.autograd.Function):
    """Replaces Sum. Forward reduce-scatters the input along dimension 0, and backward gathers the gradient."""


class ParallelMLP(nn.Module):
    """A layer that computes relu(x @ first.T) @ second.T, with both matrices cut over the ranks.

    Cut ``first`` [hidden, width] by its rows, which are the columns of its result. Cut ``second`` [width, hidden] by
    its columns. Keep this rank's parts as the parameters ``self.first`` and ``self.second``. If ``sequence`` is True,
    each rank has only its part of the input and output along dimension 0. Otherwise, every rank has both as a whole.
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
    """Compare the cut MLP with the whole one."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    first, second, inputs = torch.randn(32, 8), torch.randn(8, 32), torch.randn(16, 8)
    expected = torch.relu(inputs @ first.T) @ second.T
    far = (ParallelMLP(first, second)(inputs) - expected).abs().max().item()
    print(f"largest difference from the whole layer: {far:.1e}")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = ParallelMLP(first, second, sequence=True)(inputs.chunk(world_size)[rank])
    print(f"with sequence=True: {(mine - expected.chunk(world_size)[rank]).abs().max().item():.1e}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# These sums are in the middle of every layer, and no computation hides them. So tensor parallel stays inside a host.
# Take Llama 2 70B on 64 H100 in hosts of eight. With a tensor size of 16, a step is predicted to be 78 % longer than on
# the fastest mesh; the sums take 64 of these percentage points: `ringlab init llama2-70b`, then
# `ringlab search llama2_70b.toml --devices 64 --why`. The median error is 5 %.
#
# ## Beyond
#
# 1. Cut attention by heads with the same two functions. What if the number of heads is not a multiple of the ranks?
# 2. Cut the embedding by its vocabulary. Which rank holds a token, and what do the other ranks add?
