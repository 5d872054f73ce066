# %% [markdown]
# # 8. ZeRO, stages 1 to 3, then fully_shard
#
# With data parallel, every rank keeps the same optimizer state, the same gradients and the same parameters. ZeRO shards
# them over the ranks: stage 1 the optimizer state, stage 2 also the gradients, stage 3 also the parameters.
#
# **Question.** AdamW trains a model of 7 billion parameters in mixed precision. Parameters and gradients are bf16, and
# the optimizer keeps three fp32 numbers per parameter. How many GB does each of 8 ranks hold in stages 0 to 3?
#
# **Predict first.**

# %%
PREDICTIONS = {"GB in stage 0": None, "GB in stage 1": None, "GB in stage 2": None, "GB in stage 3": None}

# %% [markdown]
# ## Your turn

# %%
import os

import torch
import torch.distributed as dist
from torch import nn


def model_state_bytes(parameters: int, world_size: int, stage: int) -> float:
    """Return each rank's bytes of parameters, gradients and AdamW state in a ZeRO stage, as in the question."""
    raise NotImplementedError


class ShardedMomentum:
    """SGD with momentum for ZeRO stages 1 and 2: each rank keeps the momentum of only its shard.

    Treat the parameters as one flat tensor, padded with zeros to a multiple of the ranks. Rank r owns the r-th shard.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float) -> None:
        """Keep the parameters, and make ``self.momentum_buffer``: zeros of the length of one shard."""
        raise NotImplementedError

    def step(self) -> None:
        """Average the gradients of this rank's shard, update the shard, and copy all shards to all ranks.

        Use one ``reduce_scatter_tensor`` and one ``all_gather_into_tensor``, no all_reduce. Update as torch.optim.SGD
        does: buffer = momentum * buffer + gradient; parameter -= lr * buffer.
        """
        raise NotImplementedError


class ShardedLinear(nn.Module):
    """A linear layer without bias for ZeRO stage 3: each rank keeps ``out_features / world_size`` rows of the weight.

    The whole weight exists only while it is used: gather it in forward, and again in backward. Reduce-scatter the
    gradient: ``self.shard.grad`` is the mean over the ranks. Use no all_reduce.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        """Keep this rank's rows of the weight [out_features, in_features] as the parameter ``self.shard``."""
        super().__init__()
        raise NotImplementedError

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs @ weight.T. Use a ``torch.autograd.Function`` that gathers the weight."""
        raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Take three steps with your layer and with torch's fully_shard; both must hold the same weights."""
    dist.init_process_group("gloo")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    weight = torch.randn(16, 8)
    mine, torchs = ShardedLinear(weight.clone()), nn.Linear(8, 16, bias=False)
    with torch.no_grad():
        torchs.weight.copy_(weight)
    fully_shard(torchs, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    torch.manual_seed(dist.get_rank() + 1)
    for _ in range(3):
        inputs = torch.randn(4, 8)
        for model in (mine, torchs):
            model.zero_grad()
            model(inputs).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
    far = (mine.shard - torchs.state_dict()["weight"].to_local()).abs().max().item()
    print(f"largest difference from fully_shard: {far:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# Stages 1 and 2 move as many bytes as data parallel, because a reduce_scatter and an all_gather make an all_reduce.
# Stage 3 moves half as many again, and hides them behind the computation of other layers. `ringlab init gpt2-xl` writes
# a scenario of GPT-2 XL on A100 with 40 GB. `ringlab predict gpt2_xl.toml --devices 8` predicts that a device needs
# 26.3 GiB with FSDP and waits for messages for 2.6 ms of a 570 ms step. With
# `--set 'training.parallelism.strategy="ddp"'` it would need 52.7 GiB, more than it has.
#
# ## Beyond
#
# 1. Clip the norm of the gradients in stage 2. Which number must be summed over the ranks?
# 2. Gather the weight of the next layer while this layer computes. How much memory does that cost?
