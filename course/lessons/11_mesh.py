# %% [markdown]
# # 11. Choose the mesh for a model and a budget, and defend it
#
# Llama 2 70B (80 layers, width 8192, 64 heads) is to be trained on 10 billion tokens, on 64 H100 in hosts of eight,
# joined by 400 Gbit/s for each GPU: batches of 128 sequences of 4096 tokens, bf16. A GPU costs 2.50 dollars an hour,
# and you have 7,500 dollars.
#
# **Question.** Lessons 6 to 10 gave you data, sharded, tensor and pipeline parallel. Which sizes of each, which micro
# batch, what is recomputed?
#
# **Predict first.** Tokens a second of all 64 GPUs, and the share of their 989 TFLOP/s that is used (MFU): 6 FLOPs a
# parameter and token.

# %%
PREDICTIONS = {"tokens a second": None, "MFU": None}

# %% [markdown]
# ## Your turn
#
# First the two formulas; then the choice. `ringlab search` tells what each mesh would do, as far as published trainings
# tell. `ringlab init llama2-70b` writes the scenario; `ringlab search llama2_70b.toml --devices 64 --batch 128 --why
# --plot meshes.png` lists the fastest meshes and why others lose, and draws all: tokens a second against memory.

# %%
import os


def bytes_per_device(parameters: int, tensor: int, pipeline: int, data: int, stage: int) -> float:
    """Return the bytes of parameters, gradients and optimizer state of lesson 8, on a mesh.

    Tensor and pipeline parallel divide all of them; ``data`` devices share what ZeRO's ``stage`` divides.
    """
    raise NotImplementedError


def dollars(tokens: float, tokens_per_s: float, devices: int, price_per_hour: float) -> float:
    """Return what a training costs."""
    raise NotImplementedError


def choose() -> dict:
    """Return the mesh: tensor, pipeline, context, data, micro_batch (numbers), form (ddp, zero1, zero2, zero3) and
    recompute (none, selective, op, full).

    Its product is 64; it fits; it costs no more than the budget; and it is within 10 % of the fastest that fits.
    """
    raise NotImplementedError


def defend() -> list[tuple[dict, str]]:
    """Return three other meshes, each with what speaks against it.

    That is "memory" where it does not fit; else the part of the step that grows most beside the fastest mesh:
    "compute", "tensor", "context", "bubble", "p2p" or "data". No two of the three have the same reason.
    """
    raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Print the choice and its defence."""
    print(choose())
    for mesh, reason in defend():
        print(f"not {mesh}: {reason}")


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# docs/meshes.md compares the same predictions with two thousand published runs, source by source: the error is the
# interval that `ringlab search` prints, and why it names three meshes to try rather than one.
#
# ## Beyond
#
# 1. 512 GPUs and the same batch: which of the sizes must grow, and why is it not twice as bad?
# 2. You have a cluster of your own? Measure three meshes, `ringlab search --runs mine.csv`, and see what changes.
