"""What a call takes: the candidates that NCCL has, the time of each, and the one that its tuner takes.

A candidate is an algorithm with a protocol. Its time is made of *hops* (the latency of the longest chain of messages)
and of *load* (its bytes over the bandwidth that its route gets):

    LL                T = base + sqrt(hops^2 + load^2 + ramp hops load)
    LL128, NVLS       T = base + hops + load + ramp sqrt((base + hops) load)
    Simple            T = base + [(hops + load (1/2 + fill / loops))^12 + load^12]^(1/12)

Simple moves chunks of two slices, so a chunk's second half overlaps the next hop of its first; ``loops`` is how often
a ring goes round the buffers (a slot of 2 MiB a channel and rank), and the pipeline is filled once. LL has no slots to
wait for: a thread sends each line on as soon as it has come, so that a step takes what is longer, the way of a line or
all lines of a step.

NCCL's tuner does not choose for messages between pairs of ranks, whose send and receive use the NICs near to the GPU
(``ncclTopoGetLocalNet`` in ``src/graph/search.cc``): of P NICs and p GPUs a node, GPU g has NIC g P // p where there
are fewer NICs than GPUs, and P / p of them where there are more. What all flows of the busiest NIC carry in one
direction, over its rate, is what the network takes; the other direction carries at most as much. Inside a node bytes
cross NVLink, or the GPU's PCIe slot, which all its bytes share.
"""

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from collectives.costs.bounds import bus_factor
from simcomm.nccl.channels import (
    BUFFER,
    OF_NVLS,
    aged,
    between_hop,
    between_rate,
    by_threshold,
    collective_rates,
    hop_rate,
    inside_hop,
    least,
    open_channels,
    ramp_class,
    used_channels,
)
from simcomm.nccl.choice import PAIRWISE, Choice, allowed
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.parameters import Floats, Parameters
from simcomm.nccl.topology import HopGroup, exchange_rate
from simcomm.nccl.tuner import tuner_times

OVERLAP = 8.0  # of launches on the processor and work on the GPU: the larger counts
SHARPNESS = 12.0  # of the tuner's choice between times that are almost equal, and of a maximum
TUNER_SINCE = (2, 5)  # before it a threshold decides between LL and Simple
RULED_OUT = 100.0  # from the logarithm of a weight
LL_SLOT = 32 * 1024  # bytes of data in a slot of LL: 512 threads with 8 lines each (src/include/device.h)


@dataclass(frozen=True)
class CandidateRoute:
    """What a candidate does: hops inside and between nodes in series, and GB/s of bus bandwidth."""

    base: float  # us
    hops: float  # us
    between: float  # us, of hops those between nodes
    bandwidth: float
    ll_bandwidth: float  # of LL, whose lines are half flags


def find_route(comm: Communicator, collective: str, choice: Choice, values: Parameters) -> CandidateRoute:
    """Return hops and bandwidth of a candidate."""
    algorithm, protocol = choice
    inside, between = inside_hop(comm, protocol, values), between_hop(comm, protocol, values)
    base = values[f"base.{protocol}"] * aged(comm, values)
    n, nodes = comm.ranks, comm.nodes
    is_chain = collective in ("broadcast", "reduce")
    within, across = collective_rates(comm, values, is_chain=is_chain)
    ring = least([within, across])
    twice = 2 if collective == "all_reduce" else 1
    if algorithm == "ring":
        crossing = _crossings(comm, collective, algorithm)
        hops = (twice * (n - 1) - crossing) * inside + crossing * between
        return CandidateRoute(base, hops, crossing * between, ring, _ll_bandwidth(within, across, values))
    depth = _crossings(comm, collective, algorithm) * between
    if algorithm == "tree":
        trunk = across * tree_gain(comm, values["share.tree"])
        hops = twice * (comm.local - 1) * inside + depth
        return CandidateRoute(base, hops, depth, least([within, trunk]), _ll_bandwidth(within, trunk, values))
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_route(comm, depth, across, values)
    if algorithm == "pat":
        return CandidateRoute(base, ceil(log2(nodes)) * between, depth, 0.9 * ring, 0.0)
    offloaded = values["share.collnet"] * ring
    return CandidateRoute(base, twice * (comm.local - 1) * inside + between, between, offloaded, 0.0)


