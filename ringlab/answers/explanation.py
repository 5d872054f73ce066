"""``Explanation``: what NCCL would pick for a scenario at each size, and why; its topology, rings and trees."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.costs.bounds import bus_factor
from collectives.declaration import nccl
from collectives.errors import InputError
from collectives.units import format_bandwidth
from ringlab.shared.answer import SCHEMA_VERSION, Record
from ringlab.shared.progress import Progress, computing
from scenarios import Scenario
from simcomm.nccl.channels import open_channels
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.communicator import Communicator, make_communicator
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.nccl.predict import COLLECTIVES, NcclPrediction
from simcomm.nccl.rings import TreeNode, double_tree, rank_rings, ring_orders
from simcomm.nccl.settings import VARIABLES
from simcomm.nccl.topology import find_path, hop_kind
from simcomm.time_models.choice import time_model

USUAL_SIZES = tuple(1024 * 8**power for power in range(8))  # 1 KiB to 2 GiB, for a scenario that asks for no sizes
LINKS = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh", "bridge": "NVLink bridges", "xgmi": "xGMI", "pcie": "PCIe"}
HOPS = {"p2p": "P2P", "p2p_far": "P2P", "shm": "SHM"}  # else NVLink, which is P2P too
LAYOUTS = {
    "switch": "all behind one PCIe switch",
    "switches": "behind several PCIe switches",
    "socket": "each on a port of one CPU",
    "two": "on two CPUs, without PCIe switches",
}
NETS = {
    "ib": "InfiniBand or RoCE",
    "tcp": "TCP sockets",
    "efa1": "EFA",
    "efa2": "EFA v2",
    "efa3": "EFA v3",
    "opa": "Omni-Path",
}


@dataclass(frozen=True)
class Option(Record):
    """An algorithm with a protocol that NCCL could take: seconds, those that its tuner reckons with, why not."""

    algorithm: str
    protocol: str
    is_chosen: bool
    time_s: float | None
    tuner_s: float | None
    reason: str


@dataclass(frozen=True)
class SizeExplained(Record):
    """What NCCL does at one size."""

    bytes: int
    algorithm: str
    protocol: str
    channels: int
    time_s: float
    interval_s: tuple[float, float]
    busbw_GBps: float  # noqa: N815  # the key of the JSON
    options: tuple[Option, ...]


@dataclass(frozen=True)
class ClusterExplained(Record):
    """What NCCL sees of a cluster and does on it."""

    title: str
    system: tuple[str, ...]  # lines
    paths: tuple[tuple[str, ...], ...]  # between GPUs of a host, as nvidia-smi topo -m and NCCL's transports say it
    channels: int
    ranks_per_node: int
    rings: tuple[tuple[int, ...], ...]
    trees: tuple[tuple[tuple[int, int | None], ...], ...]  # rank and parent
    sizes: tuple[SizeExplained, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Explanation(Record):
    """What ``explain`` found."""

    title: str
    collective: str
    clusters: tuple[ClusterExplained, ...]

    def __repr__(self) -> str:
        return f"<Explanation of {self.title!r}: {self.collective}, {len(self.clusters)} clusters>"

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        return {"schema_version": SCHEMA_VERSION, "kind": "explanation", **super().to_dict()}

    def draw(self, path: Path | str) -> None:
        """Draw the rings and trees of the scenario's own cluster, as .png, .svg or .pdf. Raise InputError."""
        from viz import Rings, draw_rings  # matplotlib is slow to import

        own = self.clusters[0]
        trees = [[(rank, parent) for rank, parent in tree if parent is not None] for tree in own.trees]
        draw_rings(Rings(own.title, own.ranks_per_node, own.rings, trees), path)


def explain(scenario: Scenario, progress: Progress | None = None) -> Explanation:
    """Return what NCCL would do on the scenario's clusters that it joins. Raise InputError where it joins none.

    >>> from scenarios import load
    >>> explain(load("two-p5")).clusters[0].sizes[-1].protocol
    'simple'
    """
    clusters = {scenario.cluster.title: scenario.cluster} | {one.title: one.cluster for one in scenario.what_ifs}
    joined = {title: one for title, one in clusters.items() if isinstance(one, NcclCluster)}
    if not joined:
        raise InputError(f'{scenario.path}: no cluster in it has transport = "nccl", so there is nothing to explain')
    collective = scenario.collective.name if scenario.collective else "all_reduce"
    if collective not in COLLECTIVES:
        raise InputError(f"{scenario.path}: NCCL has no {collective}; it has {', '.join(COLLECTIVES)}")
    sizes = scenario.collective.sizes if scenario.collective else USUAL_SIZES
    with computing(progress, f"choosing as NCCL does for {scenario.title}"):
        found = tuple(_explain(title, cluster, collective, sizes) for title, cluster in joined.items())
    return Explanation(scenario.title, collective, found)


