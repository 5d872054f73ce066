"""Who is first of what happens on TCP connections at one instant, the same in both engines; and how large segments are.

Each event has a whole number, lower ones first: messages and notices that come into their streams, in the order in
which their rank was ready for them; then segments, by stream and by their number in it.
"""

MESSAGE_HEADER = 48.0  # bytes before each message, and of a notice: six words of gloo (transport/tcp/pair.h)
SEGMENT_PACKETS = 8  # packets that links serve together: so large a share of a window hides no interleaving
ENTRY, SEGMENT = 1 << 20, 1 << 61  # above the priorities that simpy itself uses, and above all entries
MOST_ENTRIES = 1 << 32  # of a rank
MOST_SEGMENTS = 1 << 40  # of a stream


def entry_order(rank: int, number: int) -> int:
    """Return the order of the ``number``-th item that a rank puts on any of its streams.

    >>> entry_order(0, 5) < entry_order(1, 1) < segment_order(0, 1)
    True
    """
    return ENTRY + rank * MOST_ENTRIES + number


def segment_order(stream: int, number: int) -> int:
    """Return the order of the ``number``-th segment of a stream, and of what acknowledges it.

    >>> segment_order(0, 9) < segment_order(1, 1)
    True
    """
    return SEGMENT + stream * MOST_SEGMENTS + number
