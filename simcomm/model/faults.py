"""Define faults to simulate: slow or failed ranks, degraded or failed links, and random jitter.

Both engines use this module, so the same faults hit the same messages in both.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.checks import check_known, check_number, check_whole_number
from collectives.errors import InputError
from simcomm.cluster.graph import Link, list_nodes
from simcomm.hashing import hash_name, to_fraction

MESSAGE, COMPUTE = 1, 2  # purpose of a random number
# Pseudo-channels for local compute. PROGRAM is the compute of a recorded program.
DIVISION, FORWARD, BACKWARD, OPTIMIZER, PROGRAM = -1, -2, -3, -4, -5
CHUNK_BITS = 32  # low bits of a packed step and chunk


DISTRIBUTIONS = ("uniform", "exponential")


@dataclass(frozen=True)
class Jitter:
    """A distribution of non-negative delays: uniform or exponential.

    The unit of message jitter is seconds; compute jitter is a fraction of the compute time.

    Raise InputError if the distribution is unknown or the mean is negative.

    >>> Jitter("exponential", mean=1e-5).quantile(0.5).item()  # the median
    6.931471805599453e-06
    """

    distribution: str
    mean: float

    def __post_init__(self) -> None:
        check_known("distribution", self.distribution, DISTRIBUTIONS)
        check_number("mean", self.mean)
        if not 0 <= self.mean < inf:
            raise InputError(f"mean must be finite and non-negative, not {self.mean}")

    def quantile(self, uniform: Any) -> npt.NDArray[np.float64]:
        """Return the distribution's quantile for each number in ``uniform``, an array of numbers in [0, 1)."""
        shares = np.asarray(uniform, np.float64)
        return np.asarray(self.mean * (2 * shares if self.distribution == "uniform" else -np.log1p(-shares)))

    def draw(self, seed: int, *name: Any) -> npt.NDArray[np.float64]:
        """Return the random delay for a name, which is a sequence of integers. For arrays of integers, return an array.

        Each delay is a hash of seed and name, so it depends neither on the engine nor on the order of events.
        """
        return self.quantile(to_fraction(hash_name(seed, *name)))


@dataclass(frozen=True)
class RankFault:
    """A rank that computes ``slowdown`` times slower, and starts no operation after ``fails_at`` seconds.

    Operations that it posted before it failed still complete.

    >>> RankFault(3, slowdown=2)
    RankFault(rank=3, slowdown=2, fails_at=inf)
    """

    rank: int
    slowdown: float = 1.0
    fails_at: float = inf

    def __post_init__(self) -> None:
        check_whole_number("rank", self.rank)
        check_number("slowdown", self.slowdown)
        check_number("fails_at", self.fails_at, "seconds")


@dataclass(frozen=True)
class LinkFault:
    """A link that keeps only a ``share`` of its bandwidth, in both directions, from ``at`` for ``lasting`` seconds.

    With a share of 0, the link is down. For a link that flaps, list a fault for each outage.

    >>> LinkFault(("h0", "s0"), share=0, at=1, lasting=2).shifted(2).at
    -1
    """

    between: Link
    share: float
    at: float = 0.0
    lasting: float = inf

    def __post_init__(self) -> None:
        if not isinstance(self.between, tuple) or len(self.between) != 2:
            raise InputError(f"between must be a pair of nodes, not {self.between!r}")
        check_number("share", self.share)
        for key in ("at", "lasting"):
            check_number(key, getattr(self, key), "seconds")

    def shifted(self, seconds: float) -> "LinkFault | None":
        """Return this fault with times relative to ``seconds``, or None if the fault has ended by then."""
        at = self.at - seconds
        return replace(self, at=at) if at + self.lasting > 0 else None


class BandwidthChange(NamedTuple):
    """A change of a link's bandwidth. From ``time`` on, in seconds, the link has ``share`` times its full bandwidth."""

    time: float
    link: Link
    share: float


