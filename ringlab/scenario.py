"""A scenario in Python: ``load`` one, then predict, run, compare, trace or draw it, as the command line does."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import scenarios
from collectives.errors import InputError
from collectives.records.trace import Trace, read_trace
from collectives.units import parse_size
from ringlab.answers import prediction
from ringlab.answers.calibration_source import (
    CalibrationAnswer,
    Source,
    calibrate_for,
    calibration_to_choose,
    find_calibration,
    find_or_calibrate,
)
from ringlab.answers.comparison import Comparison, check_comparable, put_side_by_side
from ringlab.answers.pictures import Picture, draw_scenario, draw_trace
from ringlab.answers.predicted_trace import predict_trace
from ringlab.answers.prediction import Prediction
from ringlab.answers.progress import NoProgress, Progress
from simcomm.engine_choice import check_engine

if TYPE_CHECKING:
    from ringlab.answers.real_run import RunAnswer


class Scenario(scenarios.Scenario):
    """A scenario that can be predicted, run, compared and drawn.

    ``calibration`` is a ``Calibration`` or the file of one; unless given, it is the cached one of this machine.
    """

    def predict(self, calibration: Source = None, engine: str | None = None) -> Prediction:
        """Simulate the scenario and its what-ifs; ``engine`` is "simpy", "compiled" or whichever suits the size.

        Raises InputError, also where a calibration is needed and missing.

        >>> ring = load("star8", "collective.sizes=1 MiB").predict().collectives[1]
        >>> ring.algorithm, round(1e3 * ring.time_s, 3), "ms"
        ('ring', 1.608, 'ms')
        """
        check_engine(engine)
        return prediction.predict(self, find_calibration(self, calibration), engine)

    def run(
        self,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        timeout: float = 600.0,
        progress: Progress | None = None,
    ) -> "RunAnswer":
        """Run the scenario on real processes of this machine; each run ends after ``timeout`` seconds.

        The calibration is for algorithms named ``auto`` only, and made where it is missing. Raises InputError and
        RunFailed.
        """
        from realcomm.launching.launcher import check_launch  # predictions do without what launches ranks
        from ringlab.answers import real_run

        progress = NoProgress() if progress is None else progress
        check_launch(self.cluster.world_size, backend, timeout)
        if not self.cluster.is_here:
            progress.note(
                f"warning: {self.cluster.title} is not this machine; its {self.cluster.world_size} ranks run here, "
                "over this machine's memory"
            )
        found = calibration_to_choose(self, calibration, timeout=timeout, progress=progress)
        return real_run.run(self, found, backend=backend, timeout=timeout, progress=progress)

    def compare(
        self,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        timeout: float = 600.0,
        progress: Progress | None = None,
    ) -> Comparison:
        """Predict and run the scenario, calibrating before where that is missing.

        Raises InputError, also for a cluster that is not this machine and for trouble; RunFailed.
        """
        from realcomm.launching.launcher import check_launch  # predictions do without what launches ranks
        from ringlab.answers import real_run

        progress = NoProgress() if progress is None else progress
        check_comparable(self)
        check_launch(self.cluster.world_size, backend, timeout)
        found = find_or_calibrate(self, calibration, timeout=timeout, progress=progress)
        predicted = prediction.predict(self, found)
        measured = real_run.run(self, found, backend=backend, timeout=timeout, progress=progress)
        return put_side_by_side(self, predicted, measured)

    def trace(
        self,
        algorithm: str | None = None,
        size: str | None = None,
        *,
        calibration: Source = None,
        engine: str | None = None,
    ) -> Trace:
        """Simulate one algorithm and return its messages: the last at the largest size, unless said.

        Raises InputError for an algorithm that is not in the scenario.

        >>> len(load("star8").trace("ring", "1 KiB").messages)
        112
        """
        nbytes = None if size is None else parse_size(size)
        return predict_trace(self, find_calibration(self, calibration), algorithm, nbytes, engine)

    def animate(
        self,
        path: Path | str,
        algorithm: str | None = None,
        size: str | None = None,
        *,
        calibration: Source = None,
        progress: Progress | None = None,
    ) -> Picture:
        """Draw the messages of ``trace``: moving over the topology as ``.gif``, ranks against time as ``.png``."""
        return draw_scenario(
            self,
            path,
            calibration=find_calibration(self, calibration),
            algorithm=algorithm,
            nbytes=None if size is None else parse_size(size),
            progress=progress,
        )

    def calibrate(
        self, ranks: int = 2, *, timeout: float = 600.0, progress: Progress | None = None
    ) -> CalibrationAnswer:
        """Calibrate this machine for what the scenario needs; with ``ranks`` where that needs no certain number."""
        return calibrate_for(self, ranks, timeout=timeout, progress=progress)

    def write_report(self, answer: Comparison, path: Path | str, *, calibration: Source = None) -> None:
        """Write a comparison as one HTML page with pictures. Raises InputError for another suffix than ``.html``."""
        from ringlab.answers.comparison_report import write_report  # imports what draws

        write_report(answer, self, find_calibration(self, calibration), path)


def load(reference: str, *overrides: str) -> Scenario:
    """Return the scenario in a file, or the shipped one of that name, with ``section.key=value`` overrides applied.

    Raises InputError that names the file, the key, the value and what would be accepted.

    >>> load("star8", "cluster.hosts=16").cluster.world_size
    16
    """
    found = scenarios.load(reference, overrides)
    return Scenario(**{one.name: getattr(found, one.name) for one in fields(found)})


def predict(scenario: str | Scenario, calibration: Source = None, engine: str | None = None) -> Prediction:
    """Predict a scenario, or the one of that name; see ``Scenario.predict``.

    >>> predict("star8")
    <Prediction of 'Eight hosts on a 10 Gbit/s switch': 10 collectives, 2 trainings>
    """
    return _find(scenario).predict(calibration, engine)


def run(
    scenario: str | Scenario, *, calibration: Source = None, backend: str = "gloo", timeout: float = 600.0
) -> "RunAnswer":
    """Run a scenario, or the one of that name; see ``Scenario.run``."""
    return _find(scenario).run(calibration=calibration, backend=backend, timeout=timeout)


def compare(
    scenario: str | Scenario, *, calibration: Source = None, backend: str = "gloo", timeout: float = 600.0
) -> Comparison:
    """Predict and run a scenario, or the one of that name; see ``Scenario.compare``."""
    return _find(scenario).compare(calibration=calibration, backend=backend, timeout=timeout)


def animate(source: str | Scenario, path: Path | str, algorithm: str | None = None, size: str | None = None) -> Picture:
    """Draw a trace from a ``.json`` file, or one of a scenario's algorithms; see ``Scenario.animate``."""
    if isinstance(source, str) and source.endswith(".json"):
        return draw_trace(read_trace(source), path)
    return _find(source).animate(path, algorithm, size)


def _find(scenario: str | Scenario) -> Scenario:
    if not isinstance(scenario, str | Scenario):
        raise InputError(f"scenario is {scenario!r}; give the name of one, like 'star8', a file, or what load returns")
    return load(scenario) if isinstance(scenario, str) else scenario