def _crossings(comm: Communicator, collective: str, algorithm: str) -> int:
    """Return how many hops in series lie between nodes."""
    once = comm.nodes - 1 if algorithm == "ring" else ceil(log2(comm.nodes))
    return 2 * once if collective == "all_reduce" else once


def _ll_bandwidth(within: float, across: float, values: Parameters) -> float:
    """Return what LL gets of links inside a node and of those between nodes."""
    return least([within * values["share.ll_inside"], across * values["share.ll_between"]])


def tree_gain(comm: Communicator, share: float) -> float:
    """Return how much busbw a tree makes of the NICs' rate, of which it reaches a share.

    Over all N nodes the edges of a double binary tree carry (N-1) S up and as much down, so a NIC sends 2 S (N-1)/N,
    where a ring over n ranks sends 2 S (n-1)/n. Before 2.10 NCCL did not use the difference.
    """
    if comm.nodes == 1 or comm.version < (2, 10):
        return 1.0
    gain: float = np.maximum(1.0, share * (1 - 1 / comm.ranks) / (1 - 1 / comm.nodes))
    return gain


def _nvls_route(comm: Communicator, depth: float, across: float, values: Parameters) -> CandidateRoute:
    """Return the route of NVLS, which has the channels that it needs for its full rate, unless settings leave fewer."""
    name = "share.nvls_blackwell" if comm.generation == "blackwell" else "share.nvls"
    line, p = comm.hops[0].rate, comm.local
    rate = line * least([values[name] * 2 * (p - 1) / (p + 1), 0.94 if comm.generation == "blackwell" else 2.0])
    rate *= min(1.0, float(used_channels(comm, "nvls", "simple", np.ones(1))[0]) / OF_NVLS[comm.generation])
    rate = least([rate, across * tree_gain(comm, values["share.nvls_tree"])])
    return CandidateRoute(values["base.nvls"] * aged(comm, values), depth, depth, rate, 0.0)


