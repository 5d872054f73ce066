"""Let the launcher build an emulated network, check it for lost packets, and remove it."""

import time
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

from collectives.errors import InputError, RunFailed
from collectives.quoting import name_some
from collectives.units import format_bandwidth
from realcomm.emulation.builder import hold
from realcomm.emulation.plan import CANNOT, Emulable, NetworkPlan, plan_network, plan_pair
from realcomm.launching.interrupts import HeldInterrupts
from realcomm.launching.namespaces import HostNamespaces
from realcomm.launching.server import start_server, wait_for_server, without_main
from realcomm.launching.torchrun import under_torchrun

TRIAL_BANDWIDTH = 20e6 / 8  # bytes/s
TIMEOUT_S = 120.0  # to build and measure a network, which takes seconds on a machine that is not overloaded


class EmulatedNetwork:
    """A cluster's network on this machine, which exists within a ``with`` statement; see ``emulate``.

    ``namespaces`` lists each rank's namespaces. ``goodputs`` lists the measured TCP goodput of each link direction in
    ``plan.directions``, in bytes/s. ``bearable`` is the total traffic that this machine can emulate, in bytes/s.
    ``delays`` is true if links have latency and this machine can emulate it.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan
        self.namespaces: list[HostNamespaces] = []
        self.goodputs: list[float] = []
        self.bearable = 0.0
        self.delays = False
        self._process: ForkServerProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        """Build the network and measure its links.

        Raise InputError if all hosts together may send more than this machine can emulate. Raise RunFailed if this
        machine cannot emulate a network, or if a link does not have its expected goodput.
        """
        with HeldInterrupts() as interrupts, without_main():
            start_server()
            wait_for_server(interrupts, time.monotonic() + TIMEOUT_S)
            interrupts.check()
            try:
                self._start()
                self.namespaces, self.delays, self.bearable = self._receive(interrupts)
                self._check_rate()
                self._ask("verify")
                self.goodputs = self._receive(interrupts)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_rate(self) -> None:
        if self.plan.rate > self.bearable:
            share = self.bearable / self.plan.rate
            fastest = max(direction.bandwidth for direction in self.plan.directions)
            raise InputError(
                f"{self.plan.title} cannot be emulated here: its hosts together can send "
                f"{format_bandwidth(self.plan.rate)}, but this machine can emulate about "
                f"{format_bandwidth(self.bearable)}; reduce the bandwidth of links to {share:.0%}, for example "
                f"--set cluster.bandwidth='{round_down(fastest * share * 8 / 1e6)} Mbit/s'"
            )

    def mark(self) -> None:
        self._ask("mark")
        self._receive()

    def complaints(self) -> list[str]:
        """Return a message for each queue with dropped packets and each host with TCP timeouts since ``mark``."""
        self._ask("complaints")
        complaints: list[str] = self._receive()
        return complaints

    def check(self) -> None:
        """Raise RunFailed if a queue has dropped packets or TCP has timed out since the last ``mark``."""
        if complaints := self.complaints():
            raise RunFailed(
                f"{self.plan.title}: the emulated run is not valid: {name_some(complaints, '; ')}. Reduce the "
                "bandwidth of the links, or stop other processes"
            )

    def close(self) -> None:
        """Remove the network. Ranks that are still running keep their namespaces until they end."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._connection = self._process = None

    def _start(self) -> None:
        context = get_context("forkserver")
        self._connection, other_end = context.Pipe()
        process = context.Process(target=hold, args=(other_end, self.plan), name="ringlab network", daemon=True)
        process.start()
        self._process = process
        other_end.close()

    def _ask(self, request: str) -> None:
        if self._connection is None:
            raise InputError("the emulated network is closed; use it inside its with statement")
        self._connection.send(request)

    def _receive(self, interrupts: HeldInterrupts | None = None) -> Any:
        assert self._connection is not None
        with interrupts.allowed() if interrupts else nullcontext():
            is_ready = self._connection.poll(TIMEOUT_S)
        if not is_ready:
            raise RunFailed(f"the emulated network did not answer within {TIMEOUT_S:g} s")
        try:
            answer = self._connection.recv()  # pickled by our own builder
        except EOFError as error:
            raise RunFailed("the process of the emulated network has ended") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def round_down(value: float) -> int:
    """Round down to at most two significant digits. Return an integer, at least 1.

    >>> round_down(57.9), round_down(1234), round_down(0.3)
    (57, 1200, 1)
    """
    unit: int = 10 ** max(0, len(str(int(value))) - 2)
    return max(1, int(value) // unit * unit)


def emulate(cluster: Emulable) -> EmulatedNetwork:
    """Return a cluster's emulated network. A ``with`` statement builds it on this machine.

    Each host and switch is a network namespace, and each link is rate-limited in both directions. Within the ``with``
    statement, pass the network as ``network`` to ``run``, ``train`` and ``launch``. The network disappears when this
    process ends, even if the process is killed.

    Raise InputError if the cluster cannot be emulated or if torchrun started this process. The ``with`` statement
    raises InputError if the cluster's traffic exceeds what this machine can emulate. It raises RunFailed if the network
    cannot be built or a link has a wrong rate.

    >>> import realcomm, simcomm
    >>> cluster = simcomm.star(4, "50 Mbit/s", "0 us")
    >>> with realcomm.emulate(cluster) as network:  # doctest: +SKIP
    ...     trace = realcomm.run("all_reduce/ring", cluster, nbytes=65536, network=network)
    """
    plan = plan_network(cluster)
    if under_torchrun():
        raise InputError("an emulated network starts its own ranks; run without torchrun")
    return EmulatedNetwork(plan)


class Ability(NamedTuple):
    """The rates and features that this machine can emulate, found by building a small network."""

    rights: str  # how this process may build networks: "as root" or "by a user namespace"
    bearable: float  # total bytes/s of all hosts
    delays: bool  # whether links can have latency


def try_emulation() -> Ability:
    """Build and measure a network of two hosts; return what this machine can emulate.

    Raise RunFailed if this machine cannot emulate a network. The message names the missing feature.

    >>> try_emulation().bearable > 1e6  # doctest: +SKIP
    True
    """
    try:
        with EmulatedNetwork(plan_pair(TRIAL_BANDWIDTH, latency=1e-6)) as network:
            rights = "by a user namespace" if len(network.namespaces[0].files) > 1 else "as root"
            return Ability(rights, network.bearable, network.delays)
    except InputError as error:
        raise RunFailed(f"{CANNOT}: {error}") from error
