"""Channels: how many copies of a ring or tree share a call's bytes.

NCCL opens as many as its search found, twice over, and for a small call uses fewer: each thread of a channel must have
some bytes to move (``src/enqueue.cc``; the thresholds are printed in logs as ``threadThresholds``).
"""

import numpy as np
import numpy.typing as npt

from simcomm.nccl.communicator import Communicator

Floats = npt.NDArray[np.float64]

DOUBLED = {"volta": 12, "turing": 12, "ampere": 24, "hopper": 24, "blackwell": 32}  # on NVLink
ON_PCIE = 4
THREADS = {"ll": 512, "ll128": 640, "simple": 512}
BYTES_A_THREAD = {"ll": 8, "ll128": 8, "simple": 64}  # rings with LL: for each rank
MOST = 64  # NCCL's MAXCHANNELS


def open_channels(comm: Communicator) -> int:
    """Return the channels of a communicator, within NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS."""
    found = DOUBLED.get(comm.generation, 12) if comm.is_nvlink else ON_PCIE
    if comm.generation == "hopper" and comm.version < (2, 18):
        found = 16
    if comm.network is not None:
        found = min(found, max(2 * comm.network.ports, 2))
    low, high = comm.settings.min_channels or 1, comm.settings.max_channels or MOST
    return max(min(found, high), low)


def used_channels(comm: Communicator, algorithm: str, protocol: str, sizes: Floats) -> Floats:
    """Return the channels that calls of so many bytes use."""
    threshold = BYTES_A_THREAD[protocol] * (comm.ranks if (algorithm, protocol) == ("ring", "ll") else 1)
    enough = np.floor(sizes / (THREADS[protocol] * threshold))
    least = comm.settings.min_channels or 1
    used: Floats = np.clip(enough, least, max(open_channels(comm), least)).astype(np.float64)
    return used
