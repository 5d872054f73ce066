"""The process that builds an emulated network and holds it open: it answers the launcher until that closes the pipe."""

import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from os import getpid
from typing import Any

from collectives.errors import InputError, RunFailed
from realcomm.emulation.batches import INTERFACE
from realcomm.emulation.builder import Builder
from realcomm.emulation.plan import Plan
from realcomm.launching.namespaces import HostNamespaces
from realcomm.launching.worker import end_with_launcher

VERIFY, MARK, COMPLAINTS = "verify", "mark", "complaints"  # what the launcher asks, in this order


def hold(connection: Connection, plan: Plan) -> None:
    """Build the network, send where its ranks work, and then answer; this is what the process executes.

    Each answer is the value, or the exception in its place.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches the whole terminal; the launcher closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which the server, of which this process is a copy, has changed
    try:
        builder = Builder(plan)
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


def _namespaces(builder: Builder) -> list[HostNamespaces]:
    """Return where each rank works, as long as this process lives."""
    user = (f"/proc/{getpid()}/ns/user",) if builder.has_own_user else ()
    return [
        HostNamespaces((*user, f"/proc/{getpid()}/fd/{builder.files[host]}"), INTERFACE) for host in builder.plan.ranks
    ]


def _send(connection: Connection, value: Any) -> None:
    connection.send_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
