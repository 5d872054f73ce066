"""What every rank says: steps, specs, algorithms, the verifier, schedules, costs and traces. No torch, no clock."""

from collectives.catalogue import Algorithm, algorithm, find_algorithm, library
from collectives.errors import InputError
from collectives.schedule import ProgramError, Schedule
from collectives.step import Kind, Operation, copy, recv, recv_reduce, reduce, send
from collectives.trace import Message, Span, Trace
from collectives.transport import Transport
from collectives.verify import verify

__all__ = [
    "Algorithm",
    "InputError",
    "Kind",
    "Message",
    "Operation",
    "ProgramError",
    "Schedule",
    "Span",
    "Trace",
    "Transport",
    "algorithm",
    "copy",
    "find_algorithm",
    "library",
    "recv",
    "recv_reduce",
    "reduce",
    "send",
    "verify",
]
