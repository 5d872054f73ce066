"""Build an emulated network, measure its links, and keep it open until the launcher closes a pipe.

This module runs in a separate process. The network exists as long as this process or a rank keeps its namespaces open.
Dropped packets and TCP timeouts are read from the kernel's counters.
"""

import json
import os
import signal
from collections.abc import Iterable
from multiprocessing.connection import Connection
from os import getpid
from pathlib import Path
from typing import NamedTuple

from collectives.errors import InputError, RunFailed
from collectives.records.environment import cores
from collectives.units import format_bandwidth
from realcomm.emulation.goodput import MEASURED_S, Endpoint, expected_goodput, measure_goodput, measure_speed
from realcomm.emulation.plan import (
    CANNOT,
    INTERFACE,
    Direction,
    NetworkPlan,
    check_tools,
    forwarding_entries,
    link_commands,
    node_commands,
    run_batch,
    run_tool,
    shapers,
)
from realcomm.launching.namespaces import OWN_NETWORK, HostNamespaces, enter_network, new_network, unshare_network
from realcomm.launching.worker import end_with_launcher

TOLERANCE = 0.01  # relative to a link's goodput
ATTEMPTS = (
    3  # measurements of a link that is off, each twice as long as the last; another process may have used the cores
)
AT_ONCE = 25e6  # bytes/s of links measured at the same time
BEARABLE = 0.14  # share of CPU time for the kernel to move the bytes; ranks need several times as much
CONGESTION_CONTROL = "reno"
SETTINGS = {  # files under /proc/sys/net of every node
    "ipv4/tcp_congestion_control": CONGESTION_CONTROL,
    "ipv4/tcp_no_metrics_save": "1",  # no state is kept from earlier connections
    "ipv6/conf/all/disable_ipv6": "1",  # IPv6 sends packets on its own
    "ipv6/conf/default/disable_ipv6": "1",
}


class PacketCounts(NamedTuple):
    """The packet and TCP counters of one network namespace since its creation."""

    drops: dict[str, int]  # frames dropped by the queue of each interface
    timeouts: int  # expirations of TCP's retransmission timer
    retransmissions: int  # segments that TCP has retransmitted


def read_counts() -> PacketCounts:
    """Return the counters of this process's network namespace."""
    drops: dict[str, int] = {}
    for queue in json.loads(run_tool("tc", ["-s", "-j", "qdisc", "show"])):
        drops[queue["dev"]] = drops.get(queue["dev"], 0) + int(queue.get("drops", 0))
    extended = _table(Path("/proc/self/net/netstat").read_text())
    basic = _table(Path("/proc/self/net/snmp").read_text())
    return PacketCounts(drops, extended["TcpExt"]["TCPTimeouts"], basic["Tcp"]["RetransSegs"])


def _table(text: str) -> dict[str, dict[str, int]]:
    """Parse /proc/net/snmp or netstat, where lines of names and numbers alternate, into {prefix: {name: number}}."""
    lines = [line.split() for line in text.splitlines()]
    return {
        names[0].rstrip(":"): dict(zip(names[1:], map(int, numbers[1:]), strict=True))
        for names, numbers in zip(lines[::2], lines[1::2], strict=True)
    }


