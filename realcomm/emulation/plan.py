"""What is to be built for a cluster: its hosts, switches, links and what each switch does with a frame.

A frame is forwarded by where it goes to, as switches do. A node that holds ranks and has one link is a namespace, and
its end of the link is its interface. With several links, or where others' messages pass through it, it also gets a
switch, joined to it by a link without a limit, because a host has one interface here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple, Protocol, runtime_checkable

from collectives.checks import check_cluster
from collectives.errors import InputError

MOST_HOSTS = 64  # beyond that no machine bears the traffic
FORWARDING_KINDS = ("host", "switch")


class FoundRoutes(Protocol):
    """What finds the nodes from one to another, both ends included."""

    def route(self, src: str, dst: str) -> tuple[str, ...]: ...


@runtime_checkable
class Emulable(Protocol):
    """What an emulation needs of a cluster, as ``simcomm``'s have it: each rank's host, a graph of links, and routes.

    Every edge of ``graph`` is one direction of a link, with ``bandwidth`` in bytes/s and ``latency`` in seconds.
    """

    @property
    def title(self) -> str: ...
    @property
    def world_size(self) -> int: ...
    @property
    def hosts(self) -> Sequence[str]: ...
    @property
    def graph(self) -> Any: ...
    def router(self) -> FoundRoutes: ...


class Direction(NamedTuple):
    """One direction of a link: the node that it leads from, where to, bytes/s as the shaper counts, and seconds."""

    src: str
    dst: str
    bandwidth: float
    latency: float

    @property
    def name(self) -> str:
        """The link as messages call it."""
        return f"{self.src} - {self.dst}"


@dataclass(frozen=True)
class NetworkPlan:
    """What is to be built, in plain values that pass between processes."""

    title: str
    ranks: tuple[str, ...]  # the host of each rank
    hosts: tuple[str, ...]  # nodes that are namespaces
    switches: tuple[str, ...]  # nodes that are bridges; a host with several links is in both
    directions: tuple[Direction, ...]
    forwarding: dict[str, dict[str, str]]  # of each switch: to a host by which neighbour; a host by itself

    @property
    def rate(self) -> float:
        """Bytes/s of all hosts sending at once: what this machine has to bear."""
        return sum(one.bandwidth for one in self.directions if one.src in self.hosts)

    @property
    def is_delayed(self) -> bool:
        """Whether the cluster has latencies."""
        return any(one.latency > 0 for one in self.directions)


def plan_network(cluster: Emulable) -> NetworkPlan:
    """Return what is to be built for a cluster. Raise InputError for one that cannot be emulated.

    >>> import simcomm
    >>> plan = plan_network(simcomm.star(4, "50 Mbit/s", "0 us"))
    >>> plan.hosts, plan.switches, plan.rate * 8 / 1e6
    (('h0', 'h1', 'h2', 'h3'), ('s0',), 200.0)
    """
    check_cluster(cluster, Emulable)
    if getattr(cluster, "is_here", False):
        raise InputError(
            f"{cluster.title} cannot be emulated: it is this machine itself; "
            'describe a network, for example topology = "star"'
        )
    _check_kinds(cluster)
    hosts = tuple(dict.fromkeys(cluster.hosts))
    if len(hosts) > MOST_HOSTS:
        raise InputError(f"{cluster.title} cannot be emulated: it has {len(hosts)} hosts; up to {MOST_HOSTS} will do")
    routes = [cluster.router().route(src, dst) for src in hosts for dst in hosts if src != dst]
    used = {edge for route in routes for edge in pairwise(route)}
    used |= {(b, a) for a, b in used if cluster.graph.has_edge(b, a)}
    passing = {node for route in routes for node in route[1:-1]}
    several = {host for host in hosts if len({b for a, b in used if a == host}) > 1}
    return NetworkPlan(
        cluster.title,
        tuple(cluster.hosts),
        hosts,
        tuple(sorted(passing | several)),
        tuple(_directions(cluster, sorted(used))),
        _forwarding(routes, hosts, passing | several),
    )


def _check_kinds(cluster: Emulable) -> None:
    for node, data in cluster.graph.nodes(data=True):
        kind = data.get("kind", "host")
        if kind not in FORWARDING_KINDS:
            raise InputError(
                f"{cluster.title} cannot be emulated: {node} is a {kind}; hosts and switches can be, one rank a host"
            )


def _directions(cluster: Emulable, used: list[tuple[str, str]]) -> Iterator[Direction]:
    for src, dst in used:
        data = cluster.graph.edges[src, dst]
        if not isfinite(data["bandwidth"]):
            raise InputError(f"{cluster.title} cannot be emulated: the link {src} - {dst} has no limit of bandwidth")
        if not cluster.graph.has_edge(dst, src):
            raise InputError(
                f"{cluster.title} cannot be emulated: a link leads from {src} to {dst} and none back, "
                "where acknowledgements have to go"
            )
        yield Direction(src, dst, float(data["bandwidth"]), float(data["latency"]))


def _forwarding(routes: list[tuple[str, ...]], hosts: tuple[str, ...], switches: set[str]) -> dict[str, dict[str, str]]:
    """Return by which neighbour each switch sends on to each host. Raise InputError where that depends on the sender.

    Of pairs that no route leads over a switch, nothing is there, so that a stray frame is dropped.
    """
    found: dict[str, dict[str, str]] = {switch: {} for switch in sorted(switches)}
    for host in switches & {*hosts}:
        found[host][host] = host
    for route in routes:
        dst = route[-1]
        for node, onward in pairwise(route):
            if node not in switches:
                continue
            known = found[node].setdefault(dst, onward)
            if known != onward:
                raise InputError(
                    f"the routing cannot be emulated: {node} would send to {dst} by {known} or by {onward}, depending "
                    'on the sender; a bridge forwards by receiver, as routing = "shortest" does'
                )
    return found
