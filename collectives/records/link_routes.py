"""The routes of a Trace's messages as numbers of its links."""

from dataclasses import dataclass

import numpy as np

from collectives.records.columnar import Floats, Ints
from collectives.records.trace import Trace


@dataclass(frozen=True)
class LinkRoutes:
    """Routes by their number in the Trace: route r crosses the links ``link[first[r]:first[r + 1]]``."""

    first: Ints  # [routes + 1]
    link: Ints

    def __getitem__(self, route: int) -> list[int]:
        """Return the links of a route; none where it is not known."""
        return list(self.link[self.first[route] : self.first[route + 1]].tolist())

    def crossings(self, route: Ints) -> tuple[Ints, Ints]:
        """Return the message and the link of each crossing of a link, message by message; ``route`` is of the messages.

        >>> LinkRoutes(np.array([0, 0, 2]), np.array([7, 8])).crossings(np.array([1, 0, 1]))
        (array([0, 0, 2, 2]), array([7, 8, 7, 8]))
        """
        hops = np.diff(self.first)[route]
        message = np.repeat(np.arange(len(route)), hops)
        before_it = self.first[:-1][route] - (np.cumsum(hops) - hops)
        return message, self.link[np.repeat(before_it, hops) + np.arange(len(message))]

    def sums(self, of_link: Floats) -> Floats:
        """Return for each route the sum of a number of each link that it crosses.

        >>> LinkRoutes(np.array([0, 0, 2]), np.array([0, 1])).sums(np.array([0.5, 0.25])).tolist()
        [0.0, 0.75]
        """
        return np.asarray(np.bincount(self._of_hops(), of_link[self.link], len(self.first) - 1), float)

    def least(self, of_link: Floats) -> Floats:
        """Return for each route the least of a number of each link that it crosses; infinity for no link.

        >>> LinkRoutes(np.array([0, 0, 2]), np.array([0, 1])).least(np.array([0.5, 0.25])).tolist()
        [inf, 0.25]
        """
        found = np.full(len(self.first) - 1, np.inf)
        np.minimum.at(found, self._of_hops(), of_link[self.link])
        return found

    def _of_hops(self) -> Ints:
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def link_routes(trace: Trace) -> LinkRoutes:
    """Return the routes of a trace's messages; one over a link that the trace does not list is empty.

    >>> from collectives.records.messages import Message
    >>> from collectives.records.trace import TracedLink
    >>> message = Message(0, 1, 0, 0, 500, 0.0, 1.0, ("a", "b"))
    >>> link_routes(Trace("one", "predicted", 2, 1.0, [message], links=[TracedLink("a", "b", 1e3, 0.0, 500.0)]))[0]
    [0]
    """
    numbers = {(link.src, link.dst): number for number, link in enumerate(trace.links)}
    found = LinkRoutes(*trace.messages.routes.links(numbers))
    hops = np.diff(found.first)
    unknown = np.bincount(found._of_hops(), found.link < 0, len(hops)) > 0
    kept = np.where(unknown, 0, hops)
    return LinkRoutes(np.append(0, np.cumsum(kept)), found.link[np.repeat(~unknown, hops)])
