"""How long several channels of a rank take that share its link, where all ranks do the same at the same time."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

ROUNDING = 1e-12  # of the time that has passed; a message with less than that left to send has arrived


class StepShares(NamedTuple):
    """What a step sends and then reduces, as shares of the buffer."""

    sent: float
    reduced: float


@dataclass
class _Channel:
    """The steps of a channel, and its progress through them."""

    steps: list[StepShares]
    done: int = 0
    sends_at: float = 0.0  # seconds at which the first byte of its next message leaves
    left: float | None = None  # seconds that the rest of its message takes alone; None before it is sent


def seconds_on_shared_link(
    channels: Sequence[list[StepShares]], alpha: float, sending: float, reducing: float
) -> float:
    """Return the seconds until the last of the channels has done its steps.

    A step waits ``alpha`` seconds, then sends, sharing the link equally with the channels that send at that time, then
    reduces. ``sending`` is what a whole buffer takes to send alone, ``reducing`` what it takes to reduce, in seconds.

    >>> half = [StepShares(sent=0.5, reduced=0.0)]
    >>> seconds_on_shared_link([half, half], alpha=1.0, sending=4.0, reducing=0.0)
    5.0
    """
    now, last = 0.0, 0.0
    working = [_Channel(steps, sends_at=alpha) for steps in channels if steps]
    while working:
        sending_now = [channel for channel in working if channel.left is not None]
        next_start = min((channel.sends_at for channel in working if channel.left is None), default=inf)
        next_end = now + len(sending_now) * min((channel.left or 0.0 for channel in sending_now), default=inf)
        then = min(next_start, next_end)
        for channel in sending_now:
            channel.left = (channel.left or 0.0) - (then - now) / len(sending_now)
        now = then
        for channel in working:
            if channel.left is None and channel.sends_at <= now:
                channel.left = channel.steps[channel.done].sent * sending
            elif channel.left is not None and channel.left <= ROUNDING * now:
                reduced = now + channel.steps[channel.done].reduced * reducing
                channel.done, channel.left, channel.sends_at = channel.done + 1, None, reduced + alpha
                last = max(last, reduced)
        working = [channel for channel in working if channel.done < len(channel.steps)]
    return last
