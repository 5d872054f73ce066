"""Predict the time of a call from NCCL's candidates, the time of each, and the tuner's choice.

A candidate is an algorithm with a protocol. Its time T in us depends on *hops* (the latency of the longest chain of
messages), on *load* (its bytes over the bandwidth of its route), and on the fitted ``base``, ``ramp`` and ``fill``:

    LL                T = base + sqrt(hops^2 + load^2 + ramp hops load)
    LL128, NVLS       T = base + hops + load + ramp sqrt((base + hops) load)
    Simple            T = base + [(hops + load (1/2 + fill / loops))^12 + load^12]^(1/12)

Simple moves chunks of two slices, so the second half of a chunk overlaps the next hop of the first. ``loops`` is the
number of rounds of a ring through the buffers (a slot of 2 MiB per channel and rank). The pipeline is filled once. LL
does not wait for slots: a thread forwards each line at once, so a step takes the maximum of a line's latency and the
time of all lines of the step.

The tuner does not choose for messages between pairs of ranks. Their sends and receives use the NICs near the GPU
(``ncclTopoGetLocalNet`` in ``src/graph/search.cc``). With P NICs and p GPUs in a node, GPU g has NIC g P // p if there
are fewer NICs than GPUs, else P / p of them. The network's time is the load of the busiest NIC in its busier direction,
divided by the NIC's rate. Inside a node, bytes cross NVLink or the GPU's PCIe slot, which all bytes of the GPU share.
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

OVERLAP = 8.0  # exponent of the soft maximum of launch time on the CPU and time on the GPU
SHARPNESS = 12.0  # exponent of soft maxima, and of the tuner's choice between almost equal times
TUNER_SINCE = (2, 5)  # before, a threshold decides between LL and Simple
RULED_OUT = 100.0  # subtracted from the logarithm of a weight
LL_SLOT = 32 * 1024  # bytes of data in a slot of LL: 512 threads with 8 lines each (src/include/device.h)


@dataclass(frozen=True)
class CandidateRoute:
    """The latencies and bus bandwidths (GB/s) of a candidate. ``hops`` is the total latency of consecutive hops."""

    base: float  # us
    hops: float  # us
    between: float  # us, of the hops between nodes
    bandwidth: float
    ll_bandwidth: float  # with LL, whose lines are half flags


def find_route(comm: Communicator, collective: str, choice: Choice, values: Parameters) -> CandidateRoute:
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
    once = comm.nodes - 1 if algorithm == "ring" else ceil(log2(comm.nodes))
    return 2 * once if collective == "all_reduce" else once


def _ll_bandwidth(within: float, across: float, values: Parameters) -> float:
    return least([within * values["share.ll_inside"], across * values["share.ll_between"]])


def tree_gain(comm: Communicator, share: float) -> float:
    """Return the factor, at least 1, by which a tree's busbw between nodes can exceed the rate of the NICs.

    For a buffer of S bytes, a NIC sends 2 S (n-1)/n in a ring over n ranks. The edges of a double binary tree over N
    nodes carry (N-1) S up and as much down, so a NIC sends only 2 S (N-1)/N. Trees reach a ``share`` of the ratio.
    Before NCCL 2.10, the factor is 1.
    """
    if comm.nodes == 1 or comm.version < (2, 10):
        return 1.0
    gain: float = np.maximum(1.0, share * (1 - 1 / comm.ranks) / (1 - 1 / comm.nodes))
    return gain


def _nvls_route(comm: Communicator, depth: float, across: float, values: Parameters) -> CandidateRoute:
    """Return the latencies and bandwidths of NVLS. Settings that limit its channels also limit its bandwidth."""
    p, is_blackwell = comm.local, comm.generation == "blackwell"
    share = values["share.nvls_blackwell" if is_blackwell else "share.nvls"]
    rate = comm.hops[0].rate * least([share * 2 * (p - 1) / (p + 1), 0.94 if is_blackwell else 2.0])
    rate *= min(1.0, float(used_channels(comm, "nvls", "simple", np.ones(1))[0]) / OF_NVLS[comm.generation])
    rate = least([rate, across * tree_gain(comm, values["share.nvls_tree"])])
    return CandidateRoute(values["base.nvls"] * aged(comm, values), depth, depth, rate, 0.0)


def route_times(comm: Communicator, collective: str, choice: Choice, sizes: Floats, values: Parameters) -> Floats:
    """Return the times of a candidate in us, at sizes in bytes."""
    route = find_route(comm, collective, choice, values)
    algorithm, protocol = choice
    bandwidth = route.bandwidth * (values["share.degraded"] if comm.system.degraded else 1.0)
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
    """Return the time in us that LL needs for its bytes. Larger calls use more channels, each with a fixed rate."""
    channels = used_channels(comm, *choice, sizes)
    times: Floats = load * route.bandwidth / np.minimum(route.ll_bandwidth, channels * values["channel.ll"])
    return times


def _ll_messages(comm: Communicator, collective: str, algorithm: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the time in us that LL's messages between nodes add, for each size in bytes.

    The CPU sends a message only when the flags of all its lines are set (``sendProxyProgress`` in
    ``src/transport/net.cc`` of NVIDIA/nccl). A message is one chunk of a channel, and no larger than a slot of LL's
    buffer.
    """
    chunks = comm.ranks if algorithm == "ring" else 1
    message = np.minimum(sizes / chunks / used_channels(comm, algorithm, "ll", sizes), LL_SLOT)
    times: Floats = _crossings(comm, collective, algorithm) * message / 1000 / values["channel.ll_net"]
    return times


