"""Channels and hops: how many copies of a ring or tree share a call's bytes, what one of them carries, and what
software reaches of the links.

NCCL opens as many as its search found, twice over, and for a small call uses fewer: each thread of a channel must have
some bytes to move (``src/enqueue.cc``; the thresholds are printed in logs as ``threadThresholds``). A channel is one
thread block, which has a rate of its own: with few channels the blocks are the limit, and not the links.
"""

from collections.abc import Sequence
from functools import reduce
from math import log2

import numpy as np
from numpy.typing import NDArray

from simcomm.nccl.communicator import PLUGINS, Communicator, NodeNetwork
from simcomm.nccl.parameters import Floats, Parameters
from simcomm.nccl.topology import HopGroup

# on NVLink; RCCL on xGMI: assumed
DOUBLED = {"volta": 12, "turing": 12, "ampere": 24, "hopper": 24, "blackwell": 32, "cdna": 32}
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


def by_threshold(comm: Communicator, algorithm: str, protocol: str, sizes: Floats) -> NDArray[np.bool_]:
    """Return at which sizes NCCL before 2.5 takes a protocol: LL up to its threshold, then Simple."""
    if comm.version < (2, 3):
        most: Floats | float = LL_THRESHOLD
    else:
        each = LL_THRESHOLD_A_THREAD.get(comm.generation, LL_THRESHOLD_OF_OLDER)
        each *= comm.ranks if algorithm == "ring" else 4
        most = used_channels(comm, algorithm, "ll", sizes) * THREADS_BEFORE_TUNER * each
    is_small: NDArray[np.bool_] = sizes <= most
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


BUFFER = 4 * 2**20  # bytes of Simple for a channel and peer, of eight slots; a chunk is four of them
NVLINKS = ("nvswitch", "mesh", "bridge", "xgmi")


def least(rates: Sequence[float]) -> float:
    """Return the least of some rates, infinity of none; of columns (``EachMoved``) row by row.

    >>> least([2.0, 1.0]), least([])
    (np.float64(1.0), inf)
    """
    return reduce(np.minimum, rates) if rates else float("inf")


def aged(comm: Communicator, values: Parameters) -> float:
    """Return how much longer latencies inside a host are than on hosts of 2025."""
    return (1 + values["age"]) ** (2025 - comm.year)


def hop_class(hop: HopGroup) -> str:
    """Return the class of a hop by latency: nvlink, p2p or shm."""
    return "nvlink" if hop.kind in NVLINKS else "p2p" if hop.kind.startswith("p2p") else "shm"


def hop_rate(comm: Communicator, hop: HopGroup, values: Parameters) -> float:
    """Return the GB/s that software reaches on the hops of a kind."""
    rate = hop.rate * values[f"share.{hop.kind}"]
    if hop.kind not in NVLINKS and comm.generation in ("kepler", "maxwell"):
        rate = least([rate, comm.host.pcie_rate * values["share.old_gpu"]])
    return rate


def inside_rate(comm: Communicator, values: Parameters, *, is_chain: bool = False) -> float:
    """Return the GB/s of rings inside a node, or of chains.

    Between two GPUs a chain sends one way only, and PCIe gives more of its rate than with traffic both ways.
    """
    if not is_chain or comm.nodes > 1:
        return least([hop_rate(comm, hop, values) for hop in comm.hops if hop.count])
    one_way = values["share.one_way"] if comm.local == 2 and not comm.is_nvlink else 1.0
    return least([hop_rate(comm, hop, values) * one_way for hop in comm.chain if hop.count])


def inside_hop(comm: Communicator, protocol: str, values: Parameters) -> float:
    """Return the us of an average hop inside a node."""
    total = sum(hop.count for hop in comm.hops)
    if not total:
        return 0.0
    waits = 0.0
    for hop in comm.hops:
        name = hop_class(hop)
        key = f"hop.{name}.{protocol if name == 'nvlink' or protocol != 'll128' else 'simple'}"
        waits += hop.count * values[key]
    return waits / total * aged(comm, values)


