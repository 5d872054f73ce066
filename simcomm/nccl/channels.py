"""Channels: how many copies of a ring or tree share a call's bytes.

NCCL opens as many as its search found, twice over, and for a small call uses fewer: each thread of a channel must have
some bytes to move (``src/enqueue.cc``; the thresholds are printed in logs as ``threadThresholds``).
"""

from simcomm.nccl.communicator import Communicator

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
    if comm.network is not None and comm.local == 1:
        found = 2 if comm.network.nic < 25 else 4
    low, high = comm.settings.min_channels or 1, comm.settings.max_channels or MOST
    return max(min(found, high), low)


def used_channels(comm: Communicator, algorithm: str, protocol: str, nbytes: float) -> int:
    """Return the channels that a call of so many bytes uses."""
    threshold = BYTES_A_THREAD[protocol] * (comm.ranks if (algorithm, protocol) == ("ring", "ll") else 1)
    enough = int(nbytes // (THREADS[protocol] * threshold))
    return max(comm.settings.min_channels or 1, min(open_channels(comm), enough), 1)
