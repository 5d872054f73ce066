"""What every rank says: algorithms and their proof, requests and trainings, and the records that a run leaves.

* ``@algorithm`` declares a rank program, written with ``send``, ``recv``, ``recv_reduce``, ``copy``, ``reduce``
  and ``on_group``. ``library`` and ``find_algorithm`` find what is declared, and ``verify`` proves it.
* A ``Request`` is one call of a collective, a ``Training`` a data-parallel training; both wings take either.
* A ``Trace`` is what happened in a run, a ``Calibration`` what was measured of this machine.

No torch, no clock. Nothing is imported before it is used: a command that only says what its options are needs no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectives.catalogue import find_algorithm, library
    from collectives.declaration import Algorithm, algorithm
    from collectives.errors import InputError, ProgramError, RunFailed, Undefined
    from collectives.proof.verifier import verify
    from collectives.records.calibration import Calibration, read_calibration
    from collectives.records.messages import Message, Messages
    from collectives.records.spans import Span, Spans
    from collectives.records.trace import Trace, read_trace
    from collectives.request import Request, make_request
    from collectives.schedule.build import build_schedule
    from collectives.schedule.schedule import Schedule
    from collectives.step import Kind, Operation, copy, on_group, recv, recv_reduce, reduce, send
    from collectives.training.workload import ComputePhases, Training
    from collectives.transport import TcpTerms, Transport
    from collectives.units import parse_size

_MODULES = {
    "collectives.catalogue": ("find_algorithm", "library"),
    "collectives.declaration": ("Algorithm", "algorithm"),
    "collectives.errors": ("InputError", "ProgramError", "RunFailed", "Undefined"),
    "collectives.proof.verifier": ("verify",),
    "collectives.records.calibration": ("Calibration", "read_calibration"),
    "collectives.records.messages": ("Message", "Messages"),
    "collectives.records.spans": ("Span", "Spans"),
    "collectives.records.trace": ("Trace", "read_trace"),
    "collectives.request": ("Request", "make_request"),
    "collectives.schedule.build": ("build_schedule",),
    "collectives.schedule.schedule": ("Schedule",),
    "collectives.step": ("Kind", "Operation", "copy", "on_group", "recv", "recv_reduce", "reduce", "send"),
    "collectives.transport": ("TcpTerms", "Transport"),
    "collectives.units": ("parse_size",),
    "collectives.training.workload": ("ComputePhases", "Training"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Algorithm",
    "Calibration",
    "ComputePhases",
    "InputError",
    "Kind",
    "Message",
    "Messages",
    "Operation",
    "ProgramError",
    "Request",
    "RunFailed",
    "Schedule",
    "Span",
    "Spans",
    "TcpTerms",
    "Trace",
    "Training",
    "Transport",
    "Undefined",
    "algorithm",
    "build_schedule",
    "copy",
    "find_algorithm",
    "library",
    "make_request",
    "on_group",
    "parse_size",
    "read_calibration",
    "read_trace",
    "recv",
    "recv_reduce",
    "reduce",
    "send",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all names to complete, also those that are imported when they are first used."""
    return sorted({*globals(), *__all__})
