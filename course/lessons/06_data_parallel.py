# %% [markdown]
# # 6. Data parallel by hand, then with buckets that overlap
#
# Every rank holds the whole model and its own part of the batch. After backward the gradients are averaged, and all
# ranks take the same step.
#
# **Question.** Backward of a model of four layers takes 40 ms, 10 ms a layer; averaging a layer's gradients takes
# 8 ms. How long do both take together if the averaging waits for backward to end, and how long if each layer is
# averaged as soon as its gradient is there?
#
# **Predict first.**

# %%
PREDICTIONS = {"seconds if averaging waits": None, "seconds if it overlaps": None}

# %% [markdown]
# ## Your turn

# %%
import os

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    """Replace each parameter's gradient by its mean over all ranks, after backward; where it is None it stays so."""
    raise NotImplementedError


class OverlappedGradients:
    """Averages gradients in buckets while backward goes on.

    A bucket holds parameters in the order in which backward reaches them (the last ones first) until it has
    ``bucket_bytes`` or more. As soon as the last gradient of a bucket is there, one ``dist.all_reduce`` of the whole
    bucket begins with ``async_op=True``.
    """

    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        """Form the buckets and register a hook on each parameter (``register_post_accumulate_grad_hook``)."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for all buckets, after backward, and put the means where the gradients are."""
        raise NotImplementedError


# %% [markdown]
# ## Run it


# %%
def main() -> None:
    """Train a small model by hand and by torch's DistributedDataParallel; both must learn the same."""
    dist.init_process_group("gloo")
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    torchs = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    torchs.load_state_dict(mine.state_dict())
    replica = DistributedDataParallel(torchs)
    overlapped = OverlappedGradients(mine, bucket_bytes=16 << 10)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        inputs, labels = torch.randn(8, 32), torch.randint(10, (8,))
        for model, finish in ((mine, overlapped.finish), (replica, lambda: None)):
            model.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            finish()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
    far = max((a - b).abs().max().item() for a, b in zip(mine.parameters(), torchs.parameters(), strict=True))
    print(f"largest difference to DistributedDataParallel: {far:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# DistributedDataParallel's buckets have 25 MiB, the first one 1 MiB (`bucket_cap_mb`): small ones begin early and pay
# alpha often, large ones begin late. `ringlab predict quickstart` shows a training step with its buckets,
# `ringlab animate quickstart -o step.html` plays it.
#
# ## Beyond
#
# 1. Accumulate gradients over four micro batches and average only in the last (`no_sync`). What is saved, and why is
#    the result the same?
# 2. Find the bucket size that is fastest for the model of `main` on 8 ranks: `ringlab virtual --ranks 8 --on star8`.
