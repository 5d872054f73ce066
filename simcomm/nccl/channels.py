"""Channels: how many copies of a ring or tree share a call's bytes, and what one of them carries.

NCCL opens as many as its search found, twice over, and for a small call uses fewer: each thread of a channel must have
some bytes to move (``src/enqueue.cc``; the thresholds are printed in logs as ``threadThresholds``). A channel is one
thread block, which has a rate of its own: with few channels the blocks are the limit, and not the links.
"""

import numpy as np
import numpy.typing as npt

from simcomm.nccl.communicator import Communicator

Floats = npt.NDArray[np.float64]

DOUBLED = {"volta": 12, "turing": 12, "ampere": 24, "hopper": 24, "blackwell": 32}  # on NVLink
ON_PCIE = 4
OF_NVLS = {"hopper": 16, "blackwell": 32}  # NCCL_NVLS_NCHANNELS where it is not set
ENOUGH = 16  # across hosts Hopper and later double once more below these ("4 channels per search channel", connect.cc)
THREADS = {"ll": 512, "ll128": 640, "simple": 512}
BYTES_A_THREAD = {"ll": 8, "ll128": 8, "simple": 64}  # rings with LL: for each rank
# Before 2.5 no tuner: LL up to 16 KiB (user guide, NCCL_LL_THRESHOLD), from 2.3 on up to so many bytes of each thread,
# for each of a ring's ranks, and four times as many in trees (getKernelInfo in src/enqueue.cu of NVIDIA/nccl).
LL_THRESHOLD = 16384
LL_THRESHOLD_A_THREAD = {"volta": 64, "turing": 64}
LL_THRESHOLD_OF_OLDER = 32
THREADS_BEFORE_TUNER = 256
# GB/s of a thread block that moves bytes by Simple: half of what NCCL allows a search channel, which is two, in trees
# (perChMaxTreeBws in src/graph/tuning.cc); on Hopper more, as sixteen serve eight NICs of 50 GB/s.
CHANNEL_RATE = {
    "volta": 13.0, "turing": 13.0, "ampere": 12.0, "ada": 12.0, "hopper": 24.0, "blackwell": 35.0,
    "cdna": 30.0,  # assumed: a dozen fill xGMI
}  # fmt: skip
OLD_CHANNEL_RATE = 10.0  # of GPUs before Volta: assumed
# One channel leaves a NIC idle while it synchronises, and two fill it (maintainer in NVIDIA/nccl issue 438): share of
# the NIC that one gets, assumed.
ONE_OF_NIC = 0.75


def open_channels(comm: Communicator) -> int:
    """Return the channels of a communicator, within NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS.

    As NCCL does it, the most is applied first and then the least, by copies of the channels that are left.
    """
    found = DOUBLED.get(comm.generation, 12) if comm.is_nvlink else ON_PCIE
    if comm.generation == "hopper" and comm.version < (2, 18):
        found = 16
    if comm.network is not None:
        found = min(found, _network_channels(comm))
    return max(min(found, comm.settings.max_channels or found), comm.settings.min_channels or 1)


def _network_channels(comm: Communicator) -> int:
    """Return two channels for each NIC of a node, from 2.18 on Hopper and later twice as many below sixteen."""
    found = 2 * (comm.network.ports if comm.network else 1)
    doubles = comm.generation in OF_NVLS and comm.version >= (2, 18) and found < ENOUGH
    return 2 * found if doubles else found


def used_channels(comm: Communicator, algorithm: str, protocol: str, sizes: Floats) -> Floats:
    """Return the channels that calls of so many bytes use; NVLS always uses its own."""
    if algorithm in ("nvls", "nvls_tree"):
        found = OF_NVLS.get(comm.generation, 16)
        count = max(min(found, comm.settings.max_channels or found), comm.settings.min_channels or 1)
        return np.full(len(sizes), float(count))
    threads = threads_of(comm, protocol)
    chunks = comm.ranks if (algorithm, protocol) == ("ring", "ll") else 1
    if comm.version < (2, 5):
        least = THREADS_BEFORE_TUNER * BYTES_A_THREAD["ll"] * (comm.ranks if algorithm == "ring" else 1)
        enough = np.ceil(sizes / least) if protocol == "ll" else np.full(len(sizes), np.inf)
    else:
        enough = np.floor(sizes / (threads * BYTES_A_THREAD[protocol] * chunks))
    used: Floats = np.clip(enough, 1, open_channels(comm)).astype(np.float64)
    return used


def by_threshold(comm: Communicator, algorithm: str, protocol: str, sizes: Floats) -> npt.NDArray[np.bool_]:
    """Return at which sizes NCCL before 2.5 takes a protocol: LL up to its threshold, then Simple."""
    if comm.version < (2, 3):
        most: Floats | float = LL_THRESHOLD
    else:
        each = LL_THRESHOLD_A_THREAD.get(comm.generation, LL_THRESHOLD_OF_OLDER)
        each *= comm.ranks if algorithm == "ring" else 4
        most = used_channels(comm, algorithm, "ll", sizes) * THREADS_BEFORE_TUNER * each
    is_small: npt.NDArray[np.bool_] = sizes <= most
    return is_small if protocol == "ll" else ~is_small


def threads_of(comm: Communicator, protocol: str) -> int:
    """Return the threads of a channel; NCCL_NTHREADS does not count for LL128."""
    return THREADS[protocol] if protocol == "ll128" else comm.settings.threads or THREADS[protocol]


def channel_rate(comm: Communicator) -> float:
    """Return the GB/s that one channel's threads move by Simple."""
    rate = CHANNEL_RATE.get(comm.generation, OLD_CHANNEL_RATE)
    return rate * threads_of(comm, "simple") / THREADS["simple"]


def share_of_nics(comm: Communicator) -> float:
    """Return the share of a node's NICs that its channels keep busy."""
    if comm.network is None:
        return 1.0
    ports, channels = comm.network.ports, open_channels(comm)
    first, second = min(channels, ports), min(max(channels - ports, 0), ports)
    return (ONE_OF_NIC * first + (1 - ONE_OF_NIC) * second) / ports
