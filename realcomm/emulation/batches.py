"""Commands of ip and tc that build a network, in batches, and where those tools are."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from collectives.errors import RunFailed
from realcomm.emulation.plan import Direction, NetworkPlan

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
