"""Plan an emulated cluster, and generate the commands of ip, bridge and tc that build it.

Each host and each switch is a network namespace, whose address belongs to its interface ``eth0``. On a host with one
link, ``eth0`` is the host's end of the link. On every other node, ``eth0`` is a bridge, and each link is a port of the
bridge. Bridges forward frames by destination.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple, Protocol, runtime_checkable

from collectives.checks import check_cluster
from collectives.errors import InputError, RunFailed

MOST_HOSTS = 64  # no machine can emulate more
FORWARDING_KINDS = ("host", "switch")
TOOLS = ("ip", "tc", "bridge")
CANNOT = "clusters cannot be emulated here"
INTERFACE = "eth0"  # the interface of every node that has its address
MTU = 1500
FRAME, PAYLOAD = 1514, 1448  # bytes of a full frame as tc counts it, and of TCP's data in it (with time stamps)
BURST = 4096  # bytes that a link's token bucket saves while idle
QUEUE = 1_000_000_000  # bytes; exceeds all TCP windows together, so nothing is dropped
PATIENCE_S = 5  # TCP's retransmission timeout; nothing is dropped, only queued


class FoundRoutes(Protocol):
    """A router. ``route`` returns the nodes on the way from ``src`` to ``dst``, including ``src`` and ``dst``."""

    def route(self, src: str, dst: str) -> tuple[str, ...]: ...


@runtime_checkable
class Emulable(Protocol):
    """A cluster that can be emulated, such as a cluster of ``simcomm``.

    ``hosts`` has the host of each rank. Every edge of ``graph`` is one direction of a link, with ``bandwidth`` in
    bytes/s and ``latency`` in seconds.
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
    """One direction of a link. The bandwidth in bytes/s includes headers, and the latency is in seconds."""

    src: str
    dst: str
    bandwidth: float
    latency: float

    @property
    def name(self) -> str:
        """The link's name, as shown in error messages."""
        return f"{self.src} - {self.dst}"


@dataclass(frozen=True)
class NetworkPlan:
    """The network to build, as plain values that can be sent to another process.

    >>> plan = NetworkPlan("pair", ("h0", "h1"), ("h0", "h1"), ("s0",), (), {})
    >>> plan.address("h1"), plan.mac("s0"), plan.interface("h0", "s0"), plan.interface("s0", "h1")
    ('10.77.0.2', '02:00:00:00:00:02', 'eth0', 'p1')
    """

    title: str
    ranks: tuple[str, ...]  # the host of each rank
    hosts: tuple[str, ...]
    bridges: tuple[str, ...]  # the switches, and hosts that have several links or forward messages
    directions: tuple[Direction, ...]
    forwarding: dict[str, dict[str, str]]  # each bridge's next hop to each host and to its neighbors

    @cached_property
    def numbers(self) -> dict[str, int]:
        """A number for each host and switch, by name."""
        return {node: number for number, node in enumerate(dict.fromkeys([*self.hosts, *self.bridges]))}

    @property
    def rate(self) -> float:
        """The total traffic in bytes/s if all hosts send at full rate."""
        return sum(direction.bandwidth for direction in self.directions if direction.src in self.hosts)

    @property
    def is_delayed(self) -> bool:
        """Whether any link has latency."""
        return any(direction.latency > 0 for direction in self.directions)

    def mac(self, node: str) -> str:
        number = self.numbers[node]
        return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"

    def address(self, node: str) -> str:
        number = self.numbers[node] + 1
        return f"10.77.{number >> 8}.{number & 255}"

    def interface(self, node: str, neighbor: str) -> str:
        """Return the name of ``node``'s interface on its link to ``neighbor``."""
        return f"p{self.numbers[neighbor]}" if node in self.bridges else INTERFACE


def plan_network(cluster: Emulable) -> NetworkPlan:
    """Plan the network of a cluster. Raise InputError if the cluster cannot be emulated on this machine.

    >>> import simcomm
    >>> plan = plan_network(simcomm.star(4, "50 Mbit/s", "0 us"))
    >>> plan.hosts, plan.bridges, plan.rate * 8 / 1e6
    (('h0', 'h1', 'h2', 'h3'), ('s0',), 200.0)
    """
    check_cluster(cluster, Emulable)
    if getattr(cluster, "is_here", False):
        raise InputError(
            f"{cluster.title} cannot be emulated: the cluster is this machine; "
            'describe a network, for example topology = "star"'
        )
    _check_kinds(cluster)
    hosts = tuple(dict.fromkeys(cluster.hosts))
    if len(hosts) > MOST_HOSTS:
        raise InputError(
            f"{cluster.title} cannot be emulated: it has {len(hosts)} hosts; at most {MOST_HOSTS} are supported"
        )
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
        _forwarding([*routes, *used], passing | several),
    )


def plan_pair(bandwidth: float, ranks: int = 2, latency: float = 0.0) -> NetworkPlan:
    """Plan two hosts on one switch. Even ranks run on the first host, odd ranks on the second.

    ``bandwidth`` is in bytes/s, ``latency`` in seconds.
    """
    links = [("h0", "s0"), ("s0", "h0"), ("h1", "s0"), ("s0", "h1")]
    directions = tuple(Direction(src, dst, bandwidth, latency) for src, dst in links)
    hosts = tuple(f"h{rank % 2}" for rank in range(ranks))
    return NetworkPlan("a pair of hosts", hosts, hosts[:2], ("s0",), directions, {"s0": {"h0": "h0", "h1": "h1"}})


