"""What software reaches of the links: GB/s and microseconds of a hop inside a node and of one between nodes."""

from math import log2

from simcomm.nccl.channels import channel_rate, open_channels, share_of_nics
from simcomm.nccl.communicator import PLUGINS, Communicator, Network
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.topology import Hop

BUFFER = 4 * 2**20  # bytes of Simple for a channel and peer, of eight slots; a chunk is four of them
NVLINKS = ("nvswitch", "mesh", "bridge", "xgmi")


def aged(comm: Communicator, values: Parameters) -> float:
    """Return how much longer latencies inside a host are than on hosts of 2025."""
    return float((1 + values["age"]) ** (2025 - comm.year))


def hop_class(hop: Hop) -> str:
    """Return the class of a hop by latency: nvlink, p2p or shm."""
    return "nvlink" if hop.kind in NVLINKS else "p2p" if hop.kind.startswith("p2p") else "shm"


def hop_rate(comm: Communicator, hop: Hop, values: Parameters) -> float:
    """Return the GB/s that software reaches on the hops of a kind."""
    rate = hop.rate * values[f"share.{hop.kind}"]
    if hop.kind not in NVLINKS and comm.generation in ("kepler", "maxwell"):
        rate = min(rate, comm.host.pcie_rate * values["share.old_gpu"])
    return rate


def inside_rate(comm: Communicator, values: Parameters, *, is_chain: bool = False) -> float:
    """Return the GB/s of rings inside a node, or of chains.

    Between two GPUs a chain sends one way only, and PCIe gives more of its rate than with traffic both ways.
    """
    if not is_chain or comm.nodes > 1:
        return min((hop_rate(comm, hop, values) for hop in comm.hops if hop.count), default=float("inf"))
    one_way = values["share.one_way"] if comm.local == 2 and not comm.is_nvlink else 1.0
    return min((hop_rate(comm, hop, values) * one_way for hop in comm.chain if hop.count), default=float("inf"))


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
    if comm.nic_is_guessed:
        rate *= values["share.guessed"]
    if not network.gdr:
        slow = network.kind.startswith("efa")
        rate = min(rate, network.staging * values["share.staged_slow" if slow else "share.staged"])
    if network.kind == "tcp":
        rate = min(rate, open_channels(comm) * values["tcp.socket"])
    return rate


def between_hop(comm: Communicator, protocol: str, values: Parameters) -> float:
    """Return the us of a hop between nodes."""
    network = comm.network
    if network is None:
        return 0.0
    crowd = 1 + values["crowd"] * log2(min(comm.local, 8))
    return _message_time(comm, network, protocol, values) * crowd


def _message_time(comm: Communicator, network: Network, protocol: str, values: Parameters) -> float:
    """Return the us of a message between two nodes with nothing beside it.

    Without GPUDirect one GPU writes into host memory and another reads there, as in a hop inside a host that goes
    through host memory; only of EFA before p5 and of InfiniBand were hosts without it in the tables.
    """
    if network.kind == "tcp":
        return values["tcp.hop"] + _memory_hop(comm, protocol, values)
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
        window = buffer / (2 * hop * 1000) if hop else float("inf")
        rates.append(min(link, channels * min(channel_rate(comm), window)))
    return rates[0], rates[1] if comm.network else float("inf")


def ramp_class(comm: Communicator) -> str:
    """Return what decides how late full bandwidth is reached: the network between nodes, or the link inside."""
    if comm.network is None:
        return "nvlink" if comm.is_nvlink else "pcie"
    if comm.network.kind in ("efa1", "tcp"):
        return "slow_plugin"
    return "plugin" if comm.network.kind in PLUGINS else "ib"
