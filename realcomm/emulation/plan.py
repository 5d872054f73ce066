"""Plan an emulated cluster: hosts, switches and links, and the commands of ip and tc that build them.

Switches forward frames by destination. A node with ranks and one link is a namespace, and its end of the link is its
interface. An emulated host has only one interface. So a host that has several links or forwards messages also gets a
switch, to which an unlimited link connects it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple, Protocol, runtime_checkable

from collectives.checks import check_cluster
from collectives.errors import InputError, RunFailed

MOST_HOSTS = 64  # no machine can emulate more
FORWARDING_KINDS = ("host", "switch")


class FoundRoutes(Protocol):
    """A cluster that returns the nodes on the route between two nodes, including both ends."""

    def route(self, src: str, dst: str) -> tuple[str, ...]: ...


@runtime_checkable
class Emulable(Protocol):
    """A cluster that can be emulated, such as those of ``simcomm``: each rank's host, a graph of links, and routes.

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
    """The network to build, as plain values that can be sent to another process."""

    title: str
    ranks: tuple[str, ...]  # the host of each rank
    hosts: tuple[str, ...]  # nodes that are namespaces
    switches: tuple[str, ...]  # nodes that are bridges; a host with several links is in both
    directions: tuple[Direction, ...]
    forwarding: dict[str, dict[str, str]]  # each switch's next hop to each host

    @property
    def rate(self) -> float:
        """The total bytes/s if all hosts send at once, which this machine must be able to move."""
        return sum(direction.bandwidth for direction in self.directions if direction.src in self.hosts)

    @property
    def is_delayed(self) -> bool:
        """Whether any link has latency."""
        return any(direction.latency > 0 for direction in self.directions)


def plan_network(cluster: Emulable) -> NetworkPlan:
    """Plan the network of a cluster. Raise InputError for a cluster that cannot be emulated.

    >>> import simcomm
    >>> plan = plan_network(simcomm.star(4, "50 Mbit/s", "0 us"))
    >>> plan.hosts, plan.switches, plan.rate * 8 / 1e6
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
        _forwarding(routes, hosts, passing | several),
    )


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
            raise InputError(f"{cluster.title} cannot be emulated: the link {src} - {dst} has no finite bandwidth")
        if not cluster.graph.has_edge(dst, src):
            raise InputError(
                f"{cluster.title} cannot be emulated: a link leads from {src} to {dst} but not back, "
                "where acknowledgments must go"
            )
        yield Direction(src, dst, float(data["bandwidth"]), float(data["latency"]))


def _forwarding(routes: list[tuple[str, ...]], hosts: tuple[str, ...], switches: set[str]) -> dict[str, dict[str, str]]:
    """Return each switch's next hop to each host. Raise InputError if a next hop depends on the sender.

    Pairs without a route over a switch have no entry, so stray frames are dropped.
    """
    next_hops: dict[str, dict[str, str]] = {switch: {} for switch in sorted(switches)}
    for host in switches & {*hosts}:
        next_hops[host][host] = host
    for route in routes:
        dst = route[-1]
        for node, onward in pairwise(route):
            if node not in switches:
                continue
            known = next_hops[node].setdefault(dst, onward)
            if known != onward:
                raise InputError(
                    f"the routing cannot be emulated: the next hop of {node} to {dst} is {known} or {onward}, "
                    'depending on the sender; use routing by destination, for example routing = "shortest"'
                )
    return next_hops


TOOLS = ("ip", "tc", "bridge")
CANNOT = "clusters cannot be emulated here"
INTERFACE = "eth0"  # the interface of every host
MTU = 1500
FRAME, PAYLOAD = 1514, 1448  # bytes of a full frame as tc counts it, and of TCP's data in it (with time stamps)
BURST = 4096  # bytes that a link's token bucket saves while idle
QUEUE = 1_000_000_000  # bytes; exceeds all TCP windows together, so nothing is dropped
PATIENCE_S = 5  # TCP's retransmission timeout; nothing is dropped, only queued


def check_tools() -> None:
    """Raise RunFailed if a tool is missing."""
    if missing := [tool for tool in TOOLS if _find(tool) is None]:
        raise RunFailed(f"{CANNOT}: {', '.join(missing)} is missing; install iproute2")


def run_batch(tool: str, lines: Iterable[str], pass_files: Sequence[int] = ()) -> None:
    """Run all lines in one process of a tool, in this process's network namespace. Raise RunFailed if one fails."""
    if text := "".join(f"{line}\n" for line in lines):
        run_tool(tool, ["-batch", "-"], text, pass_files)


