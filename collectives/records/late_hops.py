"""Where a run was slower or quicker than predicted: the measured trace beside the predicted, hop by hop.

Looked at is the chain of messages that the end of the measured run waited for (``critical_path``). The times along the
same chain in the predicted trace add up to when its last message should have ended, so that the differences of the
parts are the whole difference.
"""

from typing import NamedTuple

from collectives.records.messages import Message
from collectives.records.trace import Trace
from collectives.records.waits import critical_path
from collectives.units import format_time

SMALL = 4096  # bytes: up to here software takes longer than links
BEGIN, BETWEEN, SMALL_MESSAGES, LINKS = "ranks begin", "between messages", "small messages", "links"
Name = tuple[int, int, int, int, int, int]  # collective, sender, receiver, channel, step, chunk


class Lateness(NamedTuple):
    """What a measured run took longer than predicted along its own chain, in seconds; less where it is negative."""

    begin: float  # until the first message of the chain was posted
    between: float  # from the end of a message to when the next was posted: ranks, which wait for cores
    small: float  # of messages of ``SMALL`` bytes and less, while both halves were posted
    links: float  # of larger messages
    where: str  # the hop that is furthest from its prediction

    @property
    def whole(self) -> float:
        """Seconds in all."""
        return self.begin + self.between + self.small + self.links

    @property
    def cause(self) -> str:
        """The part that explains most of the whole."""
        parts = {BEGIN: self.begin, BETWEEN: self.between, SMALL_MESSAGES: self.small, LINKS: self.links}
        return max(parts, key=lambda name: parts[name] * (1 if self.whole >= 0 else -1))


def find_lateness(predicted: Trace, measured: Trace) -> Lateness | None:
    """Return where a measured run differs from its prediction; None where their messages are not the same.

    >>> first, late = Message(0, 1, 0, 0, 64, 0.0, 1.0), Message(0, 1, 0, 0, 64, 0.5, 1.5)
    >>> then, slow = Message(1, 2, 1, 0, 1 << 20, 1.0, 3.0), Message(1, 2, 1, 0, 1 << 20, 1.5, 7.5)
    >>> model, real = (Trace("one", "measured", 3, 9.0, pair) for pair in ([first, then], [late, slow]))
    >>> find_lateness(model, real)
    Lateness(begin=0.5, between=0.0, small=0.0, links=4.0, where='1 -> 2, step 1: 6 s, not 2 s')
    """
    model = {_name(one): one for one in predicted.messages}
    if not measured.messages or model.keys() != {_name(one) for one in measured.messages}:
        return None
    chain = [measured.messages[leg.number] for leg in critical_path(measured, over_gaps=True) if leg.name == "message"]
    parts = dict.fromkeys((BEGIN, BETWEEN, SMALL_MESSAGES, LINKS), 0.0)
    worst, where, ends = 0.0, "", (0.0, 0.0)
    for place, real in enumerate(chain):
        other = model[_name(real)]
        gap = (real.begin - ends[0]) - (other.begin - ends[1])
        more = (real.end - real.begin) - (other.end - other.begin)
        parts[BETWEEN if place else BEGIN] += gap
        parts[SMALL_MESSAGES if real.nbytes <= SMALL else LINKS] += more
        if max(abs(more), abs(gap)) > worst:
            worst, where = max(abs(more), abs(gap)), _describe(real, other, ends, abs(more) >= abs(gap))
        ends = real.end, other.end
    return Lateness(parts[BEGIN], parts[BETWEEN], parts[SMALL_MESSAGES], parts[LINKS], where)


def _name(message: Message) -> Name:
    return message.collective, message.src, message.dst, message.channel, message.step, message.chunk


def _describe(real: Message, model: Message, before: tuple[float, float], in_message: bool) -> str:
    name = f"{real.src} -> {real.dst}, step {real.step}"
    if in_message:
        return f"{name}: {format_time(real.end - real.begin)}, not {format_time(model.end - model.begin)}"
    late, expected = real.begin - before[0], model.begin - before[1]
    return f"{name} begins {format_time(late)} after what was before, not {format_time(expected)}"
