"""The scoring rule: the median error of each system in each class of sizes, then the median over systems.

An error is |predicted / measured - 1|. Of each series, one collective on one system, at most twelve sizes count, evenly
spread over log size; so a long table weighs no more than a short one, and a system with many rows no more than another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Predicted beside measured times of one series; arrays of one length, seconds, ascending sizes.

    ``low`` and ``high`` bound the 80 % interval. A baseline that says nothing of a series is not in ``baselines``.
    """

    slug: str
    family: str
    collective: str
    nbytes: Floats
    measured: Floats
    predicted: Floats
    low: Floats
    high: Floats
    baselines: dict[str, Floats] = field(default_factory=dict)

    @property
    def errors(self) -> Floats:
        """Signed errors, predicted / measured - 1."""
        return relative_errors(self.predicted, self.measured)


def relative_errors(predicted: Floats, measured: Floats) -> Floats:
    """Return predicted / measured - 1.

    >>> relative_errors(np.array([3.0, 1.0]), np.array([2.0, 2.0]))
    array([ 0.5, -0.5])
    """
    return predicted / measured - 1


@dataclass(frozen=True)
class SystemScore:
    """Errors of one system in one class: the median size of an error, and the median error with its sign."""

    median: float
    signed: float


@dataclass(frozen=True)
class ClassScore:
    """Errors of several systems in one class; None where no system has a row in it."""

    median: float | None
    mean_capped: float | None  # errors of systems above 1 count as 1
    systems: int
    coverage80: float | None  # share of the rows within their interval


def score_systems(comparisons: Iterable[Comparison]) -> dict[str, dict[str, SystemScore]]:
    """Return the score of each system in each class in which it has rows."""
    errors: dict[str, list[tuple[Floats, Floats]]] = {}
    for one in comparisons:
        errors.setdefault(one.slug, []).append((one.nbytes, one.errors))
    return {slug: dict(_of_classes(series)) for slug, series in errors.items()}


def _of_classes(series: Sequence[tuple[Floats, Floats]]) -> Iterable[tuple[str, SystemScore]]:
    for size_class in SIZE_CLASSES:
        found = np.concatenate([errors[class_mask(size_class, nbytes)] for nbytes, errors in series])
        if len(found):
            yield size_class, SystemScore(float(np.median(np.abs(found))), float(np.median(found)))


def score_classes(comparisons: Sequence[Comparison]) -> dict[str, ClassScore]:
    """Return the score of all systems together in each class.

    >>> one = np.array([1e9])
    >>> score_classes([Comparison("a", "", "all_reduce", one, one, 1.5 * one, one, 2 * one)])["large"]
    ClassScore(median=0.5, mean_capped=0.5, systems=1, coverage80=1.0)
    """
    systems = score_systems(comparisons)
    return {size_class: _score_class(size_class, systems, comparisons) for size_class in SIZE_CLASSES}


def _score_class(
    size_class: str, systems: dict[str, dict[str, SystemScore]], comparisons: Sequence[Comparison]
) -> ClassScore:
    medians = [scores[size_class].median for scores in systems.values() if size_class in scores]
    if not medians:
        return ClassScore(None, None, 0, None)
    held = [_held(one)[class_mask(size_class, one.nbytes)] for one in comparisons]
    capped = sum(min(error, 1.0) for error in medians) / len(medians)
    return ClassScore(median(medians), capped, len(medians), float(np.concatenate(held).mean()))


def _held(one: Comparison) -> NDArray[np.bool_]:
    return (one.low <= one.measured) & (one.measured <= one.high)


def score_baselines(comparisons: Sequence[Comparison]) -> dict[str, dict[str, float | None]]:
    """Return the median over systems of each baseline in each class, by the same rule."""
    names = dict.fromkeys(name for one in comparisons for name in one.baselines)
    found: dict[str, dict[str, float | None]] = {}
    for name in names:
        said = [replace(one, predicted=one.baselines[name]) for one in comparisons if name in one.baselines]
        found[name] = {size_class: score.median for size_class, score in score_classes(said).items()}
    return found


def score_groups(comparisons: Sequence[Comparison], key: str) -> dict[str, dict[str, ClassScore]]:
    """Return the scores of each group of series: ``key`` is "family" or "collective"."""
    groups = sorted({getattr(one, key) for one in comparisons})
    return {group: score_classes([one for one in comparisons if getattr(one, key) == group]) for group in groups}


SIZE_CLASSES = {"small": 64 * 1024, "mid": 16 * 1024**2, "large": float("inf")}  # most bytes of each


def class_mask(size_class: str, nbytes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which sizes are of a class.

    >>> class_mask("mid", np.array([65536.0, 65537.0, 1e9]))
    array([False,  True, False])
    """
    names = list(SIZE_CLASSES)
    above = 0.0 if size_class == names[0] else SIZE_CLASSES[names[names.index(size_class) - 1]]
    return (nbytes > above) & (nbytes <= SIZE_CLASSES[size_class])
