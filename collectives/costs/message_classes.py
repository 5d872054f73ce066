"""Group messages that take equally long into classes, and define the test programs (probes) that measure each class."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from collectives.call import CollectiveCall
from collectives.declaration import Algorithm
from collectives.proof.completion import completion_depths
from collectives.schedule.build import build_schedule
from collectives.schedule.schedule import Schedule
from collectives.step import Kind

RELAY, EXCHANGE, FAN_IN, FAN_OUT = PATTERNS = ("relay", "exchange", "fan_in", "fan_out")
Location = tuple[int, int, int]  # rank, channel, step


class MessageClass(NamedTuple):
    """The properties of a message that determine its time.

    ``pattern`` is one of four values. A ``relay`` is a single message. In an ``exchange``, every rank sends to
    ``width`` ranks and receives from ``width`` ranks. In a ``fan_in``, one rank receives from ``width`` ranks that wait
    to send. In a ``fan_out``, one rank sends to ``width`` waiting ranks.
    """

    pattern: str
    width: int
    reduces: bool  # whether the receiver reduces the message into its own data
    nbytes: int
    is_first: bool  # whether it is the first message of its program, so that the event loops of both ranks are asleep


class Probe(NamedTuple):
    """A test program that repeats a communication pattern ``length`` times. Every message has ``nbytes`` bytes.

    One repetition is a message of a relay, or a round of an exchange or a fan. Repetitions of a fan alternate between
    fan-in and fan-out.
    """

    pattern: str
    width: int
    reduces: bool
    nbytes: int
    length: int


def probes_of(message_class: MessageClass, world_size: int) -> Iterator[Probe]:
    """Yield the one or two test programs that measure a message class.

    >>> [probe.length for probe in probes_of(MessageClass("relay", 1, False, 4096, is_first=False), world_size=2)]
    [1, 3]
    """
    pattern, lengths = message_class.pattern, [1]
    if not message_class.is_first:
        lengths = {FAN_OUT: [1, 2], FAN_IN: [2, 3]}.get(pattern, [1, 3 if world_size <= 2 else 5])
        pattern = FAN_IN if pattern == FAN_OUT else pattern
    for length in lengths:
        yield Probe(pattern, message_class.width, message_class.reduces, message_class.nbytes, length)


def message_seconds(message_class: MessageClass, world_size: int, seconds: Callable[[Probe], float]) -> float:
    """Return the time of one message of a class in seconds. ``seconds`` returns the measured time of a test program.

    If the class has two test programs, the time of one repetition is the difference of their times, divided by the
    difference of their lengths. The time of a fan is divided equally among its messages.
    """
    short, *rest = probes_of(message_class, world_size)
    total = seconds(short)
    for long in rest:
        total = (seconds(long) - total) / (long.length - short.length)
    return max(0.0, total / (message_class.width if message_class.pattern in (FAN_IN, FAN_OUT) else 1))


@dataclass(frozen=True)
class MessageKind:
    """One message of a schedule, with its endpoints, its chunks, and the properties that determine its class."""

    src: Location
    dst: Location
    chunk: int
    into: int
    count: int
    pattern: str
    width: int
    together: int  # messages of its fan in the same step of the common rank, including this one
    reduces: bool
    is_first: bool

    def message_class(self, call: CollectiveCall, world_size: int) -> MessageClass:
        """Return the class of this message in a call, with a size as if each chunk had the maximum size."""
        chunks = call.algorithm.chunks(world_size)
        nbytes = self.count * -(-call.elements // chunks) * call.itemsize
        return MessageClass(self.pattern, self.width, self.reduces, nbytes, self.is_first)


def find_message_classes(call: CollectiveCall, world_size: int) -> list[MessageClass]:
    """Return the distinct message classes of a call. The list is empty if the call has no rank program."""
    if not call.algorithm.has_program:
        return []
    kinds = find_message_kinds(call.algorithm, world_size, call.root)
    return list(dict.fromkeys(kind.message_class(call, world_size) for kind in kinds.values()))


@lru_cache(maxsize=32)
def find_message_kinds(algorithm: Algorithm, world_size: int, root: int) -> dict[int, MessageKind]:
    """Return the properties of each message of a schedule, keyed by the index of its receive operation.

    A fan is a sequence of steps in which one rank only receives, or only sends. A step continues a fan only if all of
    its peers became ready before this rank.
    """
    schedule = build_schedule(algorithm, world_size, root)
    depth = {(rank, channel, step): depth for rank, channel, step, depth in completion_depths(schedule)}
    sends, receives = _by_step(schedule, Kind.SEND), _by_step(schedule, Kind.RECV, Kind.RECV_REDUCE)
    fan_in = _fans(schedule, receives, sends, depth)
    fan_out = _fans(schedule, sends, receives, depth)
    kinds = {}
    for location, indices in receives.items():
        for index in indices:
            match = int(schedule.match[index])
            src = _location(schedule, match)
            group_in, group_out = fan_in.get(location, (1, False)), fan_out.get(src, (1, False))
            if sends.get(location) or receives.get(src):
                width, together = max(len(indices), len(sends[src])), 1
                pattern, is_first = EXCHANGE, _before(depth, location) == _before(depth, src) == 0
            elif max(group_in[0], group_out[0]) > 1:
                pattern = FAN_IN if group_in[0] >= group_out[0] else FAN_OUT
                (width, is_first), together = (group_in, len(indices)) if pattern == FAN_IN else (
                    group_out, len(sends[src])
                )  # fmt: skip
            else:
                pattern, width, together = RELAY, 1, 1
                is_first = _before(depth, location) == _before(depth, src) == 0
            kinds[index] = MessageKind(
                src=src,
                dst=location,
                chunk=int(schedule.chunk[match]),
                into=int(schedule.into[index]),
                count=int(schedule.count[index]),
                pattern=pattern,
                width=width,
                together=together,
                reduces=bool(schedule.kind[index] == Kind.RECV_REDUCE),
                is_first=is_first,
            )
    return kinds


def _location(schedule: Schedule, index: int) -> Location:
    return int(schedule.rank[index]), int(schedule.channel[index]), int(schedule.step[index])


def _by_step(schedule: Schedule, *kinds: Kind) -> dict[Location, list[int]]:
    by_step: defaultdict[Location, list[int]] = defaultdict(list)
    for index, kind in enumerate(schedule.kind.tolist()):
        if kind in kinds:
            by_step[_location(schedule, index)].append(index)
    return dict(by_step)


def _before(depth: dict[Location, int], location: Location) -> int:
    rank, channel, step = location
    return depth.get((rank, channel, step - 1), 0)


def _fans(
    schedule: Schedule, fans: dict[Location, list[int]], other: dict[Location, list[int]], depth: dict[Location, int]
) -> dict[Location, tuple[int, bool]]:
    """Return the width of the fan at each location, and whether the fan is the first communication of its rank.

    ``fans`` are the sends or receives that can form fans, and ``other`` are the operations in the opposite direction.
    """

    def were_ready(location: Location) -> bool:
        peers = (_location(schedule, int(schedule.match[index])) for index in fans[location])
        return all(_before(depth, peer) < _before(depth, location) for peer in peers)

    width_of: dict[Location, tuple[int, bool]] = {}
    for row in _rows(fans, other, were_ready):
        width = sum(len(fans[location]) for location in row)
        width_of |= dict.fromkeys(row, (width, _before(depth, row[0]) == 0))
    return width_of


def _rows(
    fans: dict[Location, list[int]], other: dict[Location, list[int]], were_ready: Callable[[Location], bool]
) -> Iterator[list[Location]]:
    row: list[Location] = []
    for location in sorted(location for location in fans if not other.get(location)):
        follows = bool(row) and row[-1] == (location[0], location[1], location[2] - 1)
        if row and not (follows and were_ready(location)):
            yield row
            row = []
        row.append(location)
    if row:
        yield row
