"""What every rank says: steps, specs, algorithms, the verifier, schedules, costs and traces. No torch, no clock."""

from collectives.catalogue import find_algorithm, library
from collectives.declaration import Algorithm, algorithm
from collectives.errors import InputError, ProgramError, Undefined
from collectives.proof.verifier import verify
from collectives.records.trace import Message, Span, Trace
from collectives.request import Request
from collectives.schedule.schedule import Schedule
from collectives.step import Kind, Operation, copy, on_group, recv, recv_reduce, reduce, send
from collectives.transport import Transport

__all__ = [
    "Algorithm",
    "InputError",
    "Kind",
    "Message",
    "Operation",
    "ProgramError",
    "Request",
    "Schedule",
    "Span",
    "Trace",
    "Transport",
    "Undefined",
    "algorithm",
    "copy",
    "find_algorithm",
    "library",
    "on_group",
    "recv",
    "recv_reduce",
    "reduce",
    "send",
    "verify",
]
