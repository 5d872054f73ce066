"""Compute the number of channels of a call, and the bandwidths and latencies of links.

A channel is a copy of a ring or tree, which one thread block executes. NCCL opens twice as many channels as its search
found. A small call uses fewer of them, because each thread of a channel needs a minimum number of bytes
(``src/enqueue.cc``; logs print ``threadThresholds``). A call with few channels is limited by their thread blocks.
"""

from collections.abc import Sequence
from functools import reduce
from math import log2

import numpy as np
from numpy.typing import NDArray

from simcomm.nccl.catalogue import NVLINKS, generation_year
from simcomm.nccl.communicator import PLUGINS, Communicator, NodeNetwork
from simcomm.nccl.parameters import Floats, Parameters
from simcomm.nccl.topology import HopGroup

# channels on NVLink; the value for RCCL on xGMI is assumed
DOUBLED = {"volta": 12, "turing": 12, "ampere": 24, "hopper": 24, "blackwell": 32, "cdna": 32}
ON_PCIE = 4
OF_NVLS = {"hopper": 16, "blackwell": 32}  # default of NCCL_NVLS_NCHANNELS
ENOUGH = 16  # below, Hopper and later double once more across hosts ("4 channels per search channel", connect.cc)
THREADS = {"ll": 512, "ll128": 640, "simple": 512}
BYTES_A_THREAD = {"ll": 8, "ll128": 8, "simple": 64}  # per rank for rings with LL
# NCCL before 2.5 has no tuner. It uses LL up to 16 KiB (user guide, NCCL_LL_THRESHOLD) or, from 2.3 on, up to these
# bytes per thread, times the ranks of a ring or times four in a tree (getKernelInfo in src/enqueue.cu of NVIDIA/nccl).
LL_THRESHOLD = 16384
LL_THRESHOLD_A_THREAD = {"volta": 64, "turing": 64}
LL_THRESHOLD_OF_OLDER = 32
THREADS_BEFORE_TUNER = 256
# GB/s of a thread block with Simple. It is half of NCCL's limit for a search channel, which has two blocks, in trees
# (perChMaxTreeBws in src/graph/tuning.cc). It is higher on Hopper, where sixteen blocks serve eight NICs of 50 GB/s.
CHANNEL_RATE = {
    "volta": 13.0, "turing": 13.0, "ampere": 12.0, "ada": 12.0, "hopper": 24.0, "blackwell": 35.0,
    "cdna": 30.0,  # assumed: twelve blocks fill xGMI
}  # fmt: skip
OLD_CHANNEL_RATE = 10.0  # GPUs before Volta: assumed
# One channel leaves a NIC idle while it synchronizes, and two fill it (maintainer in NVIDIA/nccl issue 438). The share
# that one channel reaches is assumed.
ONE_OF_NIC = 0.75


def open_channels(comm: Communicator) -> int:
    """Return the number of channels of a communicator. Like NCCL, apply NCCL_MAX_NCHANNELS, then NCCL_MIN_NCHANNELS."""
    channels = DOUBLED.get(comm.generation, 12) if comm.is_nvlink else ON_PCIE
    if comm.generation == "hopper" and comm.version < (2, 18):
        channels = 16
    if comm.network is not None:
        on_nics = 2 * comm.network.ports
        doubles = comm.generation in OF_NVLS and comm.version >= (2, 18) and on_nics < ENOUGH
        channels = min(channels, 2 * on_nics if doubles else on_nics)
    return _within_settings(comm, channels)


def _within_settings(comm: Communicator, channels: int) -> int:
    return max(min(channels, comm.settings.max_channels or channels), comm.settings.min_channels or 1)


def used_channels(comm: Communicator, algorithm: str, protocol: str, sizes: Floats) -> Floats:
    """Return the number of channels that calls use, given their sizes in bytes. NVLS always uses all its channels."""
    if algorithm in ("nvls", "nvls_tree"):
        return np.full(len(sizes), float(_within_settings(comm, OF_NVLS.get(comm.generation, 16))))
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
    """Return whether NCCL before 2.5 uses a protocol at each size: LL up to a threshold in bytes, Simple above it."""
    if comm.version < (2, 3):
        most: Floats | float = LL_THRESHOLD
    else:
        each = LL_THRESHOLD_A_THREAD.get(comm.generation, LL_THRESHOLD_OF_OLDER)
        each *= comm.ranks if algorithm == "ring" else 4
        most = used_channels(comm, algorithm, "ll", sizes) * THREADS_BEFORE_TUNER * each
    is_small: NDArray[np.bool_] = sizes <= most
    return is_small if protocol == "ll" else ~is_small


