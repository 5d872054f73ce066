"""``ringlab explain``: what NCCL would pick for a scenario at each size, and why; its topology, rings and trees."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import viz
from collectives.costs.bounds import bus_factor
from collectives.declaration import nccl
from collectives.errors import InputError
from collectives.units import count, format_bandwidth, format_size, format_time
from ringlab.commands.predicting.explain_measured import explain_measured
from ringlab.session import load_scenario
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.options import JsonOpt, complete_scenario, drawing
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing, draw_to
from ringlab.table import Line, Part, Table, format_or_dash, format_ratio, time_unit
from scenarios import LoadedScenario
from simcomm.nccl.channels import open_channels
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.communicator import Communicator, make_communicator
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.nccl.predict import COLLECTIVES, NcclPrediction
from simcomm.nccl.rings import double_tree, rank_rings, ring_orders
from simcomm.nccl.settings import VARIABLES
from simcomm.nccl.topology import find_path, hop_kind
from simcomm.performance_models.performance_model import performance_model

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
DRAWN = 64  # ranks of a ring that are written out
LEGEND = (
    '"our time" is a candidate\'s on the GPUs alone; the time of what NCCL picks is a mean over the candidates, by how '
    "near the tuner has them, with the launch and what was measured on such hosts"
)
WORDS = {  # of nvidia-smi topo -m, and of NCCL's log
    "NV": "NVLink",
    "XGMI": "xGMI",  # of rocm-smi --showtopo
    "PIX": "behind one PCIe switch",
    "PHB": "on ports of one CPU",
    "SYS": "on two CPUs",
    "P2P": "one GPU writes into the other's memory",
    "SHM": "through host memory",
}


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
    output: Annotated[
        Path | None, drawing("a still picture", "Draw the rings and trees, as .png, .svg or .pdf.", "-o", "--output")
    ] = None,
    json_to: JsonOpt = None,
    set_keys: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of the scenario, or else of the measured machine, such as 'nic=100 GB/s'. Repeatable.",
        ),
    ] = None,
) -> None:
    """Explain which algorithm, protocol and channels NCCL would choose at each size, and why.

    With --measured, tell whether measured times are as expected.
    """
    keys = set_keys or ()
    check_outputs(json_to, output)
    if measured is not None:
        if output is not None:
            raise InputError("-o draws the rings of a scenario; remove it or --measured")
        loaded = None if scenario is None else load_scenario(scenario, *keys)
        deliver(explain_measured(measured, loaded, () if loaded else keys), json_to)
        return
    if scenario is None:
        raise InputError("nothing to explain; pass a scenario, or --measured FILE with the output of nccl-tests")
    loaded = load_scenario(scenario, *keys)
    answer = explain(loaded, TerminalProgress())
    deliver(answer, json_to, draw_to(answer, output, json_to))


@dataclass(frozen=True)
class OptionExplained(AnswerRecord):
    """An algorithm with a protocol that NCCL could take: seconds, those that its tuner reckons with, why not."""

    algorithm: str
    protocol: str
    is_chosen: bool
    time_s: float | None
    tuner_s: float | None
    reason: str


@dataclass(frozen=True)
class SizeExplained(AnswerRecord):
    """What NCCL does at one size."""

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
class Explanation(Answer):
    """What ``explain`` found."""

    kind = "explanation"

    title: str
    collective: str
    clusters: tuple[ClusterExplained, ...]

    def draw(self, path: Path | str) -> None:
        """Draw the rings and trees of the scenario's own cluster, as .png, .svg or .pdf. Raise InputError."""
        own = self.clusters[0]
        trees = [[(rank, parent) for rank, parent in tree if parent is not None] for tree in own.trees]
        viz.write_figure(viz.rings_figure(viz.Rings(own.title, own.ranks_per_node, own.rings, trees)), path)

    def show(self) -> Iterator[Part]:
        """Yield of each cluster what NCCL sees, its rings and trees, its choice at each size, and all candidates."""
        for cluster in self.clusters:
            yield Line(cluster.title, "bold")
            yield from (f"  {line}" for line in cluster.system)
            yield from _paths(cluster)
            yield from (f"  {line}" for line in _ring_lines(cluster))
            if self.collective == "all_reduce":  # the only one that NCCL has trees for
                yield from (f"  {line}" for line in _tree_lines(cluster))
            yield ""
            yield _choices(self.collective, cluster)
            yield from (_candidates(size) for size in cluster.sizes if size.options)
            if any(size.options for size in cluster.sizes):
                yield f"  {LEGEND}"
            yield from (f"  {line}" for line in (*_closed(cluster), *_better(cluster)))
            yield from (f"  note: {note}" for note in cluster.notes)


