"""Trouble: ranks that are slow or fail, links that are thin, flap or fail, and jitter drawn from a seed.

Both engines ask here, so that the same trouble happens to the same messages in both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from math import floor, inf
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.checks import check_number, check_whole_number
from collectives.errors import InputError
from simcomm.cluster.graph import Link, list_nodes
from simcomm.hashing import hash_name
from simcomm.model.jitter import Jitter, uniform

MESSAGE, COMPUTE = 1, 2  # what a random number is for
# What a rank computes by itself, in place of a channel: the last is what a recorded program computes.
DIVISION, FORWARD, BACKWARD, OPTIMIZER, PROGRAM = -1, -2, -3, -4, -5
CHUNK_BITS = 32  # of a number for step and chunk of a message
IDLE_CHANGES = 10_000  # changes of links in a row while nothing else is due, after which nothing else will happen


@dataclass(frozen=True)
class RankTrouble:
    """A rank that takes ``slowdown`` times as long to compute, and from ``fails_at`` seconds on starts nothing more.

    What it has posted before it fails still arrives.

    >>> RankTrouble(3, slowdown=2)
    RankTrouble(rank=3, slowdown=2, fails_at=inf)
    """

    rank: int
    slowdown: float = 1.0
    fails_at: float = inf

    def __post_init__(self) -> None:
        check_whole_number("rank", self.rank)
        check_number("slowdown", self.slowdown)
        check_number("fails_at", self.fails_at, "seconds")


@dataclass(frozen=True)
class LinkTrouble:
    """A link that has only ``share`` of its bandwidth, in both directions, from ``at`` on for ``lasting`` seconds.

    With ``every``, in seconds, the link flaps: the same happens again and again. Share 0 is a link that is down.

    >>> flap = LinkTrouble(("h0", "s0"), share=0, at=1, lasting=2, every=5)
    >>> periods = flap.periods()
    >>> [next(periods) for _ in range(4)]
    [(1, True), (3, False), (6, True), (8, False)]
    """

    between: Link
    share: float
    at: float = 0.0
    lasting: float = inf
    every: float = inf

    def __post_init__(self) -> None:
        if not isinstance(self.between, tuple) or len(self.between) != 2:
            raise InputError(f"between is {self.between!r}; give a pair of nodes")
        check_number("share", self.share)
        for key in ("at", "lasting", "every"):
            check_number(key, getattr(self, key), "seconds")

    def periods(self) -> Iterator[tuple[float, bool]]:
        """Yield the seconds at which a period begins (True) and ends (False); without end for a link that flaps."""
        number = 0
        while True:
            begin = self.at + number * self.every if number else self.at
            if begin == inf:
                return
            yield begin, True
            if self.lasting == inf:
                return
            yield begin + self.lasting, False
            number += 1

    def since(self, seconds: float) -> "LinkTrouble | None":
        """Return the same with times that count from ``seconds`` on; None where it is over by then."""
        at = self.at - seconds
        if self.every < inf and at + self.lasting < 0:
            at += self.every * floor(-at / self.every)
        elif at + self.lasting <= 0:
            return None
        return replace(self, at=at)


class Change(NamedTuple):
    """From ``time`` on the link has this share of its bandwidth."""

    time: float
    link: Link
    share: float


@dataclass(frozen=True)
class Trouble:
    """All that goes wrong in a run. Jitter of messages is in seconds, of computing in shares of the time it takes.

    What is random is drawn from ``seed``, and a prediction repeats the run ``repetitions`` times.

    >>> Trouble(ranks=(RankTrouble(0, slowdown=2),)).runs
    1
    >>> Trouble(messages=Jitter("uniform", 1e-6), repetitions=20).runs
    20
    """

    ranks: tuple[RankTrouble, ...] = ()
    links: tuple[LinkTrouble, ...] = ()
    messages: Jitter | None = None
    compute: Jitter | None = None
    seed: int = 0
    repetitions: int = 100

    def __post_init__(self) -> None:
        for key, kind in (("ranks", RankTrouble), ("links", LinkTrouble)):
            entries = getattr(self, key)
            if not isinstance(entries, tuple) or not all(isinstance(entry, kind) for entry in entries):
                raise InputError(f"{key} is {entries!r}; give a tuple of {kind.__name__}")
        for key in ("messages", "compute"):
            if not isinstance(getattr(self, key), Jitter | None):
                raise InputError(f"{key} is {getattr(self, key)!r}; give a Jitter, or None")
        check_whole_number("seed", self.seed, at_least=0)
        check_whole_number("repetitions", self.repetitions)

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn."""
        return self.messages is not None or self.compute is not None

    @property
    def runs(self) -> int:
        """How many runs show the trouble: one where nothing is drawn."""
        return self.repetitions if self.is_random else 1

    @property
    def touches_ranks(self) -> bool:
        """Whether ranks or messages, not only links, are in trouble."""
        return bool(self.ranks) or self.messages is not None or self.compute is not None

    @property
    def slows_ranks(self) -> bool:
        """Whether some rank computes at another speed than without trouble."""
        return self.compute is not None or any(trouble.slowdown != 1 for trouble in self.ranks)

    @property
    def fails_ranks(self) -> bool:
        """Whether a rank fails."""
        return any(trouble.fails_at < inf for trouble in self.ranks)

    @property
    def may_stop(self) -> bool:
        """Whether a rank fails, or a link is down, so that ranks may wait for ever."""
        return self.fails_ranks or any(trouble.share == 0 for trouble in self.links)

    @property
    def links_change(self) -> bool:
        """Whether a link is down, or not the same from the beginning to the end."""
        return any(trouble.at > 0 or trouble.lasting < inf or trouble.share == 0 for trouble in self.links)

    def link_shares(self) -> dict[Link, float]:
        """Return what links have of their bandwidth, where that never changes; of overlapping troubles the worst."""
        left: dict[Link, float] = {}
        for trouble in self.links:
            for link in (trouble.between, trouble.between[::-1]):
                left[link] = min(trouble.share, left.get(link, 1.0))
        return left

    def repetition(self, number: int) -> "Trouble":
        """Return the trouble of one repetition: the same, with random numbers of its own."""
        return replace(self, seed=self.seed + number)

    def delay(self, index: Any, src: Any, dst: Any, channel: Any, step: Any, chunk: Any) -> npt.NDArray[np.float64]:
        """Return the extra seconds of messages, given numbers or arrays of one shape.

        ``index`` says in which collective of the run a message is; ``step`` is the sender's.
        """
        if self.messages is None:
            return np.zeros(np.shape(src))
        last = step_and_chunk(np.asarray(step).astype(np.uint64), np.asarray(chunk).astype(np.uint64))
        return self.messages.quantile(uniform(self.seed, MESSAGE, index, channel, src, dst, last))

    def pair_bits(self, index: Any, src: Any, dst: Any, channel: Any) -> Any:
        """Return the random bits of messages between ranks, before their ``step_and_chunk`` extends the name."""
        return hash_name(self.seed, MESSAGE, index, channel, src, dst)

    def slowdown(self, index: Any, rank: Any, channel: Any, step: Any) -> npt.NDArray[np.float64]:
        """Return how many times as long ranks compute in a step of the run's collective number ``index``.

        Channels below 0 are what a rank computes by itself: ``DIVISION``, ``FORWARD``, ``BACKWARD``, ``OPTIMIZER``,
        ``PROGRAM``.
        """
        factors = np.ones(np.shape(rank))
        for trouble in self.ranks:
            factors = np.where(np.asarray(rank) == trouble.rank, factors * trouble.slowdown, factors)
        if self.compute is None:
            return factors
        return factors * (1 + self.compute.quantile(uniform(self.seed, COMPUTE, index, rank, channel, step)))

    def fails_at(self, rank: int) -> float:
        """Return the seconds after which the rank starts nothing more; infinity for one that does not fail."""
        return min((trouble.fails_at for trouble in self.ranks if trouble.rank == rank), default=inf)

    def changes(self) -> Iterator[Change]:
        """Yield every change of a link's bandwidth, in order of time; where troubles overlap the worst counts."""
        active: dict[Link, dict[int, float]] = {}
        periods = [self._numbered_periods(number) for number in range(len(self.links))]
        for time, number, begins in merge(*periods):
            trouble = self.links[number]
            for link in (trouble.between, trouble.between[::-1]):
                shares = active.setdefault(link, {})
                if begins:
                    shares[number] = trouble.share
                else:
                    shares.pop(number)
                yield Change(time, link, min(shares.values(), default=1.0))

    def since(self, seconds: float) -> "Trouble":
        """Return the same trouble with times that count from ``seconds`` on; what is over by then is left out.

        >>> late = Trouble((RankTrouble(0, fails_at=3),), (LinkTrouble(("h0", "s0"), 0.5, at=1, lasting=1, every=4),))
        >>> shifted = late.since(2.5)
        >>> shifted.fails_at(0), shifted.links[0].at  # the link is back at -0.5, and has its trouble again at 2.5
        (0.5, -1.5)
        """
        ranks = tuple(replace(one, fails_at=one.fails_at - seconds) for one in self.ranks)
        links = (link.since(seconds) for link in self.links)
        return replace(self, ranks=ranks, links=tuple(link for link in links if link is not None))

    def until_it_changes(self) -> tuple["Trouble", float]:
        """Return the trouble as it is from 0 seconds on, without what comes later, and when the first of that comes.

        That is 0 where a rank has failed, or a link is down, by then.

        >>> Trouble((RankTrouble(0, 2, fails_at=3),)).until_it_changes()[1]
        3
        """
        shares, until = dict[Link, float](), min((self.fails_at(one.rank) for one in self.ranks), default=inf)
        for change in self.changes():
            if change.time > 0:
                until = min(until, change.time)
                break
            shares[change.link] = change.share
        if min(shares.values(), default=1.0) == 0:
            until = 0.0
        ranks = tuple(replace(one, fails_at=inf) for one in self.ranks if one.slowdown != 1)
        links = tuple(LinkTrouble(link, share) for link, share in shares.items() if share < 1)
        return replace(self, ranks=ranks, links=links), max(0.0, until)

    def _numbered_periods(self, number: int) -> Iterator[tuple[float, int, bool]]:
        return ((time, number, begins) for time, begins in self.links[number].periods())


