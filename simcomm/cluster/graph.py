"""Nodes and links of a network under construction, and what their attributes mean.

Node attributes: ``kind`` (one of ``KINDS``); inside a machine also ``machine`` (its number) and, for GPUs and NICs,
``rail`` (which rail they are on); for GPUs ``local`` (number in the machine), ``p2p_level`` (how far they reach other
devices without help, in the words of NCCL_P2P_LEVEL) and ``memory`` (the host memory through which the rest goes).
Edge attributes, each edge being one direction of a link: ``bandwidth`` in bytes/s, ``latency`` in seconds; where known
``usable_bandwidth``, what software gets out of it, and ``medium``, its name.
"""

import re
from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

import networkx as nx

from collectives.errors import InputError
from collectives.units import parse_bandwidth, parse_latency

KINDS = ("host", "gpu", "nic", "pcie", "cpu", "memory", "nvswitch", "switch")
HOLDS_A_RANK = ("host", "gpu")
P2P_LEVELS = ("NVL", "PXB", "PHB", "SYS")  # over NVLink; PCIe switches; one CPU; several. Each includes those before it


class Wire(NamedTuple):
    """What a link gives in each direction."""

    bandwidth: float = inf  # bytes/s
    latency: float = 0.0  # seconds
    medium: str = ""  # for example "PCIe 4.0 x16"
    usable: float | None = None  # bytes/s that software gets, where a source says

    def times(self, count: float) -> "Wire":
        """As many of them side by side, for messages that are spread over all."""
        return self._replace(bandwidth=self.bandwidth * count, usable=self.usable and self.usable * count)


def wire(bandwidth: str, latency: str, medium: str = "") -> Wire:
    """A wire of quantities with units. Raises InputError."""
    return Wire(parse_bandwidth(bandwidth), parse_latency(latency), medium)


def join(graph: "nx.DiGraph[str]", a: str, b: str, along: Wire) -> None:
    """A link between two nodes: an edge in each direction."""
    data: dict[str, Any] = {"bandwidth": along.bandwidth, "latency": along.latency}
    if along.medium:
        data["medium"] = along.medium
    if along.usable is not None:
        data["usable_bandwidth"] = along.usable
    graph.add_edge(a, b, **data)
    graph.add_edge(b, a, **data)


def empty(hosts: Iterable[str] = (), switches: Iterable[str] = ()) -> "nx.DiGraph[str]":
    """A graph of hosts and switches without links."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(hosts, kind="host")
    graph.add_nodes_from(switches, kind="switch")
    return graph


def kinds(graph: "nx.DiGraph[str]") -> dict[str, str]:
    """Every node's kind; where it has none, nodes named h* are hosts and all others switches."""
    return {
        node: data.get("kind") or ("host" if node.startswith("h") else "switch")
        for node, data in graph.nodes(data=True)
    }


def kind_of(graph: "nx.DiGraph[str]", node: str) -> str:
    """One node's kind."""
    kind: str = graph.nodes[node].get("kind") or ("host" if node.startswith("h") else "switch")
    return kind


def rank_nodes(graph: "nx.DiGraph[str]") -> list[str]:
    """The nodes that can hold a rank, in the graph's order."""
    return [node for node, kind in kinds(graph).items() if kind in HOLDS_A_RANK]


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key with h2 before h10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def check_whole(graph: "nx.DiGraph[str]") -> None:
    """Raises InputError for a network without a place for a rank, or in pieces."""
    if not rank_nodes(graph):
        raise InputError("the cluster has no host; name hosts h0, h1, ...")
    if not nx.is_weakly_connected(graph):
        pieces = sorted((sorted(piece, key=natural) for piece in nx.weakly_connected_components(graph)), key=len)
        raise InputError(
            f"the network is in {len(pieces)} pieces: no link leads from {', '.join(pieces[0])} to the rest"
        )
