# %% [markdown]
# # 8. ZeRO, stages 1 to 3, then fully_shard
#
# In data parallel every rank keeps the same optimizer state, the same gradients and the same parameters. ZeRO keeps one
# part of each on each rank: of the state (stage 1), of the gradients too (2), of the parameters too (3).
#
# **Question.** A model of 7 billion parameters, trained by AdamW in mixed precision: bf16 parameters and gradients, and
# three numbers of fp32 per parameter in the optimizer. How many GB does each of 8 ranks hold in stages 0 to 3?
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
    """Return the bytes of parameters, gradients and optimizer state on each rank, as in the question."""
    raise NotImplementedError


class ShardedMomentum:
    """Stages 1 and 2: SGD with momentum, each rank keeping the momentum of its part only.

    The parameters are seen as one flat tensor, padded with zeros to a multiple of the ranks; rank r owns the r-th part.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float) -> None:
        """Keep the parameters; make ``self.momentum_buffer``, zeros of the length of one part."""
        raise NotImplementedError

    def step(self) -> None:
        """Average the gradients so that this rank gets only its part; step on that part; give all ranks all parts.

        By one ``reduce_scatter_tensor`` and one ``all_gather_into_tensor``. As torch.optim.SGD does it:
        buffer = momentum * buffer + gradient; parameter -= lr * buffer.
        """
        raise NotImplementedError


class ShardedLinear(nn.Module):
    """Stage 3: a linear layer without bias, of whose weight each rank keeps ``out_features / world_size`` rows.

    The whole weight exists only while it is used: gathered in forward and again in backward. The gradient arrives in
    ``self.shard.grad``, averaged over the ranks.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        """Keep this rank's rows of the weight, [out_features, in_features], as the parameter ``self.shard``."""
        super().__init__()
        raise NotImplementedError

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs @ weight.T; write a ``torch.autograd.Function`` for it."""
        raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Take three steps by hand and by torch's fully_shard; both must hold the same weights."""
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
    print(f"largest difference to fully_shard: {far:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# Stages 1 and 2 move as many bytes as data parallel (a reduce_scatter and an all_gather are an all_reduce); stage 3
# moves half as many again, and hides them behind the layer before. `ringlab init gpt2-xl` writes a
# scenario of GPT-2 XL on A100 of 40 GB; `ringlab predict gpt2_xl.toml --devices 8` says that by
# fsdp a device needs 26.3 GiB and waits for messages in 2.6 ms of a step's 570; with
# `--set 'training.parallelism.form="ddp"'` it would need 52.7 GiB, which it has not.
#
# ## Beyond
#
# 1. Clip the gradients' norm in stage 2: what must be summed over the ranks?
# 2. Gather the next layer's weight while this one computes. What does it cost in memory?
