# %% [markdown]
# # 1. A message and what it costs
#
# Two hosts are joined through a switch. The link carries 10 Gbit/s, and 10 us pass before the first byte of a message
# arrives at the other end.
#
# **Question.** How long does a message of 1 KiB take, and how long one of 64 MiB? From which size on does the
# bandwidth cost more than the latency?
#
# **Predict first.** Write your numbers down before you run anything: seconds, seconds, bytes.

# %%
PREDICTIONS = {"seconds of 1 KiB": None, "seconds of 64 MiB": None, "bytes where both cost the same": None}

# %% [markdown]
# ## Your turn
#
# The model of this whole course has two numbers: a message of n bytes takes `alpha + n * beta` seconds, where alpha is
# the latency and 1 / beta the bandwidth. Measure messages between rank 0 and rank 1, then find alpha and beta.

# %%
import os
import time

import torch
import torch.distributed as dist


def measure(nbytes: int) -> float:
    """Send ``nbytes`` (dtype uint8) from rank 0 to rank 1 and back with ``dist.send`` and ``dist.recv``.

    Return the seconds of one way, on both ranks: half of the round trip, by ``time.perf_counter``.
    """
    raise NotImplementedError


def fit(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Return alpha and beta of the line ``alpha + nbytes * beta`` through the points."""
    raise NotImplementedError


def half_size(alpha: float, beta: float) -> float:
    """Return the bytes at which the latency costs as much as the bandwidth."""
    raise NotImplementedError


# %% [markdown]
# ## Run it
#
# On two virtual ranks: `ringlab learn 1 --show`. On real ones: `torchrun --nproc-per-node 2 01_message.py`.


# %%
def main() -> None:
    """Measure messages from 1 KiB to 4 MiB and print what they say about the link."""
    dist.init_process_group("gloo")
    sizes = [1 << power for power in range(10, 23, 3)]
    measure(sizes[0])  # real ranks connect with their first message, which takes many times as long: not counted
    seconds = [measure(nbytes) for nbytes in sizes]
    alpha, beta = fit(sizes, seconds)
    if dist.get_rank() == 0:
        print(
            f"alpha {alpha * 1e6:.2f} us, bandwidth {8e-9 / beta:.2f} Gbit/s, half size {half_size(alpha, beta):.0f} B"
        )
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()

# %% [markdown]
# ## What real clusters do
#
# `ringlab list hardware dgx-h100` prints bandwidth and latency of each link inside such a machine, with the source of
# every number: of NVLink 371 GB/s are usable each way, at 300 ns; of the PCIe 5.0 x16 that leads to a network card
# 48 GB/s, at 500 ns. `ringlab list hardware` lists other machines. Compute both half sizes: messages shorter than that
# are bound by latency, and a faster network does not help them.
#
# ## Beyond
#
# 1. Send ten messages of 1 KiB one after the other, then ten at once with `dist.isend`. Which of the two pays alpha
#    ten times?
# 2. Run the file by torchrun on your own machine. Is the time still a straight line? Where does it bend, and why?
