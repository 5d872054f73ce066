"""Store the state of ranks and TCP connections as arrays of records.

A rank is one thread that follows the executor's pipeline: it posts, waits, reduces, and posts again. A *message* here
is a unit of posting and waiting: a message in the program, or one slice of it. A receiver sends a *receive-ready
notification* to the sender. The data enters its stream once the notification has arrived and the send is posted. A send
completes when all of its data is in the send buffer, long before it arrives.

A connection between two ranks is two *streams*, one per direction. They carry *items*: item m is the data of message m,
and item ``messages + m`` is its receive-ready notification. An item leaves in *segments* of a few packets each, and the
window limits how many are in flight. A link serves segments in order of arrival. Each segment is acknowledged by
packets that queue on the links of the way back.
"""

from typing import NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import Floats, Ints, Records

MESSAGE_HEADER = 48.0  # bytes before each message, and of a notification: six words of gloo (transport/tcp/pair.h)
SEGMENT_PACKETS = 8  # packets that links serve together; small enough next to a window

# Kinds of actions. SPEND takes seconds, OCCUPY takes them of the core that is free first, and SHARE takes them of
# cores that all computing ranks share evenly.
POST_SEND, POST_RECEIVE, AWAIT_SEND, AWAIT_RECEIVE, SPEND, OCCUPY, SHARE = range(7)
RANK = np.dtype(
    [
        ("at", "i8"), ("entries", "i8"), ("finished", "f8"),
        ("ready", "i4"),  # stack of ranks that continue at this instant
        ("is_ready", "i4"),
        ("slept", "i4"),  # whether it had to wait for its current action
        ("shares", "i4"), ("left", "f8"),  # whether it computes on shared cores, and the remaining seconds
    ],
    align=True,
)  # fmt: skip
TCP_MESSAGE = np.dtype(
    [
        ("src", "i4"), ("dst", "i4"),
        ("data", "i4"), ("notification", "i4"),  # streams
        ("is_posted", "i1"), ("is_notified", "i1"),  # whether the send is posted, and the notification has arrived
        ("is_written", "i1"), ("has_arrived", "i1"),
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
        ("entered_at", "f8"), ("known_at", "f8"),  # entry of the last item; when its receiver knows
        ("to_send", "i4"), ("to_write", "i4"), ("last", "i4"),  # items; -1: none
        ("route", "i4"), ("back", "i4"),  # of segments, and of their acknowledgments
    ],
    align=True,
)  # fmt: skip
SEGMENT = np.dtype(
    [
        ("number", "i8"), ("nbytes", "f8"), ("on_wire", "f8"), ("head", "f8"), ("tail", "f8"),
        ("stream", "i4"), ("item", "i4"), ("is_last", "i4"), ("is_back", "i4"), ("hop", "i4"),
        ("free", "i4"),  # stack of unused segments
    ],
    align=True,
)  # fmt: skip
# A link with a token bucket: ``free_at`` is when a server without a bucket would be free. It is up to ``burst`` seconds
# in the past, which is the bucket.
SHAPED_LINK = np.dtype([("rate", "f8"), ("latency", "f8"), ("burst", "f8"), ("free_at", "f8")], align=True)
EVENT = np.dtype([("time", "f8"), ("order", "i8"), ("event", "i8")], align=True)
STATE = np.dtype(
    [
        ("now", "f8"),
        ("events", "i8"), ("free_segments", "i8"), ("ready_ranks", "i8"),  # counts
        ("sharing", "i8"), ("counted_at", "f8"),  # ranks on shared cores; their progress until then
        ("share_ends_at", "f8"),  # when the first of them ends; infinity if there is none
    ],
    align=True,
)  # fmt: skip
TERMS = np.dtype(
    [
        ("send_buffer", "f8"), ("window", "f8"), ("piece", "f8"), ("payload", "f8"), ("header", "f8"),  # bytes
        ("acknowledgement", "f8"), ("packets_acknowledged", "f8"),
        ("overhead", "f8"), ("receive_ready_overhead", "f8"), ("arrival_cpu", "f8"),  # seconds
        ("receive_ready", "i8"),  # whether notifications are sent
        ("shared_cores", "f8"),  # number of cores for SHARE
    ],
    align=True,
)  # fmt: skip


class TcpWorld(NamedTuple):
    actions: Ints  # kinds of all actions in order: POST_SEND etc.
    message_of: Ints  # [actions]: the message; -1 for local work
    seconds: Floats  # [actions]: duration of SPEND, SHARE and OCCUPY, and core time to continue after a wait
    occupied: Floats  # [actions]: how long the core is occupied
    done: Floats  # [actions]: when each ended, in seconds
    first_action: Ints  # [ranks + 1]
    messages: Records  # TCP_MESSAGE
    items: Records  # ITEM, twice as many as messages
    streams: Records  # STREAM
    first_hop: Ints  # [streams + 1]: of each stream's route
    hop_link: Ints
    links: Records  # SHAPED_LINK
    ranks: Records  # RANK
    segments: Records  # SEGMENT
    events: Records  # EVENT: a binary heap
    cores: Floats  # when each core for OCCUPY is free, in seconds; empty if cores are unlimited
    terms: Records  # TERMS [1]
    state: Records  # STATE [1]
