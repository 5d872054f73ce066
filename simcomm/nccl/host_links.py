"""What traffic of a training step gets of a host's links beside other traffic.

*Traffic* keeps links busy for a while: a collective of all groups of a mesh, the copies of a batch to all GPUs. Alone
it has the rate of its slowest flow, as those of a collective wait for each other. Beside other traffic each flow gets
its max-min fair share (``simcomm/model/sharing.py``), and never more than its traffic has alone; what is left of that
rate, as a share of it, is the traffic's *pace*.

Links are those of PCIe, by the switches of the machine in the hardware catalogue or of the description; the NVLinks of
each GPU, all together; and a host's NICs, all together. Bytes for a NIC go through host memory only without GPUDirect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import NamedTuple

import networkx as nx

from simcomm.cluster.graph import Link, LinkSpec, empty_graph
from simcomm.cluster.hardware import find_machine, machine_entries
from simcomm.cluster.machines import Machine, add_machine
from simcomm.model.sharing import fair
from simcomm.nccl.catalogue import usable_share
from simcomm.nccl.communicator import make_host
from simcomm.nccl.descriptions import System
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.topology import GpuHost, hop_kind, pcie_graph

Groups = tuple[tuple[int, ...], ...]  # GPUs of a host by their numbers, a tuple for each group
Route = tuple[Link, ...]
NVLINK = "nvlink"  # the node on the other side of a GPU's NVLinks
NICS = "nics"  # likewise of all NICs
FULL = 1 - 1e-9  # of a pace: nothing is lost


class TrafficFlows(NamedTuple):
    """The flows of traffic, which go on at one pace; ``name`` says in words for people what they are.

    ``most`` are the GB/s of each that software reaches, whatever the links offer.
    """

    name: str
    routes: tuple[Route, ...]
    most: float = inf


class SharedLink(NamedTuple):
    """A link on which flows hold each other back: its name, GB/s, and what flows there in words."""

    name: str
    bandwidth: float
    flows: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {' and '.join(self.flows)} share {self.bandwidth:.3g} GB/s"


@dataclass
class _Flow:
    links: Route
    arrival: tuple[float, tuple[int, ...]]
    rate: float = 0.0


@dataclass(frozen=True)
class HostLinks:
    """The links of one host of a described system."""

    system: System
    settings: NcclSettings

    @cached_property
    def host(self) -> GpuHost:
        """The host as NCCL sees it."""
        return make_host(self.system, self.settings)

    @cached_property
    def _machine(self) -> Machine | None:
        """The machine of the hardware catalogue, without what is no PCIe; None for a host that is described."""
        if self.system.preset not in machine_entries():
            return None
        whole = find_machine(str(self.system.preset))
        gpus, sockets, switches = (n // whole.boards for n in (whole.gpus, whole.sockets, whole.pcie_switches))
        return replace(whole, gpus=gpus, sockets=sockets, pcie_switches=switches, boards=1, nvlinks=None, nics=0,
                       socket=LinkSpec())  # fmt: skip

    @cached_property
    def _graph(self) -> "nx.DiGraph[str]":
        """The PCIe links; GB/s of payload."""
        machine = self._machine
        if machine is None or machine.pcie is None:
            return pcie_graph(self.host)
        graph = empty_graph()
        add_machine(graph, 0, machine)
        for _, _, data in graph.edges(data=True):
            data["bandwidth"] /= 1e9
        return graph

    @cached_property
    def capacities(self) -> dict[Link, float]:
        """GB/s that software gets of each link."""
        usable = usable_share(f"PCIe {self.system.pcie}.0")
        found = {(a, b): data["bandwidth"] * usable for a, b, data in self._graph.edges(data=True)}
        for gpu in map(self._gpu, range(self.system.gpus)):
            found[gpu, NVLINK] = found[NVLINK, gpu] = self.host.nvlink or inf
        found["host", NICS] = found[NICS, "host"] = self.system.nic or inf
        return found

    def _gpu(self, number: int) -> str:
        """Return the node of a GPU in use: where some of a machine's are, they are spread over its switches."""
        whole = self._machine.gpus if self._machine is not None else self.system.gpus
        return f"n0.gpu{number * max(whole, self.system.gpus) // self.system.gpus}"

    def _memory(self, gpu: str) -> str:
        """Return the host memory that is next to a GPU."""
        near: dict[str, int] = nx.single_source_shortest_path_length(self._graph, gpu)
        return min((node for node in near if ".memory" in node), key=lambda node: (near[node], node))

    def _path(self, *stops: str) -> Route:
        legs = (nx.shortest_path(self._graph, *leg) for leg in pairwise(stops))
        return tuple(dict.fromkeys(edge for path in legs for edge in pairwise(path)))

    def _hop(self, a: int, b: int) -> Route:
        """Return the links of a hop between two GPUs of the host."""
        start, end = self._gpu(a), self._gpu(b)
        kind = hop_kind(self.host, a, b) if self.host.link in ("pcie", "bridge") else self.host.link
        if kind == "shm":
            return self._path(start, self._memory(end), end)
        if kind.startswith("p2p"):
            return self._path(start, end)
        return (start, NVLINK), (NVLINK, end)

    def _out(self, gpu: int, *, is_nvlink: bool) -> Route:
        """Return the links from a GPU of the host to other hosts; the way back is the same, against them."""
        node = self._gpu(gpu)
        if is_nvlink:
            return ((node, NVLINK),)
        to_memory = () if self.system.gdr else self._path(node, self._memory(node))
        return (*to_memory, ("host", NICS))

    def _is_domain(self, ranks: int) -> bool:
        """Return whether NVLink joins so many GPUs of several hosts."""
        return self.host.link == "nvswitch" and self.system.domain > self.system.gpus and ranks <= self.system.domain

    def rings(self, name: str, groups: Groups, *, ranks: int = 0) -> TrafficFlows:
        """Return the collectives of all groups, of so many ``ranks`` each where others are on other hosts.

        A ring then enters and leaves the host, over NVLink as far as that joins hosts, else over NICs.
        """
        leaves, is_nvlink = bool(groups) and ranks > len(groups[0]), self._is_domain(ranks)
        routes: list[Route] = []
        for group in groups:
            routes += [self._hop(*pair) for pair in pairwise(group)]
            if leaves:
                into = tuple((b, a) for a, b in self._out(group[0], is_nvlink=is_nvlink))
                routes += [into, self._out(group[-1], is_nvlink=is_nvlink)]
            elif len(group) > 1:
                routes.append(self._hop(group[-1], group[0]))
        return TrafficFlows(name, tuple(routes))

    def loading(self, name: str = "loading") -> TrafficFlows:
        """Return the copies of batches from host memory to all GPUs in use."""
        gpus = map(self._gpu, range(self.system.gpus))
        return TrafficFlows(name, tuple(self._path(self._memory(gpu), gpu) for gpu in gpus))

    def rate(self, traffic: TrafficFlows) -> float:
        """Return the GB/s of the slowest flow of traffic that has the host to itself.

        >>> from simcomm.nccl.descriptions import describe_preset
        >>> links = HostLinks(describe_preset("rtx4090-pcie", 1, 8), NcclSettings())
        >>> round(links.rate(links.loading()), 3)  # four GPUs behind a switch
        6.0
        """
        return min((flow.rate for flow in self._fill([traffic.routes], [traffic.most])[0]), default=inf)

    def shared_within(self, traffic: TrafficFlows) -> SharedLink | None:
        """Return the link on which flows of one traffic hold each other back, None where none does."""
        (flows,) = self._fill([traffic.routes], [inf])
        slowest = _slowest(flows)
        if slowest is None or slowest.rate == inf:
            return None
        used = {link: sum(link in flow.links for flow in flows) for link in slowest.links[:-1]}
        link = min(used, key=lambda each: self.capacities[each] / used[each])
        return (
            SharedLink(name_link(link), self.capacities[link], (f"{used[link]} messages of {traffic.name}",))
            if (used[link] > 1)
            else None
        )

    def _fill(self, routes: Sequence[tuple[Route, ...]], most: Sequence[float]) -> list[list[_Flow]]:
        """Return the flows of each traffic with their max-min shares; each flow has at most its traffic's ``most``."""
        flows, own = list[list[_Flow]](), dict[Link, float]()
        for traffic, (paths, limit) in enumerate(zip(routes, most, strict=True)):
            flows.append([])
            for number, links in enumerate(paths):
                alone = ("traffic", f"{traffic} {number}")
                own[alone] = limit
                flows[-1].append(_Flow((*links, alone), (0.0, (traffic, number))))
        widths = self.capacities | own
        fair([flow for part in flows for flow in part], {link: (width, width) for link, width in widths.items()})
        return flows

    def paces(self, traffic: Sequence[TrafficFlows]) -> list[float]:
        """Return what is left to each traffic where all flow at once, as a share of its rate alone."""
        return [pace for pace, _ in self._share(traffic)]

    def shared_between(self, traffic: Sequence[TrafficFlows]) -> list[SharedLink]:
        """Return the links on which these hold each other back where all flow at once, the narrowest first."""
        found = {link for _, link in self._share(traffic) if link is not None}
        return sorted(found, key=lambda link: (link.bandwidth, link.name))

    def _share(self, traffic: Sequence[TrafficFlows]) -> list[tuple[float, SharedLink | None]]:
        alone = [self.rate(one) for one in traffic]
        flows = self._fill([one.routes for one in traffic], alone)
        used: dict[Link, list[tuple[int, float]]] = {}
        for number, part in enumerate(flows):
            for flow in part:
                for link in flow.links:
                    used.setdefault(link, []).append((number, flow.rate))
        found: list[tuple[float, SharedLink | None]] = []
        for rate, part in zip(alone, flows, strict=True):
            slowest = _slowest(part)
            pace = 1.0 if slowest is None or rate == inf else min(1.0, slowest.rate / rate)
            if slowest is None or pace > FULL:
                found.append((1.0, None))
                continue
            full = [
                link
                for link in slowest.links[:-1]
                if sum(each for _, each in used[link]) >= FULL * self.capacities[link]
                and len({number for number, _ in used[link]}) > 1
            ]
            found.append((pace, self._named(full[0], used[full[0]], traffic) if full else None))
        return found

    def _named(self, link: Link, used: Sequence[tuple[int, float]], traffic: Sequence[TrafficFlows]) -> SharedLink:
        names = tuple(dict.fromkeys(traffic[number].name for number, _ in used))
        return SharedLink(name_link(link), self.capacities[link], names)


def _slowest(flows: Sequence[_Flow]) -> _Flow | None:
    """Return the first of the slowest flows; rates that differ by rounding are one."""
    least = min((flow.rate for flow in flows), default=inf)
    return next((flow for flow in flows if flow.rate * FULL <= least), None)


def name_link(link: Link) -> str:
    """Return a link in words for people.

    >>> name_link(("n0.cpu1", "n0.pcie3")), name_link(("n0.gpu2", "nvlink"))
    ('PCIe switch 3', 'NVLinks of GPU 2')
    """
    parts = [node.removeprefix("n0.") for node in link]
    for kind, words in (("pcie", "PCIe switch {}"), ("memory", "memory {}")):
        # a GPU's own link to a switch is its slot's
        found = [part for part in parts if part.startswith(kind) and not any(p.startswith("gpu") for p in parts)]
        if found:
            return words.format(found[0].removeprefix(kind))
    if NICS in link:
        return "a host's NICs"
    gpus = [part.removeprefix("gpu") for part in parts if part.startswith("gpu")]
    if gpus:
        return f"NVLinks of GPU {gpus[0]}" if NVLINK in link else f"PCIe slot of GPU {gpus[0]}"
    return f"link from {parts[0]} to {parts[1]}"
