"""What is to be built for a cluster, hosts, switches and links, and the commands of ip and tc that build it.

A frame is forwarded by where it goes to, as switches do. A node that holds ranks and has one link is a namespace, and
its end of the link is its interface. With several links, or where others' messages pass through it, it also gets a
switch, joined to it by a link without a limit, because a host has one interface here.
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


TOOLS = ("ip", "tc", "bridge")
CANNOT = "no cluster can be emulated"
INTERFACE = "eth0"  # of every host
MTU = 1500
FRAME, PAYLOAD = 1514, 1448  # bytes of a full frame as tc counts it, and of TCP's data in it (with time stamps)
BURST = 4096  # bytes that a link's token bucket saves while idle
QUEUE = 1_000_000_000  # bytes, more than all windows of TCP together: nothing is dropped
PATIENCE_S = 5  # before TCP takes for lost what is not acknowledged: as nothing is dropped, it only waits in a queue


def check_tools() -> None:
    """Raise RunFailed where one of the tools is missing."""
    if missing := [tool for tool in TOOLS if _find(tool) is None]:
        raise RunFailed(f"{CANNOT}: {', '.join(missing)} is missing; it comes with iproute2")


def run_batch(tool: str, lines: Iterable[str], pass_files: Sequence[int] = ()) -> None:
    """Have one process of a tool do all lines, in the network namespace that this process is in. Raise RunFailed."""
    if text := "".join(f"{line}\n" for line in lines):
        run_tool(tool, ["-batch", "-"], text, pass_files)


def run_tool(tool: str, arguments: Sequence[str], text: str = "", pass_files: Sequence[int] = ()) -> str:
    """Run a tool with ``text`` as its input and these files open, and return its output. Raise RunFailed."""
    call = [_find(tool) or tool, *arguments]
    done = subprocess.run(call, input=text, capture_output=True, text=True, pass_fds=pass_files)
    if done.returncode != 0:
        raise RunFailed(f"{CANNOT}: {tool} says: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def _find(tool: str) -> str | None:
    """Return the file of a tool: an ordinary user's PATH often lacks sbin."""
    return shutil.which(tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


@dataclass(frozen=True)
class End:
    """One end of a link: the namespace of a host, or None for the core, and the name of the interface."""

    host: str | None
    interface: str


class InterfaceNames:
    """The names, addresses and numbers of everything in a plan; a probe is called by its switch, with a ``@``.

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
        """Return the hardware address of a host or probe."""
        kind, number = self._kind_and_number(host)
        return f"02:00:00:{kind:02x}:{number >> 8:02x}:{number & 255:02x}"

    def address(self, host: str) -> str:
        """Return the IPv4 address of a host or probe."""
        kind, number = self._kind_and_number(host)
        return f"10.{77 + kind}.{(number + 1) >> 8}.{(number + 1) & 255}"

    def bridge(self, switch: str) -> str:
        """Return the bridge of a switch."""
        return f"s{self._number[switch]}"

    def end(self, node: str, neighbour: str) -> End:
        """Return a node's end of its link to a neighbour; a host with a switch of its own is its own neighbour."""
        if node not in self.plan.switches or node.startswith("@"):
            return End(node, INTERFACE)
        if neighbour.startswith("@"):
            return End(None, f"q{self._number[node]}")
        return End(None, f"p{self._number[node]}-{self._number[neighbour]}")

    def _kind_and_number(self, host: str) -> tuple[int, int]:
        return int(host.startswith("@")), self._number[host.removeprefix("@")]


def cables(names: InterfaceNames) -> Iterator[tuple[End, End]]:
    """Yield both ends of every cable: the plan's links, those of hosts to their own switches, and those of probes."""
    plan = names.plan
    for one in plan.directions:
        if one.src < one.dst:
            yield names.end(one.src, one.dst), names.end(one.dst, one.src)
    for host in plan.hosts:
        if host in plan.switches:
            yield names.end(host, host), End(host, INTERFACE)
    for probe in names.probes:
        yield names.end(probe.removeprefix("@"), probe), End(probe, INTERFACE)


def core_links(names: InterfaceNames, namespace: dict[str, str]) -> Iterator[str]:
    """Yield what ``ip`` does in the core; ``namespace`` has the file of each host's and probe's namespace."""
    for switch in names.plan.switches:
        yield f"link add {names.bridge(switch)} mtu {MTU} type bridge stp_state 0 mcast_snooping 0"
        yield f"link set {names.bridge(switch)} up"
    for one, other in cables(names):
        ends = [_end_arguments(names, end, namespace) for end in (one, other)]
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
    """Yield the ports of every bridge, with the switch."""
    for switch in names.plan.switches:
        neighbours = [one.dst for one in names.plan.directions if one.src == switch]
        own = [switch] if switch in names.plan.hosts else []
        for neighbour in [*neighbours, *own, f"@{switch}"]:
            yield switch, names.end(switch, neighbour).interface


def forwarding_entries(names: InterfaceNames) -> Iterator[str]:
    """Yield what ``bridge`` does in the core: where each bridge sends each host's and adjacent probe's frames."""
    plan = names.plan
    for switch in plan.switches:
        by_host = dict(plan.forwarding[switch])
        by_host[f"@{switch}"] = f"@{switch}"
        by_host |= {f"@{one.dst}": one.dst for one in plan.directions if one.src == switch and one.dst in plan.switches}
        for host, onward in by_host.items():
            yield f"fdb replace {names.mac(host)} dev {names.end(switch, onward).interface} master static"


def host_settings(names: InterfaceNames, host: str) -> Iterator[str]:
    """Yield what ``ip`` does in the namespace of a host or probe."""
    yield "link set lo up"
    yield f"link set {INTERFACE} up"
    yield f"address add {names.address(host)}/8 dev {INTERFACE}"
    route = f"10.0.0.0/8 dev {INTERFACE} proto kernel scope link src {names.address(host)}"
    yield f"route replace {route} rto_min {PATIENCE_S}s"
    for other in [*names.plan.hosts, *names.probes]:
        if other != host:
            address = f"{names.address(other)} lladdr {names.mac(other)}"
            yield f"neighbour replace {address} dev {INTERFACE} nud permanent"


def shapers(names: InterfaceNames, host: str | None, *, delays: bool) -> Iterator[str]:
    """Yield what ``tc`` does in the namespace of a host, or in the core: a token bucket for each direction.

    With ``delays`` a frame waits for the link's latency before its turn (``netem``).
    """
    for one in names.plan.directions:
        end = names.end(one.src, one.dst)
        if end.host != host:
            continue
        above = "root handle 1:"
        if delays and one.latency > 0:
            yield f"qdisc add dev {end.interface} {above} netem delay {one.latency * 1e6:.0f}us limit 1000000"
            above = "parent 1: handle 10:"
        rate = f"rate {one.bandwidth * 8:.0f}bit burst {BURST} limit {QUEUE}"
        yield f"qdisc add dev {end.interface} {above} tbf {rate}"


def testers(names: InterfaceNames, direction: Direction) -> tuple[str, str]:
    """Return the hosts or probes between which one direction of a link is all that has a limit."""
    sender, receiver = (f"@{node}" if node in names.plan.switches else node for node in (direction.src, direction.dst))
    return sender, receiver
