# %% [markdown]
# # 11. Choose the mesh for a model and a budget, and defend it
#
# You want to train Llama 2 70B (80 layers, width 8192, 64 heads) on 10 billion tokens, in bf16 and batches of 128
# sequences of 4096 tokens. You have 64 H100 in hosts of eight, with 400 Gbit/s per GPU. A GPU costs 2.50 dollars per
# hour, and your budget is 7,500 dollars.
#
# **Question.** Lessons 6 to 10 introduced data, sharded, tensor and pipeline parallel. Which size of each do you
# choose, which micro batch, and which activations do you recompute?
#
# **Predict first.** The tokens per second of all 64 GPUs, and the share of their 989 TFLOP/s that is used (MFU), at 6
# FLOPs per parameter and token.

# %%
PREDICTIONS = {"tokens a second": None, "MFU": None}

# %% [markdown]
# ## Your turn
#
# First write the two formulas, then choose. `ringlab init llama2-70b` writes the scenario. `ringlab search
# llama2_70b.toml --devices 64 --batch 128 --why --plot meshes.png` predicts every mesh: it lists the fastest ones, the
# reasons why others are slower, and draws tokens per second against memory.

# %%
import os


def bytes_per_device(parameters: int, tensor: int, pipeline: int, data: int, stage: int) -> float:
    """Return the bytes of parameters, gradients and optimizer state on each device, for AdamW as in lesson 8.

    Tensor and pipeline parallelism divide all three. ZeRO's ``stage`` divides some of them among ``data`` devices.
    """
    raise NotImplementedError


def dollars(tokens: float, tokens_per_s: float, devices: int, price_per_hour: float) -> float:
    """Return the cost of a training run in dollars."""
    raise NotImplementedError


def choose() -> dict:
    """Return your mesh as a dict.

    The values of tensor, pipeline, context, data and micro_batch are integers. The first four multiply to 64. The
    strategy is ddp, zero1, zero2 or zero3, and recompute is none, selective, op or full. The mesh must fit into memory
    and into the budget, and be at most 10 % slower than the fastest mesh that fits.
    """
    raise NotImplementedError


def defend() -> list[tuple[dict, str]]:
    """Return three other meshes, each with the reason why it is worse. The three reasons must differ.

    The reason is "memory" if the mesh does not fit. Otherwise, it is the part of the step that grows most compared with
    the fastest mesh: "compute", "tensor", "context", "pipeline" or "sync".
    """
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Print your choice and your reasons."""
    print(choose())
    for mesh, reason in defend():
        print(f"not {mesh}: {reason}")


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# The documentation compares these predictions with two thousand published runs, source by source. Because of their
# error, `ringlab search` prints an interval, and names three meshes to measure instead of one.
#
# ## Beyond
#
# 1. Take 512 GPUs and the same batch. Which of the sizes must grow, and what does that cost?
# 2. Measure three meshes on your own cluster, and save them with `ringlab calibrate --runs mine.csv`. What changes?
