"""What links that change leave to a message that has them for itself."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from math import inf

import networkx as nx
import numpy as np

from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.faults import rate_left
from simcomm.compiled.planning.routes import Routes
from simcomm.model.faults import Faults

MOST_CHANGES = 20_000  # of links that are looked at; a run that goes on after them is left to events


class LinkRates:
    """The bytes/s of each route over links that change, each from some seconds on; links are in the graph's order.

    Of each rank there is a route for each of so many ``distances``.
    """

    def __init__(self, graph: "nx.DiGraph[str]", faults: Faults, routes: Routes, distances: int) -> None:
        number = {link: index for index, link in enumerate(graph.edges)}
        shares: defaultdict[int, dict[float, float]] = defaultdict(lambda: {0.0: 1.0})
        self._until, self.missed = inf, False  # up to when all changes are known; whether a run went on after it
        for count, change in enumerate(islice(faults.changes(), MOST_CHANGES + 1)):
            if count == MOST_CHANGES:
                self._until = change.time
                break
            shares[number[change.link]][max(0.0, change.time)] = change.share
        counts = np.diff(routes.first_hop)
        changing = np.isin(routes.hop_link, np.fromiter(shares, np.int64, len(shares)))
        # By distance and rank: since when, and bytes/s; the first of each at 0.
        self._rates: defaultdict[int, dict[int, tuple[list[float], list[float]]]] = defaultdict(dict)
        for route in np.unique(np.repeat(np.arange(len(counts)), counts)[changing]).tolist():
            links = routes.hop_link[routes.first_hop[route] : routes.first_hop[route + 1]].tolist()
            rates = list(_route_rates([(float(routes.alone[link]), shares.get(link)) for link in links]))
            rank, distance = divmod(route, distances)
            self._rates[distance][rank] = [since for since, _ in rates], [rate for _, rate in rates]

    def correct(self, through: Floats, at_links: Floats, nbytes: Floats, distance: int) -> None:
        """Set when messages are through that go over changing links, by rank: all go the same distance.

        They come to their links ``at_links``.
        """
        for rank in self._rates[distance]:
            if nbytes[rank] > 0:
                through[rank] = self.arrival(distance, rank, float(at_links[rank]), float(nbytes[rank]))

    def change(self, distance: int, rank: int) -> bool:
        """Return whether links change on the way of a rank's messages."""
        return rank in self._rates[distance]

    def arrival(self, distance: int, rank: int, start: float, nbytes: float) -> float:
        """Return when a message of a rank that came to its changing links at ``start`` is through; infinite if never.

        ``missed`` is set where changes would have to be known that are not.
        """
        if start == inf:
            return inf
        since, rates = self._rates[distance][rank]
        at, now = max(0, bisect_right(since, start) - 1), start
        while at + 1 < len(since):
            room = (since[at + 1] - now) * rates[at]
            if nbytes <= room:
                return now + nbytes / rates[at]
            nbytes, now, at = nbytes - room, since[at + 1], at + 1
        through = now + nbytes / rates[at] if rates[at] > 0 else inf
        self.missed |= through > self._until
        return through


def _route_rates(links: list[tuple[float, dict[float, float] | None]]) -> Iterator[tuple[float, float]]:
    """Yield from when on a route of such links has how many bytes/s."""
    times = sorted({0.0}.union(*(shares for _, shares in links if shares)))
    now = [1.0] * len(links)
    for time in times:
        now = [share if not shares else shares.get(time, share) for (_, shares), share in zip(links, now, strict=True)]
        yield time, min(rate_left(alone, share) for (alone, _), share in zip(links, now, strict=True))