def step_and_chunk(step: Any, chunk: Any) -> Any:
    """Return the last part of a message's name; all numbers are uint64. The event engine compiles this function."""
    return (step << np.uint64(CHUNK_BITS)) + chunk


NO_TROUBLE = Trouble()


def check_trouble(trouble: object, graph: "nx.DiGraph[str]", world_size: int) -> None:
    """Raise InputError for what is no Trouble, a rank or link that is not there, and for numbers that mean nothing.

    >>> import simcomm
    >>> star = simcomm.star(4, "10 Gbit/s", "5 us")
    >>> check_trouble(Trouble(ranks=(RankTrouble(7, slowdown=2),)), star.graph, star.world_size)
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: rank 7 is not there; ranks are 0..3
    """
    if not isinstance(trouble, Trouble):
        raise InputError(f"trouble is {trouble!r}; give a simcomm.Trouble")
    for entry in trouble.ranks:
        if not 0 <= entry.rank < world_size:
            raise InputError(f"rank {entry.rank} is not there; ranks are 0..{world_size - 1}")
        if not 0 < entry.slowdown < inf or not entry.fails_at >= 0:
            said = f"rank {entry.rank}: slowdown {entry.slowdown}, fails_at {entry.fails_at} s"
            raise InputError(f"{said}: slowdown must be above zero and finite, and fails_at from zero on")
    for link in trouble.links:
        a, b = link.between
        if not graph.has_edge(a, b) or not graph.has_edge(b, a):
            neighbours = ", ".join(sorted(graph.successors(a))) if a in graph else ""
            none = f"there is no node {a}; there are {list_nodes(graph)}"
            hint = f"{a} is linked to {neighbours}" if neighbours else none
            raise InputError(f"no link between {a} and {b}; {hint}")
        _check_times(link)
    if trouble.repetitions < 1:
        raise InputError(f"{trouble.repetitions} repetitions: at least one is needed")


def check_tcp_trouble(trouble: Trouble) -> None:
    """Raise InputError for trouble that the terms of TCP do not know: links that change, and ranks that fail."""
    if trouble.links_change or trouble.fails_ranks:
        raise InputError(
            "with the terms of TCP, links have the same bandwidth all the time and ranks do not fail: "
            'leave out at, for, every, a share of 0 and fails_at, or take transport = "ideal"'
        )


def _check_times(link: LinkTrouble) -> None:
    name = f"link {link.between[0]} - {link.between[1]}"
    if not 0 <= link.share <= 1:
        raise InputError(f"{name}: a share of {link.share} of its bandwidth; give a number from 0 (down) to 1")
    if not 0 <= link.at < inf or not link.lasting > 0:
        raise InputError(f"{name}: at {link.at} s, lasting {link.lasting} s: from zero on, and above zero, is needed")
    if link.every != inf and not link.every > link.lasting:
        raise InputError(f"{name}: every {link.every} s it lasts {link.lasting} s; it has to last shorter than that")
