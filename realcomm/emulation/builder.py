"""Build a plan in network namespaces of this process, measure its links, and read what the kernel counted.

Everything hangs on open files of this process and of the ranks: when they have ended, the kernel removes it all.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from collectives.errors import RunFailed
from collectives.records.environment import cores
from collectives.units import format_bandwidth
from realcomm.emulation.batches import (
    INTERFACE,
    Names,
    core_links,
    forwarding_entries,
    host_settings,
    shapers,
    testers,
)
from realcomm.emulation.counters import Counts, read_counts
from realcomm.emulation.goodput import MEASURED_S, Endpoint, expected_goodput, measure_goodput
from realcomm.emulation.plan import Direction, Plan
from realcomm.emulation.speed import measure_speed
from realcomm.emulation.tools import CANNOT, check_tools, run_batch
from realcomm.launching.namespaces import OWN_NETWORK, enter_network, new_network, unshare_network

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


class Builder:
    """The namespaces of a plan, as open files of this process, which is in the core and must have one thread only."""

    def __init__(self, plan: Plan) -> None:
        """Build it. Raise RunFailed where this system cannot, with what it lacks."""
        self.plan, self.names = plan, Names(plan)
        self.has_own_user = _unshare()
        self.rights = "by a user namespace" if self.has_own_user else "as root"
        self.core = os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        self.files = {host: new_network() for host in (*plan.hosts, *self.names.probes)}
        enter_network(self.core)
        self.bearable = BEARABLE * cores() * measure_speed()  # bytes/s of all hosts together
        self.delays = plan.is_delayed and self._has_netem()
        self._build()
        self.before: dict[str | None, Counts] = {}

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

    def _read(self) -> dict[str | None, Counts]:
        found: dict[str | None, Counts] = {None: read_counts()}
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