def _simple_times(
    comm: Communicator, algorithm: str, sizes: Floats, load: Floats, route: CandidateRoute, values: Parameters
) -> Floats:
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
    """Return the time in us that a process needs to launch a collective on all its GPUs."""
    launch = values["launch"] * aged(comm, values)
    launch *= values["launch.desktop"] if comm.system.host == "desktop" else 1.0
    if collective in ("all_to_all", "gather", "scatter"):
        launch += values["launch.peer"] * comm.ranks
    if comm.is_rccl:
        launch *= values["launch.rccl"]
    if comm.version < (2, 14):
        return comm.one_process * (launch + values["launch.channel"] * channels)
    return 0 * channels + comm.one_process * launch


def call_time(comm: Communicator, values: Parameters) -> float:
    """Return the time in us that a Python benchmark adds to each call by waiting for it; 0 for other benchmarks."""
    if comm.system.harness != "torch":
        return 0.0
    return values["call.torch" if comm.system.nodes == 1 else "call.torch_hosts"]


@dataclass(frozen=True)
class Candidates:
    """Times in us of the candidates (algorithm and protocol) at several sizes, by the tuner and by this model.

    ``weights`` are close to 1 for the tuner's choice, and lie between 0 and 1 where candidates have similar times.
    """

    tuner: dict[Choice, Floats]
    times: dict[Choice, Floats]
    weights: dict[Choice, Floats]

    def blend(self, figures: dict[Choice, Floats]) -> Floats:
        """Return the weighted mean over all candidates at each size, given one array of values per candidate."""
        weighted: Floats = np.sum([self.weights[choice] * row for choice, row in figures.items()], axis=0)
        return weighted


