"""What-ifs: ranks that are slow or fail, links that are thin, flap or fail, and jitter drawn from a seed.

Both engines ask here, so that the same trouble happens to the same messages in both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from simcomm.cluster.graph import Edge
from simcomm.hashing import hash_name
from simcomm.model.jitter import Jitter, uniform

MESSAGE, COMPUTE = 1, 2  # what a random number is for
OUTSIDE, FORWARD, BACKWARD, OPTIMIZER = -1, -2, -3, -4  # a rank's computing outside a collective, in place of a channel
CHUNKS = 32  # bits of a number for the chunk of a message; the step stands above them
IDLE_CHANGES = 10_000  # of links in a row, with nothing else to come: then nothing will come


@dataclass(frozen=True)
class RankTrouble:
    """A rank that takes ``slowdown`` times as long to compute, and from ``fails_at`` seconds on starts nothing more.

    What it has posted before it fails still arrives.
    """

    rank: int
    slowdown: float = 1.0
    fails_at: float = inf


@dataclass(frozen=True)
class LinkTrouble:
    """A link that has only ``share`` of its bandwidth, in both directions, from ``at`` on for ``lasting`` seconds.

    The same happens ``every`` so many seconds again. Share 0 is a link that is down.
    """

    between: Edge
    share: float
    at: float = 0.0
    lasting: float = inf
    every: float = inf

    def turns(self) -> Iterator[tuple[float, bool]]:
        """When it begins (True) and ends (False); without end for a link that flaps."""
        turn = 0
        while True:
            begin = self.at + turn * self.every if turn else self.at
            if begin == inf:
                return
            yield begin, True
            if self.lasting == inf:
                return
            yield begin + self.lasting, False
            turn += 1


class Change(NamedTuple):
    """From ``time`` on the edge has so much of its bandwidth."""

    time: float
    edge: Edge
    share: float


@dataclass(frozen=True)
class Trouble:
    """All that goes wrong in a run. Jitter of messages is in seconds, of computing in shares of the time it takes."""

    ranks: tuple[RankTrouble, ...] = ()
    links: tuple[LinkTrouble, ...] = ()
    messages: Jitter | None = None
    compute: Jitter | None = None
    seed: int = 0
    repetitions: int = 100

    @property
    def is_random(self) -> bool:
        return self.messages is not None or self.compute is not None

    @property
    def runs(self) -> int:
        """How many runs show what it does: one where nothing is drawn."""
        return self.repetitions if self.is_random else 1

    @property
    def touches_ranks(self) -> bool:
        """Whether ranks or messages, not only links, are in trouble."""
        return bool(self.ranks) or self.messages is not None or self.compute is not None

    @property
    def slows(self) -> bool:
        """Whether some rank computes at another speed than it would."""
        return self.compute is not None or any(one.slowdown != 1 for one in self.ranks)

    @property
    def links_change(self) -> bool:
        """Whether a link is down, or not the same from the beginning to the end."""
        return any(link.at > 0 or link.lasting < inf or link.share == 0 for link in self.links)

    def shares(self) -> dict[Edge, float]:
        """What edges have of their bandwidth, where links do not change; of overlapping troubles the worst counts."""
        left: dict[Edge, float] = {}
        for link in self.links:
            for edge in (link.between, link.between[::-1]):
                left[edge] = min(link.share, left.get(edge, 1.0))
        return left

    def seeded(self, number: int) -> "Trouble":
        """The trouble of one repetition."""
        return replace(self, seed=self.seed + number)

    @property
    def stops(self) -> bool:
        """Whether a rank fails, or a link is down, so that ranks may wait for ever."""
        return self.fails or any(link.share == 0 for link in self.links)

    @property
    def fails(self) -> bool:
        """Whether a rank fails."""
        return any(one.fails_at < inf for one in self.ranks)

    def delay(self, turn: Any, src: Any, dst: Any, channel: Any, step: Any, chunk: Any) -> npt.NDArray[np.float64]:
        """Extra seconds of messages: by the collective of a run, ranks, channel, the sender's step and chunk."""
        if self.messages is None:
            return np.zeros(np.shape(src))
        at = place(np.asarray(step).astype(np.uint64), np.asarray(chunk).astype(np.uint64))
        return self.messages.at(uniform(self.seed, MESSAGE, turn, channel, src, dst, at))

    def ways(self, turn: Any, src: Any, dst: Any, channel: Any) -> Any:
        """What is known of the draws of messages before their ``place`` is."""
        return hash_name(self.seed, MESSAGE, turn, channel, src, dst)

    def slowdown(self, turn: Any, rank: Any, channel: Any, step: Any) -> npt.NDArray[np.float64]:
        """How many times as long ranks compute in a step of a collective; channels below 0 are other computing."""
        slow = self._slow(rank)
        if self.compute is None:
            return slow
        return slow * (1 + self.compute.at(uniform(self.seed, COMPUTE, turn, rank, channel, step)))

    def _slow(self, rank: Any) -> npt.NDArray[np.float64]:
        factors = np.ones(np.shape(rank))
        for one in self.ranks:
            factors = np.where(np.asarray(rank) == one.rank, factors * one.slowdown, factors)
        return factors

    def fails_at(self, rank: int) -> float:
        """Seconds after which the rank starts nothing more; infinite for one that does not fail."""
        return min((one.fails_at for one in self.ranks if one.rank == rank), default=inf)

    def changes(self) -> Iterator[Change]:
        """Every change of an edge's bandwidth, in order of time; where troubles overlap the worst counts."""
        active: dict[Edge, dict[int, float]] = {}
        turns = [self._numbered(number) for number in range(len(self.links))]
        for time, number, begins in merge(*turns):
            link = self.links[number]
            for edge in (link.between, link.between[::-1]):
                shares = active.setdefault(edge, {})
                if begins:
                    shares[number] = link.share
                else:
                    shares.pop(number)
                yield Change(time, edge, min(shares.values(), default=1.0))

    def _numbered(self, number: int) -> Iterator[tuple[float, int, bool]]:
        return ((time, number, begins) for time, begins in self.links[number].turns())


