"""The process in which an emulated network is built, measured and held open until the launcher closes a pipe.

Everything hangs on open files of this process and of the ranks: when they have ended, the kernel removes it all. The
kernel's counters tell what went wrong meanwhile.
"""

import json
import os
import pickle
import signal
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from os import getpid
from pathlib import Path
from typing import Any, NamedTuple

from collectives.errors import InputError, RunFailed
from collectives.records.environment import cores
from collectives.units import format_bandwidth
from realcomm.emulation.goodput import MEASURED_S, Endpoint, expected_goodput, measure_goodput, measure_speed
from realcomm.emulation.plan import (
    CANNOT,
    INTERFACE,
    Direction,
    InterfaceNames,
    NetworkPlan,
    check_tools,
    core_links,
    forwarding_entries,
    host_settings,
    run_batch,
    run_tool,
    shapers,
    testers,
)
from realcomm.launching.namespaces import OWN_NETWORK, HostNamespaces, enter_network, new_network, unshare_network
from realcomm.launching.worker import end_with_launcher

TOLERANCE = 0.01  # of a link's goodput
ATTEMPTS = 3  # at a link that is off, each twice as long as the one before: another process may have had the cores
AT_ONCE = 25e6  # bytes/s of links measured at the same time
BEARABLE = 0.14  # share of the cores' time that the kernel may need to move the bytes: ranks need several times it
CONGESTION_CONTROL = "reno"
HOST_SETTINGS = {  # files under /proc/sys/net of every host
    "ipv4/tcp_congestion_control": CONGESTION_CONTROL,
    "ipv4/tcp_no_metrics_save": "1",  # a connection begins as if there had been none before
    "ipv6/conf/all/disable_ipv6": "1",  # which would send by itself
    "ipv6/conf/default/disable_ipv6": "1",
}
VERIFY, MARK, COMPLAINTS = "verify", "mark", "complaints"  # what the launcher asks, in this order


class PacketCounts(NamedTuple):
    """The counters of one namespace, which only grow."""

    drops: dict[str, int]  # frames dropped by the queue of each interface
    timeouts: int  # of TCP's retransmission timer
    retransmissions: int  # segments sent again


def read_counts() -> PacketCounts:
    """Return the counters of the network namespace that this process is in."""
    drops: dict[str, int] = {}
    for queue in json.loads(run_tool("tc", ["-s", "-j", "qdisc", "show"])):
        drops[queue["dev"]] = drops.get(queue["dev"], 0) + int(queue.get("drops", 0))
    extended = _table(Path("/proc/self/net/netstat").read_text())
    basic = _table(Path("/proc/self/net/snmp").read_text())
    return PacketCounts(drops, extended["TcpExt"]["TCPTimeouts"], basic["Tcp"]["RetransSegs"])


def _table(text: str) -> dict[str, dict[str, int]]:
    """Return the kernel's pairs of lines, names and then numbers, by the word before the colon."""
    lines = [line.split() for line in text.splitlines()]
    return {
        names[0].rstrip(":"): dict(zip(names[1:], map(int, numbers[1:]), strict=True))
        for names, numbers in zip(lines[::2], lines[1::2], strict=True)
    }


class NetworkBuilder:
    """The namespaces of a plan, as open files of this process, which is in the core and must have one thread only."""

    def __init__(self, plan: NetworkPlan) -> None:
        """Build it. Raise RunFailed where this system cannot, with what it lacks."""
        self.plan, self.names = plan, InterfaceNames(plan)
        self.has_own_user = _unshare()
        self.rights = "by a user namespace" if self.has_own_user else "as root"
        self.core = os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        self.files = {host: new_network() for host in (*plan.hosts, *self.names.probes)}
        enter_network(self.core)
        self.bearable = BEARABLE * cores() * measure_speed()  # bytes/s of all hosts together
        self.delays = plan.is_delayed and self._has_netem()
        self._build()
        self.before: dict[str | None, PacketCounts] = {}

    def _has_netem(self) -> bool:
        """Try in the core whether the kernel delays packets."""
        run_batch("ip", ["link add trial type veth peer name trial2"])
        try:
            run_batch("tc", ["qdisc add dev trial root netem delay 1ms"])
        except RunFailed:
            return False
        finally:
            run_batch("ip", ["link delete trial"])
        return True

    def _build(self) -> None:
        files = {host: f"/proc/self/fd/{file}" for host, file in self.files.items()}
        run_batch("ip", ["link set lo up", *core_links(self.names, files)], [*self.files.values()])
        run_batch("bridge", forwarding_entries(self.names))
        run_batch("tc", shapers(self.names, None, delays=self.delays))
        for host, file in self.files.items():
            enter_network(file)
            for name, value in HOST_SETTINGS.items():
                _set(name, value)
            run_batch("ip", host_settings(self.names, host))
            run_batch("tc", shapers(self.names, host, delays=self.delays))
        enter_network(self.core)

    def verify(self) -> list[float]:
        """Measure all directions, each alone on its way, and return the goodputs in bytes/s.

        Raise RunFailed for one that is off by more than ``TOLERANCE`` in every attempt; then remove the probes.
        """
        found = dict.fromkeys(self.plan.directions, 0.0)
        wrong, seconds = list(self.plan.directions), MEASURED_S
        for _ in range(ATTEMPTS):
            for together in groups(wrong):
                found |= dict(zip(together, self._measure(together, seconds), strict=True))
            wrong = [one for one in wrong if abs(found[one] / expected_goodput(one.bandwidth) - 1) > TOLERANCE]
            seconds *= 2
        if wrong:
            raise RunFailed(_describe(wrong, found))
        self._remove_probes()
        return list(found.values())

    def _measure(self, directions: list[Direction], seconds: float) -> list[float]:
        pairs = [tuple(map(self._endpoint, testers(self.names, one))) for one in directions]
        return measure_goodput(pairs, seconds)  # type: ignore[arg-type]

    def _endpoint(self, host: str) -> Endpoint:
        return Endpoint(self.files[host], self.names.address(host))

    def _remove_probes(self) -> None:
        for probe in self.names.probes:
            os.close(self.files.pop(probe))

    def mark(self) -> None:
        """Count from here on."""
        self.before = self._read()

    def complaints(self) -> list[str]:
        """Return what has gone wrong on the network since the last mark, a text each."""
        found, after = [], self._read()
        for host, counts in after.items():
            before = self.before[host]
            for interface, drops in counts.drops.items():
                if dropped := drops - before.drops.get(interface, 0):
                    found.append(f"the queue of the link {self._link(host, interface)} dropped {dropped} packets")
            if timeouts := counts.timeouts - before.timeouts:
                again = counts.retransmissions - before.retransmissions
                found.append(f"TCP on {host} timed out {timeouts} times and sent {again} segments again")
        return found

    def _read(self) -> dict[str | None, PacketCounts]:
        found: dict[str | None, PacketCounts] = {None: read_counts()}
        for host in self.plan.hosts:
            enter_network(self.files[host])
            found[host] = read_counts()
        enter_network(self.core)
        return found

    def _link(self, host: str | None, interface: str) -> str:
        for one in self.plan.directions:
            end = self.names.end(one.src, one.dst)
            if (end.host, end.interface) == (host, interface):
                return one.name
        return f"{host} - its switch" if interface == INTERFACE else interface


