"""Compute arrival times over links whose bandwidth changes, for messages that share no link."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from math import inf

import networkx as nx
import numpy as np

from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.faults import rate_left
from simcomm.compiled.planning.routes import Routes
from simcomm.model.faults import Faults


class LinkRates:
    """A calculator of arrival times over routes whose links change their bandwidth during the run.

    A route is identified by its sender's rank and the index of the distance to its receiver.
    """

    def __init__(self, graph: "nx.DiGraph[str]", faults: Faults, routes: Routes, distances: int) -> None:
        number = {link: index for index, link in enumerate(graph.edges)}
        shares: defaultdict[int, dict[float, float]] = defaultdict(lambda: {0.0: 1.0})
        for change in faults.changes():
            shares[number[change.link]][max(0.0, change.time)] = change.share
        counts = np.diff(routes.first_hop)
        changing = np.isin(routes.hop_link, np.fromiter(shares, np.int64, len(shares)))
        # By distance and rank: start times and bytes/s; the first start is 0.
        self._rates: defaultdict[int, dict[int, tuple[list[float], list[float]]]] = defaultdict(dict)
        for route in np.unique(np.repeat(np.arange(len(counts)), counts)[changing]).tolist():
            links = routes.hop_link[routes.first_hop[route] : routes.first_hop[route + 1]].tolist()
            rates = list(_route_rates([(float(routes.alone[link]), shares.get(link)) for link in links]))
            rank, distance = divmod(route, distances)
            self._rates[distance][rank] = [since for since, _ in rates], [rate for _, rate in rates]

    def correct(self, through: Floats, at_links: Floats, nbytes: Floats, distance: int) -> None:
        """Correct the arrival times in ``through`` of messages that cross links whose bandwidth changes.

        All arrays are indexed by sender. All messages travel the same distance, whose index is ``distance``.
        ``at_links`` has the times at which messages reach their links.
        """
        for rank in self._rates[distance]:
            if nbytes[rank] > 0:
                through[rank] = self.arrival(distance, rank, float(at_links[rank]), float(nbytes[rank]))

    def change(self, distance: int, rank: int) -> bool:
        """Return whether the bandwidth of any link on this route changes."""
        return rank in self._rates[distance]

    def arrival(self, distance: int, rank: int, start: float, nbytes: float) -> float:
        """Return the arrival time of a message that reaches its links at ``start``, or infinity if it never arrives."""
        if start == inf:
            return inf
        since, rates = self._rates[distance][rank]
        at, now = max(0, bisect_right(since, start) - 1), start
        while at + 1 < len(since):
            room = (since[at + 1] - now) * rates[at]
            if nbytes <= room:
                return now + nbytes / rates[at]
            nbytes, now, at = nbytes - room, since[at + 1], at + 1
        return now + nbytes / rates[at] if rates[at] > 0 else inf


def _route_rates(links: list[tuple[float, dict[float, float] | None]]) -> Iterator[tuple[float, float]]:
    """Yield the start of each period in which a route has a constant rate, and the rate in bytes/s."""
    times = sorted({0.0}.union(*(shares for _, shares in links if shares)))
    now = [1.0] * len(links)
    for time in times:
        now = [share if not shares else shares.get(time, share) for (_, shares), share in zip(links, now, strict=True)]
        yield time, min(rate_left(alone, share) for (alone, _), share in zip(links, now, strict=True))
