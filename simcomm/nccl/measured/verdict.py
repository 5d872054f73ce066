"""Compare measured times with NCCL's model: as expected, slower or faster, and at which sizes.

On a healthy machine, one size in five is outside the 80 % interval, and the errors of a table's sizes are correlated.
So a table counts as slower only if consecutive sizes are above the 80 % interval, and these include more than half of a
size class above the 90 % interval. This happens on one healthy machine in twenty. "Faster" is defined in the same way
below the intervals. The size classes are: up to 64 KiB (bound by latency), up to 16 MiB, and above (bound by
bandwidth).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.units import count, format_size
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.tables import SizeSeries
from simcomm.nccl.parameters import Floats
from simcomm.nccl.predict import DEFAULTS, interval_log_limits, predict_seconds
from simcomm.nccl.settings import NcclSettings

Bools = NDArray[np.bool_]
Verdict = Literal["as expected", "slower", "faster", "unknown"]
CLASS_ENDS = (2**16, 2**24)  # bytes
LEVEL = 0.05  # share of healthy machines that are judged slower; an equal share is judged faster


class Finding(NamedTuple):
    verdict: Verdict
    sentence: str


@dataclass(frozen=True)
class ComparedSeries:
    """A collective's measured and predicted times in seconds, by ascending size.

    ``low`` and ``high`` are the ends of the 80 % interval. ``limits`` [2, sizes] are the distances in log time from the
    prediction to the lower and upper end of the 90 % interval.
    """

    collective: str
    nbytes: Floats
    measured: Floats
    predicted: Floats
    low: Floats
    high: Floats
    limits: Floats

    def judge(self) -> Finding:
        logs = np.log(self.measured / self.predicted)
        slower = self._stretches(self.measured > self.high, logs > self.limits[1])
        faster = self._stretches(self.measured < self.low, logs < -self.limits[0])
        if slower or faster:
            return self._describe("slower" if slower else "faster", max(slower or faster, key=len))
        within = int(np.sum((self.low <= self.measured) & (self.measured <= self.high)))
        factor, sizes = float(np.exp(np.median(logs))), count(len(logs), "size")
        sentence = f"as expected: {factor:.2g} times the predicted time, {within} of {sizes} in the 80 % interval"
        return Finding("as expected", sentence)

    def _stretches(self, outside: Bools, far: Bools) -> list[range]:
        """Return the runs of ``outside`` sizes in which more than half of a size class is also marked in ``far``."""
        classes = np.searchsorted(CLASS_ENDS, self.nbytes)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], outside, [False]))))
        runs = []
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            inside = classes[begin:end][far[begin:end]]
            if any(2 * np.sum(inside == label) > np.sum(classes == label) for label in np.unique(inside)):
                runs.append(range(begin, end))
        return runs

    def _describe(self, verdict: Verdict, stretch: range) -> Finding:
        logs = np.log(self.measured / self.predicted)[stretch.start : stretch.stop]
        factor = float(np.exp(np.median(logs if verdict == "slower" else -logs)))
        first, last = (format_size(self.nbytes[at]) for at in (stretch[0], stretch[-1]))
        is_first, is_last = stretch.start == 0, stretch.stop == len(self.nbytes)
        where = (
            f"at {first}" if first == last else
            "at all sizes" if is_first and is_last else
            f"from {first} on" if is_last else
            f"up to {last}" if is_first else
            f"from {first} to {last}"
        )  # fmt: skip
        return Finding(verdict, f"{factor:.2g} times {verdict} than expected {where}")


def compare_series(system: System, series: SizeSeries, settings: NcclSettings = DEFAULTS) -> ComparedSeries:
    """Compare measured times with a system's predicted times. Raise InputError if the model cannot predict them."""
    predicted = predict_seconds(system, series.collective, series.nbytes, settings=settings)
    below, above = np.exp(interval_log_limits(system, series.nbytes, settings=settings))
    limits = interval_log_limits(system, series.nbytes, settings=settings, coverage=1 - 2 * LEVEL)
    ends = predicted / below, predicted * above
    return ComparedSeries(series.collective, series.nbytes, series.seconds, predicted, *ends, limits)