class NetworkBuilder:
    """Builds the network namespaces and links of a plan, and keeps them open.

    The calling process must have only one thread. It moves into a new network namespace.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        """Build the network. Raise RunFailed if this system lacks a feature that the network needs."""
        self.plan = plan
        self.has_own_user = _unshare()
        self.home = os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        self.files = {node: new_network() for node in plan.numbers}
        enter_network(self.home)
        self.bearable = BEARABLE * cores() * measure_speed()  # total bytes/s of all hosts
        self.delays = plan.is_delayed and self._has_netem()
        self._build()
        self.before: dict[str, PacketCounts] = {}

    def _has_netem(self) -> bool:
        run_batch("ip", ["link add trial type veth peer name trial2"])
        try:
            run_batch("tc", ["qdisc add dev trial root netem delay 1ms"])
        except RunFailed:
            return False
        finally:
            run_batch("ip", ["link delete trial"])
        return True

    def _build(self) -> None:
        files = {node: f"/proc/self/fd/{file}" for node, file in self.files.items()}
        run_batch("ip", link_commands(self.plan, files), [*self.files.values()])
        for node, file in self.files.items():
            enter_network(file)
            for name, value in SETTINGS.items():
                _set(name, value)
            run_batch("ip", node_commands(self.plan, node))
            run_batch("bridge", forwarding_entries(self.plan, node))
            run_batch("tc", shapers(self.plan, node, delays=self.delays))
        enter_network(self.home)

    def verify(self) -> list[float]:
        """Measure the TCP goodput of each link in each direction; return the goodputs in bytes/s.

        The two directions of a link are measured separately. Raise RunFailed if a goodput deviates from its expected
        value by more than ``TOLERANCE`` in every attempt.
        """
        goodputs = dict.fromkeys(self.plan.directions, 0.0)
        wrong, seconds = list(self.plan.directions), MEASURED_S
        for _ in range(ATTEMPTS):
            for together in groups(wrong):
                goodputs |= dict(zip(together, self._measure(together, seconds), strict=True))
            wrong = [
                direction
                for direction in wrong
                if abs(goodputs[direction] / expected_goodput(direction.bandwidth) - 1) > TOLERANCE
            ]
            seconds *= 2
        if wrong:
            raise RunFailed(_describe(wrong, goodputs))
        return list(goodputs.values())

    def _measure(self, directions: list[Direction], seconds: float) -> list[float]:
        ends = {node: Endpoint(file, self.plan.address(node)) for node, file in self.files.items()}
        return measure_goodput([(ends[direction.src], ends[direction.dst]) for direction in directions], seconds)

    def mark(self) -> None:
        """Start counting dropped packets and timeouts."""
        self.before = self._read()

    def complaints(self) -> list[str]:
        """Return a message for each queue with dropped packets and each host with TCP timeouts since ``mark``."""
        complaints, after = [], self._read()
        links = {
            (direction.src, self.plan.interface(direction.src, direction.dst)): direction.name
            for direction in self.plan.directions
        }
        for host, counts in after.items():
            before = self.before[host]
            for interface, drops in counts.drops.items():
                if dropped := drops - before.drops.get(interface, 0):
                    link = links.get((host, interface), f"{host}, {interface}")
                    complaints.append(f"the queue of the link {link} dropped {dropped} packets")
            if timeouts := counts.timeouts - before.timeouts:
                segments = counts.retransmissions - before.retransmissions
                complaints.append(f"TCP on {host} timed out {timeouts} times and retransmitted {segments} segments")
        return complaints

    def _read(self) -> dict[str, PacketCounts]:
        counts = {}
        for node, file in self.files.items():
            enter_network(file)
            counts[node] = read_counts()
        enter_network(self.home)
        return counts


def _unshare() -> bool:
    """Move into a new network namespace; return whether this needed a user namespace. Raise RunFailed on failure."""
    check_tools()
    try:
        return unshare_network()
    except OSError as error:
        raise RunFailed(
            f"{CANNOT}: this user may not create network namespaces ({error.strerror}); run as root, or allow "
            "user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
        ) from error


def groups(directions: Iterable[Direction]) -> list[list[Direction]]:
    """Divide link directions into groups that can be measured at the same time.

    A group has one direction, or several with at most ``AT_ONCE`` bytes/s in total. The two directions of a link are
    never in the same group, because the acknowledgments of one direction use bandwidth of the other.
    """
    grouped: list[list[Direction]] = []
    for direction in directions:
        for group in grouped:
            both_ways = any((other.dst, other.src) == (direction.src, direction.dst) for other in group)
            if not both_ways and sum(other.bandwidth for other in group) + direction.bandwidth <= AT_ONCE:
                group.append(direction)
                break
        else:
            grouped.append([direction])
    return grouped


def _describe(wrong: list[Direction], goodputs: dict[Direction, float]) -> str:
    first = wrong[0]
    expected, got = (format_bandwidth(value) for value in (expected_goodput(first.bandwidth), goodputs[first]))
    more = f", and {len(wrong) - 1} more links are off" if len(wrong) > 1 else ""
    return (
        f"the link {first.name} has a TCP goodput of {got}, not {expected} ({format_bandwidth(first.bandwidth)} "
        f"without headers, within {TOLERANCE:.0%}){more}; this machine is busy or cannot emulate this rate"
    )


def _set(name: str, value: str) -> None:
    file = Path("/proc/sys/net", name)
    try:
        file.write_text(value)
    except OSError as error:
        if file.exists():  # a kernel without IPv6 lacks some of these files
            raise RunFailed(f"{CANNOT}: {file} rejects {value!r} ({error.strerror})") from error


def hold(connection: Connection, plan: NetworkPlan) -> None:
    """Build the network, send the ranks' namespaces to the launcher, and then answer its requests.

    This is the main function of the network's process. A request names a method of NetworkBuilder. The answer is the
    result of the method, or its InputError or RunFailed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches the whole terminal; the launcher closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the fork server has changed it
    try:
        builder = NetworkBuilder(plan)
    except (InputError, RunFailed) as error:
        connection.send(error)
        return
    end_with_launcher()  # starts a second thread, which must not exist before unshare
    connection.send((_namespaces(builder), builder.delays, builder.bearable))
    while True:
        try:
            request = connection.recv()  # the name of a method, pickled by our own launcher
        except (EOFError, OSError):
            return
        try:
            connection.send(getattr(builder, request)())
        except (InputError, RunFailed) as error:
            connection.send(error)


def _namespaces(builder: NetworkBuilder) -> list[HostNamespaces]:
    """Return each rank's namespaces as paths, which are valid as long as this process lives."""
    user = (f"/proc/{getpid()}/ns/user",) if builder.has_own_user else ()
    return [
        HostNamespaces((*user, f"/proc/{getpid()}/fd/{builder.files[host]}"), INTERFACE) for host in builder.plan.ranks
    ]