@dataclass(frozen=True)
class Faults:
    """All faults in a run: slow or failing ranks, degraded links, and jitter.

    Jitter of ``messages`` is in seconds, and jitter of ``compute`` is a fraction of the compute time. Random delays are
    drawn from ``seed``. A prediction with jitter simulates ``repetitions`` runs.

    >>> Faults(ranks=(RankFault(0, slowdown=2),)).runs
    1
    >>> Faults(messages=Jitter("uniform", 1e-6), repetitions=20).runs
    20
    """

    ranks: tuple[RankFault, ...] = ()
    links: tuple[LinkFault, ...] = ()
    messages: Jitter | None = None
    compute: Jitter | None = None
    seed: int = 0
    repetitions: int = 100

    def __post_init__(self) -> None:
        for key, kind in (("ranks", RankFault), ("links", LinkFault)):
            entries = getattr(self, key)
            if not isinstance(entries, tuple) or not all(isinstance(entry, kind) for entry in entries):
                raise InputError(f"{key} must be a tuple of {kind.__name__}, not {entries!r}")
        for key in ("messages", "compute"):
            if not isinstance(getattr(self, key), Jitter | None):
                raise InputError(f"{key} must be a Jitter or None, not {getattr(self, key)!r}")
        check_whole_number("seed", self.seed, at_least=0)
        check_whole_number("repetitions", self.repetitions)

    @property
    def is_random(self) -> bool:
        """Whether any delay is random."""
        return self.messages is not None or self.compute is not None

    @property
    def runs(self) -> int:
        """The number of runs to simulate, which is 1 unless delays are random."""
        return self.repetitions if self.is_random else 1

    @property
    def affects_ranks(self) -> bool:
        """Whether any fault affects a rank or a message, not only links."""
        return bool(self.ranks) or self.messages is not None or self.compute is not None

    @property
    def slows_ranks(self) -> bool:
        """Whether any rank computes at a different speed, because of a fault or jitter."""
        return self.compute is not None or any(fault.slowdown != 1 for fault in self.ranks)

    @property
    def fails_ranks(self) -> bool:
        return any(fault.fails_at < inf for fault in self.ranks)

    @property
    def may_hang(self) -> bool:
        """Whether the run may hang because a rank fails or a link is down."""
        return self.fails_ranks or any(fault.share == 0 for fault in self.links)

    @property
    def changes_links(self) -> bool:
        """Whether any link is down at some time, or changes its bandwidth during the run."""
        return any(fault.at > 0 or fault.lasting < inf or fault.share == 0 for fault in self.links)

    def link_shares(self) -> dict[Link, float]:
        """Return the bandwidth share of each degraded link: the smallest one if several faults affect the link.

        Call this method only if no link changes during the run.
        """
        shares: dict[Link, float] = {}
        for fault in self.links:
            for link in (fault.between, fault.between[::-1]):
                shares[link] = min(fault.share, shares.get(link, 1.0))
        return shares

    def repetition(self, number: int) -> "Faults":
        """Return the same faults with the random delays of repetition ``number``."""
        return replace(self, seed=self.seed + number)

    def delay(self, index: Any, src: Any, dst: Any, channel: Any, step: Any, chunk: Any) -> npt.NDArray[np.float64]:
        """Return the extra delay of messages in seconds. Arguments are numbers or arrays of equal shape.

        ``index`` is the number of the collective within the run. ``step`` is the sender's step.
        """
        if self.messages is None:
            return np.zeros(np.shape(src))
        last = pack_step_and_chunk(np.asarray(step).astype(np.uint64), np.asarray(chunk).astype(np.uint64))
        return self.messages.draw(self.seed, MESSAGE, index, channel, src, dst, last)

    def message_hash(self, index: Any, src: Any, dst: Any, channel: Any) -> Any:
        """Return the hash that messages between two ranks share. ``hash_next`` adds the step and chunk of each."""
        return hash_name(self.seed, MESSAGE, index, channel, src, dst)

    def slowdown(self, index: Any, rank: Any, channel: Any, step: Any) -> npt.NDArray[np.float64]:
        """Return the factor by which each rank's compute is slowed down in a step of a collective.

        ``index`` is the number of the collective within the run. Negative channels represent other compute:
        ``DIVISION``, ``FORWARD``, ``BACKWARD``, ``OPTIMIZER``, ``PROGRAM``.
        """
        factors = np.ones(np.shape(rank))
        for fault in self.ranks:
            factors = np.where(np.asarray(rank) == fault.rank, factors * fault.slowdown, factors)
        if self.compute is None:
            return factors
        return factors * (1 + self.compute.draw(self.seed, COMPUTE, index, rank, channel, step))

    def fails_at(self, rank: int) -> float:
        """Return the time at which the rank fails, in seconds, or infinity if it does not fail."""
        return min((fault.fails_at for fault in self.ranks if fault.rank == rank), default=inf)

    def changes(self) -> list[BandwidthChange]:
        """Return every bandwidth change in chronological order. If faults overlap, the smallest share applies."""
        active: dict[Link, dict[int, float]] = {}
        periods = [(fault.at, fault.at + fault.lasting) for fault in self.links]
        moments = [(time, number) for number, period in enumerate(periods) for time in period if time < inf]
        changes = list[BandwidthChange]()
        for time, number in sorted(moments):
            fault = self.links[number]
            for link in (fault.between, fault.between[::-1]):
                shares = active.setdefault(link, {})
                if number in shares:
                    shares.pop(number)
                else:
                    shares[number] = fault.share
                changes.append(BandwidthChange(time, link, min(shares.values(), default=1.0)))
        return changes

    def shifted(self, seconds: float) -> "Faults":
        """Return the same faults with times relative to ``seconds``, without link faults that have ended by then.

        >>> late = Faults((RankFault(0, fails_at=3),), (LinkFault(("h0", "s0"), 0.5, at=1, lasting=4),))
        >>> shifted = late.shifted(2.5)
        >>> shifted.fails_at(0), shifted.links[0].at
        (0.5, -1.5)
        """
        ranks = tuple(replace(fault, fails_at=fault.fails_at - seconds) for fault in self.ranks)
        links = (link.shifted(seconds) for link in self.links)
        return replace(self, ranks=ranks, links=tuple(link for link in links if link is not None))

    def split_at_first_change(self) -> tuple["Faults", float]:
        """Return the faults that are active at time 0, and the time in seconds of the first change after it.

        The time is 0 if a rank has already failed or a link is already down.

        >>> Faults((RankFault(0, 2, fails_at=3),)).split_at_first_change()[1]
        3
        """
        shares, until = dict[Link, float](), min((fault.fails_at for fault in self.ranks), default=inf)
        for change in self.changes():
            if change.time > 0:
                until = min(until, change.time)
                break
            shares[change.link] = change.share
        if min(shares.values(), default=1.0) == 0:
            until = 0.0
        ranks = tuple(replace(fault, fails_at=inf) for fault in self.ranks if fault.slowdown != 1)
        links = tuple(LinkFault(link, share) for link, share in shares.items() if share < 1)
        return replace(self, ranks=ranks, links=links), max(0.0, until)


