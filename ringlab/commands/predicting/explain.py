"""``ringlab explain``: show NCCL's choice at each size with its reasons, and NCCL's topology, rings and trees."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from collectives.costs.bounds import bus_factor
from collectives.declaration import nccl
from collectives.errors import InputError
from collectives.units import count, format_bandwidth, format_size
from ringlab.commands.predicting.explain_measured import explain_measured
from ringlab.session import load_scenario
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.options import JsonOpt, SetOpt, complete_scenario
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing
from ringlab.table import Line, Part, Table, format_interval, format_or_dash, format_ratio, time_unit
from scenarios import LoadedScenario
from simcomm.nccl.channels import open_channels
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.communicator import Communicator, make_communicator
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.nccl.predict import COLLECTIVES, NcclPrediction
from simcomm.nccl.rings import double_tree, rank_rings, ring_orders
from simcomm.nccl.settings import VARIABLES
from simcomm.performance_models.performance_model import performance_model

USUAL_SIZES = tuple(1024 * 8**power for power in range(8))  # 1 KiB to 2 GiB, for a scenario without [collective]
LINKS = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh", "bridge": "NVLink bridges", "xgmi": "xGMI", "pcie": "PCIe"}
HOPS = {"p2p": "P2P", "p2p_far": "P2P", "shm": "SHM"}  # hops over NVLink are P2P, too
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
DRAWN = 64  # ranks of a ring that are printed
LEGEND = (
    '"our time" only includes the GPUs. The time of NCCL\'s choice is a mean over the candidates, weighted by the '
    "tuner's times, plus the kernel launch and the measured offset of similar hosts."
)


def command(
    scenario: Annotated[
        str | None,
        Argument(
            metavar="SCENARIO",
            help="Scenario file, or name of a built-in scenario. Optional with --measured.",
            autocompletion=complete_scenario,
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        Option(
            "--measured",
            metavar="FILE",
            help="Compare the output of nccl-tests or rccl-tests with the prediction.",
        ),
    ] = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Explain which algorithm, protocol and channels NCCL would choose at each size, and why.

    With --measured, report whether the machine is as fast as predicted. Without a scenario, --set describes the
    measured machine: --set 'nic=100 GB/s'.
    """
    keys = set_keys or ()
    check_outputs(json_to)
    loaded = None if scenario is None else load_scenario(scenario, *keys)
    if measured is not None:
        answer: Answer = explain_measured(measured, loaded, () if loaded else keys)
    elif loaded is not None:
        answer = explain(loaded, TerminalProgress())
    else:
        raise InputError("nothing to explain; pass a scenario, or --measured FILE with the output of nccl-tests")
    deliver(answer, json_to)


@dataclass(frozen=True)
class OptionExplained(AnswerRecord):
    """An NCCL algorithm and protocol: the predicted seconds, the tuner's own estimate, and why it was not chosen."""

    algorithm: str
    protocol: str
    is_chosen: bool
    time_s: float | None
    tuner_s: float | None
    reason: str


@dataclass(frozen=True)
class SizeExplained(AnswerRecord):
    """NCCL's choice for a collective at one size, and the candidates among which NCCL chooses."""

    bytes: int
    algorithm: str
    protocol: str
    channels: int
    time_s: float
    interval_s: tuple[float, float]
    busbw_GBps: float  # noqa: N815  # the key of the JSON
    options: tuple[OptionExplained, ...]


