"""What a call takes: the candidates that NCCL has, the time of each, and the one that its tuner takes.

A candidate is an algorithm with a protocol. Its time is made of *hops* (the latency of the longest chain of messages)
and of *load* (its bytes over the bandwidth that its route gets):

    LL, LL128, NVLS   T = base + hops + load + ramp sqrt((base + hops) load)
    Simple            T = base + [(hops + load (1/2 + fill / loops))^12 + load^12]^(1/12)

Simple moves chunks of two slices, so a chunk's second half overlaps the next hop of its first; ``loops`` is how often
a ring goes round the buffers (a slot of 2 MiB a channel and rank), and the pipeline is filled once. LL has no slots to
wait for; its lines follow each other, and full bandwidth comes late.
"""

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from collectives.costs.bounds import bus_factor
from collectives.errors import InputError
from simcomm.nccl.channels import Floats, open_channels, used_channels
from simcomm.nccl.communicator import PLUGINS, Communicator
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.topology import Hop, exchange_rate
from simcomm.nccl.tuner import Choice, available, tuner_times

OVERLAP = 8.0  # of launches on the processor and work on the GPU: the larger counts
SHARPNESS = 12.0  # of the tuner's choice between times that are almost equal, and of a maximum
BUFFER = 4 * 2**20  # bytes of Simple for a channel and peer, of eight slots; a chunk is four of them
PAIRWISE = ("all_to_all", "gather", "scatter", "send_recv", "hypercube")  # made of sends and receives
STRICT = (2, 24)  # the first version that reads NCCL_ALGO for one collective, and ends where nothing is left
NVLINKS = ("nvswitch", "mesh", "bridge", "xgmi")


@dataclass(frozen=True)
class Route:
    """What a candidate does: hops inside and between nodes in series, and GB/s of bus bandwidth."""

    base: float  # us
    hops: float  # us
    between: float  # us, of hops those between nodes
    bandwidth: float


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
    """Return the GB/s of a node's NICs, of which the slower of line and staging through host memory counts."""
    network = comm.network
    if network is None:
        return float("inf")
    kind = "efa" if network.kind.startswith("efa") else "ib" if network.kind == "ib" else "other_net"
    rate = network.nic * values[f"share.{kind}"]
    if comm.nic_is_guessed:
        rate *= values["share.guessed"]
    if not network.gdr:
        slow = network.kind == "tcp" or network.kind.startswith("efa")
        rate = min(rate, network.staging * values["share.staged_slow" if slow else "share.staged"])
    return rate


def between_hop(comm: Communicator, protocol: str, values: Parameters) -> float:
    """Return the us of a hop between nodes."""
    network = comm.network
    if network is None:
        return 0.0
    slow = values[f"slow.{network.kind}"] if network.kind != "ib" else 1.0
    if not network.gdr:
        slow *= values["slow.no_gdr"]
    crowd = 1 + values["crowd"] * log2(min(comm.local, 8))
    return values[f"hop.net.{protocol}"] * slow * crowd


def ramp_class(comm: Communicator) -> str:
    """Return what decides how late full bandwidth is reached: the network between nodes, or the link inside."""
    if comm.network is None:
        return "nvlink" if comm.is_nvlink else "pcie"
    if comm.network.kind in ("efa1", "tcp"):
        return "slow_plugin"
    return "plugin" if comm.network.kind in PLUGINS else "ib"


def find_route(comm: Communicator, collective: str, choice: Choice, values: Parameters) -> Route:
    """Return hops and bandwidth of a candidate."""
    algorithm, protocol = choice
    inside, between = inside_hop(comm, protocol, values), between_hop(comm, protocol, values)
    base = values[f"base.{protocol}"] * aged(comm, values)
    n, nodes = comm.ranks, comm.nodes
    is_chain = collective in ("broadcast", "reduce")
    ring = min(inside_rate(comm, values, is_chain=is_chain), between_rate(comm, values))
    twice = 2 if collective == "all_reduce" else 1
    if algorithm == "ring":
        crossing = 0 if nodes == 1 else twice * (nodes - 1)
        return Route(base, (twice * (n - 1) - crossing) * inside + crossing * between, crossing * between, ring)
    depth = twice * ceil(log2(nodes)) * between if nodes > 1 else 0.0
    if algorithm == "tree":
        trunk = between_rate(comm, values) * tree_gain(comm, values)
        return Route(base, twice * (comm.local - 1) * inside + depth, depth, min(inside_rate(comm, values), trunk))
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_route(comm, algorithm, depth, values)
    if algorithm == "pat":
        return Route(base, ceil(log2(nodes)) * between, depth, 0.9 * ring)
    offloaded = values["share.collnet"] * ring
    return Route(base, twice * (comm.local - 1) * inside + between, between, offloaded)


