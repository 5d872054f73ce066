# %% [markdown]
# # 10. Pipelines: GPipe, 1F1B, and the bubble
#
# The layers are dealt to the ranks: rank 0 has the first, the last rank the last. One batch would leave all ranks but
# one idle; so it is cut into micro batches that follow each other.
#
# **Question.** Four stages, eight micro batches; forward of one takes 10 ms on a stage, backward 20 ms. How long does a
# step take, and which share of it is a stage idle (the bubble)? How many micro batches must rank 0 keep in memory at
# once under GPipe, how many under 1F1B?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds of a step": None, "bubble": None, "kept by rank 0, GPipe": None, "kept by rank 0, 1F1B": None}

# %% [markdown]
# ## Your turn
#
# A `stage` is given. `stage.forward(micro_batch, inputs)` returns what goes to the next rank (inputs are None on the
# first rank); `stage.backward(micro_batch, gradient)` returns what goes to the rank before (the gradient is None on the
# last rank, where the loss is). Both keep and free what they need; `stage.empty()` makes a tensor to receive into.
# Activations and gradients have the same shape.

# %%
import os
import time

import torch
import torch.distributed as dist
from torch import nn


def gpipe(stage, micro_batches: int) -> None:
    """Run all forwards, then all backwards, in the order of the micro batches, with ``dist.send`` and ``dist.recv``."""
    raise NotImplementedError


def one_f_one_b(stage, micro_batches: int) -> None:
    """Run 1F1B: rank r does p - 1 - r forwards first, then one forward and one backward in turns, then the rest.

    So a stage keeps at most p - r micro batches. A forward that is sent while the neighbour sends a gradient is a
    deadlock of lesson 2: post both at once, or send by ``dist.isend``.
    """
    raise NotImplementedError


def bubble(stages: int, micro_batches: int) -> float:
    """Return the share of a step in which a stage is idle; the same for both schedules."""
    raise NotImplementedError


# %% [markdown]
# ## Run it
#
# `ringlab learn 10 --show` draws both schedules, one after the other: the bubble is where a stage does not compute.


# %%
class Stage:
    """One linear layer of a chain, trained to give zeros: the loss is the sum of squares of the last activations.

    It takes the 10 ms and 20 ms of the question by sleeping.
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
    """Run both schedules and print how long they took and what each rank had to keep."""
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
# Interleaved schedules give each rank several slices of the model and shrink the bubble by that factor, for as many
# times the messages; zero-bubble schedules cut backward in two. For Llama 2 70B on 64 H100 a step of 16 stages
# beside ZeRO is predicted to be 32 % longer than on the fastest mesh, 15 of them bubble, although each rank has five
# slices (`ringlab init llama2-70b`, then `ringlab search llama2_70b.toml --devices 64 --why`; see it with
# `--zero-bubble` too).
#
# ## Beyond
#
# 1. How many micro batches make the bubble smaller than 5 % with eight stages? What do they cost in memory, by GPipe?
# 2. One stage is twice as slow as the others. What is the time of a step now?