def _explain(title: str, cluster: NcclCluster, collective: str, sizes: tuple[int, ...]) -> ClusterExplained:
    comm = make_communicator(cluster.system, cluster.settings)
    host, trees = comm.host, double_tree(comm.nodes, tuple(range(comm.local)))
    if len(ring_orders(host)[0]) == comm.local:
        trees = double_tree(comm.nodes, ring_orders(host)[0])
    return ClusterExplained(
        title=title,
        system=tuple(_lines(cluster, comm)),
        paths=tuple(tuple(_path(comm, a, b) for b in range(host.gpus)) for a in range(host.gpus)),
        channels=open_channels(comm),
        ranks_per_node=comm.local,
        rings=rank_rings(comm),
        trees=tuple(_parents(tree) for tree in trees),
        sizes=tuple(_explain_size(cluster, collective, nbytes) for nbytes in sizes),
        notes=time_model(cluster).grounds([nccl(collective)]),
    )


def _parents(tree: tuple[TreeNode, ...]) -> tuple[tuple[int, int | None], ...]:
    return tuple((node.rank, node.parent) for node in tree)


def _path(comm: Communicator, a: int, b: int) -> str:
    if a == b:
        return "X"
    path, kind = find_path(comm.host, a, b), hop_kind(comm.host, a, b)
    if path == "NV":
        return "XGMI" if kind == "xgmi" else path
    return f"{path} {HOPS.get(kind, 'P2P')}"


def _lines(cluster: NcclCluster, comm: Communicator) -> Iterator[str]:
    """Yield what NCCL sees of the system, a line a part."""
    system, host = cluster.system, comm.host
    hosts = f"{comm.hosts} hosts" if comm.hosts > 1 else "one host"
    yield f"{comm.ranks} ranks on {hosts}, {system.gpus} x {system.gpu.name} ({comm.generation}) each"
    rate = _gigabytes(host.nvlink) if host.link != "pcie" else ""
    pcie = f"PCIe {host.pcie}.0 x{host.lanes} ({_gigabytes(host.pcie_rate)} a direction)"
    if comm.local > system.gpus:
        yield f"NVLink domains of {comm.local} GPUs: {comm.nodes} for NCCL's rings and trees"
    if host.gpus > 1:
        inside = f"{LINKS[host.link]}, {rate} a GPU and direction" if rate else f"{pcie}, {LAYOUTS[host.layout]}"
        yield f"inside a host: {inside}"
    for hop in comm.hops:
        if hop.count and hop.kind in HOPS:
            what = "through host memory" if hop.kind == "shm" else "GPU to GPU"
            shared = f"{_gigabytes(hop.rate)} each when all are busy"
            yield f"  {hop.count} of a ring's hops: {what} ({HOPS[hop.kind]}), {shared}"
    if comm.network is not None:
        gdr = "GPUDirect RDMA" if comm.network.gdr else "through host memory (no GPUDirect RDMA)"
        kind = NETS.get(comm.network.kind, comm.network.kind)
        nics = f"{format_bandwidth(comm.network.nic * 1e9)} ({_gigabytes(comm.network.nic)})"
        yield f"between nodes: {kind}, {nics} of NICs a node and direction, {gdr}"
    yield f"NCCL {'.'.join(map(str, comm.version))}" + (
        f", one process for {comm.one_process} GPUs" if comm.one_process > 1 else ""
    )
    given = [
        (VARIABLES[key], value) for key, value in vars(comm.settings).items() if value is not None and key != "version"
    ]
    if given:
        yield "set: " + " ".join(f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in given)


def _gigabytes(rate: float) -> str:
    """Return GB/s, the unit of busbw."""
    return f"{round(rate, 1):g} GB/s"


def _explain_size(cluster: NcclCluster, collective: str, nbytes: int) -> SizeExplained:
    found = predict_calibrated(cluster.system, collective, nbytes, settings=cluster.settings)
    return SizeExplained(
        bytes=nbytes,
        algorithm=found.algorithm,
        protocol=found.protocol,
        channels=found.channels,
        time_s=found.seconds,
        interval_s=(found.low, found.high),
        busbw_GBps=nbytes / found.seconds / 1e9 * bus_factor(collective, cluster.world_size),
        options=tuple(_options(found)),
    )


def _options(found: NcclPrediction) -> Iterator[Option]:
    """Yield the candidates; of those that lose it says by how much the tuner finds them slower."""
    best = min((one.tuner_seconds for one in found.candidates if one.tuner_seconds), default=0.0)
    for one in found.candidates:
        chosen = (one.algorithm, one.protocol) == (found.algorithm, found.protocol)
        slower = (one.tuner_seconds or 0.0) / best if one.allowed and not chosen else 0.0
        reason = f"{slower:.2f} times the tuner's best" if slower else one.reason
        yield Option(one.algorithm, one.protocol, chosen, one.seconds, one.tuner_seconds, reason)


def find_better(size: SizeExplained) -> Option | None:
    """Return the candidate that our model finds more than 10 % faster than what NCCL picks, None without such a one."""
    timed = [option for option in size.options if option.time_s is not None]
    own = next((option.time_s for option in timed if option.is_chosen), None)
    best = min(timed, key=lambda option: option.time_s or 0.0, default=None)
    return best if own and best and best.time_s and best.time_s < own / 1.1 else None
