"""The network as the kernel reads it: links, and routes as lists of the links that can hold a message back.

Two links that some route has in common, in an order, are a *link pair*: where a flow gets its rate from one link, the
others of its route keep account of it by link pair.
"""

from typing import NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import Floats, Ints, Records

UNLIMITED = 1e200  # bytes/s that stand for infinitely many, so that no difference of two rates is undefined

ROUTE = np.dtype(
    [
        ("first_hop", "i4"), ("hops", "i4"),
        ("first_link_pair", "i8"),  # in LinkRecords.hop_link_pair
        ("delay", "f8"),  # seconds from both halves posted to the first byte on the links
        ("alone_rate", "f8"),  # bytes/s of a message that shares no link
    ],
    align=True,
)  # fmt: skip
HOP = np.dtype([("link", "i4"), ("weight", "i4")], align=True)
LINK_PAIR = np.dtype(
    [
        ("src", "i4"), ("dst", "i4"),  # two links
        ("carried", "i4"),  # members of the first one's group that cross the second
        ("head", "i4"),  # the list of them, as flow * most hops + hop of the second link
        # Link pairs that carry something are listed from World.links.first_link_pair of a link on:
        ("out", "i4"), ("out_place", "i4"),  # those from the link, and where this one stands in such a list
        ("into", "i4"), ("into_place", "i4"),  # those to the link, and where this one stands in such a list
    ],
    align=True,
)  # fmt: skip


class LinkRecords(NamedTuple):
    """Links and routes."""

    routes: Records  # ROUTE
    hops: Records  # HOP
    hop_link_pair: Ints  # hops i and j of a route are the link pair at first_link_pair + i * hops + j
    link_pairs: Records  # LINK_PAIR, by ``src``
    first_link_pair: Ints  # [links]: the first link pair from each link
    alone: Floats  # [links]: bytes/s for one message alone
    shared: Floats  # [links]: bytes/s for several together


class LinkChange(NamedTuple):
    """From ``time`` on the link has so many bytes/s for one message and for several; these routes cross it."""

    time: float
    link: int
    alone: float
    shared: float
    routes: Ints
