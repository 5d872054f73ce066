"""Derive the keys of a system description from facts in files.

Each key has the line that states its value or, for a derived value, an explanation.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectives.errors import InputError
from collectives.quoting import quote
from simcomm.cluster.hardware import find_link
from simcomm.nccl.catalogue import Gpu, match_gpu, nvlink_of, usual_nic
from simcomm.nccl.descriptions import System, describe_system
from simcomm.nccl.machine_files.facts import (
    Adapter,
    CommRank,
    Facts,
    GpuSeen,
    GpuSlot,
    LibraryVersion,
    LoggedHop,
    MeasuredRun,
    NetworkUsed,
    NvLinks,
    PathMatrix,
    Processor,
    VariableSet,
)
from simcomm.nccl.pasted import FilePlace

NEAR = ("PIX", "PXB")  # over PCIe switches only
EFA = {"volta": "efa1", "turing": "efa1", "ampere": "efa1", "hopper": "efa2", "blackwell": "efa3"}
NETWORKS = (  # a network's or plug-in's name in logs, and the description's
    ("Libfabric", "efa"),
    ("OFI efa", "efa"),
    ("OFI cxi", "slingshot"),
    ("FasTrak", "fastrak"),
    ("TCPX", "fastrak"),
    ("IB", "ib"),
    ("RoCE", "ib"),
    ("Socket", "tcp"),
)
RDMA_NICS = ("mlx", "rocep", "ibp", "bnxt", "irdma", "rdma")


@dataclass(frozen=True)
class KeyValue:
    """The value of a key in a system description. ``place`` is the line that states it, or None for other sources.

    ``why`` explains a value without a line: set by the user, or derived.
    """

    value: Any
    place: FilePlace | None
    why: str = ""


@dataclass(frozen=True)
class DescribedMachine:
    """The keys of a system description that a machine's files determine.

    ``keys`` describe the hardware and software. ``seen`` records whether logged connections used P2P (``p2p``) and
    GPUDirect (``gdr``).
    """

    keys: Mapping[str, KeyValue]
    seen: Mapping[str, KeyValue] = field(default_factory=dict)
    missing: str = ""  # why it cannot be predicted; "": it can

    def system(self, **changes: Any) -> System:
        """Return the system with some keys changed. Raise InputError if a key is missing or invalid."""
        return describe_system("the machine", {key: known.value for key, known in self.keys.items()} | changes)


def describe_machine(facts: Facts, user_keys: Mapping[str, Any] | None = None) -> DescribedMachine:
    """Return the machine that the facts describe. ``user_keys`` take priority over the facts.

    The keys describe working hardware. ``seen`` records separately whether P2P and GPUDirect were used.
    """
    keys = {key: KeyValue(value, None, "set by you") for key, value in (user_keys or {}).items()}
    gpu = _find_gpu(facts) if "gpu" not in keys and "machine" not in keys else None
    if gpu is not None:
        keys["gpu"] = gpu
    if (counted := _count(facts)) is not None:
        nodes, gpus, place = counted
        keys = {"nodes": KeyValue(nodes, place), "gpus": KeyValue(gpus, place), **keys}
    known = _gpu_of(keys)
    for find in (_links, _slots, _network, _software):
        keys = {**dict(find(facts, known, keys)), **keys}
    return DescribedMachine(keys, dict(_seen(facts)), _missing(keys, _named_gpus(facts)))


def _missing(keys: Mapping[str, KeyValue], named: Sequence[tuple[str, FilePlace]]) -> str:
    if "machine" not in keys and "gpu" not in keys:
        problem = f"the GPU {quote(named[0][0])} is not in the catalog" if named else "no file names the GPU"
        return f"{problem}; pass for example --set 'gpu=A100 SXM'"
    if "nodes" not in keys or "gpus" not in keys:
        return "the number of GPUs and hosts is unknown; pass for example --set nodes=1 --set gpus=8"
    if keys["nodes"].value > 1 and "machine" not in keys and not {"net", "nic"} <= keys.keys():
        return "the hosts' network is unknown; pass for example --set net=ib --set 'nic=800 Gbit/s' (of a host)"
    try:
        describe_system("the machine", {key: entry.value for key, entry in keys.items()})
    except InputError as error:
        return str(error)
    return ""


def _gpu_of(keys: Mapping[str, KeyValue]) -> Gpu | None:
    line = {key: entry.value for key, entry in keys.items() if key in ("gpu", "machine")}
    try:
        return describe_system("the machine", {"nodes": 1, "gpus": 1, "net": "ib", "nic": 1.0, **line}).gpu
    except InputError:
        return None


def _named_gpus(facts: Facts) -> list[tuple[str, FilePlace]]:
    named = [(table.run.gpu_name, table.place) for table in facts.of(MeasuredRun) if table.run.gpu_name]
    return named + [(board.name, board.place) for board in facts.of(GpuSeen)]


def _find_gpu(facts: Facts) -> KeyValue | None:
    for name, place in _named_gpus(facts):
        gpu = match_gpu(name.replace("[", " ").replace("]", " "))
        if gpu is not None:
            return KeyValue(gpu.name, place)
    return None


def _count(facts: Facts) -> tuple[int, int, FilePlace] | None:
    """Return the number of hosts, the GPUs per host, and the line that states them."""
    tables = sorted((table for table in facts.of(MeasuredRun) if table.run.gpus), key=lambda table: table.run.ranks)
    if tables:
        return tables[-1].run.hosts, tables[-1].run.gpus, tables[-1].place
    if facts.of(CommRank):
        return _count_of_communicator(facts)
    for matrix in facts.of(PathMatrix):
        return 1, len(matrix.gpus), matrix.place
    slots = {slot.bus: slot.place for slot in facts.of(GpuSlot)}
    gpus = {board.index: board.place for board in facts.of(GpuSeen)}
    places = max(list(slots.values()), list(gpus.values()), key=len)
    return (1, len(places), places[0]) if places else None


def _count_of_communicator(facts: Facts) -> tuple[int, int, FilePlace] | None:
    """Return the hosts, GPUs per host and log line of the largest communicator; None if a host's log is missing."""
    comms = facts.of(CommRank)
    widest = max(comms, key=lambda comm: (comm.ranks, comm.nodes))
    hosts = {comm.rank: comm.host for comm in comms if comm.ranks == widest.ranks}
    is_apart = any(hop.transport == "NET" for hop in facts.of(LoggedHop)) and len(set(hosts.values())) == 1
    if not widest.nodes and len(hosts) < widest.ranks and is_apart:
        return None
    nodes = widest.nodes or max(1, len(set(hosts.values())))
    gpus = widest.ranks // nodes if widest.ranks % nodes == 0 else max(Counter(hosts.values()).values())
    return nodes, gpus, widest.place


