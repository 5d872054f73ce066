"""Store the spans of a Trace as columns. A span is a training phase or a local operation of a rank."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import numpy as np

from collectives.checks import MOST_SECONDS
from collectives.records.columns import Bools, Column, Columnar, first_where

PHASES = ("loading", "forward", "backward", "sync", "optimizer")  # phases of a training step, in order


class Span(NamedTuple):
    """One phase of a rank: a local operation such as ``reduce``, or one of ``PHASES`` in a training step.

    >>> Span(rank=0, name="reduce", step=2, begin=1e-3, end=2e-3).name
    'reduce'
    """

    rank: int
    name: str
    step: int  # step of the program, or the training step
    begin: float
    end: float
    channel: int = 0  # channel of the program, for a local operation
    collective: int = 0  # number of the collective in the run, or the training step


class Spans(Columnar[Span]):
    """The spans of a Trace as columns, sorted by ``begin`` and rank. Iteration and indices return rows.

    >>> spans = Spans.of([Span(0, "forward", 0, 0.0, 2.0), Span(0, "sync", 0, 2.0, 3.0)])
    >>> (spans.end - spans.begin)[spans.named("sync")], spans[0].name
    (array([1.]), 'forward')
    """

    rank = Column(np.int64)
    name = Column(np.int64)  # an index of ``names``
    step = Column(np.int64)
    begin = Column(np.float64)
    end = Column(np.float64)
    channel = Column(np.int64)
    collective = Column(np.int64)

    ROW, LABEL, LABELS = Span, "name", "names"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.labels)

    @classmethod
    def of_all_ranks(cls, ranks: int, phases: Iterable[tuple[str, int, float, float]]) -> "Spans":
        """Return training phases that are the same on all ranks. ``phases`` are (name, step, begin, end) tuples.

        >>> Spans.of_all_ranks(2, [("forward", 0, 0.0, 2.0)])[1]
        Span(rank=1, name='forward', step=0, begin=0.0, end=2.0, channel=0, collective=0)
        """
        rows, numbers = list(phases), dict[str, int]()
        name = [numbers.setdefault(phase, len(numbers)) for phase, *_ in rows]
        step = np.repeat(np.array([step for _, step, *_ in rows], np.int64), ranks)
        begin, end = (np.repeat(np.array([row[at] for row in rows], np.float64), ranks) for at in (2, 3))
        rank, named = np.tile(np.arange(ranks), len(rows)), np.repeat(np.array(name, np.int64), ranks)
        return cls(tuple(numbers), rank=rank, name=named, step=step, begin=begin, end=end, collective=step)

    def named(self, *names: str) -> Bools:
        """Return a boolean mask of the spans whose name is one of ``names``."""
        is_named: Bools = np.array([name in names for name in self.names], np.bool_)[self.name]
        return is_named

    def sorted(self) -> Self:
        """Return the spans sorted by ``begin``, then by rank. Equal spans keep their order."""
        return self.select(np.lexsort((self.kept["rank"], self.begin)))


def find_problems(spans: Spans, world_size: int) -> Iterator[str]:
    """Yield a description of the first span with each kind of invalid value, such as a rank that does not exist."""
    rank, begin, end = spans.rank, spans.begin, spans.end
    for number in first_where((rank < 0) | (rank >= world_size)):
        yield f"spans.{number}: rank {rank[number]} does not exist; there are {world_size} ranks"
    for number in first_where(~((begin >= -MOST_SECONDS) & (end <= MOST_SECONDS))):
        yield f"spans.{number} extends from {begin[number]} to {end[number]} s"
    for number in first_where(~(begin <= end)):
        yield f"spans.{number} ends at {end[number]} but begins at {begin[number]}"