def _check_kinds(cluster: Emulable) -> None:
    for node, data in cluster.graph.nodes(data=True):
        kind = data.get("kind", "host")
        if kind not in FORWARDING_KINDS:
            raise InputError(
                f"{cluster.title} cannot be emulated: {node} is a {kind}; only hosts and switches are supported, "
                "with one rank for each host"
            )


def _directions(cluster: Emulable, used: list[tuple[str, str]]) -> Iterator[Direction]:
    for src, dst in used:
        data = cluster.graph.edges[src, dst]
        if not isfinite(data["bandwidth"]):
            raise InputError(f"{cluster.title} cannot be emulated: set a finite bandwidth for the link {src} - {dst}")
        if not cluster.graph.has_edge(dst, src):
            raise InputError(
                f"{cluster.title} cannot be emulated: TCP needs links in both directions; add a link from "
                f"{dst} to {src}"
            )
        yield Direction(src, dst, float(data["bandwidth"]), float(data["latency"]))


def _forwarding(routes: list[tuple[str, ...]], bridges: set[str]) -> dict[str, dict[str, str]]:
    """Return each bridge's forwarding table, which maps destinations to next hops.

    Raise InputError if the next hop to a destination also depends on the sender.
    """
    next_hops: dict[str, dict[str, str]] = {bridge: {} for bridge in sorted(bridges)}
    for route in routes:
        dst = route[-1]
        for node, onward in pairwise(route):
            if node not in bridges:
                continue
            known = next_hops[node].setdefault(dst, onward)
            if known != onward:
                raise InputError(
                    f"the routing cannot be emulated: {node} forwards packets for {dst} to {known} or {onward}, "
                    'depending on the sender; use for example routing = "shortest"'
                )
    return next_hops


def check_tools() -> None:
    """Raise RunFailed if ``ip``, ``tc`` or ``bridge`` is not installed."""
    if missing := [tool for tool in TOOLS if _find(tool) is None]:
        raise RunFailed(f"{CANNOT}: {', '.join(missing)} is missing; install iproute2")


def run_batch(tool: str, lines: Iterable[str], pass_files: Sequence[int] = ()) -> None:
    """Run a tool once with these commands, one per line, in this process's network namespace.

    Raise RunFailed if a command fails.
    """
    if text := "".join(f"{line}\n" for line in lines):
        run_tool(tool, ["-batch", "-"], text, pass_files)


def run_tool(tool: str, arguments: Sequence[str], text: str = "", pass_files: Sequence[int] = ()) -> str:
    """Run a tool with ``text`` on stdin and inherited ``pass_files``; return stdout. Raise RunFailed on failure."""
    call = [_find(tool) or tool, *arguments]
    done = subprocess.run(call, input=text, capture_output=True, text=True, pass_fds=pass_files)
    if done.returncode != 0:
        raise RunFailed(f"{CANNOT}: {tool}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def link_commands(plan: NetworkPlan, files: dict[str, str]) -> Iterator[str]:
    """Yield the ``ip`` commands that create all links. ``files`` maps each node to the file of its namespace."""
    for direction in plan.directions:
        if direction.src < direction.dst:
            ends = []
            for node, neighbor in ((direction.src, direction.dst), (direction.dst, direction.src)):
                mac = "" if node in plan.bridges else f" address {plan.mac(node)}"
                ends.append(f"name {plan.interface(node, neighbor)} mtu {MTU}{mac} netns {files[node]}")
            yield f"link add {ends[0]} type veth peer {ends[1]}"


def node_commands(plan: NetworkPlan, node: str) -> Iterator[str]:
    """Yield the ``ip`` commands that configure a node's interfaces, address, route and neighbor table."""
    yield "link set lo up"
    if node in plan.bridges:
        yield f"link add {INTERFACE} mtu {MTU} address {plan.mac(node)} type bridge stp_state 0 mcast_snooping 0"
        quiet = "learning off flood off mcast_flood off bcast_flood off"
        for port in (plan.interface(node, direction.dst) for direction in plan.directions if direction.src == node):
            yield f"link set {port} master {INTERFACE} up"
            yield f"link set {port} type bridge_slave {quiet}"
    yield f"link set {INTERFACE} up"
    yield f"address add {plan.address(node)}/8 dev {INTERFACE}"
    route = f"10.0.0.0/8 dev {INTERFACE} proto kernel scope link src {plan.address(node)}"
    yield f"route replace {route} rto_min {PATIENCE_S}s"
    for other in plan.numbers:
        if other != node:
            address = f"{plan.address(other)} lladdr {plan.mac(other)}"
            yield f"neighbor replace {address} dev {INTERFACE} nud permanent"


def forwarding_entries(plan: NetworkPlan, node: str) -> Iterator[str]:
    """Yield the ``bridge`` commands that add a node's forwarding table."""
    for destination, onward in plan.forwarding.get(node, {}).items():
        yield f"fdb replace {plan.mac(destination)} dev {plan.interface(node, onward)} master static"


def shapers(plan: NetworkPlan, node: str, *, delays: bool) -> Iterator[str]:
    """Yield the ``tc`` commands that limit the rate of a node's outgoing links with token buckets.

    If ``delays`` is true, also delay each frame by the link's latency with ``netem``, before the token bucket.
    """
    for direction in plan.directions:
        if direction.src != node:
            continue
        interface, above = plan.interface(node, direction.dst), "root handle 1:"
        if delays and direction.latency > 0:
            yield f"qdisc add dev {interface} {above} netem delay {direction.latency * 1e6:.0f}us limit 1000000"
            above = "parent 1: handle 10:"
        rate = f"rate {direction.bandwidth * 8:.0f}bit burst {BURST} limit {QUEUE}"
        yield f"qdisc add dev {interface} {above} tbf {rate}"