def pack_step_and_chunk(step: Any, chunk: Any) -> Any:
    """Return one integer for a step and a chunk, both uint64, to add to a message's hash."""
    return (step << np.uint64(CHUNK_BITS)) + chunk


NO_FAULTS = Faults()


def check_faults(faults: object, graph: "nx.DiGraph[str]", world_size: int) -> None:
    """Raise InputError if ``faults`` is not a Faults, has values out of range, or names an unknown rank or link.

    >>> import simcomm
    >>> star = simcomm.star(4, "10 Gbit/s", "5 us")
    >>> check_faults(Faults(ranks=(RankFault(7, slowdown=2),)), star.graph, star.world_size)
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: rank 7 does not exist; ranks are 0 to 3
    """
    if not isinstance(faults, Faults):
        raise InputError(f"faults must be a simcomm.Faults, not {faults!r}")
    for entry in faults.ranks:
        if not 0 <= entry.rank < world_size:
            raise InputError(f"rank {entry.rank} does not exist; ranks are 0 to {world_size - 1}")
        if not 0 < entry.slowdown < inf:
            raise InputError(f"rank {entry.rank}: slowdown must be positive and finite, not {entry.slowdown}")
        if not entry.fails_at >= 0:
            raise InputError(f"rank {entry.rank}: fails_at must be non-negative, not {entry.fails_at} s")
    for link in faults.links:
        a, b = link.between
        if not graph.has_edge(a, b) or not graph.has_edge(b, a):
            neighbors = ", ".join(sorted(graph.successors(a))) if a in graph else ""
            unknown = f"node {a} does not exist; nodes are {list_nodes(graph)}"
            hint = f"{a} is linked to {neighbors}" if neighbors else unknown
            raise InputError(f"no link between {a} and {b}; {hint}")
        _check_times(link)
    if faults.repetitions < 1:
        raise InputError(f"repetitions must be at least 1, not {faults.repetitions}")


def check_tcp_faults(faults: Faults) -> None:
    """Raise InputError for faults that the TCP model does not support: changing links and failing ranks."""
    if faults.changes_links or faults.fails_ranks:
        raise InputError(
            "the TCP model supports neither changing links nor failing ranks; "
            'remove `at`, `lasting`, `fails_at` and `share = 0`, or set `transport = "ideal"`'
        )


def _check_times(link: LinkFault) -> None:
    name = f"link {link.between[0]} - {link.between[1]}"
    if not 0 <= link.share <= 1:
        raise InputError(f"{name}: `share` must be between 0 (down) and 1, not {link.share}")
    if not 0 <= link.at < inf:
        raise InputError(f"{name}: `at` must be finite and non-negative, not {link.at} s")
    if not link.lasting > 0:
        raise InputError(f"{name}: `lasting` must be positive, not {link.lasting} s")
