"""Signs in a calibration that the machine was not calm: its numbers disagree, or other work took the cores."""

from collections.abc import Iterator

from collectives.records.calibration import Calibration, ComputePoint
from collectives.units import format_size, format_time
from ringlab.answers.uncertainty import disagreement

MOST_DISAGREEMENT = 0.3  # of the median uncertainty of all that was measured, and of phases that contradict each other


def find_noise(calibration: Calibration) -> list[str]:
    """Return why a calibration is not to be trusted; nothing where it is.

    >>> from collectives.records.calibration import Line, MachineLoad
    >>> line, load = Line(1e-5, 1e-9, 0.05), MachineLoad(0.4, 0.0)
    >>> find_noise(Calibration(2, 1, one_way=line, both_ways=line, reduction=line, load=load))
    ["other processes took 40% of this machine's cores"]
    """
    found = [calibration.load.describe()] if calibration.load is not None and calibration.load.is_busy else []
    every = sorted(_disagreements(calibration))
    if every and every[len(every) // 2][0] > MOST_DISAGREEMENT:
        middle, (worst, name) = every[len(every) // 2][0], every[-1]
        found.append(f"its parts disagree by {middle:.0%}, by {worst:.0%} for {name}")
    return [*found, *_contradictions(calibration)]


def _contradictions(calibration: Calibration) -> Iterator[str]:
    """Yield phases whose time in several processes contradicts the time in one.

    Processes at once take at least as long as one alone, and at most as long as all of them one after the other.
    """
    alone = {_kind(point): point.phases for point in calibration.compute if point.processes == 1}
    for point in calibration.compute:
        if point.processes == 1 or _kind(point) not in alone:
            continue
        for name in ("forward", "backward"):
            one, many = getattr(alone[_kind(point)], name), getattr(point.phases, name)
            if not one / (1 + MOST_DISAGREEMENT) <= many <= one * point.processes * (1 + MOST_DISAGREEMENT):
                times = f"{format_time(many)} in {point.processes} processes at once, {format_time(one)} in one alone"
                yield f"{name} of {point.model} takes {times}"


def _kind(point: ComputePoint) -> tuple[str, str, int, int]:
    """Return what two points have in common that differ in their number of processes only."""
    return point.model, point.dataset, point.batch_size, point.threads


def _disagreements(calibration: Calibration) -> Iterator[tuple[float, str]]:
    """Yield how far the parts disagree, and about what: each hop at each size, and each phase."""
    parts = calibration.parts
    for curve in calibration.hops:
        kind = (curve.pattern, curve.width, curve.reduces, curve.is_first, curve.in_training)
        of_parts = [
            {nbytes: seconds for other in part.hops for nbytes, seconds in other.points
             if (other.pattern, other.width, other.reduces, other.is_first, other.in_training) == kind}
            for part in parts
        ]  # fmt: skip
        for nbytes, _ in curve.points:
            found = disagreement([part.get(nbytes) for part in of_parts])
            if found is not None:
                yield found, f"messages of {format_size(nbytes)} ({curve.pattern})"
    for number, point in enumerate(calibration.compute):
        for name in ("forward", "backward", "optimizer"):
            same = [part.compute[number].phases for part in parts if number < len(part.compute)]
            found = disagreement([getattr(phases, name) for phases in same])
            if found is not None:
                yield found, f"{name} of {point.model} in {point.processes} processes"