def threads_of(comm: Communicator, protocol: str) -> int:
    """Return the number of threads of a channel. LL128 ignores NCCL_NTHREADS."""
    return THREADS[protocol] if protocol == "ll128" else comm.settings.threads or THREADS[protocol]


def channel_rate(comm: Communicator) -> float:
    """Return the bandwidth of one channel with the Simple protocol, in GB/s."""
    rate = CHANNEL_RATE.get(comm.generation, OLD_CHANNEL_RATE)
    return rate * threads_of(comm, "simple") / THREADS["simple"]


def share_of_nics(comm: Communicator) -> float:
    """Return the share of a node's NIC bandwidth that its channels can use."""
    if comm.network is None:
        return 1.0
    ports, channels = comm.network.ports, open_channels(comm)
    first, second = min(channels, ports), min(max(channels - ports, 0), ports)
    return (ONE_OF_NIC * first + (1 - ONE_OF_NIC) * second) / ports


BUFFER = 4 * 2**20  # bytes per channel and peer with Simple: eight slots; a chunk takes four


def least(rates: Sequence[float]) -> float:
    """Return the minimum of these rates, or infinity if there are none. Arrays are compared element by element."""
    return reduce(np.minimum, rates) if rates else float("inf")


def aged(comm: Communicator, values: Parameters) -> float:
    """Return how many times longer latencies inside this host are than inside a host built in 2025."""
    return (1 + values["age"]) ** (2025 - generation_year(comm.generation))


def hop_class(hop: HopGroup) -> str:
    """Return the latency class of a hop: nvlink, p2p or shm."""
    return "nvlink" if hop.kind in NVLINKS else "p2p" if hop.kind.startswith("p2p") else "shm"


def hop_rate(comm: Communicator, hop: HopGroup, values: Parameters) -> float:
    """Return the bandwidth in GB/s that software reaches on a hop."""
    rate = hop.rate * values[f"share.{hop.kind}"]
    if hop.kind not in NVLINKS and comm.generation in ("kepler", "maxwell"):
        rate = least([rate, comm.host.pcie_rate * values["share.old_gpu"]])
    return rate


def inside_rate(comm: Communicator, values: Parameters, *, is_chain: bool = False) -> float:
    """Return the bandwidth in GB/s of rings or chains inside a node.

    A chain of two GPUs sends in one direction only, and so reaches a larger share of PCIe's rate than a ring does.
    """
    if not is_chain or comm.nodes > 1:
        return least([hop_rate(comm, hop, values) for hop in comm.hops if hop.count])
    one_way = values["share.one_way"] if comm.local == 2 and not comm.is_nvlink else 1.0
    return least([hop_rate(comm, hop, values) * one_way for hop in comm.chain if hop.count])


def inside_hop(comm: Communicator, protocol: str, values: Parameters) -> float:
    """Return the latency of an average hop inside a node, in us."""
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
    """Return the bandwidth of a node's NICs in GB/s: the minimum of line rate, host memory and sockets.

    Without GPUDirect, bytes go through host memory. Over TCP the kernel copies them too: each channel has a socket,
    which one core serves.
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
    """Return the latency in us of a hop between nodes. It grows with the number of GPUs in a node, up to eight."""
    network = comm.network
    if network is None:
        return 0.0
    crowd = 1 + values["crowd"] * log2(min(comm.local, 8))
    return _message_time(comm, network, protocol, values) * crowd


def _message_time(comm: Communicator, network: NodeNetwork, protocol: str, values: Parameters) -> float:
    """Return the latency in us of a message between nodes. Without GPUDirect, it includes the copy through host memory.

    For InfiniBand and the first EFA generation, a fitted factor on the latency represents that copy.
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
    return values[f"hop.shm.{'ll' if protocol == 'll' else 'simple'}"] * aged(comm, values)


def collective_rates(comm: Communicator, values: Parameters, *, is_chain: bool = False) -> tuple[float, float]:
    """Return the bandwidths in GB/s of a ring or tree inside a node and between nodes (infinity without a network).

    Links and channels limit both. A channel moves at most ``channel_rate``, and at most one buffer per round trip of a
    message and its acknowledgment.
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
    """Return the name of the curve by which bandwidth grows with size: nvlink, pcie, ib, plugin or slow_plugin."""
    if comm.network is None:
        return "nvlink" if comm.is_nvlink else "pcie"
    if comm.network.kind in ("efa1", "tcp"):
        return "slow_plugin"
    return "plugin" if comm.network.kind in PLUGINS else "ib"
