"""What ranks do and what is on TCP connections, as arrays of records.

A rank is one thread that follows the executor's pipeline: it posts, waits, reduces, and posts what follows. A *message*
here is what is posted and awaited as one: a message of the program, or a slice of one. A receive sends a *receive-ready
notification* to the sender, and data comes into its stream when notification and send are both there. A send is done
when all of it is in the send buffer, long before it arrives.

A connection of two ranks is two *streams*, one each way, and what is in line on them are *items*: item m is the data of
message m, and item ``messages + m`` the notification that its receiver is ready. An item leaves in *segments* of a few
packets, as many as the window lets be under way. A link serves segments in the order in which they come; an
acknowledgement goes back for each, in line on the links there.
"""

from typing import NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import Floats, Ints, Records

MESSAGE_HEADER = 48.0  # bytes before each message, and of a notification: six words of gloo (transport/tcp/pair.h)
SEGMENT_PACKETS = 8  # packets that links serve together: so large a share of a window hides no interleaving

# What a rank does. SPEND takes seconds of its own, OCCUPY of a core that is free first, SHARE of cores on which all
# that compute at once go on evenly.
POST_SEND, POST_RECEIVE, AWAIT_SEND, AWAIT_RECEIVE, SPEND, OCCUPY, SHARE = range(7)
RANK = np.dtype(
    [
        ("at", "i8"), ("entries", "i8"), ("finished", "f8"),
        ("ready", "i4"),  # stack of ranks that go on at this instant
        ("is_ready", "i4"),
        ("slept", "i4"),  # whether it had to wait for what it awaits
        ("shares", "i4"), ("left", "f8"),  # whether it computes on shared cores, and the seconds that it has left
    ],
    align=True,
)  # fmt: skip
TCP_MESSAGE = np.dtype(
    [
        ("src", "i4"), ("dst", "i4"),
        ("data", "i4"), ("notification", "i4"),  # streams
        ("is_posted", "i1"), ("is_ready", "i1"),  # the send; whether the notification has come
        ("is_written", "i1"), ("is_there", "i1"),
        ("late", "f8"),  # seconds of jitter
        ("send_posted", "f8"), ("receive_posted", "f8"), ("end", "f8"),
    ],
    align=True,
)  # fmt: skip
ITEM = np.dtype([("nbytes", "f8"), ("left", "f8"), ("end", "f8"), ("after", "i4"), ("stream", "i4")], align=True)
STREAM = np.dtype(
    [
        ("number", "i8"), ("segments", "i8"),
        ("put", "f8"), ("sent", "f8"), ("passed", "f8"), ("acknowledged", "f8"),  # bytes
        ("entered_at", "f8"), ("known_at", "f8"),  # seconds: when the last item came, and when its receiver knew
        ("to_send", "i4"), ("to_write", "i4"), ("last", "i4"),  # items, -1 for none
        ("route", "i4"), ("back", "i4"),  # of segments, and of their acknowledgements
    ],
    align=True,
)  # fmt: skip
SEGMENT = np.dtype(
    [
        ("number", "i8"), ("nbytes", "f8"), ("on_wire", "f8"), ("head", "f8"), ("tail", "f8"),
        ("stream", "i4"), ("item", "i4"), ("is_last", "i4"), ("is_back", "i4"), ("hop", "i4"),
        ("free", "i4"),  # stack of segments that are not under way
    ],
    align=True,
)  # fmt: skip
# A link with a token bucket: ``free_at`` is when a server without one would be through with what has come. It lies up
# to ``burst`` seconds in the past, which is the bucket.
SHAPED_LINK = np.dtype([("rate", "f8"), ("latency", "f8"), ("burst", "f8"), ("free_at", "f8")], align=True)
EVENT = np.dtype([("time", "f8"), ("order", "i8"), ("what", "i8")], align=True)
STATE = np.dtype(
    [
        ("now", "f8"),
        ("events", "i8"), ("free_segments", "i8"), ("ready_ranks", "i8"),  # how many there are
        ("sharing", "i8"), ("counted_at", "f8"),  # ranks on shared cores, and until when what they compute is counted
        ("share_ends_at", "f8"),  # when the first of those is through; infinite if there is none
    ],
    align=True,
)  # fmt: skip
TERMS = np.dtype(
    [
        ("send_buffer", "f8"), ("window", "f8"), ("piece", "f8"), ("payload", "f8"), ("header", "f8"),  # bytes
        ("acknowledgement", "f8"), ("packets_acknowledged", "f8"),
        ("overhead", "f8"), ("receive_ready_overhead", "f8"), ("arrival_cpu", "f8"),  # seconds
        ("receive_ready", "i8"),  # whether there are any
        ("shared_cores", "f8"),  # on which ranks SHARE
    ],
    align=True,
)  # fmt: skip


class TcpWorld(NamedTuple):
    """The state of a run."""

    deeds: Ints  # what all ranks do, in order: POST_SEND and so on
    about: Ints  # [deeds]: the message; -1 of what takes time
    seconds: Floats  # [deeds]: what SPEND and SHARE take, OCCUPY of a core, and going on of one after a wait
    held: Floats  # [deeds]: for how long the core is kept
    done: Floats  # [deeds]: seconds at which each was done
    first_deed: Ints  # [ranks + 1]
    messages: Records  # TCP_MESSAGE
    items: Records  # ITEM, twice as many as messages
    streams: Records  # STREAM
    first_hop: Ints  # [streams + 1]: of each one's route
    hop_link: Ints
    links: Records  # SHAPED_LINK
    ranks: Records  # RANK
    segments: Records  # SEGMENT
    events: Records  # EVENT: a binary heap
    cores: Floats  # seconds at which each will be free that ranks OCCUPY; none where they do not share them
    terms: Records  # TERMS [1]
    state: Records  # STATE [1]
