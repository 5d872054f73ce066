"""Where a run was slower or quicker than predicted: the measured trace beside the predicted, hop by hop.

The chain of messages that the end of the measured run waited for is followed backwards: from a message to the rank that
posted its half last, and to what that rank had received or sent before. The times along the same chain in the
predicted trace add up to when its last message should have ended, so that the differences of the parts are the whole
difference.
"""

from typing import NamedTuple

from collectives.records.messages import Message
from collectives.records.trace import Trace
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
    chain = _chain([*measured.messages])
    parts, worst, where = {BETWEEN: 0.0, SMALL_MESSAGES: 0.0, LINKS: 0.0}, 0.0, ""
    begin = 0.0
    for place, real in enumerate(chain):
        other = model[_name(real)]
        more = (real.end - real.begin) - (other.end - other.begin)
        parts[SMALL_MESSAGES if real.nbytes <= SMALL else LINKS] += more
        ends = (chain[place - 1].end, model[_name(chain[place - 1])].end) if place else (0.0, 0.0)
        gap = (real.begin - ends[0]) - (other.begin - ends[1])
        if place:
            parts[BETWEEN] += gap
        else:
            begin = gap
        if max(abs(more), abs(gap)) > worst:
            worst, where = max(abs(more), abs(gap)), _describe(real, other, ends, abs(more) >= abs(gap))
    return Lateness(begin, parts[BETWEEN], parts[SMALL_MESSAGES], parts[LINKS], where)


def _name(message: Message) -> Name:
    return message.collective, message.src, message.dst, message.channel, message.step, message.chunk


def _chain(messages: list[Message]) -> list[Message]:
    """Return the messages that the last one waited for, one after the other, the first one first."""
    chain = [max(messages, key=lambda one: one.end)]
    while True:
        last = chain[-1]
        sender_late = not last.src_posted < last.dst_posted
        rank, posted = (last.src, last.begin) if sender_late else (last.dst, last.begin)
        earlier = [one for one in messages if rank in (one.src, one.dst) and one.end <= posted and one.begin < posted]
        if not earlier:
            return chain[::-1]
        chain.append(max(earlier, key=lambda one: one.end))


def _describe(real: Message, model: Message, before: tuple[float, float], in_message: bool) -> str:
    name = f"{real.src} -> {real.dst}, step {real.step}"
    if in_message:
        return f"{name}: {format_time(real.end - real.begin)}, not {format_time(model.end - model.begin)}"
    late, expected = real.begin - before[0], model.begin - before[1]
    return f"{name} begins {format_time(late)} after what was before, not {format_time(expected)}"