def run_tool(tool: str, arguments: Sequence[str], text: str = "", pass_files: Sequence[int] = ()) -> str:
    """Run a tool with ``text`` as its input and ``pass_files`` open; return its output. Raise RunFailed if it fails."""
    call = [_find(tool) or tool, *arguments]
    done = subprocess.run(call, input=text, capture_output=True, text=True, pass_fds=pass_files)
    if done.returncode != 0:
        raise RunFailed(f"{CANNOT}: {tool}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def _find(tool: str) -> str | None:
    """Return the path of a tool, which may be in a ``sbin`` directory that is missing from PATH."""
    return shutil.which(tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


@dataclass(frozen=True)
class End:
    """One end of a link: the interface, and the host that it belongs to, or None if it is in the core namespace."""

    host: str | None
    interface: str


class InterfaceNames:
    """The names, addresses and numbers of everything in a plan. The probe host of switch ``s0`` is ``@s0``.

    >>> from realcomm.emulation.plan import NetworkPlan
    >>> names = InterfaceNames(NetworkPlan("pair", ("h0", "h1"), ("h0", "h1"), ("s0",), (), {}))
    >>> names.address("h1"), names.mac("@s0"), names.end("s0", "h1")
    ('10.77.0.2', '02:00:00:01:00:02', End(host=None, interface='p2-1'))
    """

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan
        nodes = dict.fromkeys([*plan.hosts, *plan.switches])
        self._number = {node: number for number, node in enumerate(nodes)}
        self.probes = tuple(f"@{switch}" for switch in plan.switches)

    def mac(self, host: str) -> str:
        """Return the hardware address of a host or probe host."""
        kind, number = self._kind_and_number(host)
        return f"02:00:00:{kind:02x}:{number >> 8:02x}:{number & 255:02x}"

    def address(self, host: str) -> str:
        """Return the IPv4 address of a host or probe host."""
        kind, number = self._kind_and_number(host)
        return f"10.{77 + kind}.{(number + 1) >> 8}.{(number + 1) & 255}"

    def bridge(self, switch: str) -> str:
        """Return the name of a switch's bridge."""
        return f"s{self._number[switch]}"

    def end(self, node: str, neighbor: str) -> End:
        """Return a node's end of its link to a neighbor. If a host has its own switch, ``node`` means the switch."""
        if node not in self.plan.switches or node.startswith("@"):
            return End(node, INTERFACE)
        if neighbor.startswith("@"):
            return End(None, f"q{self._number[node]}")
        return End(None, f"p{self._number[node]}-{self._number[neighbor]}")

    def _kind_and_number(self, host: str) -> tuple[int, int]:
        return int(host.startswith("@")), self._number[host.removeprefix("@")]


def cables(names: InterfaceNames) -> Iterator[tuple[End, End]]:
    """Yield both ends of every link: the plan's links, and those between hosts or probe hosts and switches."""
    plan = names.plan
    for direction in plan.directions:
        if direction.src < direction.dst:
            yield names.end(direction.src, direction.dst), names.end(direction.dst, direction.src)
    for host in plan.hosts:
        if host in plan.switches:
            yield names.end(host, host), End(host, INTERFACE)
    for probe in names.probes:
        yield names.end(probe.removeprefix("@"), probe), End(probe, INTERFACE)


def core_links(names: InterfaceNames, namespace: dict[str, str]) -> Iterator[str]:
    """Yield the ``ip`` commands for the core. ``namespace`` contains the namespace file of each host and probe host."""
    for switch in names.plan.switches:
        yield f"link add {names.bridge(switch)} mtu {MTU} type bridge stp_state 0 mcast_snooping 0"
        yield f"link set {names.bridge(switch)} up"
    for cable in cables(names):
        ends = [_end_arguments(names, end, namespace) for end in cable]
        yield f"link add {ends[0]} type veth peer {ends[1]}"
    quiet = "learning off flood off mcast_flood off bcast_flood off"
    for switch, port in ports(names):
        yield f"link set {port} master {names.bridge(switch)} up"
        yield f"link set {port} type bridge_slave {quiet}"


def _end_arguments(names: InterfaceNames, end: End, namespace: dict[str, str]) -> str:
    if end.host is None:
        return f"name {end.interface} mtu {MTU}"
    return f"name {end.interface} mtu {MTU} address {names.mac(end.host)} netns {namespace[end.host]}"


def ports(names: InterfaceNames) -> Iterator[tuple[str, str]]:
    """Yield each switch with each port of its bridge."""
    for switch in names.plan.switches:
        neighbors = [direction.dst for direction in names.plan.directions if direction.src == switch]
        itself = [switch] if switch in names.plan.hosts else []
        for neighbor in [*neighbors, *itself, f"@{switch}"]:
            yield switch, names.end(switch, neighbor).interface


def forwarding_entries(names: InterfaceNames) -> Iterator[str]:
    """Yield the ``bridge`` commands for the core: each bridge's next hop to each host and adjacent probe host."""
    plan = names.plan
    for switch in plan.switches:
        by_host = dict(plan.forwarding[switch])
        by_host[f"@{switch}"] = f"@{switch}"
        by_host |= {
            f"@{direction.dst}": direction.dst
            for direction in plan.directions
            if direction.src == switch and direction.dst in plan.switches
        }
        for host, onward in by_host.items():
            yield f"fdb replace {names.mac(host)} dev {names.end(switch, onward).interface} master static"


def host_settings(names: InterfaceNames, host: str) -> Iterator[str]:
    """Yield the ``ip`` commands for the namespace of a host or probe host."""
    yield "link set lo up"
    yield f"link set {INTERFACE} up"
    yield f"address add {names.address(host)}/8 dev {INTERFACE}"
    route = f"10.0.0.0/8 dev {INTERFACE} proto kernel scope link src {names.address(host)}"
    yield f"route replace {route} rto_min {PATIENCE_S}s"
    for other in [*names.plan.hosts, *names.probes]:
        if other != host:
            address = f"{names.address(other)} lladdr {names.mac(other)}"
            yield f"neighbor replace {address} dev {INTERFACE} nud permanent"


def shapers(names: InterfaceNames, host: str | None, *, delays: bool) -> Iterator[str]:
    """Yield the ``tc`` commands for the namespace of a host, or for the core: a token bucket for each direction.

    With ``delays``, frames first wait for the link's latency (``netem``).
    """
    for direction in names.plan.directions:
        end = names.end(direction.src, direction.dst)
        if end.host != host:
            continue
        above = "root handle 1:"
        if delays and direction.latency > 0:
            yield f"qdisc add dev {end.interface} {above} netem delay {direction.latency * 1e6:.0f}us limit 1000000"
            above = "parent 1: handle 10:"
        rate = f"rate {direction.bandwidth * 8:.0f}bit burst {BURST} limit {QUEUE}"
        yield f"qdisc add dev {end.interface} {above} tbf {rate}"


def testers(names: InterfaceNames, direction: Direction) -> tuple[str, str]:
    """Return a sender and a receiver, hosts or probe hosts, between which only ``direction`` limits the rate."""
    sender, receiver = (f"@{node}" if node in names.plan.switches else node for node in (direction.src, direction.dst))
    return sender, receiver