def explain(scenario: LoadedScenario, progress: Progress | None = None) -> Explanation:
    """Return what NCCL would do on the scenario's clusters that it joins. Raise InputError where it joins none.

    >>> from scenarios import load
    >>> explain(load("two-p5")).clusters[0].sizes[-1].protocol
    'simple'
    """
    clusters = {scenario.cluster.title: scenario.cluster} | {one.title: one.cluster for one in scenario.what_ifs}
    joined = {title: one for title, one in clusters.items() if isinstance(one, NcclCluster)}
    if not joined:
        raise InputError(f'{scenario.path}: no cluster has transport = "nccl", so there is nothing to explain')
    collective = scenario.collective.name if scenario.collective else "all_reduce"
    if collective not in COLLECTIVES:
        raise InputError(f"{scenario.path}: NCCL does not have {collective}; it has {', '.join(COLLECTIVES)}")
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
        trees=tuple(tuple((node.rank, node.parent) for node in tree) for tree in trees),
        sizes=tuple(_explain_size(cluster, collective, nbytes) for nbytes in sizes),
        notes=performance_model(cluster).caveats([nccl(collective)]),
    )


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
    hosts = f"{comm.system.nodes} hosts" if comm.system.nodes > 1 else "one host"
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


def _options(found: NcclPrediction) -> Iterator[OptionExplained]:
    """Yield the candidates; of those that lose it says by how much the tuner finds them slower."""
    best = min((one.tuner_seconds for one in found.candidates if one.tuner_seconds), default=0.0)
    for one in found.candidates:
        chosen = (one.algorithm, one.protocol) == (found.algorithm, found.protocol)
        slower = (one.tuner_seconds or 0.0) / best if one.allowed and not chosen else 0.0
        reason = f"{slower:.2f} times the tuner's best" if slower else one.reason
        yield OptionExplained(one.algorithm, one.protocol, chosen, one.seconds, one.tuner_seconds, reason)


def _paths(cluster: ClusterExplained) -> Iterator[Part]:
    """Yield how the GPUs of a host talk, each pair where not all talk alike, with the words in plain English."""
    kinds = sorted({path for row in cluster.paths for path in row if path != "X"})
    # of more GPUs a table of paths is too wide
    if len(kinds) > 1 and len(cluster.paths) <= 8:
        names = [f"GPU{number}" for number in range(len(cluster.paths))]
        rows = [[name, *row] for name, row in zip(names, cluster.paths, strict=True)]
        yield Table("Paths inside a host", ["", *names], rows, words=len(names) + 1)
        words = dict.fromkeys(word for kind in kinds for word in kind.split())
        yield f"  {'; '.join(f'{word}: {WORDS[word]}' for word in words)}"
    elif kinds:
        said = [", ".join(f"{WORDS[word]} ({word})" for word in kind.split()) for kind in kinds]
        yield f"  every two GPUs of a host: {', or '.join(said)}"


