"""How long several channels take on one link, where all ranks do the same at the same time."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

NOTHING = 1e-12  # of the time that has passed; what is left to send for so short is rounding


class Shares(NamedTuple):
    """A step: what it sends, and what it reduces then, as shares of the buffer."""

    sent: float
    reduced: float


@dataclass
class _Channel:
    """Where a channel is in its steps."""

    steps: list[Shares]
    done: int = 0
    free: float = 0.0  # seconds until which it waits for its next message's first byte
    left: float | None = None  # seconds that the rest of the message takes alone; None while it waits


def on_one_link(channels: Sequence[list[Shares]], alpha: float, sending: float, reducing: float) -> float:
    """Seconds until all channels are through their steps.

    Each step waits ``alpha``, sends beside what the other channels send by then, and reduces; ``sending`` and
    ``reducing`` are the seconds of a whole buffer.
    """
    now, last = 0.0, 0.0
    working = [_Channel(steps, free=alpha) for steps in channels if steps]
    while working:
        busy = [channel for channel in working if channel.left is not None]
        wakes = min((channel.free for channel in working if channel.left is None), default=inf)
        then = min(wakes, now + len(busy) * min((channel.left or 0.0 for channel in busy), default=inf))
        for channel in busy:
            channel.left = (channel.left or 0.0) - (then - now) / len(busy)
        now = then
        for channel in working:
            if channel.left is None and channel.free <= now:
                channel.left = channel.steps[channel.done].sent * sending
            elif channel.left is not None and channel.left <= NOTHING * now:
                reduced = now + channel.steps[channel.done].reduced * reducing
                channel.done, channel.left, channel.free = channel.done + 1, None, reduced + alpha
                last = max(last, reduced)
        working = [channel for channel in working if channel.done < len(channel.steps)]
    return last
