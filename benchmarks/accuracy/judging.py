"""Score predictions against measurements, row by row or system by system.

An error is |predicted / measured - 1|. Systems such as published tables of NCCL have very different numbers of rows.
Their score is the median error of each system in each class of sizes, and then the median over systems. All systems
have the same weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_] | NDArray[np.intp]
SIZE_CLASSES = {"small": 64 * 1024, "mid": 16 * 1024**2, "large": float("inf")}  # most bytes of each
NEAR = 0.15  # an error that is called near


@dataclass(frozen=True)
class Judged:
    """Predictions and measurements in columns of equal length. ``keys`` are further columns that describe each row.

    >>> one = Judged({"system": np.array(["a", "b"])}, measured=np.array([2.0, 2.0]), predicted=np.array([3.0, 1.0]))
    >>> one.errors
    array([ 0.5, -0.5])
    >>> {system: part.errors.tolist() for system, part in one.by("system").items()}
    {'a': [0.5], 'b': [-0.5]}
    """

    keys: Mapping[str, NDArray[Any]]  # such as system, family, collective, bytes
    measured: Floats
    predicted: Floats
    low: Mapping[float, Floats] = field(default_factory=dict)  # ends of the interval, by its coverage
    high: Mapping[float, Floats] = field(default_factory=dict)
    baselines: Mapping[str, Floats] = field(default_factory=dict)  # simpler predictions; nan where one says nothing

    @property
    def errors(self) -> Floats:
        """Signed errors, predicted / measured - 1."""
        return self.predicted / self.measured - 1

    def held(self, coverage: float) -> NDArray[np.bool_]:
        """Return a mask of the measurements that are inside their interval of this coverage."""
        inside: NDArray[np.bool_] = (self.low[coverage] <= self.measured) & (self.measured <= self.high[coverage])
        return inside

    def take(self, rows: Rows) -> "Judged":
        """Return the rows that a mask or an index array selects."""

        def some(columns: Mapping[Any, NDArray[Any]]) -> dict[Any, NDArray[Any]]:
            return {name: column[rows] for name, column in columns.items()}

        low, high = some(self.low), some(self.high)
        return Judged(
            some(self.keys), self.measured[rows], self.predicted[rows], low, high, baselines=some(self.baselines)
        )

    def by(self, *keys: str) -> dict[Any, "Judged"]:
        """Return the rows for each value of a key, in order of appearance. For several keys, values are tuples."""
        rows: dict[Any, list[int]] = {}
        for row, values in enumerate(zip(*(self.keys[key].tolist() for key in keys), strict=True)):
            rows.setdefault(values if len(keys) > 1 else values[0], []).append(row)
        return {value: self.take(np.array(positions)) for value, positions in rows.items()}

    def of_baseline(self, name: str) -> "Judged":
        """Return the rows for which a baseline has a prediction, with the baseline's predictions."""
        return replace(self, predicted=self.baselines[name]).take(~np.isnan(self.baselines[name]))


def concatenate(parts: Sequence[Judged]) -> Judged:
    """Concatenate tables with the same columns."""

    def join(columns: Sequence[Mapping[Any, NDArray[Any]]]) -> dict[Any, NDArray[Any]]:
        return {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}

    return Judged(
        join([part.keys for part in parts]),
        np.concatenate([part.measured for part in parts]),
        np.concatenate([part.predicted for part in parts]),
        join([part.low for part in parts]),
        join([part.high for part in parts]),
        join([part.baselines for part in parts]),
    )


@dataclass(frozen=True)
class Score:
    """Statistics of the errors of ``n`` rows. Statistics are None if there are no rows."""

    n: int
    median: float | None = None
    p90: float | None = None
    within15: float | None = None
    bias: float | None = None  # median with its sign
    coverage50: float | None = None
    coverage80: float | None = None
    coverage90: float | None = None


def score(judged: Judged) -> Score:
    """Return the score of rows with intervals of 50, 80 and 90 %."""
    if not len(judged.measured):
        return Score(n=0)
    sizes = np.abs(judged.errors)
    coverages = {f"coverage{100 * coverage:.0f}": float(judged.held(coverage).mean()) for coverage in (0.5, 0.8, 0.9)}
    return Score(
        n=len(sizes),
        median=float(np.median(sizes)),
        p90=float(np.quantile(sizes, 0.9)),
        within15=float((sizes <= NEAR).mean()),
        bias=float(np.median(judged.errors)),
        **coverages,
    )


@dataclass(frozen=True)
class SystemScore:
    """The median absolute error and the median signed error of a system in a class of sizes."""

    median: float
    signed: float


@dataclass(frozen=True)
class ClassScore:
    """The errors of all systems in a class of sizes. They are None if no system has a row in it."""

    median: float | None
    mean_capped: float | None  # errors of systems above 1 count as 1
    systems: int
    coverage80: float | None  # share of the rows within their interval


def class_of(nbytes: Floats) -> NDArray[np.str_]:
    """Return the class of sizes of each row. Predictions fail for different reasons in different classes.

    >>> class_of(np.array([65536.0, 65537.0, 1e9])).tolist()
    ['small', 'mid', 'large']
    """
    classes: NDArray[np.str_] = np.array([*SIZE_CLASSES])[np.searchsorted([*SIZE_CLASSES.values()], nbytes)]
    return classes


def score_systems(judged: Judged) -> dict[str, dict[str, SystemScore]]:
    """Return the score of each system in each class in which it has rows.

    The table must have the keys system and class.
    """
    return {
        system: {
            name: SystemScore(float(np.median(np.abs(part.errors))), float(np.median(part.errors)))
            for name, part in _classes(of_system)
            if len(part.errors)
        }
        for system, of_system in judged.by("system").items()
    }


def score_classes(judged: Judged) -> dict[str, ClassScore]:
    """Return the joint score of all systems in each class.

    >>> one, keys = np.array([1e9]), {"system": np.array(["a"]), "class": np.array(["large"])}
    >>> score_classes(Judged(keys, one, 1.5 * one, {0.8: one}, {0.8: 2 * one}))["large"]
    ClassScore(median=0.5, mean_capped=0.5, systems=1, coverage80=1.0)
    """
    return {name: _score_class(part) for name, part in _classes(judged)}


def _classes(judged: Judged) -> list[tuple[str, Judged]]:
    return [(name, judged.take(judged.keys["class"] == name)) for name in SIZE_CLASSES]


def _score_class(part: Judged) -> ClassScore:
    medians = [float(np.median(np.abs(score.errors))) for score in part.by("system").values()]
    if not medians:
        return ClassScore(None, None, 0, None)
    capped = sum(min(error, 1.0) for error in medians) / len(medians)
    return ClassScore(float(np.median(medians)), capped, len(medians), float(part.held(0.8).mean()))


def baseline_medians(judged: Judged) -> dict[str, dict[str, float | None]]:
    """Return the median error over systems of each baseline in each class, computed like the model's."""
    return {
        name: {size_class: score.median for size_class, score in score_classes(judged.of_baseline(name)).items()}
        for name in judged.baselines
    }
