"""The arrays that the compiled engine works on: what is to be sent and computed, and the network.

Routes are lists of the links that can hold a message back. Two links that some route has in common, in an order, are a
*link pair*: where a flow gets its rate from one link, the others of its route keep account of it by link pair.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

NOBODY = np.int64(-1)  # not the literal -1, for which numba would compile every function that takes it once more

Ints = npt.NDArray[np.int32]
LongInts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Records = npt.NDArray[Any]  # of one of the record types that the kernel's modules define


NO_FLOATS, NO_INTS = np.zeros(0), np.zeros(0, np.int32)
STAGE = np.dtype(
    [
        ("first_op", "i4"),  # its messages are ops[first_op of it : first_op of the next stage]
        ("waiting", "i4"),  # messages that are not through
        ("agent", "i4"),
        ("following", "i4"),  # the agent's next stage; -1 after its last
    ],
    align=True,
)
MESSAGE = np.dtype(
    [
        ("source", "i4"), ("sink", "i4"),  # the stages that send and receive it
        ("route", "i4"),
        ("posted", "i4"),  # 1 when one half is there, 2 when both are and it is about to begin, and then 1 again
        ("nbytes", "f8"),
    ],
    align=True,
)  # fmt: skip


class Plan(NamedTuple):
    """Agents, the stages that each goes through in order, and the messages between stages.

    ``stages`` and ``messages`` also hold how far a run has come; ``new_world`` resets that.
    """

    stages: Records  # STAGE, and one more for the end of its ops
    messages: Records  # MESSAGE
    ops: Ints  # numbers of messages, by stage
    cost: Floats  # [stages]: seconds of computing after the messages; [0] where there is none
    first_stage: Ints  # [agents]; -1 for one that has nothing to do
    extra: Floats = NO_FLOATS  # [messages]: seconds of delay on top of the route's; [0] where there is none
    fails_at: Floats = NO_FLOATS  # [agents]: seconds from which on it starts nothing; [0] where none fails
    arrival_order: Ints = NO_INTS  # [messages]: who of those that come at one instant is first; [0] if links are fair

    def most_at_once(self, end: str) -> LongInts:
        """Return of each agent the most messages that one of its stages sends ("source") or receives ("sink")."""
        agent = self.stages["agent"][:-1]
        most = np.zeros(len(self.first_stage), np.int64)
        np.maximum.at(most, agent, np.bincount(self.messages[end], minlength=len(agent)))
        return most


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
    hop_link: Ints  # links of routes, from ROUTE.first_hop of each on
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


AT_ONCE = 1_000_000  # keys that are sorted at a time, which bounds the memory for that


def number_distinct(keys: LongInts, below: int) -> tuple[LongInts, Ints]:
    """Return the distinct keys in ascending order, and for each key its number among them; keys are 0..below - 1."""
    # a larger table over all possible keys takes longer than sorting those that there are
    if below > (1 << 24):
        return _by_sorting(keys)
    number = np.zeros(below, np.int32)
    number[keys] = 1
    distinct = np.flatnonzero(number)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, number[keys]


def _by_sorting(keys: LongInts) -> tuple[LongInts, Ints]:
    """Return what ``number_distinct`` does, of very many keys range by range."""
    if len(keys) <= AT_ONCE:
        distinct, number = np.unique(keys, return_inverse=True)
        return distinct, number.astype(np.int32)
    some = np.sort(keys[:: len(keys) // AT_ONCE])  # which say where to part all
    some = np.unique(some[:: max(1, AT_ONCE * len(some) // len(keys))])
    bounds = [*some.tolist()[1:], int(keys.max()) + 1]
    found, numbers, before, low = list[LongInts](), np.empty(len(keys), np.int32), 0, 0
    for bound in bounds:
        chosen = np.flatnonzero((keys >= low) & (keys < bound))
        distinct, number = np.unique(keys[chosen], return_inverse=True)
        numbers[chosen] = number + before
        found.append(distinct)
        before, low = before + len(distinct), bound
    return np.concatenate(found), numbers
