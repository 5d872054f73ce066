# %% [markdown]
# # 10. Pipelines: GPipe, 1F1B, and the bubble
#
# A pipeline splits the layers over the ranks: rank 0 has the first layers, and the last rank has the last ones. With
# one batch, all ranks but one would be idle. So the batch is cut into micro batches that follow each other.
#
# **Question.** Take four stages and eight micro batches. On a stage, forward of one micro batch takes 10 ms, and
# backward takes 20 ms. How long does a step take? For which share of it is a stage idle (the bubble)? How many micro
# batches must rank 0 keep in memory at the same time with GPipe, and how many with 1F1B?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds of a step": None, "bubble": None, "kept by rank 0, GPipe": None, "kept by rank 0, 1F1B": None}

# %% [markdown]
# ## Your turn
#
# You get a `stage`:
#
# * `stage.forward(micro_batch, inputs)` returns the activations for the next rank. On the first rank, `inputs` is None.
# * `stage.backward(micro_batch, gradient)` returns the gradient for the previous rank. On the last rank, which has the
#   loss, `gradient` is None.
# * `stage.empty()` makes a tensor to receive into. Activations and gradients have the same shape and type.
#
# Forward keeps what backward needs, and backward frees it. Send messages to neighbors only, no collectives.

# %%
import os
import time

import torch
import torch.distributed as dist
from torch import nn


def gpipe(stage, micro_batches: int) -> None:
    """Run all forwards, then all backwards, each in the order of the micro batches."""
    raise NotImplementedError


def one_f_one_b(stage, micro_batches: int) -> None:
    """Run 1F1B: rank r of p first runs p - 1 - r forwards, then alternates forwards and backwards, then runs the rest.

    So rank r keeps at most p - r micro batches. If a rank sends activations while its neighbor sends a gradient, both
    ranks may wait for each other, as in lesson 2. Post both messages at the same time, or send with ``dist.isend``.
    """
    raise NotImplementedError


def bubble(stages: int, micro_batches: int) -> float:
    """Return the fraction of a step in which a stage is idle. Both schedules have the same bubble."""
    raise NotImplementedError


# %% [markdown]
# ## Run it
#
# `ringlab learn 10 --show` plays one schedule after the other: every forward and backward, and the bubble.


# %%
class Stage:
    """One linear layer per rank; the loss is the sum of squares of the last activations.

    Forward sleeps for 10 ms and backward for 20 ms, as in the question.
    """

    def __init__(self, batches: list[torch.Tensor]) -> None:
        self.batches = batches
        self.is_first, self.is_last = dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1
        torch.manual_seed(dist.get_rank())
        self.layer = nn.Linear(batches[0].shape[1], batches[0].shape[1])
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.most_kept = 0

    def empty(self) -> torch.Tensor:
        return torch.empty_like(self.batches[0])

    def forward(self, micro_batch: int, inputs: torch.Tensor | None) -> torch.Tensor:
        time.sleep(0.01)
        inputs = (self.batches[micro_batch] if self.is_first else inputs).detach().requires_grad_()
        outputs = self.layer(inputs)
        self.kept[micro_batch] = inputs, outputs
        self.most_kept = max(self.most_kept, len(self.kept))
        return outputs.detach()

    def backward(self, micro_batch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        time.sleep(0.02)
        inputs, outputs = self.kept.pop(micro_batch)
        if self.is_last:
            outputs.square().sum().backward()
        else:
            outputs.backward(gradient)
        return inputs.grad


def main() -> None:
    """Run both schedules, and print how long they took and how many micro batches each rank kept."""
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    batches = list(torch.randn(8, 4, 16))
    for schedule in (gpipe, one_f_one_b):
        dist.barrier()
        stage, begin = Stage(batches), time.perf_counter()
        schedule(stage, len(batches))
        took, norm = time.perf_counter() - begin, stage.layer.weight.grad.norm().item()
        print(f"{schedule.__name__}: {took:.3f} s, kept at most {stage.most_kept}, gradient's norm {norm:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# Interleaved schedules give each rank several slices of the model. They shrink the bubble by that factor, and send as
# many times more messages. Zero-bubble schedules split backward into two parts. For Llama 2 70B on 64 H100 with ZeRO, a
# step of 16 stages is predicted to be 32 % longer than on the fastest mesh. The bubble takes 15 of these percentage
# points, although each rank has five slices: `ringlab init llama2-70b`, then `ringlab search llama2_70b.toml --devices
# 64 --why` (try `--zero-bubble`).
#
# ## Beyond
#
# 1. How many micro batches make the bubble smaller than 5 % with eight stages? How much memory do they cost with GPipe?
# 2. Make one stage twice as slow as the others. How long does a step take now?
