# %% [markdown]
# # 1. A message and what it costs
#
# Two hosts are connected through a switch. The link carries 10 Gbit/s, and the first byte of a message arrives after
# 10 us.
#
# **Question.** How long does a message of 1 KiB take? How long does one of 64 MiB take? From which size on does the
# bandwidth cost more time than the latency?
#
# **Predict first.** Write your numbers down before you run anything: seconds, seconds, bytes.

# %%
PREDICTIONS = {"seconds of 1 KiB": None, "seconds of 64 MiB": None, "bytes where both cost the same": None}

# %% [markdown]
# ## Your turn
#
# This course models a message with two numbers: n bytes take `alpha + n * beta` seconds. Here alpha is the latency,
# and 1 / beta is the bandwidth. Measure messages between rank 0 and rank 1, then find alpha and beta.

# %%
import os
import time

import torch
import torch.distributed as dist


def measure(nbytes: int) -> float:
    """Send ``nbytes`` (dtype uint8) from rank 0 to rank 1 and back; return the one-way time in seconds on both ranks.

    The one-way time is half of the round trip by ``time.perf_counter``. Use ``dist.send`` and ``dist.recv`` only.
    """
    raise NotImplementedError


def fit(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Return alpha and beta of the line ``alpha + nbytes * beta`` that fits the measured seconds."""
    raise NotImplementedError


def half_size(alpha: float, beta: float) -> float:
    """Return the number of bytes for which the latency costs as much time as the bandwidth."""
    raise NotImplementedError


# %% [markdown]
# ## Run it
#
# On two virtual ranks: `ringlab learn 1 --show`. On two real ones: `torchrun --nproc-per-node 2 01_message.py`.


# %%
def main() -> None:
    """Measure messages from 1 KiB to 4 MiB and print the latency and bandwidth of the link."""
    dist.init_process_group("gloo")
    sizes = [1 << power for power in range(10, 23, 3)]
    measure(sizes[0])  # the first message connects real ranks and takes much longer, so it is not counted
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
# `ringlab list hardware dgx-h100` prints the bandwidth and the latency of each link in a DGX H100, with sources. NVLink
# carries 371 GB/s each way at 300 ns. The PCIe 5.0 x16 link to a network card carries 48 GB/s at 500 ns. Compute both
# half sizes: shorter messages are bound by latency, and more bandwidth does not help them. `ringlab list hardware`
# lists other machines.
#
# ## Beyond
#
# 1. Send ten messages of 1 KiB one after the other, then ten at once with `dist.isend`. Which way pays alpha ten times?
# 2. Run the file with torchrun on your own machine. Is the time still a straight line? Where does it bend, and why?
