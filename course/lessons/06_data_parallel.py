# %% [markdown]
# # 6. Data parallel by hand, then with buckets that overlap
#
# Every rank holds the whole model and its own part of the batch. After backward, the ranks average their gradients, so
# all of them take the same optimizer step.
#
# **Question.** Backward through four layers takes 40 ms, 10 ms per layer. Averaging the gradients of one layer takes
# 8 ms. How long do both take together if averaging starts after backward? How long if each layer is averaged as soon as
# its gradients are ready?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds if averaging waits": None, "seconds if it overlaps": None}

# %% [markdown]
# ## Your turn

# %%
import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    """Replace each parameter's gradient with its mean over all ranks. A gradient that is None stays None."""
    raise NotImplementedError


class OverlappedGradients:
    """Averages gradients in buckets while backward is running, in every training step.

    Fill a bucket with parameters until it has ``bucket_bytes`` or more, then start the next one. Take the parameters in
    the order in which backward reaches them: the last ones first. When the last gradient of a bucket is ready, start
    one ``dist.all_reduce`` of the whole bucket with ``async_op=True``.
    """

    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        """Make the buckets, and register a hook on each parameter (``register_post_accumulate_grad_hook``)."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for all buckets after backward, write the means into the gradients, and get ready for the next step."""
        raise NotImplementedError


# %% [markdown]
# ## Run it
#
# `ringlab learn 6 --show` runs the model of the question on four ranks: a layer has 6.6 MB of gradients, which take
# 8 ms. In the player, see when messages begin while backward still computes.


# %%
class Slow(torch.autograd.Function):
    """The identity function with a backward that sleeps for 10 ms."""

    @staticmethod
    def forward(ctx, outputs):
        return outputs.view_as(outputs)

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.01)
        return gradient


class Layer(nn.Linear):
    """A linear layer whose backward takes 10 ms."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return Slow.apply(super().forward(inputs))


def make_model() -> nn.Sequential:
    """Return a model of four ``Layer`` modules, with equal weights on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(1286, 1286, bias=False) for _ in range(4)))


def train(how: str, model: nn.Module, finish: Callable[[], None]) -> None:
    """Run forward and backward, average the gradients, and print the time on rank 0 with the label ``how``."""
    torch.manual_seed(1 + dist.get_rank())
    inputs = torch.randn(8, 1286)
    model.zero_grad()
    dist.barrier()
    begin = time.perf_counter()
    model(inputs).square().sum().backward()
    finish()
    if dist.get_rank() == 0:
        print(f"{how}: {(time.perf_counter() - begin) * 1e3:.1f} ms")


def main() -> None:
    """Average after backward, then in buckets, then with DistributedDataParallel; all results must be the same."""
    dist.init_process_group("gloo")
    from torch.nn.parallel import DistributedDataParallel

    after, overlapped, torchs = make_model(), make_model(), make_model()
    train("averaged after backward", after, lambda: average_gradients(after))
    train("in buckets of a layer", overlapped, OverlappedGradients(overlapped, bucket_bytes=1).finish)
    replica = DistributedDataParallel(torchs, bucket_cap_mb=1)
    for step in ("first", "second"):  # the first step has one bucket, and finds the order for the next steps
        train(f"DistributedDataParallel, {step} step", replica, lambda: None)
    for name, model in (("after backward", after), ("in buckets", overlapped)):
        pairs = zip(model.parameters(), torchs.parameters(), strict=True)
        far = max((mine.grad - theirs.grad).abs().max().item() for mine, theirs in pairs)
        print(f"{name}: largest difference from DistributedDataParallel {far:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# The buckets of DistributedDataParallel have 25 MiB, and the first one has 1 MiB (`bucket_cap_mb`). Small buckets start
# early and pay alpha often; large ones start late. `ringlab predict quickstart` predicts a training step with its
# buckets, and `ringlab animate quickstart -o step.html` plays it.
#
# ## Beyond
#
# 1. Accumulate gradients over four micro batches and average them only after the last one (`no_sync`). What does that
#    save, and why is the result the same?
# 2. Find the fastest bucket size for the model of `main` on 8 ranks: `ringlab virtual --ranks 8 --on star8`.