def _links(facts: Facts, gpu: Gpu | None, keys: Mapping[str, KeyValue]) -> Iterator[tuple[str, KeyValue]]:
    for matrix in facts.of(PathMatrix):
        paths = matrix.among_gpus()
        if not paths:
            continue
        joined = [path for path in paths if path.startswith("NV")]
        kind = _kind_of_link(paths, joined, gpu)
        yield "link", KeyValue(kind, matrix.place)
        if joined and kind in ("nvswitch", "bridge") and gpu is not None:
            rate = max(int(path[2:]) for path in joined) * find_link(nvlink_of(gpu.generation)).bandwidth / 1e9
            if rate < 0.98 * gpu.nvlink:
                yield "nvlink", KeyValue(rate, matrix.place)
        others = [path for path in paths if not path.startswith("NV")]
        if kind in ("pcie", "bridge") and others:
            yield "layout", KeyValue(_layout(others), matrix.place)
        return
    for links in facts.of(NvLinks):
        if links.to_switch:
            yield "link", KeyValue("nvswitch", links.place)
            return


def _kind_of_link(paths: list[str], joined: list[str], gpu: Gpu | None) -> str:
    if "XGMI" in paths:
        return "xgmi"
    if not joined:
        return "pcie"
    if gpu is not None and gpu.usual_link in ("mesh", "nvswitch") and len(joined) >= len(paths) / 2:
        return gpu.usual_link
    return "nvswitch" if len(joined) == len(paths) > 1 and len(set(joined)) == 1 else "bridge"


def _layout(paths: list[str]) -> str:
    """Return the PCIe layout that follows from the paths between GPUs that have no NVLink.

    >>> _layout(["PIX", "SYS"]), _layout(["PHB", "NODE"]), _layout(["SYS", "NODE"])
    ('switches', 'socket', 'two')
    """
    if all(path in NEAR for path in paths):
        return "switch"
    if any(path in NEAR for path in paths):
        return "switches"
    return "two" if "SYS" in paths else "socket"


def _slots(facts: Facts, gpu: Gpu | None, keys: Mapping[str, KeyValue]) -> Iterator[tuple[str, KeyValue]]:
    slots = facts.of(GpuSlot)
    widest = max(slots, key=lambda slot: slot.generation, default=None)
    if widest is not None and gpu is not None and 0 < widest.generation < gpu.pcie:
        yield "pcie", KeyValue(widest.generation, widest.place)
    widest = max((slot for slot in slots if slot.lanes in (1, 2, 4, 8, 16)), key=lambda slot: slot.lanes, default=None)
    if widest is not None and widest.lanes != 16:
        yield "lanes", KeyValue(widest.lanes, widest.place)
    for processor in facts.of(Processor)[:1]:
        yield "cpu", KeyValue(processor.vendor, processor.place)


