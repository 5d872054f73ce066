"""Define the arrays of the compiled engine: the stages and messages of a schedule, and the network.

Routes list only the links that can limit a message. A *link pair* (a, b) is an ordered pair of links on a common route.
Its record counts the flows that cross both links and whose rate is determined by a.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

NOBODY = np.int64(-1)  # a literal -1 would make numba compile every function that takes it again

Ints = npt.NDArray[np.int32]
LongInts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Records = npt.NDArray[Any]  # of a record type of the kernel


NO_FLOATS, NO_INTS = np.zeros(0), np.zeros(0, np.int32)
STAGE = np.dtype(
    [
        ("first_op", "i4"),  # its messages are ops[first_op of it : first_op of the next stage]
        ("waiting", "i4"),  # messages that have not ended
        ("agent", "i4"),
        ("following", "i4"),  # the agent's next stage; -1 after its last
    ],
    align=True,
)
MESSAGE = np.dtype(
    [
        ("source", "i4"), ("sink", "i4"),  # the stages that send and receive it
        ("route", "i4"),
        ("posted", "i4"),  # number of posted operations (send, receive); at 2 it begins, then 1 again
        ("nbytes", "f8"),
    ],
    align=True,
)  # fmt: skip


class Plan(NamedTuple):
    """The stages that each agent executes in order, and the messages between stages.

    ``stages`` and ``messages`` also hold the progress of a simulation; ``new_world`` resets it.
    """

    stages: Records  # STAGE, plus one record for the end of ``ops``
    messages: Records  # MESSAGE
    ops: Ints  # messages of each stage
    cost: Floats  # [stages]: compute seconds after the messages; [0] if there are none
    first_stage: Ints  # [agents]; -1: idle
    extra: Floats = NO_FLOATS  # [messages]: additional delay in seconds; [0] if there is none
    fails_at: Floats = NO_FLOATS  # [agents]: time of failure in seconds; [0] if none fails

    def most_at_once(self, end: str) -> LongInts:
        """Return each agent's maximum number of sends (if ``end`` is "source") or receives ("sink") per stage."""
        agent = self.stages["agent"][:-1]
        most = np.zeros(len(self.first_stage), np.int64)
        np.maximum.at(most, agent, np.bincount(self.messages[end], minlength=len(agent)))
        return most


UNLIMITED = 1e200  # bytes/s of an unlimited link; finite, so that differences are defined

ROUTE = np.dtype(
    [
        ("first_hop", "i4"), ("hops", "i4"),
        ("first_link_pair", "i8"),  # in LinkRecords.hop_link_pair
        ("delay", "f8"),  # seconds from send and receive posted to the first byte on the links
        ("alone_rate", "f8"),  # bytes/s of a message that shares no link
    ],
    align=True,
)  # fmt: skip
LINK_PAIR = np.dtype(
    [
        ("src", "i4"), ("dst", "i4"),  # two links
        ("carried", "i4"),  # members of the first link's group that cross the second
        ("head", "i4"),  # list of these members, as flow * most hops + hop of the second link
        # Lists of the link pairs that carry flows, from World.links.first_link_pair of a link on:
        ("out", "i4"), ("out_place", "i4"),  # pairs from the link, and this pair's position in such a list
        ("into", "i4"), ("into_place", "i4"),  # pairs to the link, and this pair's position in such a list
    ],
    align=True,
)  # fmt: skip


class LinkRecords(NamedTuple):
    """The links of a network and the routes over them, as arrays for the kernel."""

    routes: Records  # ROUTE
    hop_link: Ints  # links of routes, from ROUTE.first_hop of each on
    hop_link_pair: Ints  # hops i and j of a route are the link pair at first_link_pair + i * hops + j
    link_pairs: Records  # LINK_PAIR, by ``src``
    first_link_pair: Ints  # [links]: the first link pair from each link
    alone: Floats  # [links]: bytes/s for one message alone
    shared: Floats  # [links]: bytes/s for several together


class LinkChange(NamedTuple):
    """A change of a link at ``time``: its new bytes/s for one message and for several, and the routes that use it."""

    time: float
    link: int
    alone: float
    shared: float
    routes: Ints


AT_ONCE = 1_000_000  # keys sorted at a time, to limit memory


def number_distinct(keys: LongInts, below: int) -> tuple[LongInts, Ints]:
    """Return the distinct keys in ascending order, and each key's position among them. Keys are less than ``below``."""
    # a larger table of all possible keys is slower than sorting
    if below > (1 << 24):
        return _by_sorting(keys)
    number = np.zeros(below, np.int32)
    number[keys] = 1
    distinct = np.flatnonzero(number)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, number[keys]


def _by_sorting(keys: LongInts) -> tuple[LongInts, Ints]:
    if len(keys) <= AT_ONCE:
        distinct, number = np.unique(keys, return_inverse=True)
        return distinct, number.astype(np.int32)
    sample = np.sort(keys[:: len(keys) // AT_ONCE])  # a sample, to choose the bounds
    sample = np.unique(sample[:: max(1, AT_ONCE * len(sample) // len(keys))])
    bounds = [*sample.tolist()[1:], int(keys.max()) + 1]
    parts, numbers, before, low = list[LongInts](), np.empty(len(keys), np.int32), 0, 0
    for bound in bounds:
        chosen = np.flatnonzero((keys >= low) & (keys < bound))
        distinct, number = np.unique(keys[chosen], return_inverse=True)
        numbers[chosen] = number + before
        parts.append(distinct)
        before, low = before + len(distinct), bound
    return np.concatenate(parts), numbers