@dataclass(frozen=True)
class ClusterExplained(AnswerRecord):
    """NCCL's topology, rings, trees and choices on a cluster."""

    title: str
    system: tuple[str, ...]  # lines of text
    channels: int
    ranks_per_node: int
    rings: tuple[tuple[int, ...], ...]
    trees: tuple[tuple[tuple[int, int | None], ...], ...]  # pairs of rank and parent
    sizes: tuple[SizeExplained, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """The result of ``ringlab explain``."""

    kind = "explanation"

    title: str
    collective: str
    clusters: tuple[ClusterExplained, ...]

    def show(self) -> Iterator[Part]:
        for cluster in self.clusters:
            yield Line(cluster.title, "bold")
            yield from (Line(f"  {line}", wrap=True) for line in cluster.system)
            yield from (Line(f"  {line}", wrap=True) for line in _ring_lines(cluster))
            yield ""
            unit, form = time_unit(size.time_s for size in cluster.sizes)
            rows = [
                [
                    format_size(size.bytes), size.algorithm, size.protocol,
                    str(size.channels) if size.options else "-",  # the model has no channels for messages between pairs
                    format_interval(size.time_s, size.interval_s, form), format_ratio(size.busbw_GBps),
                ]
                for size in cluster.sizes
            ]  # fmt: skip
            headings = ["size", "algorithm", "protocol", "channels", f"time\n({unit}, 80 %)", "busbw\n(GB/s)"]
            yield Table(f"{self.collective}: NCCL's choices", headings, rows, words=3)
            yield from (_candidates(size) for size in cluster.sizes if size.options)
            if any(size.options for size in cluster.sizes):
                yield Line(LEGEND, wrap=True)
            yield from (
                Line(line, wrap=True) for line in (*_closed(cluster), *(f"note: {note}" for note in cluster.notes))
            )


def explain(scenario: LoadedScenario, progress: Progress | None = None) -> Explanation:
    """Return NCCL's choices on all clusters of a scenario that have ``transport = "nccl"``.

    Raises InputError if no cluster has this transport, and for a collective that NCCL does not have.

    >>> from scenarios import load
    >>> explain(load("two-p5")).clusters[0].sizes[-1].protocol
    'simple'
    """
    clusters = {scenario.cluster.title: scenario.cluster} | {each.title: each.cluster for each in scenario.what_ifs}
    joined = {title: each for title, each in clusters.items() if isinstance(each, NcclCluster)}
    if not joined:
        raise InputError(f'{scenario.path}: explain requires a cluster with transport = "nccl"')
    collective = scenario.collective.name if scenario.collective else "all_reduce"
    if collective not in COLLECTIVES:
        raise InputError(f"{scenario.path}: NCCL does not have {collective}; it has {', '.join(COLLECTIVES)}")
    sizes = scenario.collective.sizes if scenario.collective else USUAL_SIZES
    with computing(progress, f"choosing as NCCL does for {scenario.title}"):
        explained = tuple(_explain(title, cluster, collective, sizes) for title, cluster in joined.items())
    return Explanation(scenario.title, collective, explained)


def _explain(title: str, cluster: NcclCluster, collective: str, sizes: tuple[int, ...]) -> ClusterExplained:
    comm = make_communicator(cluster.system, cluster.settings)
    order = ring_orders(comm.host)[0]
    trees = double_tree(comm.nodes, order if len(order) == comm.local else tuple(range(comm.local)))
    return ClusterExplained(
        title=title,
        system=tuple(_lines(cluster, comm)),
        channels=open_channels(comm),
        ranks_per_node=comm.local,
        rings=rank_rings(comm),
        trees=tuple(tuple((node.rank, node.parent) for node in tree) for tree in trees),
        sizes=tuple(_explain_size(cluster, collective, nbytes) for nbytes in sizes),
        notes=performance_model(cluster).caveats([nccl(collective)]),
    )


def _lines(cluster: NcclCluster, comm: Communicator) -> Iterator[str]:
    system, host = cluster.system, comm.host
    hosts = f"{comm.system.nodes} hosts" if comm.system.nodes > 1 else "one host"
    yield f"{comm.ranks} ranks on {hosts}, {system.gpus} x {system.gpu.name} ({comm.generation}) each"
    rate = _gigabytes(host.nvlink) if host.link != "pcie" else ""
    pcie = f"PCIe {host.pcie}.0 x{host.lanes} ({_gigabytes(host.pcie_rate)} per direction)"
    if comm.local > system.gpus:
        yield f"{comm.nodes} NVLink domains of {comm.local} GPUs each; NCCL treats each domain as one node"
    if host.gpus > 1:
        inside = f"{LINKS[host.link]}, {rate} per GPU and direction" if rate else f"{pcie}, {LAYOUTS[host.layout]}"
        yield f"inside a host: {inside}"
    for hop in comm.hops:
        if hop.count and hop.kind in HOPS:
            route = "through host memory" if hop.kind == "shm" else "GPU to GPU"
            shared = f"{_gigabytes(hop.rate)} each when all are busy"
            yield f"  {hop.count} hops of each ring: {route} ({HOPS[hop.kind]}), {shared}"
    if comm.network is not None:
        gdr = "GPUDirect RDMA" if comm.network.gdr else "through host memory (no GPUDirect RDMA)"
        kind = NETS.get(comm.network.kind, comm.network.kind)
        nics = f"{format_bandwidth(comm.network.nic * 1e9)} ({_gigabytes(comm.network.nic)})"
        yield f"between nodes: {kind}, {nics} per node and direction, {gdr}"
    yield f"NCCL {'.'.join(map(str, comm.version))}" + (
        f", one process for {comm.one_process} GPUs" if comm.one_process > 1 else ""
    )
    settings = [
        (VARIABLES[key], value) for key, value in vars(comm.settings).items() if value is not None and key != "version"
    ]
    if settings:
        yield "set: " + " ".join(
            f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in settings
        )


def _gigabytes(rate: float) -> str:
    return f"{round(rate, 1):g} GB/s"


def _explain_size(cluster: NcclCluster, collective: str, nbytes: int) -> SizeExplained:
    prediction = predict_calibrated(cluster.system, collective, nbytes, settings=cluster.settings)
    return SizeExplained(
        bytes=nbytes,
        algorithm=prediction.algorithm,
        protocol=prediction.protocol,
        channels=prediction.channels,
        time_s=prediction.seconds,
        interval_s=(prediction.low, prediction.high),
        busbw_GBps=nbytes / prediction.seconds / 1e9 * bus_factor(collective, cluster.world_size),
        options=tuple(_options(prediction)),
    )


def _options(prediction: NcclPrediction) -> Iterator[OptionExplained]:
    best = min((each.tuner_seconds for each in prediction.candidates if each.tuner_seconds), default=0.0)
    for each in prediction.candidates:
        chosen = (each.algorithm, each.protocol) == (prediction.algorithm, prediction.protocol)
        slower = (each.tuner_seconds or 0.0) / best if each.allowed and not chosen else 0.0
        reason = f"{slower:.2f} times the tuner's best" if slower else each.reason
        yield OptionExplained(each.algorithm, each.protocol, chosen, each.seconds, each.tuner_seconds, reason)


def _ring_lines(cluster: ClusterExplained) -> list[str]:
    lines = [f"{count(cluster.channels, 'channel')} over these rings (> inside, ==> between nodes); trees: --json:"]
    for number, ring in enumerate(cluster.rings):
        shown = ring[:DRAWN]
        nodes = [list(ranks) for _, ranks in groupby(shown, key=lambda rank: rank // cluster.ranks_per_node)]
        text = " ==> ".join(" > ".join(map(str, ranks)) for ranks in nodes)
        more = f" > ... {len(ring) - len(shown)} more" if len(shown) < len(ring) else ""
        lines.append(f"ring {number}: {text}{more}{' ==> ' if len(nodes) > 1 else ' > '}{ring[0]}")
    return lines


def _candidates(size: SizeExplained) -> Table:
    candidates = [candidate for candidate in size.options if candidate.tuner_s is not None]
    unit, form = time_unit(seconds for candidate in candidates for seconds in (candidate.tuner_s, candidate.time_s))
    rows = []
    for candidate in candidates:
        times = [format_or_dash(value, form) for value in (candidate.tuner_s, candidate.time_s)]
        rows.append([">" * candidate.is_chosen, candidate.algorithm, candidate.protocol, *times, candidate.reason])
    headings = ["", "algorithm", "protocol", f"tuner's time\n({unit})", f"our time\n({unit})", "why"]
    return Table(f"Candidates at {format_size(size.bytes)}", headings, rows, words=3)


def _closed(cluster: ClusterExplained) -> Iterator[str]:
    """Yield a line per reason why NCCL cannot use an algorithm and protocol. The reasons are the same at all sizes."""
    by_reason: dict[str, list[str]] = {}
    for candidate in cluster.sizes[0].options:
        if candidate.tuner_s is None:
            by_reason.setdefault(candidate.reason, []).append(f"{candidate.algorithm}/{candidate.protocol}")
    yield from (f"not {', '.join(names)}: {reason}" for reason, names in by_reason.items())