def place(step: Any, chunk: Any) -> Any:
    """The last part of a message's name, of whole numbers without sign; plain enough to be compiled too."""
    return (step << np.uint64(CHUNKS)) + chunk


NONE = Trouble()


def check_trouble(trouble: Trouble, graph: "nx.DiGraph[str]", world_size: int) -> None:
    """Raise InputError for a rank or link that is not there, and for numbers that mean nothing."""
    for one in trouble.ranks:
        if not 0 <= one.rank < world_size:
            raise InputError(f"rank {one.rank} is not there; ranks are 0..{world_size - 1}")
        if not 0 < one.slowdown < inf or not one.fails_at >= 0:
            said = f"rank {one.rank}: slowdown {one.slowdown}, fails_at {one.fails_at} s"
            raise InputError(f"{said}: slowdown must be above zero and finite, and fails_at from zero on")
    for link in trouble.links:
        a, b = link.between
        if not graph.has_edge(a, b) or not graph.has_edge(b, a):
            near = ", ".join(sorted(graph.successors(a))) if a in graph else ""
            there = f"{a} is linked to {near}" if near else f"there is no node {a}"
            raise InputError(f"no link between {a} and {b}; {there}")
        _check_times(link)
    if trouble.repetitions < 1:
        raise InputError(f"{trouble.repetitions} repetitions: at least one is needed")


def _check_times(link: LinkTrouble) -> None:
    name = f"link {link.between[0]} - {link.between[1]}"
    if not 0 <= link.share <= 1:
        raise InputError(f"{name}: a share of {link.share} of its bandwidth; give a number from 0 (down) to 1")
    if not 0 <= link.at < inf or not link.lasting > 0:
        raise InputError(f"{name}: at {link.at} s, lasting {link.lasting} s: from zero on, and above zero, is needed")
    if link.every != inf and not link.every > link.lasting:
        raise InputError(f"{name}: every {link.every} s it lasts {link.lasting} s; it has to last shorter than that")
