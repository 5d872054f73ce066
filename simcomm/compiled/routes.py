"""The network as arrays: links, and the routes that messages take, each a list of the links that can hold it back."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Records = npt.NDArray[Any]

DENSE = 1 << 24  # entries of a table over all pairs of links, beyond which pairs are sorted instead
MOST = 1e200  # bytes/s that stand for infinitely many, so that no difference of two rates is undefined

ROUTE = np.dtype(
    [("first_hop", "i4"), ("hops", "i4"), ("first_pair", "i8"), ("delay", "f8"), ("alone_rate", "f8")], align=True
)  # fmt: skip
HOP = np.dtype([("link", "i4"), ("weight", "i4")], align=True)
PAIR = np.dtype(
    [
        ("src", "i4"), ("dst", "i4"),  # two links that a route has in common, in this order
        ("carried", "i4"),  # members of the first one's group on the second
        ("head", "i4"),  # the list of them, as flow * most hops + hop of the second link
        ("out", "i4"), ("out_place", "i4"),  # the first link's pairs that carry something, a list where its pairs stand
        ("into", "i4"), ("into_place", "i4"),  # the same of pairs to the first link
    ],
    align=True,
)  # fmt: skip


class Routes(NamedTuple):
    """Where messages go; route r crosses ``hop_link[first_hop[r]:first_hop[r + 1]]``.

    A route may stand for several alike: ``hop_weight`` says how many of them cross one link. With every weight 1 it
    stands for itself.
    """

    first_hop: Ints  # [routes + 1]
    hop_link: Ints  # [hops]
    hop_weight: Ints  # [hops]
    delay: Floats  # [routes]: seconds from both halves posted to the first byte under way
    alone: Floats  # [links]: bytes/s for one message alone on the link
    shared: Floats  # [links]: bytes/s for several together
    latency: Floats  # [links]: seconds, which the delays already contain


class Wires(NamedTuple):
    """Routes as the engine reads them."""

    routes: Records  # ROUTE
    hops: Records  # HOP
    hop_pair: Ints  # hops i and j of a route are the pair at first_pair + i * hops + j
    pairs: Records  # PAIR, by ``src``
    first_pair: Ints  # [links]: the first pair of each link
    alone: Floats  # [links]
    shared: Floats  # [links]


def alone_rates(routes: Routes) -> Floats:
    """Bytes/s of a message that shares no link, for each route; infinite where none limits it."""
    rate = np.full(len(routes.delay), np.inf)
    np.minimum.at(rate, np.repeat(np.arange(len(rate)), np.diff(routes.first_hop)), routes.alone[routes.hop_link])
    return rate


def only_limiting(routes: Routes, private: npt.NDArray[np.bool_]) -> Routes:
    """The same without links that hold nobody back, whatever else is under way.

    These are links of infinite capacity and, among those that never carry two messages at once (``private``), all but
    the tightest of a route, and that one too where another link of the route lets no message go faster.
    """
    first, link = routes.first_hop[:-1], routes.hop_link
    route = np.repeat(np.arange(len(first)), np.diff(routes.first_hop))
    most = np.where(private, routes.alone, np.maximum(routes.alone, routes.shared))[link]
    least = np.where(private, routes.alone, np.minimum(routes.alone, routes.shared))[link]
    order = np.lexsort((private[link], most, route))  # of each route the tightest first, of equal ones a shared one
    tightest = np.zeros(len(link), np.bool_)
    tightest[order[first[np.diff(routes.first_hop) > 0]]] = True
    kept = (~private[link] | tightest) & (least < np.inf)
    counts = np.append(0, np.cumsum(kept))[routes.first_hop]
    return routes._replace(first_hop=counts.astype(np.int32), hop_link=link[kept], hop_weight=routes.hop_weight[kept])


def wired(routes: Routes, private: npt.NDArray[np.bool_]) -> Wires:
    """Routes as the engine reads them, without links that hold nobody back; ``private`` ones carry one at a time."""
    routes = only_limiting(routes, private)
    alone, shared = np.minimum(routes.alone, MOST), np.minimum(routes.shared, MOST)
    counts = np.diff(routes.first_hop).astype(np.int64)
    records = np.zeros(len(counts), ROUTE)
    records["first_hop"], records["hops"], records["delay"] = routes.first_hop[:-1], counts, routes.delay
    records["first_pair"] = np.cumsum(counts**2) - counts**2
    records["alone_rate"] = alone_rates(routes._replace(alone=alone))
    hops = np.zeros(len(routes.hop_link), HOP)
    hops["link"], hops["weight"] = routes.hop_link, routes.hop_weight
    hop_pair, pairs = _pairs(records, routes.hop_link, len(alone))
    first_pair = np.searchsorted(pairs["src"], np.arange(len(alone))).astype(np.int32)
    return Wires(records, hops, hop_pair, pairs, first_pair, alone, shared)


def _pairs(records: Records, hop_link: Ints, links: int) -> tuple[Ints, Records]:
    """For each two hops of a route the number of their pair, and the pairs."""
    counts = records["hops"]
    keys = np.empty(int((counts.astype(np.int64) ** 2).sum()), np.int64)
    for hops in np.unique(counts[counts > 0]).tolist():  # few lengths, each at once
        chosen = np.flatnonzero(counts == hops)
        on_it = hop_link[records["first_hop"][chosen][:, None] + np.arange(hops)].astype(np.int64)
        table = on_it[:, :, None] * links + on_it[:, None, :]
        keys[records["first_pair"][chosen][:, None] + np.arange(hops**2)] = table.reshape(len(chosen), -1)
    distinct, hop_pair = _numbered(keys, links)
    pairs = np.zeros(len(distinct), PAIR)
    pairs["src"], pairs["dst"] = np.divmod(distinct, max(1, links))
    pairs["head"] = -1
    return hop_pair, pairs


def _numbered(keys: npt.NDArray[np.int64], links: int) -> tuple[npt.NDArray[np.int64], Ints]:
    """The distinct keys in ascending order, and for each key its number among them."""
    if links**2 > DENSE:
        distinct, numbers = np.unique(keys, return_inverse=True)
        return distinct, numbers.astype(np.int32)
    number = np.zeros(links**2, np.int32)
    number[keys] = 1
    distinct = np.flatnonzero(number)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, number[keys]