def route_times(comm: Communicator, collective: str, choice: Choice, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of a candidate at sizes in bytes."""
    route = find_route(comm, collective, choice, values)
    algorithm, protocol = choice
    bandwidth = route.bandwidth * (values["share.degraded"] if comm.degraded else 1.0)
    load = sizes * bus_factor(collective, comm.ranks) / 1000 / bandwidth
    if protocol == "simple" and algorithm not in ("nvls", "nvls_tree"):
        return _simple_times(comm, algorithm, sizes, load, route, values)
    if protocol == "ll":
        lines = _ll_load(comm, choice, load, sizes, route, values)
        hops = route.hops + _ll_messages(comm, collective, algorithm, sizes, values)
        return route.base + np.sqrt(hops**2 + lines**2 + values["ramp.ll"] * hops * lines)
    if protocol == "ll128":
        load = load / values["share.ll128"]
    wait = route.base + route.hops
    times: Floats = wait + load + values[f"ramp.{ramp_class(comm)}"] * np.sqrt(wait * load)
    return times


def _ll_load(
    comm: Communicator, choice: Choice, load: Floats, sizes: Floats, route: CandidateRoute, values: Parameters
) -> Floats:
    """Return the us that LL's bytes take: each channel has its own rate, and a call opens channels with its size."""
    channels = used_channels(comm, *choice, sizes)
    times: Floats = load * route.bandwidth / np.minimum(route.ll_bandwidth, channels * values["channel.ll"])
    return times


def _ll_messages(comm: Communicator, collective: str, algorithm: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the us for which LL's messages between nodes wait until a processor has seen the flags of all their lines.

    It sends none before (``sendProxyProgress`` in ``src/transport/net.cc`` of NVIDIA/nccl), so a message is whole at
    each node: a chunk of a channel, and no more than a slot.
    """
    chunks = comm.ranks if algorithm == "ring" else 1
    message = np.minimum(sizes / chunks / used_channels(comm, algorithm, "ll", sizes), LL_SLOT)
    times: Floats = _crossings(comm, collective, algorithm) * message / 1000 / values["channel.ll_net"]
    return times


def _simple_times(
    comm: Communicator, algorithm: str, sizes: Floats, load: Floats, route: CandidateRoute, values: Parameters
) -> Floats:
    """Return the times of chunks of two slices that go round the ranks."""
    channels = open_channels(comm)
    chunk = (comm.settings.buffer_bytes or BUFFER) / 2
    loops = np.maximum(1.0, sizes / (comm.ranks * channels * chunk))
    hops: float | Floats = route.hops
    if comm.nodes > 1 and algorithm == "ring":
        growth = np.clip(np.log2(sizes / 65536) / 4, 0, 1)
        hops = hops + route.between * (values["plateau"] ** growth - 1)
    kind = ramp_class(comm)
    fill = values[f"fill.{'plugin' if kind == 'slow_plugin' else kind}"]
    return route.base + _soft_maximum(hops + load * (0.5 + fill / loops), load)


def _soft_maximum(a: Floats, b: Floats) -> Floats:
    result: Floats = np.maximum(a, b) * (1 + (np.minimum(a, b) / np.maximum(a, b)) ** SHARPNESS) ** (1 / SHARPNESS)
    return result


def host_time(comm: Communicator, collective: str, channels: Floats, values: Parameters) -> Floats:
    """Return the us that one process takes to launch on all GPUs that it drives."""
    launch = values["launch"] * aged(comm, values) * (values["launch.desktop"] if comm.is_desktop else 1.0)
    if collective in ("all_to_all", "gather", "scatter"):
        launch += values["launch.peer"] * comm.ranks
    if comm.is_rccl:
        launch *= values["launch.rccl"]
    if comm.version < (2, 14):
        return comm.one_process * (launch + values["launch.channel"] * channels)
    return 0 * channels + comm.one_process * launch


def call_time(comm: Communicator, values: Parameters) -> float:
    """Return the us that a loop adds to a call when it waits for each."""
    if comm.harness != "torch":
        return 0.0
    return values["call.torch" if comm.hosts == 1 else "call.torch_hosts"]


@dataclass(frozen=True)
class Candidates:
    """What NCCL chooses from at some sizes: reasons against, the tuner's times, the model's times and weights."""

    reasons: dict[Choice, str]
    tuner: dict[Choice, Floats]
    times: dict[Choice, Floats]
    weights: dict[Choice, Floats]

    def blend(self, figures: dict[Choice, Floats]) -> Floats:
        """Return the mean of figures by choice, weighted by how likely NCCL takes each."""
        weighted: Floats = np.sum([self.weights[choice] * one for choice, one in figures.items()], axis=0)
        return weighted


def candidates(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Candidates:
    """Return what NCCL chooses from, with the tuner's softened choice as weights that sum to one."""
    reasons = allowed(comm, collective)
    open_ = [choice for choice, reason in reasons.items() if not reason]
    tuner = {choice: tuner_times(comm, collective, choice, sizes) for choice in open_}
    times = {choice: route_times(comm, collective, choice, sizes, values) for choice in open_}
    logs = np.array([-SHARPNESS * np.log(tuner[choice]) for choice in open_])
    if comm.version < TUNER_SINCE and {"ll", "simple"} <= {protocol for _, protocol in open_}:
        logs -= np.array([np.where(by_threshold(comm, *choice, sizes), 0.0, RULED_OUT) for choice in open_])
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    return Candidates(reasons, tuner, times, dict(zip(open_, weights, strict=True)))


def predict_microseconds(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of a collective at sizes in bytes."""
    if collective in PAIRWISE:
        on_gpu, channels = exchange_times(comm, collective, sizes, values), np.ones(len(sizes))
    else:
        found = candidates(comm, collective, sizes, values)
        on_gpu = np.exp(found.blend({choice: np.log(times) for choice, times in found.times.items()}))
        channels = found.blend({choice: used_channels(comm, *choice, sizes) for choice in found.times})
    host = host_time(comm, collective, channels, values)
    overlap = 1.0 if comm.is_rccl and comm.one_process > 1 else OVERLAP
    result: Floats = (on_gpu**overlap + host**overlap) ** (1 / overlap) + call_time(comm, values)
    return result


def nic_share(comm: Communicator, collective: str) -> float:
    """Return what the busiest NIC of a node carries in one direction, as a share of the buffer.

    Of send_recv, where each rank sends the buffer to the next one, a single GPU of a node sends to another node. The
    root of gather and scatter has all other nodes' parts on its own NICs.

    >>> from simcomm.nccl.communicator import make_communicator
    >>> from simcomm.nccl.descriptions import describe_system
    >>> from simcomm.nccl.settings import NcclSettings
    >>> line = {"nodes": 2, "gpus": 8, "gpu": "A100 SXM", "net": "ib", "nic": 50}
    >>> comm = make_communicator(describe_system("two NICs", line), NcclSettings())
    >>> nic_share(comm, "all_to_all"), nic_share(comm, "send_recv")
    (2.0, 1.0)
    """
    if comm.network is None:
        return 0.0
    remote = (comm.ranks - comm.local) / comm.ranks
    if collective == "send_recv":
        flows, each = 1.0, 1.0
    elif collective in ("gather", "scatter"):
        flows, each = 1.0, remote
    else:
        flows, each = float(comm.local), remote
    return each * busiest(comm, flows)


def busiest(comm: Communicator, flows: float) -> float:
    """Return how many of the flows of a node's first GPUs, one each, meet on a NIC; below 1 where one has several."""
    nics = comm.network.ports if comm.network else 1
    return float(min(flows, ceil(comm.local / nics))) if nics <= comm.local else comm.local / nics


def slot_share(comm: Communicator, collective: str) -> float:
    """Return what a GPU sends or receives inside its node, as a share of the buffer; over PCIe all of its bytes."""
    if collective == "send_recv":
        return 1.0
    others = comm.ranks - 1 if not comm.is_nvlink else comm.local - 1
    return others / comm.ranks


def exchange_times(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of messages between pairs, at sizes in bytes as nccl-tests counts them."""
    load = sizes / 1000 * _seconds_a_gigabyte(comm, collective, values)
    peers = {"send_recv": 1, "hypercube": ceil(log2(comm.ranks))}.get(collective, comm.ranks - 1)
    hop = between_hop(comm, "ll", values) if comm.nodes > 1 else inside_hop(comm, "ll", values)
    wait = values["base.all_to_all"] * aged(comm, values) + hop + values["peer"] * (peers - 1)
    if comm.nodes > 1 and peers > 1:
        wait += values["peer.net"] * min(peers, comm.ranks - comm.local)
    times: Floats = wait + load + values[f"ramp.{ramp_class(comm)}"] * np.sqrt(wait * load)
    return times


def _seconds_a_gigabyte(comm: Communicator, collective: str, values: Parameters) -> float:
    """Return what each byte of the buffer takes on the busiest link, in seconds a GB."""
    across = 0.0
    if comm.network is not None:
        nic = between_rate(comm, values) / comm.network.ports
        across = nic_share(comm, collective) / nic
    if comm.local == 1:
        return across
    kind, rate = exchange_rate(comm.host) if comm.local <= comm.host.gpus else (comm.hops[0].kind, comm.hops[0].rate)
    slowest: float = np.maximum(across, slot_share(comm, collective) / hop_rate(comm, HopGroup(kind, 1, rate), values))
    return slowest


LONG_MESSAGE = 2048  # bytes from which on MPICH reduces and scatters, then gathers: twice the stages
FULL_HOST = 32  # processes from which on they share the memory's bandwidth


def mpi_microseconds(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of a collective of MPI ranks on processors, at sizes in bytes."""
    kind = comm.network.kind if comm.network else ""
    latency = values["mpi.base"] + values["mpi.rank"] * log2(comm.local)
    rates = []
    if comm.local > 1:
        rates.append(values["mpi.copy"] if comm.local < FULL_HOST else values["mpi.full"])
    if comm.network is not None:
        latency += values["tcp.hop" if kind == "tcp" else "mpi.net"] * log2(comm.nodes)
        if comm.harness == "mlsl":
            latency += values["mpi.mlsl"] * log2(comm.nodes)
        nic = comm.network.nic * values["mpi.nic"] * comm.nodes ** -values["mpi.hosts"]
        rates.append(least([nic, values["tcp.socket"]]) if kind == "tcp" else nic)
    stages = 1 + np.clip(np.log2(sizes / LONG_MESSAGE) / 2, 0, 1)
    load = sizes * bus_factor(collective, comm.ranks) / 1000 / least(rates)
    wait = latency * stages
    times: Floats = wait + load + values["mpi.ramp"] * np.sqrt(wait * load)
    return times
