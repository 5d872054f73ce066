"""Estimate the relative uncertainty of a prediction from the calibration's folds and age, and from the model's error.

This module also reports signs that the machine was busy during a calibration.

Each fold of a calibration uses some of its rounds, and predicts each row of a table. Let s be the standard deviation of
m folds' predictions of a row. Then the mean of a further measurement with as many rounds lies within t s sqrt(2 / m) of
their mean with a probability of 80 %. Here, t is the 90 % quantile of Student's t distribution with m - 1 degrees of
freedom.
"""

from collections.abc import Iterator, Sequence
from math import hypot, log10, sqrt
from statistics import fmean, stdev

from collectives.records.calibration import SLOWER, Calibration, ComputePoint, read_curve
from collectives.units import format_size, format_time

# Two-sided 80 % quantiles of Student's t by degrees of freedom.
T_80 = (3.078, 1.886, 1.638, 1.533, 1.476)

# Error of the model with an exact calibration: of 90 rows of trainings on a quiet machine, half were
# within 1.8 % and 90 % within 6.9 % (docs/how-it-works/predictions.md).
MODEL = 0.05

# Relative change of a time on a machine with two cores, between launches this many seconds apart:
# the 90th percentile of nine launches (docs/how-it-works/predictions.md).
DRIFT = ((10.0, 0.23), (60.0, 0.29), (1200.0, 0.39))
TOLERATED = 0.3  # tolerated disagreement of folds, and of contradictory phases
LATER_S = 60.0  # least age in seconds of the calibration of an emulated cluster
NO_DRIFT_S = 1.0  # a younger calibration, in seconds, belongs to the run itself


def disagreement(values: Sequence[float | None]) -> float | None:
    """Return the half-width of the 80 % interval for a further measurement, relative to the mean of ``values``.

    ``values`` are the predictions by the calibration's folds. Return None if there are fewer than two, if one is None,
    or if their mean is 0.

    >>> round(disagreement([1.0, 1.1, 0.9, 1.0]), 3)
    0.095
    """
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(known) < len(values) or fmean(known) == 0:
        return None
    t = T_80[min(len(known) - 2, len(T_80) - 1)]
    return t * stdev(known) / abs(fmean(known)) * sqrt(2 / len(known))


def drift(age_s: float) -> float:
    """Return the expected relative change of a time ``age_s`` seconds after its calibration.

    >>> drift(0.0), drift(60.0), round(drift(86400.0), 2)
    (0.0, 0.29, 0.53)
    """
    if age_s < NO_DRIFT_S:
        return 0.0
    return read_curve([(log10(age), share) for age, share in DRIFT], log10(age_s))


def combine(disagreeing: float | None, age_s: float, drifts: float = 1.0) -> float | None:
    """Return the relative uncertainty of a prediction, from the folds' disagreement, the drift and the model's error.

    Return None if ``disagreeing`` is None. ``drifts`` is the share of the predicted time that drifts. On an emulated
    cluster, only the work of cores drifts, because links have a fixed speed.

    >>> round(combine(0.12, age_s=0.0), 3), round(combine(0.0, age_s=60.0, drifts=0.5), 3)
    (0.13, 0.153)
    """
    return None if disagreeing is None else hypot(disagreeing, drifts * drift(age_s), MODEL)


def of_emulated(seconds: float, parts: Sequence[float | None], slower: float | None, age_s: float) -> float | None:
    """Return the relative uncertainty of a prediction on an emulated cluster, or None if it is unknown.

    ``parts`` are the predictions by each fold of the calibration. ``slower`` is the prediction with cores that take
    ``SLOWER`` times as long. The speed of cores drifts; the speed of links does not.

    >>> round(of_emulated(1.0, [1.0, 1.0, 1.0, 1.0], slower=1.0, age_s=0.0), 3)  # nothing but links
    0.05
    >>> round(of_emulated(1.0, [1.0, 1.0, 1.0, 1.0], slower=1.05, age_s=60.0), 3)
    0.153
    """
    share_of_cores = 0.0 if slower is None or seconds <= 0 else max(0.0, slower / seconds - 1) / (SLOWER - 1)
    return combine(disagreement(parts), max(LATER_S, age_s), share_of_cores)


def find_noise(calibration: Calibration) -> list[str]:
    """Return messages about signs that the machine was busy during a calibration. The list may be empty.

    >>> from collectives.records.calibration import FittedLine, MachineLoad
    >>> line, load = FittedLine(1e-5, 1e-9, 0.05), MachineLoad(0.4, 0.0)
    >>> find_noise(Calibration(2, 1, one_way=line, both_ways=line, reduction=line, load=load))
    ["other processes took 40% of this machine's cores"]
    """
    reasons = [calibration.load.describe()] if calibration.load is not None and calibration.load.is_busy else []
    disagreements = sorted(_disagreements(calibration))
    if disagreements and disagreements[len(disagreements) // 2][0] > TOLERATED:
        middle, (worst, name) = disagreements[len(disagreements) // 2][0], disagreements[-1]
        reasons.append(f"its repetitions disagree by {middle:.0%}, and by {worst:.0%} for {name}")
    return [*reasons, *_contradictions(calibration)]


def _contradictions(calibration: Calibration) -> Iterator[str]:
    """Yield a message for each phase that n processes at once compute faster than one, or over n times slower."""
    alone = {_kind(point): point.phases for point in calibration.compute if point.processes == 1}
    for point in calibration.compute:
        if point.processes == 1 or _kind(point) not in alone:
            continue
        for name in ("forward", "backward"):
            single, several = getattr(alone[_kind(point)], name), getattr(point.phases, name)
            if not single / (1 + TOLERATED) <= several <= single * point.processes * (1 + TOLERATED):
                times = f"{format_time(several)} in {point.processes} parallel processes, {format_time(single)} in one"
                yield f"{name} of {point.model} takes {times}"


def _kind(point: ComputePoint) -> tuple[str, str, int, int]:
    """Return a key that equals that of comparable compute points: model, dataset, batch size and threads."""
    return point.model, point.dataset, point.batch_size, point.threads


def _disagreements(calibration: Calibration) -> Iterator[tuple[float, str]]:
    """Yield the folds' relative disagreement and a name, for each message class and size and each compute phase."""
    parts = calibration.parts
    for curve in calibration.message_classes:
        kind = (curve.pattern, curve.width, curve.reduces, curve.is_first, curve.in_training)
        of_parts = [
            {nbytes: seconds for other in part.message_classes for nbytes, seconds in other.points
             if (other.pattern, other.width, other.reduces, other.is_first, other.in_training) == kind}
            for part in parts
        ]  # fmt: skip
        for nbytes, _ in curve.points:
            share = disagreement([part.get(nbytes) for part in of_parts])
            if share is not None:
                yield share, f"messages of {format_size(nbytes)} ({curve.pattern})"
    for number, point in enumerate(calibration.compute):
        for name in ("forward", "backward", "optimizer"):
            same = [part.compute[number].phases for part in parts if number < len(part.compute)]
            share = disagreement([getattr(phases, name) for phases in same])
            if share is not None:
                yield share, f"{name} of {point.model} in {point.processes} processes"
