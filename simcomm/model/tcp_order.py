"""Who is first of what happens on TCP connections at one instant, the same in both engines; and how large segments are.

Each event has a whole number, lower ones first: ranks that have spent the time that something takes them; ranks that
ask for a core; messages and notices that come into their
streams, in the order in which their rank was ready for them; segments that leave their first link, and segments, by
stream and by their number in it; and items that a rank gets to know of, by their last segment.
"""

from collections.abc import MutableSequence

MESSAGE_HEADER = 48.0  # bytes before each message, and of a notice: six words of gloo (transport/tcp/pair.h)
SEGMENT_PACKETS = 8  # packets that links serve together: so large a share of a window hides no interleaving
# Above simpy's own, and each above those before.
SPENDING = 2
CORE, ENTRY, PASSING, SEGMENT, ARRIVAL = 1 << 20, 1 << 40, 1 << 60, 1 << 61, 1 << 62
MOST_ENTRIES = 1 << 32  # of a rank
MOST_SEGMENTS = 1 << 40  # of a stream


def spending_order(rank: int) -> int:
    """Return the order in which ranks are through with what took them time; the kernel has the rank itself.

    >>> spending_order(0) < spending_order(1) < core_order(0)
    True
    """
    return SPENDING + rank


def core_order(rank: int) -> int:
    """Return the order in which a rank asks for a core, among those that do.

    >>> core_order(0) < core_order(1) < entry_order(0, 1)
    True
    """
    return CORE + rank


def entry_order(rank: int, number: int) -> int:
    """Return the order of the ``number``-th item that a rank puts on any of its streams.

    >>> entry_order(0, 5) < entry_order(1, 1) < segment_order(0, 1)
    True
    """
    return ENTRY + rank * MOST_ENTRIES + number


def passing_order(stream: int, number: int) -> int:
    """Return the order in which the ``number``-th segment of a stream has left its first link.

    >>> entry_order(0, 1) < passing_order(0, 9) < segment_order(0, 1)
    True
    """
    return PASSING + stream * MOST_SEGMENTS + number


def segment_order(stream: int, number: int) -> int:
    """Return the order of the ``number``-th segment of a stream, and of what acknowledges it.

    >>> segment_order(0, 9) < segment_order(1, 1)
    True
    """
    return SEGMENT + stream * MOST_SEGMENTS + number


def arrival_order(stream: int, number: int) -> int:
    """Return the order in which the receiver gets to know of an item whose last segment is the ``number``-th.

    >>> segment_order(1, 1) < arrival_order(0, 1) < arrival_order(0, 2)
    True
    """
    return ARRIVAL + stream * MOST_SEGMENTS + number


def serve_core(free_at: MutableSequence[float], now: float, seconds: float) -> float:
    """Give so many seconds of the core that is free first, and return when they are over; of no cores, at once.

    Whoever asks first is served first. ``free_at`` says of each core when it will be free.

    >>> cores = [0.0, 0.0]
    >>> [serve_core(cores, 1.0, 2.0) for _ in range(3)]
    [3.0, 3.0, 5.0]
    """
    if len(free_at) == 0:
        return now + seconds
    first = 0
    for core in range(1, len(free_at)):
        if free_at[core] < free_at[first]:
            first = core
    free_at[first] = max(now, free_at[first]) + seconds
    return free_at[first]


def count_segments(nbytes: float, payload: float) -> float:
    """Return how many pieces are simulated of so many bytes, which come in packets of ``payload`` bytes.

    >>> count_segments(1 << 20, payload=1024.0)
    128.0
    """
    return nbytes / (SEGMENT_PACKETS * payload)
