"""Measured tables beside what NCCL's model says of the machine as it should be: by how many times they are slower."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError
from simcomm.diagnosis.evidence.facts import Facts, FilePlace, TestTable
from simcomm.diagnosis.evidence.machine import DescribedMachine
from simcomm.diagnosis.evidence.profiled_step import ProfiledStep, find_profiled_step
from simcomm.nccl.measured.tables import MeasuredTable, SizeSeries
from simcomm.nccl.predict import COLLECTIVES, interval_log_limits, predict_seconds
from simcomm.nccl.settings import NcclSettings

Floats = NDArray[np.float64]
CLASSES = (("up to 64 KiB", 0, 2**16), ("up to 16 MiB", 2**16, 2**24), ("above 16 MiB", 2**24, 2**62))
COVERAGE = 0.8  # of the interval of a factor
USUAL_SIZE = 2**28  # bytes: of a machine that nothing was measured on
DEFAULTS = NcclSettings()


@dataclass(frozen=True)
class Factor:
    """How many times slower than it should be: the middle over the rows of a class of sizes, with its interval."""

    value: float
    low: float
    high: float
    sizes: str


@dataclass(frozen=True)
class ComparedTable:
    """A collective of a table beside the prediction; seconds by size, and the interval's limits in log time."""

    table: TestTable
    series: SizeSeries
    predicted: Floats
    limits: Floats  # [2, sizes]

    @property
    def place(self) -> FilePlace:
        """Where the table is."""
        return self.table.place

    @property
    def ratios(self) -> Floats:
        """Measured over predicted at each size."""
        found: Floats = self.series.seconds / self.predicted
        return found

    def factors(self) -> dict[str, Factor]:
        """Return the factor of each class of sizes that has rows, from small to large."""
        found = {}
        for name, above, most in CLASSES:
            rows = (self.series.nbytes > above) & (self.series.nbytes <= most)
            if rows.any():
                value = float(np.exp(np.median(np.log(self.ratios[rows]))))
                below, over = (float(np.exp(np.median(side[rows]))) for side in self.limits)
                found[name] = Factor(value, value / over, value * below, name)
        return found

    @property
    def factor(self) -> Factor:
        """The factor of the largest class, whose times the hardware decides."""
        return list(self.factors().values())[-1]


def compare_tables(facts: Facts, machine: DescribedMachine) -> tuple[ComparedTable, ...]:
    """Return each table's collectives beside the prediction for its own hosts and ranks; none where there is none."""
    found = []
    for table in facts.of(TestTable) if not machine.missing else ():
        system = machine.system(**shape_of(table))
        for series in series_of(table):
            predicted = predict_seconds(system, series.collective, series.nbytes)
            limits = interval_log_limits(system, series.nbytes, coverage=COVERAGE)
            found.append(ComparedTable(table, series, predicted, limits))
    return tuple(found)


def series_of(table: TestTable) -> list[SizeSeries]:
    """Return the collectives of a table that NCCL's model knows, with times by size."""
    found = MeasuredTable(table.place.file, table.run.rows).series(table.run.ranks)
    return [one for one in found.values() if one.collective in COLLECTIVES and table.run.ranks > 1]


def shape_of(table: TestTable) -> dict[str, Any]:
    """Return hosts, ranks and processes of a table, as keys of a description."""
    run = table.run
    per_gpu = run.processes > run.hosts or run.gpus == 1
    return {"nodes": run.hosts, "gpus": run.gpus, "procs": "per_gpu" if per_gpu else "single"}


@dataclass(frozen=True)
class DiagnosedCase:
    """What rules look at: the facts, the machine as it should be, and the tables beside it."""

    facts: Facts
    machine: DescribedMachine
    comparisons: tuple[ComparedTable, ...]
    hangs: bool = False  # whether the user says that it stands still

    @cached_property
    def profiled_step(self) -> ProfiledStep | None:
        """A training step as the profiles of GPUs show it, if any do."""
        return find_profiled_step(self.facts, self.machine)

    @property
    def worst(self) -> ComparedTable | None:
        """The comparison whose large sizes are furthest from the prediction."""
        return max(self.comparisons, key=lambda one: one.factor.value, default=None)

    def slowdown(self, changes: Mapping[str, Any] | None = None, **settings: Any) -> float | None:
        """Return how many times longer it takes with keys or settings changed, by prediction.

        None where the machine cannot be predicted, or not so.
        """
        if self.machine.missing:
            return None
        shape = shape_of(self.worst.table) if self.worst else {}
        collective = self.worst.series.collective if self.worst else "all_reduce"
        sizes = [float(self.worst.series.nbytes[-1])] if self.worst else [USUAL_SIZE]
        try:
            usual = predict_seconds(self.machine.system(**shape), collective, sizes)
            changed = self.machine.system(**{**shape, **(changes or {})})
            given = NcclSettings(**settings) if settings else DEFAULTS
            return float(predict_seconds(changed, collective, sizes, settings=given)[0] / usual[0])
        except InputError:
            return None