def _name_of_network(name: str, gpu: Gpu | None) -> str | None:
    for part, kind in NETWORKS:
        if part.lower() in name.lower():
            generation = gpu.generation if gpu is not None else "ampere"
            return EFA.get(generation, "efa1") if kind == "efa" else kind
    return None


def _network(facts: Facts, gpu: Gpu | None, keys: Mapping[str, KeyValue]) -> Iterator[tuple[str, KeyValue]]:
    used = [(_name_of_network(network.name, gpu), network.place) for network in facts.of(NetworkUsed)]
    used += [(_name_of_network(hop.detail, gpu), hop.place) for hop in facts.of(LoggedHop) if hop.transport == "NET"]
    named = next(((name, place) for name, place in used if name not in (None, "tcp")), None)
    has_rdma = _rdma_evidence(facts)
    if named is None and has_rdma is not None:
        named = "ib", has_rdma
    if named is None and used and used[0][0] == "tcp":
        named = "tcp", used[0][1]
    if named is not None:
        yield "net", KeyValue(*named)
    network = keys["net"].value if "net" in keys else named[0] if named else None
    yield from _nics(facts, gpu, keys, network)


def _rdma_evidence(facts: Facts) -> FilePlace | None:
    listed = [
        adapter.place
        for adapter in facts.of(Adapter)
        if adapter.kind in ("IB", "RoCE", "gdr") or adapter.name.startswith(RDMA_NICS)
    ]
    variables = [
        variable.place
        for variable in facts.of(VariableSet)
        if variable.name == "NCCL_IB_HCA" and "mlx" in variable.value
    ]
    nics = [matrix.place for matrix in facts.of(PathMatrix) if any(nic.startswith(RDMA_NICS) for nic in matrix.nics)]
    return next(iter([*listed, *variables, *nics]), None)


def _nics(
    facts: Facts, gpu: Gpu | None, keys: Mapping[str, KeyValue], network: str | None
) -> Iterator[tuple[str, KeyValue]]:
    if "nic" in keys:
        return
    gpus = keys["gpus"].value if "gpus" in keys else 8
    rates = {adapter.name: adapter for adapter in facts.of(Adapter) if adapter.gbit}
    if rates:
        total = (sum if gpus > 1 else max)(adapter.gbit / 8 for adapter in rates.values())
        if total > 0:
            yield "nic", KeyValue(round(total, 3), next(iter(rates.values())).place)
        return
    if network in (None, "tcp") or gpu is None:
        return
    listed = {adapter.name: adapter for adapter in facts.of(Adapter) if adapter.kind in ("IB", "RoCE")}
    matrices = [matrix for matrix in facts.of(PathMatrix) if matrix.nics]
    count = len(listed) or (len(matrices[0].nics) if matrices else gpus)
    rate = usual_nic(network, gpu.generation) * (min(count, 8) if gpus > 1 else 1)
    nics = count if gpus > 1 else 1
    yield "nic", KeyValue(rate, None, f"guess: {nics} NICs, as usual with {gpu.name}")
    yield "nic_guess", KeyValue(True, None, "the rate of the NICs is a guess")


def _software(facts: Facts, gpu: Gpu | None, keys: Mapping[str, KeyValue]) -> Iterator[tuple[str, KeyValue]]:
    versions = [(library.version, library.place) for library in facts.of(LibraryVersion)]
    versions += [(table.run.version, table.place) for table in facts.of(MeasuredRun) if table.run.version]
    for version, place in versions[:1]:
        yield "nccl", KeyValue(f"{version[0]}.{version[1]}", place)
    counted = [table for table in facts.of(MeasuredRun) if table.run.gpus]
    for table in sorted(counted, key=lambda table: -table.run.ranks)[:1]:
        yield "procs", KeyValue(table.run.procs, table.place)


def _seen(facts: Facts) -> Iterator[tuple[str, KeyValue]]:
    inside = [hop for hop in facts.of(LoggedHop) if hop.transport in ("P2P", "SHM")]
    shared = [hop for hop in inside if hop.transport == "SHM"]
    if inside:
        yield "p2p", KeyValue(not shared, (shared or inside)[0].place)
    between = [hop for hop in facts.of(LoggedHop) if hop.transport == "NET" and "Socket" not in hop.detail]
    without = [hop for hop in between if not hop.is_gdr]
    if between:
        yield "gdr", KeyValue(not without, (without or between)[0].place)
