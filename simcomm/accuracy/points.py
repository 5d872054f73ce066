"""Published throughputs as columns: a row for each point, series after series."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collectives.training.parallelism import Parallelism
from simcomm.mesh.terms import LINK_KINDS, Floats
from simcomm.scaling.descriptions import NEVER, Series

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
SYNCS = ("ddp", "after", "ps", "none")


@dataclass(frozen=True)
class Points:
    """The points of series; ``rate`` is measured, of all GPUs."""

    series: tuple[Series, ...]
    rate: Floats

    @cached_property
    def of(self) -> Rows:
        """Which of the series."""
        return np.repeat(np.arange(len(self.series)), [len(one.points) for one in self.series])

    @cached_property
    def first(self) -> Rows:
        """The row that a row is predicted from: the first of its series."""
        return np.searchsorted(self.of, self.of)

    @cached_property
    def gpus(self) -> Floats:
        """All of them, as many as there are."""
        return floats(point.gpus for one in self.series for point in one.points)

    @cached_property
    def batch(self) -> Floats:
        """Samples of a GPU between two exchanges."""
        return floats(one.job_on(point.gpus).batch for one in self.series for point in one.points)

    @cached_property
    def link(self) -> Rows:
        """What joins the GPUs, in ``LINK_KINDS``."""
        kinds = ("network" if point.nodes > 1 else one.node.kind for one in self.series for point in one.points)
        return np.array([LINK_KINDS.index(kind) for kind in kinds])

    @cached_property
    def exchanged_bytes(self) -> Floats:
        """Bytes of the gradients of a step; 0 of one GPU, and where nothing is exchanged."""
        whole = floats(one.job.model.parameters * (one.job.parallelism.gradient_bytes or 4) for one in self.series)
        exchanges = np.array([sync_of(one.job.parallelism) != "none" for one in self.series])
        return np.asarray(np.where((self.gpus > 1) & exchanges[self.of], whole[self.of], 0.0))

    @property
    def linear(self) -> Floats:
        """The first point's rate times how many times more GPUs there are."""
        found: Floats = self.rate[self.first] * self.gpus / self.gpus[self.first]
        return found

    @property
    def predicted(self) -> Mask:
        """The rows that are predicted, which are not the first of their series."""
        found: Mask = self.first != np.arange(len(self.first))
        return found


def sync_of(form: Parallelism) -> str:
    """Return how the gradients of a mesh of data alone travel, as series are described.

    >>> sync_of(Parallelism()), sync_of(Parallelism(overlap=False)), sync_of(Parallelism(sync_every=NEVER))
    ('ddp', 'after', 'none')
    """
    if form.form == "parameter_server":
        return "ps"
    return "none" if form.sync_every == NEVER else "ddp" if form.overlap else "after"


def floats(values: Iterable[float]) -> Floats:
    """Return numbers as a column."""
    return np.array([*values], dtype=np.float64)


def measured(series: Sequence[Series]) -> Floats:
    """Return the rates of all points."""
    return floats(point.rate for one in series for point in one.points)