def _unshare() -> bool:
    """Leave for namespaces of our own; return whether a user namespace is among them. Raise RunFailed."""
    check_tools()
    try:
        return unshare_network()
    except OSError as error:
        raise RunFailed(
            f"{CANNOT}: this system gives no network namespaces to this user ({error.strerror}); it takes root, or "
            "user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
        ) from error


def groups(directions: Iterable[Direction]) -> list[list[Direction]]:
    """Return all directions in groups: in each at most ``AT_ONCE`` bytes/s, or one, and never both ways of a link.

    Acknowledgements go the other way, and would take their share of it.
    """
    found: list[list[Direction]] = []
    for one in directions:
        for group in found:
            both_ways = any((other.dst, other.src) == (one.src, one.dst) for other in group)
            if not both_ways and sum(other.bandwidth for other in group) + one.bandwidth <= AT_ONCE:
                group.append(one)
                break
        else:
            found.append([one])
    return found


def _describe(wrong: list[Direction], found: dict[Direction, float]) -> str:
    first = wrong[0]
    wanted, got = (format_bandwidth(value) for value in (expected_goodput(first.bandwidth), found[first]))
    more = f", and {len(wrong) - 1} links more are off" if len(wrong) > 1 else ""
    return (
        f"the link {first.name} gives TCP {got} where {wanted} is wanted ({format_bandwidth(first.bandwidth)} less "
        f"headers, within {TOLERANCE:.0%}){more}; this machine is busy or does not bear this rate"
    )


def _set(name: str, value: str) -> None:
    file = Path("/proc/sys/net", name)
    try:
        file.write_text(value)
    except OSError as error:
        if file.exists():  # a kernel without IPv6 has not all of them
            raise RunFailed(f"{CANNOT}: {file} refuses {value!r} ({error.strerror})") from error


def hold(connection: Connection, plan: NetworkPlan) -> None:
    """Build the network, send where its ranks work, and then answer; this is what the process executes.

    Each answer is the value, or the exception in its place.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches the whole terminal; the launcher closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which the server, of which this process is a copy, has changed
    try:
        builder = NetworkBuilder(plan)
    except (InputError, RunFailed) as error:
        _send(connection, error)
        return
    end_with_launcher()  # a second thread, which an ordinary user's new namespace does not allow before
    _send(connection, (_namespaces(builder), builder.delays, builder.bearable))
    answers: dict[str, Callable[[], object]] = {
        VERIFY: builder.verify,
        MARK: builder.mark,
        COMPLAINTS: builder.complaints,
    }
    while True:
        try:
            asked = pickle.loads(connection.recv_bytes())  # by our own launcher
        except (EOFError, OSError):
            return
        try:
            _send(connection, answers[asked]())
        except (InputError, RunFailed) as error:
            _send(connection, error)


def _namespaces(builder: NetworkBuilder) -> list[HostNamespaces]:
    """Return where each rank works, as long as this process lives."""
    user = (f"/proc/{getpid()}/ns/user",) if builder.has_own_user else ()
    return [
        HostNamespaces((*user, f"/proc/{getpid()}/fd/{builder.files[host]}"), INTERFACE) for host in builder.plan.ranks
    ]


def _send(connection: Connection, value: Any) -> None:
    connection.send_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
