"""An emulated network, as the process that launches ranks on it sees it."""

import pickle
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Any, Self

from collectives.errors import InputError, RunFailed
from collectives.quoting import name_some
from collectives.units import format_bandwidth
from realcomm.emulation.builder import COMPLAINTS, MARK, VERIFY, hold
from realcomm.emulation.plan import Emulable, NetworkPlan, plan_network
from realcomm.launching.interrupts import HeldInterrupts
from realcomm.launching.namespaces import HostNamespaces
from realcomm.launching.server import start_server, wait_for_server, without_main
from realcomm.launching.torchrun import under_torchrun

TIMEOUT_S = 120.0  # of building and of measuring all links: seconds unless the machine is overloaded


class EmulatedNetwork:
    """A cluster's network on this machine, between the beginning and the end of a ``with``; see ``emulate``.

    ``namespaces`` says where each rank works, ``goodputs`` what TCP got on each of the plan's directions in bytes/s,
    ``bearable`` how many bytes/s of all hosts together this machine bears, and ``delays`` whether links have their
    latency.
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

        Raise RunFailed where this machine cannot, or a link is off, and InputError for more than it bears.
        """
        with HeldInterrupts() as interrupts, without_main():
            start_server()
            wait_for_server(interrupts, time.monotonic() + TIMEOUT_S)
            interrupts.check()
            try:
                self._start()
                self.namespaces, self.delays, self.bearable = self._receive(interrupts)
                self._check_rate()
                self._ask(VERIFY)
                self.goodputs = self._receive(interrupts)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_rate(self) -> None:
        """Raise InputError for a network on which all hosts together may send more than this machine bears."""
        if self.plan.rate > self.bearable:
            share = self.bearable / self.plan.rate
            fastest = max(one.bandwidth for one in self.plan.directions)
            raise InputError(
                f"{self.plan.title} cannot be emulated here: all hosts together may send "
                f"{format_bandwidth(self.plan.rate)}, and this machine bears about {format_bandwidth(self.bearable)}; "
                f"links of {share:.0%} of their bandwidth would do, for example "
                f"--set cluster.bandwidth='{round_down(fastest * share * 8 / 1e6)} Mbit/s'"
            )

    def mark(self) -> None:
        """Count dropped packets and timeouts from here on."""
        self._ask(MARK)
        self._receive()

    def complaints(self) -> list[str]:
        """Return where a queue has dropped packets, or TCP has timed out, since the last ``mark``: a text each."""
        self._ask(COMPLAINTS)
        found: list[str] = self._receive()
        return found

    def check(self) -> None:
        """Raise RunFailed where a queue has dropped packets, or TCP has timed out, since the last ``mark``."""
        if complaints := self.complaints():
            raise RunFailed(
                f"{self.plan.title}, emulated: {name_some(complaints, '; ')}: this machine does not bear "
                "these rates, so nothing of this run counts; give the links less bandwidth, or make the machine idle"
            )

    def close(self) -> None:
        """Remove the network. Ranks that are still on it keep theirs until they end."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._connection = self._process = None

    def _start(self) -> None:
        context = get_context("forkserver")
        self._connection, there = context.Pipe()
        process = context.Process(target=hold, args=(there, self.plan), name="ringlab network", daemon=True)
        process.start()
        self._process = process
        there.close()

    def _ask(self, what: str) -> None:
        if self._connection is None:
            raise InputError("the emulated network is closed; use it within its with statement")
        self._connection.send_bytes(pickle.dumps(what))

    def _receive(self, interrupts: HeldInterrupts | None = None) -> Any:
        """Return the holder's next answer, or raise it."""
        assert self._connection is not None
        if interrupts is None:
            wait([self._connection], TIMEOUT_S)
        else:
            with interrupts.allowed():
                wait([self._connection], TIMEOUT_S)
        if not self._connection.poll():
            raise RunFailed(f"the emulated network did not answer within {TIMEOUT_S:g} s")
        try:
            answer = pickle.loads(self._connection.recv_bytes())  # by our own holder
        except EOFError as error:
            raise RunFailed("the process that holds the emulated network has ended") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def round_down(value: float) -> int:
    """Return a whole number that is not more, with two digits that count.

    >>> round_down(57.9), round_down(1234), round_down(0.3)
    (57, 1200, 1)
    """
    unit: int = 10 ** max(0, len(str(int(value))) - 2)
    return max(1, int(value) // unit * unit)


def emulate(cluster: Emulable) -> EmulatedNetwork:
    """Return the cluster's network, to be built on this machine within a ``with`` statement.

    Each host is a network namespace, each switch a bridge, each link of limited rate in both directions. What ``with``
    gives is the ``network`` of ``run``, ``train`` and ``launch``. Nothing needs to be cleaned up, however this process
    ends. Raise InputError for a cluster that cannot be emulated; entering raises it for more than this machine bears,
    and RunFailed where nothing can be emulated here or a link is not what it should be.

    >>> with emulate(simcomm.star(4, "50 Mbit/s", "0 us")) as network:  # doctest: +SKIP
    ...     trace = realcomm.run("all_reduce/ring", cluster, nbytes=65536, network=network)
    """
    plan = plan_network(cluster)
    if under_torchrun():
        raise InputError("an emulated network starts its ranks itself; leave torchrun out")
    return EmulatedNetwork(plan)