def candidates(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Candidates:
    """Return the candidates for a collective at sizes in bytes. Their weights sum to one at each size."""
    open_ = [choice for choice, reason in allowed(comm, collective).items() if not reason]
    tuner = {choice: tuner_times(comm, collective, choice, sizes) for choice in open_}
    times = {choice: route_times(comm, collective, choice, sizes, values) for choice in open_}
    logs = np.array([-SHARPNESS * np.log(tuner[choice]) for choice in open_])
    if comm.version < TUNER_SINCE and {"ll", "simple"} <= {protocol for _, protocol in open_}:
        logs -= np.array([np.where(by_threshold(comm, *choice, sizes), 0.0, RULED_OUT) for choice in open_])
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    return Candidates(tuner, times, dict(zip(open_, weights, strict=True)))


def predict_microseconds(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the predicted times of a collective in us, for buffers of ``sizes`` bytes."""
    if collective in PAIRWISE:
        on_gpu, channels = exchange_times(comm, collective, sizes, values), np.ones(len(sizes))
    else:
        choices = candidates(comm, collective, sizes, values)
        on_gpu = np.exp(choices.blend({choice: np.log(times) for choice, times in choices.times.items()}))
        channels = choices.blend({choice: used_channels(comm, *choice, sizes) for choice in choices.times})
    host = host_time(comm, collective, channels, values)
    overlap = 1.0 if comm.is_rccl and comm.one_process > 1 else OVERLAP
    result: Floats = (on_gpu**overlap + host**overlap) ** (1 / overlap) + call_time(comm, values)
    return result


def nic_share(comm: Communicator, collective: str) -> float:
    """Return the load on a node's busiest NIC in one direction, as a share of the buffer.

    In send_recv, each rank sends the buffer to the next rank, so one GPU per node sends to another node. In gather and
    scatter, the root's NICs carry the data of all other nodes.
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
    """Return how many of a node's ``flows`` share its busiest NIC. Below 1, a flow uses several NICs."""
    nics = comm.network.ports if comm.network else 1
    return float(min(flows, ceil(comm.local / nics))) if nics <= comm.local else comm.local / nics


def slot_share(comm: Communicator, collective: str) -> float:
    """Return the share of the buffer that crosses a GPU's NVLink or, without NVLink, its PCIe slot."""
    if collective == "send_recv":
        return 1.0
    others = comm.ranks - 1 if not comm.is_nvlink else comm.local - 1
    return others / comm.ranks


def exchange_times(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the times of messages between pairs of ranks in us, at sizes in bytes as nccl-tests counts them."""
    load = sizes / 1000 * _seconds_a_gigabyte(comm, collective, values)
    peers = {"send_recv": 1, "hypercube": ceil(log2(comm.ranks))}.get(collective, comm.ranks - 1)
    hop = between_hop(comm, "ll", values) if comm.nodes > 1 else inside_hop(comm, "ll", values)
    wait = values["base.all_to_all"] * aged(comm, values) + hop + values["peer"] * (peers - 1)
    if comm.nodes > 1 and peers > 1:
        wait += values["peer.net"] * min(peers, comm.ranks - comm.local)
    times: Floats = wait + load + values[f"ramp.{ramp_class(comm)}"] * np.sqrt(wait * load)
    return times


def _seconds_a_gigabyte(comm: Communicator, collective: str, values: Parameters) -> float:
    across = 0.0
    if comm.network is not None:
        nic = between_rate(comm, values) / comm.network.ports
        across = nic_share(comm, collective) / nic
    if comm.local == 1:
        return across
    kind, rate = exchange_rate(comm.host) if comm.local <= comm.host.gpus else (comm.hops[0].kind, comm.hops[0].rate)
    slowest: float = np.maximum(across, slot_share(comm, collective) / hop_rate(comm, HopGroup(kind, 1, rate), values))
    return slowest


LONG_MESSAGE = 2048  # bytes; from here MPICH reduces and scatters, then gathers: twice the stages
FULL_HOST = 32  # processes; from here they share the memory's bandwidth


def mpi_microseconds(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the times in us of a collective of MPI ranks on CPUs, at sizes in bytes."""
    kind = comm.network.kind if comm.network else ""
    latency = values["mpi.base"] + values["mpi.rank"] * log2(comm.local)
    rates = []
    if comm.local > 1:
        rates.append(values["mpi.copy"] if comm.local < FULL_HOST else values["mpi.full"])
    if comm.network is not None:
        latency += values["tcp.hop" if kind == "tcp" else "mpi.net"] * log2(comm.nodes)
        if comm.system.harness == "mlsl":
            latency += values["mpi.mlsl"] * log2(comm.nodes)
        nic = comm.network.nic * values["mpi.nic"] * comm.nodes ** -values["mpi.hosts"]
        rates.append(least([nic, values["tcp.socket"]]) if kind == "tcp" else nic)
    stages = 1 + np.clip(np.log2(sizes / LONG_MESSAGE) / 2, 0, 1)
    load = sizes * bus_factor(collective, comm.ranks) / 1000 / least(rates)
    wait = latency * stages
    times: Floats = wait + load + values["mpi.ramp"] * np.sqrt(wait * load)
    return times