def tree_gain(comm: Communicator, values: Parameters) -> float:
    """Return how much busbw a tree makes of the NICs' rate.

    Over all N nodes the edges of a double binary tree carry (N-1) S up and as much down, so a NIC sends 2 S (N-1)/N,
    where a ring over n ranks sends 2 S (n-1)/n. Before 2.10 NCCL did not use the difference.
    """
    if comm.nodes == 1 or comm.version < (2, 10):
        return 1.0
    return max(1.0, values["share.tree"] * (1 - 1 / comm.ranks) / (1 - 1 / comm.nodes))


def _nvls_route(comm: Communicator, algorithm: str, depth: float, values: Parameters) -> Route:
    name = "share.nvls_blackwell" if comm.generation == "blackwell" else "share.nvls"
    line, p = comm.hops[0].rate, comm.local
    rate = line * min(values[name] * 2 * (p - 1) / (p + 1), 0.94 if comm.generation == "blackwell" else 2.0)
    if comm.network is not None:
        rate = min(rate, between_rate(comm, values) * tree_gain(comm, values))
    return Route(values["base.nvls"] * aged(comm, values), depth, depth, rate)


def route_times(comm: Communicator, collective: str, choice: Choice, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of a candidate at sizes in bytes."""
    route = find_route(comm, collective, choice, values)
    algorithm, protocol = choice
    bandwidth = route.bandwidth * (values["share.degraded"] if comm.degraded else 1.0)
    load = sizes * bus_factor(collective, comm.ranks) / 1000 / bandwidth
    if protocol == "simple" and algorithm not in ("nvls", "nvls_tree"):
        return _simple_times(comm, algorithm, sizes, load, route, values)
    if protocol == "ll":
        load = _ll_load(comm, choice, load, sizes, route, values)
    elif protocol == "ll128":
        load = load / values["share.ll128"]
    wait = route.base + route.hops
    ramp = values["ramp.ll"] if protocol == "ll" and comm.nodes == 1 else values[f"ramp.{ramp_class(comm)}"]
    times: Floats = wait + load + ramp * np.sqrt(wait * load)
    return times


def _ll_load(
    comm: Communicator, choice: Choice, load: Floats, sizes: Floats, route: Route, values: Parameters
) -> Floats:
    """Return the us that LL's bytes take: each channel has its own rate, and a call opens channels with its size."""
    share = values["share.ll_inside" if comm.nodes == 1 else "share.ll_between"]
    channels = used_channels(comm, *choice, sizes)
    times: Floats = load * np.maximum(1 / share, route.bandwidth / (channels * values["channel.ll"]))
    return times


def _simple_times(
    comm: Communicator, algorithm: str, sizes: Floats, load: Floats, route: Route, values: Parameters
) -> Floats:
    """Return the times of chunks of two slices that go round the ranks."""
    channels = open_channels(comm)
    chunk = (comm.settings.buffer_bytes or BUFFER) / 2
    loops = np.maximum(1.0, sizes / (comm.ranks * channels * chunk))
    hops: Floats = np.full(len(sizes), route.hops)
    if comm.nodes > 1 and algorithm == "ring":
        growth = np.clip(np.log2(sizes / 65536) / 4, 0, 1)
        hops = hops + route.between * (values["plateau"] ** growth - 1)
    kind = ramp_class(comm)
    fill = values[f"fill.{'plugin' if kind == 'slow_plugin' else kind}"]
    return route.base + _soft_maximum(hops + load * (0.5 + fill / loops), load)


def _soft_maximum(a: Floats, b: Floats) -> Floats:
    top = np.maximum(a, b)
    result: Floats = top * ((a / top) ** SHARPNESS + (b / top) ** SHARPNESS) ** (1 / SHARPNESS)
    return result


def exchange_times(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of all_to_all, gather, scatter and send_recv: messages between pairs, Simple or LL."""
    kind, rate = exchange_rate(comm.host) if comm.local <= comm.host.gpus else (comm.hops[0].kind, comm.hops[0].rate)
    inside = hop_rate(comm, Hop(kind, 1, rate), values) if comm.local > 1 else float("inf")
    n, peers = comm.ranks, 1 if collective == "send_recv" else comm.ranks - 1
    load = sizes * bus_factor(collective, n) / 1000 / inside
    if comm.network is not None:
        away = 1.0 if collective == "send_recv" else (n - comm.local) / n
        load = np.maximum(load, sizes * away * comm.local / 1000 / between_rate(comm, values))
    hop = between_hop(comm, "ll", values) if comm.nodes > 1 else inside_hop(comm, "ll", values)
    wait = values["base.all_to_all"] * aged(comm, values) + hop + values["peer"] * (peers - 1)
    if comm.nodes > 1 and peers > 1:
        wait += values["peer.net"] * (n - comm.local)
    times: Floats = wait + load + values[f"ramp.{ramp_class(comm)}"] * np.sqrt(wait * load)
    return times


def host_time(comm: Communicator, collective: str, channels: Floats, values: Parameters) -> Floats:
    """Return the us that one process takes to launch on all GPUs that it drives."""
    launch = values["launch"] * aged(comm, values) * (values["launch.desktop"] if comm.is_desktop else 1.0)
    if collective in ("all_to_all", "gather", "scatter"):
        launch += values["launch.peer"] * comm.ranks
    if comm.version < (2, 14):
        return comm.one_process * (launch + values["launch.channel"] * channels)
    return np.full(len(channels), comm.one_process * launch)


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


def allowed(comm: Communicator, collective: str) -> dict[Choice, str]:
    """Return each candidate with what speaks against it: what NCCL lacks here, or what the settings forbid.

    Where the settings leave nothing, NCCL ends with an error from 2.24 on (``topoGetAlgoInfo`` in ``src/enqueue.cc`` of
    NVIDIA/nccl), and this raises InputError. Before, it took a backup, and all_gather with NCCL_ALGO=tree ran as a
    ring: there settings count only as far as they leave something.
    """
    reasons = available(comm, collective)
    for part, name, words in _forced(comm, collective):
        left = [choice for choice, reason in reasons.items() if not reason and choice[part] in words]
        if not left and comm.version >= STRICT:
            raise InputError(_nothing_left(comm, collective, reasons))
        if left:
            reasons = {choice: reason or ("" if choice in left else name) for choice, reason in reasons.items()}
    return reasons


def _forced(comm: Communicator, collective: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return of NCCL_ALGO and NCCL_PROTO, where they are set: part of a choice, the setting, and what it allows."""
    settings = comm.settings
    forced = []
    if settings.algo is not None:
        forced.append((0, f"NCCL_ALGO={settings.algo}", settings.allowed_algorithms(collective)))
    if settings.proto is not None:
        forced.append((1, f"NCCL_PROTO={settings.proto}", settings.allowed_protocols(collective)))
    for _, name, _ in forced:
        if (":" in name or ";" in name) and comm.version < STRICT:
            version = ".".join(map(str, comm.version))
            raise InputError(f"{name}: NCCL reads a list for each collective from 2.24 on, and this is {version}")
    return forced


def _nothing_left(comm: Communicator, collective: str, reasons: dict[Choice, str]) -> str:
    """Return what NCCL ends with where the settings leave nothing, and why each candidate is out."""
    names = [name for _, name, _ in _forced(comm, collective)]
    wanted = {word for _, _, words in _forced(comm, collective)[:1] for word in words}
    why = dict.fromkeys(reason for choice, reason in reasons.items() if reason and wanted & set(choice))
    if "collnet_direct" in wanted and comm.sharp:
        why["collnet_direct is not modelled"] = None
    version = ".".join(map(str, comm.version))
    return f'NCCL {version} ends with "no algorithm/protocol available" for {collective}: ' + "; ".join(
        [f"{' '.join(names)} leaves none", *why]
    )


def passed_over(comm: Communicator, collective: str) -> list[str]:
    """Return the settings that leave nothing for a collective here, which NCCL before 2.24 passes over."""
    if collective in PAIRWISE or comm.generation == "cpu":
        return []
    reasons = allowed(comm, collective)
    open_ = [choice for choice, reason in reasons.items() if not reason]
    return [name for part, name, words in _forced(comm, collective) if not any(one[part] in words for one in open_)]


def candidates(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Candidates:
    """Return what NCCL chooses from, with the tuner's softened choice as weights that sum to one."""
    reasons = allowed(comm, collective)
    open_ = [choice for choice, reason in reasons.items() if not reason]
    tuner = {choice: tuner_times(comm, collective, choice, sizes) for choice in open_}
    times = {choice: route_times(comm, collective, choice, sizes, values) for choice in open_}
    logs = np.array([-SHARPNESS * np.log(tuner[choice]) for choice in open_])
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
    result: Floats = (on_gpu**OVERLAP + host**OVERLAP) ** (1 / OVERLAP) + call_time(comm, values)
    return result
