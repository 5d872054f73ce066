"""What ranks do and what is on TCP connections, as arrays of records; the rules are those of the reference engine.

See ``simcomm/reference/tcp_engine.py`` and ``tcp_streams.py``, whose words these are. A message here is what is posted
and awaited as one: a message of the program, or a slice of one. Item m is the data of message m, and item
``messages + m`` the notice that its receiver is ready.
"""

from typing import Any, NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import Floats, Ints, Records

POST_SEND, POST_RECEIVE, AWAIT_SEND, AWAIT_RECEIVE, SPEND, OCCUPY = range(6)  # what a rank does; see ``seconds``
RANK = np.dtype(
    [
        ("at", "i8"), ("entries", "i8"), ("finished", "f8"),
        ("ready", "i4"), ("is_ready", "i4"),
        ("slept", "i4"),  # whether it had to wait for what it awaits
    ],
    align=True,
)  # fmt: skip
TCP_MESSAGE = np.dtype(
    [
        ("src", "i4"), ("dst", "i4"),
        ("data", "i4"), ("notice", "i4"),  # streams
        ("is_posted", "i1"), ("is_told", "i1"),  # the send; whether the notice has come
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
        ("put", "f8"), ("sent", "f8"), ("passed", "f8"), ("acknowledged", "f8"),
        ("entered_at", "f8"), ("known_at", "f8"),
        ("to_send", "i4"), ("to_write", "i4"), ("last", "i4"),  # items, -1 for none
        ("route", "i4"), ("back", "i4"),
    ],
    align=True,
)  # fmt: skip
SEGMENT = np.dtype(
    [
        ("number", "i8"), ("nbytes", "f8"), ("on_wire", "f8"), ("head", "f8"), ("tail", "f8"),
        ("stream", "i4"), ("item", "i4"), ("is_last", "i4"), ("is_back", "i4"), ("hop", "i4"), ("free", "i4"),
    ],
    align=True,
)  # fmt: skip
SHAPED_LINK = np.dtype([("rate", "f8"), ("latency", "f8"), ("burst", "f8"), ("free_at", "f8")], align=True)
EVENT = np.dtype([("time", "f8"), ("order", "i8"), ("what", "i8")], align=True)
FREE_SEGMENTS, EVENTS, READY_RANKS, COUNTS = range(4)  # indices of TcpWorld.sizes
SENDS, WINDOW, PAYLOAD, HEADER, ACKNOWLEDGEMENT, PER_ACKNOWLEDGEMENT, OVERHEAD, NOTICE_OVERHEAD = range(8)
ARRIVAL_CPU, PIECE, NUMBERS = 8, 9, 10


class TcpPlan(NamedTuple):
    """What each rank does in order, and the messages of all."""

    deeds: Ints  # POST_SEND and so on
    about: Ints  # [deeds]: the message; -1 of SPEND
    seconds: Floats  # [deeds]: what SPEND takes, OCCUPY of a core, and going on of one after a wait
    held: Floats  # [deeds]: for how long the core is kept
    first_deed: Ints  # [ranks + 1]
    messages: Records  # TCP_MESSAGE
    items: Records  # ITEM, twice as many as messages
    streams: Records  # STREAM


class TcpWorld(NamedTuple):
    """The state of a run."""

    deeds: Ints
    about: Ints
    seconds: Floats
    held: Floats
    first_deed: Ints
    messages: Records
    items: Records
    streams: Records
    first_hop: Ints  # [routes + 1]
    hop_link: Ints
    links: Records  # SHAPED_LINK
    ranks: Records
    segments: Records
    events: Records  # EVENT: a binary heap
    done: Floats  # [deeds]: seconds at which each was done
    sizes: Any  # int64 [COUNTS]
    clock: Any  # float64 [1]
    cores: Floats  # seconds at which each will be free; none where ranks do not share them
    terms: Floats  # [NUMBERS]
    notices: bool
