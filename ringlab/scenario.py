"""The Python API of scenarios: ``load`` a scenario, then predict, run, compare, trace or draw it.

The functions accept a Scenario, a file or the name of a built-in scenario. They are also methods of ``Scenario``.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import scenarios
from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError, failure_first
from collectives.records.kineto import read_run
from collectives.records.trace import Trace
from collectives.units import as_bytes
from ringlab.commands.predicting import prediction
from ringlab.commands.predicting.prediction import Prediction
from ringlab.session import Session, Source, session_of
from ringlab.shared.options import TIMEOUT_S
from ringlab.shared.progress import Progress

if TYPE_CHECKING:  # slow to import, and not required for predictions
    from realcomm.watching.watch import Watch
    from ringlab.commands.draw import Picture
    from ringlab.commands.measuring.calibrate import CalibrationAnswer
    from ringlab.commands.measuring.compare import Comparison
    from ringlab.commands.measuring.run import RunAnswer
    from ringlab.commands.predicting.explain import Explanation

Named = str | Path | scenarios.LoadedScenario  # the name of a built-in scenario, a file, or a loaded scenario


def predict(scenario: Named, calibration: Source = None, progress: Progress | None = None) -> Prediction:
    """Simulate a scenario and its what-ifs.

    ``calibration`` is a Calibration or its file. By default, this machine's cached calibration is used. Raises
    InputError if a value is invalid or a required calibration is missing.

    >>> ring = load("star8", "collective.sizes=1 MiB").predict().collectives[1]
    >>> ring.algorithm, round(1e3 * ring.time_s, 3), "ms"
    ('ring', 1.608, 'ms')
    """
    return prediction.predict(_find(scenario), session_of(progress, calibration=calibration))


@failure_first()
def run(
    scenario: Named,
    *,
    calibration: Source = None,
    backend: str = "gloo",
    timeout: float = TIMEOUT_S,
    emulate: bool = False,
    resume: str | Path | None = None,
    watch: "Watch | None" = None,
    progress: Progress | None = None,
) -> "RunAnswer":
    """Run a scenario on real processes on this machine.

    The calibration selects the algorithms for ``auto``. A missing calibration is measured first. ``backend`` is "gloo"
    or "nccl". A collective, or a step of a training run, is stopped after ``timeout`` seconds. If ``emulate`` is True,
    the scenario's network is emulated on this machine. ``resume`` is a checkpoint, or "auto" for the newest complete
    checkpoint of each training run. ``watch`` records metrics of training runs. Raises InputError if a value is
    invalid, and RunFailed if a rank fails.

    >>> measured = load("here.toml").run(timeout=60)  # doctest: +SKIP
    >>> measured.collectives[0].algorithm, measured.collectives[0].time_s > 0  # doctest: +SKIP
    ('ring', True)
    """
    from ringlab.commands.measuring import run as command  # launches ranks
    from ringlab.commands.measuring.run import Kept

    loaded = _find(scenario)
    if watch is not None and not hasattr(watch, "observing"):
        raise InputError(f"watch must be a realcomm.watching.watch.Watch, not {watch!r}")
    for name, value in (("resume", resume), ("watch", watch)):
        if value is not None and not loaded.trainings:
            raise InputError(f"{loaded.path}: {name} requires a [training] table; add one, or remove {name}")
    session = session_of(progress, calibration=calibration, backend=backend, timeout_s=timeout)
    return command.run(loaded, session, Kept(resume, watch), emulate)


@failure_first()
def compare(
    scenario: Named,
    *,
    calibration: Source = None,
    backend: str = "gloo",
    timeout: float = TIMEOUT_S,
    emulate: bool = False,
    thorough: bool = False,
    progress: Progress | None = None,
) -> "Comparison":
    """Predict a scenario, run it, and return predicted and measured times side by side.

    By default, the cached calibration is used. If there is none, a new one is measured in about 15 seconds. If
    ``thorough`` is True, calibration and run alternate for minutes, so that drift of the machine cancels out.
    ``emulate``, ``backend`` and ``timeout`` are as in ``run``. Raises RunFailed if a rank fails. Raises InputError if a
    value is invalid, the scenario has faults, or its cluster is neither this machine nor emulated.

    >>> both = load("here.toml").compare(timeout=60)  # doctest: +SKIP
    >>> both.collectives[0].time_s.predicted > 0  # doctest: +SKIP
    True
    """
    from ringlab.commands.measuring import compare as command  # launches ranks

    session = session_of(progress, calibration=calibration, backend=backend, timeout_s=timeout)
    return command.compare(_find(scenario), session, emulate, thorough)


def animate(
    source: Named,
    path: Path | str,
    algorithm: str | Algorithm | None = None,
    size: str | int | None = None,
    *,
    calibration: Source = None,
    progress: Progress | None = None,
) -> "Picture":
    """Draw the messages of a scenario's algorithm, of a trace in a ``.json`` file, or of torch.profiler traces.

    The suffix of ``path`` selects the format: .html for a player, .gif for an animation over the topology, .png, .svg
    or .pdf for a timeline of the ranks, and .perfetto.json for Perfetto. By default, a player shows the last nine
    algorithms at the largest size, and the other formats show the last one. torch.profiler traces are a ``.json`` or
    ``.json.gz`` file, or a folder whose path ends in "/". Raises InputError if an argument is invalid.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     animate("star8", Path(folder, "ring.png"), "ring", "1 KiB").title
    'all_reduce/ring'
    """
    from ringlab.commands.draw import ONE_RUN, check_unused, draw_scenario, draw_trace, is_record  # imports viz

    if isinstance(source, str | Path) and is_record(source):
        check_unused(source, ONE_RUN, algorithm=algorithm, size=size, calibration=calibration)
        return draw_trace(read_run(source), path, session_of(progress))
    return draw_scenario(_find(source), path, algorithm, size, session_of(progress, calibration=calibration))


def plot(
    source: Named,
    kind: str,
    path: Path | str,
    algorithm: str | Algorithm | None = None,
    size: str | int | None = None,
    *,
    calibration: Source = None,
    progress: Progress | None = None,
) -> "Picture":
    """Plot a training "step", its "scaling", the critical "path" of a run or the "cluster" as .png, .svg or .pdf.

    For a "path", ``source`` may also be a trace. If it is a scenario, ``algorithm`` and ``size`` select the run. By
    default, this is the last algorithm at the largest size. Raises InputError if ``kind``, the algorithm or the suffix
    is unknown, or if the scenario has nothing of this kind to plot.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     plot("star8", "cluster", Path(folder, "star.png")).title
    'Eight hosts on a 10 Gbit/s switch'
    """
    from ringlab.commands.draw import ONE_RUN, check_unused, is_record, plot_scenario, plot_trace  # imports viz

    if isinstance(source, str | Path) and is_record(source):
        check_unused(source, ONE_RUN, algorithm=algorithm, size=size, calibration=calibration)
        return plot_trace(kind, source, path)
    return plot_scenario(_find(source), kind, path, algorithm, size, session_of(progress, calibration=calibration))


def explain(scenario: Named, *, progress: Progress | None = None) -> "Explanation":
    """Return the algorithm, protocol and channels that NCCL would choose at each size, and why.

    Raises InputError if no cluster of the scenario uses NCCL, or NCCL does not have the scenario's collective.

    >>> explain("two-p5").clusters[0].sizes[0].algorithm
    'tree'
    """
    from ringlab.commands.predicting import explain as command  # imports NCCL's model

    return command.explain(_find(scenario), progress)


class Scenario(scenarios.LoadedScenario):
    """A scenario that can be predicted, run, compared and drawn."""

    predict = predict
    run = run
    compare = compare
    animate = animate
    plot = plot
    explain = explain

    def trace(
        self,
        algorithm: str | Algorithm | None = None,
        size: str | int | None = None,
        *,
        calibration: Source = None,
    ) -> Trace:
        """Simulate one algorithm at one size, and return its trace.

        ``algorithm`` is a name or an Algorithm. Default: the scenario's last algorithm. ``size`` is a number of bytes,
        or a string such as "1 MiB". Default: the scenario's largest size. Raises InputError for the name of an
        algorithm that the scenario does not have, and for a size if the scenario has no collective.

        >>> len(load("star8").trace("ring", "1 KiB").messages)
        112
        """
        from ringlab.pictures.traces import OneRun  # imports viz

        known = Session(calibration=calibration).find_calibration(self)
        return OneRun(self, known, algorithm, None if size is None else as_bytes(size, "size")).simulate()

    def calibrate(
        self,
        ranks: int | None = None,
        *,
        backend: str = "gloo",
        timeout: float = TIMEOUT_S,
        progress: Progress | None = None,
        accept_noise: bool = False,
    ) -> "CalibrationAnswer":
        """Measure this machine for the predictions of the scenario, and cache the result for a day.

        ``ranks`` is the number of processes. Default: as many as the scenario requires, or 2. ``backend`` is "gloo" or
        "nccl". The processes are stopped after ``timeout`` seconds. Raises InputError if a value is invalid. Raises
        RunFailed if a rank fails, or if measurements are noisy and ``accept_noise`` is not set.

        >>> load("here.toml").calibrate(timeout=60, accept_noise=True).calibration.ranks  # doctest: +SKIP
        2
        """
        from ringlab.commands.measuring.calibrate import CalibrationAnswer  # imports NCCL's model

        session = session_of(progress, backend=backend, timeout_s=timeout)
        return CalibrationAnswer(*session.calibrate_for(self, ranks, accept_noise))


def load(reference: str | Path, *changes: str | Algorithm) -> Scenario:
    """Read a scenario file or a built-in scenario, and apply changes.

    A change is a string ``section.key=value`` as for ``--set``, or another algorithm to compare. Raises InputError if
    the file or a change is invalid. The message names the file, the key, the value and the accepted values.

    >>> load("star8", "cluster.hosts=16").cluster.world_size
    16
    """
    loaded = scenarios.load(reference, [change for change in changes if not isinstance(change, Algorithm)])
    for algorithm in (change for change in changes if isinstance(change, Algorithm)):
        comparison = loaded.collective
        if comparison is None:
            raise InputError(f"{loaded.path}: {algorithm.full_name} requires a [collective] table; add one")
        find_algorithm(algorithm, comparison.name)
        if algorithm.label in [known.label for known in comparison.algorithms]:
            raise InputError(
                f"{loaded.path}: duplicate algorithm name {algorithm.label}; pass another name= to @algorithm"
            )
        loaded = replace(loaded, collective=replace(comparison, algorithms=(*comparison.algorithms, algorithm)))
    return extend(loaded)


def extend(loaded: scenarios.LoadedScenario) -> Scenario:
    """Return a loaded scenario with the methods of ``Scenario``."""
    return Scenario(**{field.name: getattr(loaded, field.name) for field in fields(loaded)})


def _find(scenario: Named) -> Scenario:
    if isinstance(scenario, str | Path):
        return load(scenario)
    if not isinstance(scenario, scenarios.LoadedScenario):
        raise InputError(f"scenario must be a name such as 'star8', a file, or the result of load, not {scenario!r}")
    return scenario if isinstance(scenario, Scenario) else extend(scenario)