def _ring_lines(cluster: ClusterExplained) -> list[str]:
    """Return the rings as NCCL's log has them, with a bar between nodes."""
    lines = [f"{count(cluster.channels, 'channel')} over these rings and trees in turn (> inside, ==> between nodes):"]
    for number, ring in enumerate(cluster.rings):
        shown = ring[:DRAWN]
        nodes = [list(ranks) for _, ranks in groupby(shown, key=lambda rank: rank // cluster.ranks_per_node)]
        text = " ==> ".join(" > ".join(map(str, ranks)) for ranks in nodes)
        more = f" > ... {len(ring) - len(shown)} more" if len(shown) < len(ring) else ""
        lines.append(f"ring {number}: {text}{more}{' ==> ' if len(nodes) > 1 else ' > '}{ring[0]}")
    return lines


def _tree_lines(cluster: ClusterExplained) -> list[str]:
    """Return the trees, indented by depth, with a line for each chain of ranks that have one child each."""
    lines = []
    for number, tree in enumerate(cluster.trees):
        children: dict[int | None, list[int]] = {}
        for rank, parent in tree:
            children.setdefault(parent, []).append(rank)
        near = _nearest_ranks(children, DRAWN)
        drawn = {parent: [rank for rank in ranks if rank in near] for parent, ranks in children.items()}
        lines.append(f"tree {number}, a < b where b sends its sum to a:")
        lines += [f"  {line}" for root in drawn[None] for line in _draw_tree(root, drawn, "")]
        lines += [f"  ... {len(tree) - len(near)} more"] if len(near) < len(tree) else []
    return lines


def _nearest_ranks(children: dict[int | None, list[int]], most: int) -> set[int]:
    """Return the ranks nearest to the roots, at most so many."""
    order = list(children[None])
    for rank in order:
        if len(order) >= most:
            break
        order += children.get(rank, [])
    return set(order[:most])


def _draw_tree(root: int, children: dict[int | None, list[int]], indent: str) -> list[str]:
    chain = [root]
    while len(below := children.get(chain[-1], [])) == 1:
        chain.append(below[0])
    lines = [f"{indent}{' < '.join(map(str, chain))}"]
    for child in children.get(chain[-1], []):
        lines += _draw_tree(child, children, f"{indent}    ")
    return lines


def _choices(collective: str, cluster: ClusterExplained) -> Table:
    unit, form = time_unit(size.time_s for size in cluster.sizes)
    units = [f"time\n({unit})", f"80 % interval\n({unit})", "busbw\n(GB/s)"]
    rows = [
        [
            format_size(size.bytes), size.algorithm, size.protocol,
            str(size.channels) if size.options else "-",  # of messages between pairs the model knows none
            form(size.time_s), " to ".join(map(form, size.interval_s)), format_ratio(size.busbw_GBps),
        ]
        for size in cluster.sizes
    ]  # fmt: skip
    headings = ["size", "algorithm", "protocol", "channels", *units]
    return Table(f"{collective}: what NCCL picks", headings, rows, words=3)


def _candidates(size: SizeExplained) -> Table:
    candidates = [one for one in size.options if one.tuner_s is not None]
    unit, form = time_unit(seconds for one in candidates for seconds in (one.tuner_s, one.time_s))
    rows = []
    for one in candidates:
        times = [format_or_dash(value, form) for value in (one.tuner_s, one.time_s)]
        rows.append([">" * one.is_chosen, one.algorithm, one.protocol, *times, one.reason])
    headings = ["", "algorithm", "protocol", f"tuner's time\n({unit})", f"our time\n({unit})", "why"]
    return Table(f"Candidates at {format_size(size.bytes)}", headings, rows, words=3)


def _closed(cluster: ClusterExplained) -> Iterator[str]:
    """Yield the candidates that NCCL cannot take here, by reason: it is the same at all sizes."""
    by_reason: dict[str, list[str]] = {}
    for one in cluster.sizes[0].options:
        if one.tuner_s is None:
            by_reason.setdefault(one.reason, []).append(f"{one.algorithm}/{one.protocol}")
    yield from (f"not {', '.join(names)}: {reason}" for reason, names in by_reason.items())


def _better(cluster: ClusterExplained) -> Iterator[str]:
    """Yield of each size what our model finds more than 10 % faster than what NCCL picks."""
    for size in cluster.sizes:
        timed = [(one.time_s, one) for one in size.options if one.time_s]
        own = next((seconds for seconds, one in timed if one.is_chosen), 0.0)
        seconds, best = min(timed, key=lambda item: item[0], default=(own, None))
        if best is not None and seconds < own / 1.1:
            yield (
                f"at {format_size(size.bytes)} our model finds {best.algorithm}/{best.protocol} faster than the "
                f"tuner's {size.algorithm}/{size.protocol}: {format_time(seconds)}"
            )
