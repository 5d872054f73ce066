"""A hop: one message of a rank program as it is timed, and the small programs, probes, that time it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

RELAY, EXCHANGE, FAN_IN, FAN_OUT = PATTERNS = ("relay", "exchange", "fan_in", "fan_out")


class Hop(NamedTuple):
    """A message by what its time depends on.

    The pattern says what else happens to its ranks meanwhile: nothing (``relay``), every rank sends to ``width`` others
    and receives from as many at once (``exchange``), or one rank receives from ``width`` others that were ready before
    (``fan_in``), or sends to them (``fan_out``).
    """

    pattern: str
    width: int
    reduces: bool  # the receiver reduces it into what it holds
    nbytes: int
    is_first: bool  # of its program: the event loops of both ranks were asleep


class Probe(NamedTuple):
    """A program of ``length`` hops of one kind, each of which sends on what the one before has brought."""

    pattern: str
    width: int
    reduces: bool
    nbytes: int
    length: int


def long_chain(world_size: int) -> int:
    """Return how many hops the longer chain of a relay or an exchange has: each rank has then sent and received."""
    return 3 if world_size <= 2 else 5


def probes_of(hop: Hop, world_size: int) -> Iterator[Probe]:
    """Yield the probes that time a hop.

    >>> [probe.length for probe in probes_of(Hop("relay", 1, False, 4096, is_first=False), world_size=2)]
    [1, 3]
    """
    pattern, lengths = hop.pattern, [1]
    if not hop.is_first:
        lengths = {FAN_OUT: [1, 2], FAN_IN: [2, 3]}.get(pattern, [1, long_chain(world_size)])
        pattern = FAN_IN if pattern == FAN_OUT else pattern
    for length in lengths:
        yield Probe(pattern, hop.width, hop.reduces, hop.nbytes, length)


def hop_seconds(hop: Hop, world_size: int, seconds: Callable[[Probe], float]) -> float:
    """Return the seconds of a hop from those of its probes: of a later one the increment that it makes to a chain.

    The chain of a fan alternates: in, out, in. The messages of a fan share its time equally.

    >>> times = {1: 5e-4, 3: 7e-4}
    >>> round(hop_seconds(Hop("relay", 1, False, 4096, is_first=False), 2, lambda probe: times[probe.length]), 9)
    0.0001
    """
    short, *rest = probes_of(hop, world_size)
    total = seconds(short)
    for long in rest:
        total = (seconds(long) - total) / (long.length - short.length)
    return max(0.0, total / (hop.width if hop.pattern in (FAN_IN, FAN_OUT) else 1))