def between_rate(comm: Communicator, values: Parameters) -> float:
    """Return the GB/s of a node's NICs, of which the slowest of line, host memory and sockets counts.

    Without GPUDirect bytes go through host memory. Over TCP the kernel copies them too: a socket, one for each channel,
    is a stream that one core moves.
    """
    network = comm.network
    if network is None:
        return float("inf")
    kind = "efa" if network.kind.startswith("efa") else "ib" if network.kind == "ib" else "other_net"
    rate = network.nic * values[f"share.{kind}"]
    if network.kind == "tcpx":
        rate *= values["share.tcpx"]
    if comm.local == 1 and network.kind != "tcp":
        rate *= values["share.one_rank"]
    if comm.nic_is_guessed:
        rate *= values["share.guessed"]
    if not network.gdr:
        slow = network.kind.startswith("efa")
        rate = least([rate, network.staging * values["share.staged_slow" if slow else "share.staged"]])
    if network.kind == "tcp":
        rate = least([rate, open_channels(comm) * values["tcp.socket"]])
    return rate


def between_hop(comm: Communicator, protocol: str, values: Parameters) -> float:
    """Return the us of a hop between nodes."""
    network = comm.network
    if network is None:
        return 0.0
    crowd = 1 + values["crowd"] * log2(min(comm.local, 8))
    return _message_time(comm, network, protocol, values) * crowd


def _message_time(comm: Communicator, network: NodeNetwork, protocol: str, values: Parameters) -> float:
    """Return the us of a message between two nodes with nothing beside it.

    Without GPUDirect one GPU writes into host memory and another reads there, as in a hop inside a host that goes
    through host memory; only of EFA before p5 and of InfiniBand were hosts without it in the tables.
    """
    if network.kind == "tcp":
        return values["tcp.hop"] + values["tcp.thread"] + _memory_hop(comm, protocol, values)
    if network.gdr or network.kind == "ib":
        slow = values[f"slow.{network.kind}"] if network.kind != "ib" else 1.0
        return values[f"hop.net.{protocol}"] * slow * (1.0 if network.gdr else values["slow.ib_staged"])
    if network.kind == "efa1":
        return values[f"hop.net.{protocol}"] * values["slow.efa1_staged"]
    return values[f"hop.net.{protocol}"] * values[f"slow.{network.kind}"] + _memory_hop(comm, protocol, values)


def _memory_hop(comm: Communicator, protocol: str, values: Parameters) -> float:
    """Return the us from one GPU to another through host memory."""
    return values[f"hop.shm.{'ll' if protocol == 'll' else 'simple'}"] * aged(comm, values)


def collective_rates(comm: Communicator, values: Parameters, *, is_chain: bool = False) -> tuple[float, float]:
    """Return the GB/s that a ring or tree gets inside a node and between nodes, by its links and by its channels.

    A channel moves what its threads can (``channel_rate``), and at most its buffer in the time that a message and the
    word that it has been read take; a node's NICs idle where channels are few.
    """
    channels, buffer = open_channels(comm), comm.settings.buffer_bytes or BUFFER
    rates = []
    for link, hop in (
        (inside_rate(comm, values, is_chain=is_chain), inside_hop(comm, "simple", values)),
        (between_rate(comm, values) * share_of_nics(comm), between_hop(comm, "simple", values)),
    ):
        window = buffer / (2000 * hop) if np.any(hop) else float("inf")
        rates.append(least([link, channels * least([channel_rate(comm), window])]))
    return rates[0], rates[1] if comm.network else float("inf")


def ramp_class(comm: Communicator) -> str:
    """Return what decides how late full bandwidth is reached: the network between nodes, or the link inside."""
    if comm.network is None:
        return "nvlink" if comm.is_nvlink else "pcie"
    if comm.network.kind in ("efa1", "tcp"):
        return "slow_plugin"
    return "plugin" if comm.network.kind in PLUGINS else "ib"
