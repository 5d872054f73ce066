"""A scenario in Python: ``load`` one, then predict, run, compare, trace or draw it, as the command line does.

Functions of the same names do it in one call, with the name of a shipped scenario, a file, or one that is loaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import update_wrapper
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

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

if TYPE_CHECKING:  # predictions do without what compares and draws
    from realcomm.watching.watch import Watch
    from ringlab.commands.draw import Picture
    from ringlab.commands.measuring.calibrate import CalibrationAnswer
    from ringlab.commands.measuring.compare import Comparison
    from ringlab.commands.measuring.measurement import RunAnswer
    from ringlab.commands.predicting.explain import Explanation


Named = str | Path | scenarios.LoadedScenario  # the name of a shipped scenario, a file, or a scenario that is loaded
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Scenario(scenarios.LoadedScenario):
    """A scenario that can be predicted, run, compared and drawn.

    ``calibration`` is a ``Calibration`` or the file of one; unless given, it is the cached one of this machine.
    """

    def predict(
        self, calibration: Source = None, engine: str | None = None, progress: Progress | None = None
    ) -> Prediction:
        """Simulate the scenario and its what-ifs; ``engine`` is as in ``simcomm.run``.

        An interrupt ends it, and what is done by then is the answer: see ``interrupted``. Raises InputError, also where
        a calibration is needed and missing.

        >>> ring = load("star8", "collective.sizes=1 MiB").predict().collectives[1]
        >>> ring.algorithm, round(1e3 * ring.time_s, 3), "ms"
        ('ring', 1.608, 'ms')
        """
        return prediction.predict(self, session_of(progress, calibration=calibration, engine=engine))

    @failure_first()
    def run(
        self,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        timeout: float = TIMEOUT_S,
        emulate: bool = False,
        resume: str | Path | None = None,
        watch: "Watch | None" = None,
        progress: Progress | None = None,
    ) -> "RunAnswer":
        """Run the scenario on real processes of this machine; each run ends after ``timeout`` seconds.

        A training ends after so long without a step. The calibration is for algorithms named ``auto`` only, and made
        where it is missing. ``backend`` is "gloo" or "nccl". With ``emulate`` they run on the scenario's network, built
        on this machine. With ``resume`` a training goes on from that checkpoint, or with "auto" each from its newest
        whole one. ``watch`` says what is kept of trainings while they run. Raises InputError and RunFailed.

        >>> run = load("here.toml").run(timeout=60)  # doctest: +SKIP
        >>> run.collectives[0].algorithm, run.collectives[0].time_s > 0  # doctest: +SKIP
        ('ring', True)
        """
        from ringlab.commands.measuring.measurement import Kept  # predictions do without what launches ranks
        from ringlab.commands.measuring.run import run

        if watch is not None and not hasattr(watch, "observing"):
            raise InputError(f"watch must be a realcomm.watching.watch.Watch, not {watch!r}")
        for name, given in (("resume", resume), ("watch", watch)):
            if given is not None and not self.trainings:
                raise InputError(f"{self.path}: no [training] table; remove {name}")
        session = session_of(progress, calibration=calibration, backend=backend, timeout_s=timeout)
        return run(self, session, Kept(resume, watch), emulate)

    @failure_first()
    def compare(
        self,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        timeout: float = TIMEOUT_S,
        emulate: bool = False,
        thorough: bool = False,
        progress: Progress | None = None,
    ) -> "Comparison":
        """Predict the scenario from a calibration, run it, and return both side by side.

        Without ``calibration`` the kept one is used, or one is made in about 15 seconds and kept. Where ``thorough``,
        the scenario runs in turns with calibrating, in one launch of minutes. With ``emulate`` its network is built on
        this machine, and the calibration is of two hosts of such a network. ``backend`` is "gloo" or "nccl"; a launch
        ends after ``timeout`` seconds, with trainings after so long without a step. With "nccl" one host with this
        machine's GPUs will do too, and the algorithm "nccl" is measured as NCCL's own collective. Raises InputError,
        also for another cluster and for faults; RunFailed.

        >>> both = load("here.toml").compare(timeout=60)  # doctest: +SKIP
        >>> both.collectives[0].time_s.predicted > 0  # doctest: +SKIP
        True
        """
        from ringlab.commands.measuring.compare import compare  # predictions do without what launches ranks

        session = session_of(progress, calibration=calibration, backend=backend, timeout_s=timeout)
        return compare(self, session, emulate, thorough)

    def trace(
        self,
        algorithm: str | Algorithm | None = None,
        size: str | int | None = None,
        *,
        calibration: Source = None,
        engine: str | None = None,
    ) -> Trace:
        """Simulate one algorithm and return its messages: the last at the largest size, unless said.

        ``size`` is in bytes, or a text like "1 MiB". Raises InputError for an algorithm that is not in the scenario.

        >>> len(load("star8").trace("ring", "1 KiB").messages)
        112
        """
        from ringlab.pictures.traces import OneRun  # a table of times does without

        known = Session(calibration=calibration).find_calibration(self)
        return OneRun(self, known, engine, algorithm, None if size is None else as_bytes(size, "size")).simulate()

    def animate(
        self,
        path: Path | str,
        algorithm: str | Algorithm | None = None,
        size: str | int | None = None,
        *,
        calibration: Source = None,
        progress: Progress | None = None,
    ) -> "Picture":
        """Draw the messages of ``trace``: moving over the topology as ``.gif``, ranks against time as ``.png``.

        As ``.html`` it is a player of all algorithms, unless one is said. ``algorithm`` and ``size`` are as of
        ``trace``. Raises InputError, also for another suffix.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     load("star8").animate(Path(folder, "ring.png"), "ring", "1 KiB").title
        'all_reduce/ring'
        """
        from ringlab.commands.draw import draw_scenario  # imports what draws

        return draw_scenario(self, path, algorithm, size, session_of(progress, calibration=calibration))

    def plot(
        self,
        kind: str,
        path: Path | str,
        algorithm: str | Algorithm | None = None,
        size: str | int | None = None,
        *,
        calibration: Source = None,
        progress: Progress | None = None,
    ) -> "Picture":
        """Draw a still picture as .png, .svg or .pdf: a training "step", "scaling", the critical "path", the "cluster".

        ``algorithm`` and ``size`` are those of the path, as of ``trace``. Raises InputError.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     load("star8").plot("path", Path(folder, "ring.png"), "ring", "1 KiB").title
        'Eight hosts on a 10 Gbit/s switch'
        """
        from ringlab.commands.draw import plot_scenario  # imports what draws

        return plot_scenario(self, kind, path, algorithm, size, session_of(progress, calibration=calibration))

    def calibrate(
        self,
        ranks: int | None = None,
        *,
        backend: str = "gloo",
        timeout: float = TIMEOUT_S,
        progress: Progress | None = None,
        accept_noise: bool = False,
    ) -> "CalibrationAnswer":
        """Measure this machine for what the scenario needs, and keep the result in the cache for a day.

        ``ranks`` are those of the scenario, or 2 where it needs no certain number. ``backend`` is "gloo" or "nccl";
        each launch may take ``timeout`` seconds. Raises InputError, and RunFailed, also where the times contradict each
        other, unless ``accept_noise``.

        >>> load("here.toml").calibrate(timeout=60, accept_noise=True).calibration.ranks  # doctest: +SKIP
        2
        """
        from ringlab.commands.measuring.calibrate import CalibrationAnswer  # other commands do without it

        session = session_of(progress, backend=backend, timeout_s=timeout)
        return CalibrationAnswer(*session.calibrate_for(self, ranks, accept_noise))

    def explain(self, path: Path | str | None = None, *, progress: Progress | None = None) -> "Explanation":
        """Return what NCCL would pick at each size and why, on those of its clusters that NCCL joins.

        ``path`` is where its rings and trees are drawn: .png, .svg or .pdf. Raises InputError.

        >>> load("two-p5").explain().clusters[0].sizes[0].algorithm
        'tree'
        """
        from ringlab.commands.predicting.explain import explain  # other commands do without it

        found = explain(self, progress)
        if path is not None:
            found.draw(path)
        return found

    def write_report(
        self,
        answer: "Comparison | Prediction",
        path: Path | str,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        progress: Progress | None = None,
    ) -> None:
        """Write a prediction or a comparison as one HTML page with pictures.

        Raises InputError for another suffix than ``.html``. ``calibration`` and ``backend`` are those of the answer:
        its pictures are simulated again.

        >>> here = load("here.toml")  # doctest: +SKIP
        >>> here.write_report(here.compare(timeout=60), "report.html")  # doctest: +SKIP
        """
        from ringlab.pictures.report import write_report  # imports what draws

        write_report(answer, self, path, session_of(progress, calibration=calibration, backend=backend))


def load(reference: str | Path, *changes: str | Algorithm) -> Scenario:
    """Return the scenario in a file, or the shipped one of that name, with changes.

    A change is a text ``section.key=value``, as of ``--set``, or an algorithm to compare with those of the scenario.
    Raises InputError that names the file, the key, the value and what would be accepted, and for arguments of another
    type.

    >>> load("star8", "cluster.hosts=16").cluster.world_size
    16
    """
    found = scenarios.load(reference, [one for one in changes if not isinstance(one, Algorithm)])
    return extend(_add_algorithms(found, [one for one in changes if isinstance(one, Algorithm)]))


def _add_algorithms(found: scenarios.LoadedScenario, added: Sequence[Algorithm]) -> scenarios.LoadedScenario:
    """Return a scenario with more algorithms of its collective. Raise InputError for one that cannot be among them."""
    comparison = found.collective
    if not added:
        return found
    if comparison is None:
        raise InputError(f"{found.path}: no [collective] table to compare {added[0].full_name} in")
    labels = [one.label for one in comparison.algorithms]
    for one in added:
        find_algorithm(one, comparison.name)
        if one.label in labels:
            raise InputError(f"{found.path}: it has an algorithm called {one.label}; pass @algorithm another name=")
        labels.append(one.label)
    return replace(found, collective=replace(comparison, algorithms=(*comparison.algorithms, *added)))


def extend(found: scenarios.LoadedScenario) -> Scenario:
    """Return a scenario that can be predicted, run, compared and drawn, from one that is only read."""
    return Scenario(**{one.name: getattr(found, one.name) for one in fields(found)})


def _by_name(method: Callable[Concatenate[Scenario, Given], Answer]) -> Callable[Concatenate[Named, Given], Answer]:
    """Return a function that takes a scenario, or the name or file of one, and does with it what a method does."""

    def call(scenario: Named, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return method(_find(scenario), *args, **kwargs)

    update_wrapper(call, method)
    asked = signature(method)
    scenario = Parameter("scenario", Parameter.POSITIONAL_OR_KEYWORD, annotation=Named)
    call.__signature__ = asked.replace(parameters=[scenario, *[*asked.parameters.values()][1:]])  # type: ignore[attr-defined]
    call.__qualname__, call.__module__ = method.__name__, __name__
    begin = (
        f"``Scenario.{method.__name__}`` of a scenario: the name of a shipped one, a file, or what ``load`` returns."
    )
    call.__doc__ = f"{begin}\n\n{cleandoc(method.__doc__ or '')}"
    return call  # type: ignore[return-value]  # by name too, which Concatenate cannot say


predict = _by_name(Scenario.predict)
run = _by_name(Scenario.run)
compare = _by_name(Scenario.compare)
explain = _by_name(Scenario.explain)


def animate(
    source: Named,
    path: Path | str,
    algorithm: str | Algorithm | None = None,
    size: str | int | None = None,
    *,
    progress: Progress | None = None,
) -> "Picture":
    """Draw a trace from a ``.json`` file, or one of a scenario's algorithms: the last at the largest size, unless said.

    What torch's profiler wrote is drawn too: a ``.json`` or ``.json.gz``, or a folder of them, its name with a ``/``.
    The suffix of ``path`` says what is drawn: a player of all algorithms as ``.html``, messages moving over the
    topology as ``.gif``, ranks against time as ``.png``. Returns the title and the file. Raises InputError.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     animate("star8", Path(folder, "ring.png"), "ring", "1 KiB").title
    'all_reduce/ring'
    """
    from ringlab.commands.draw import ONE_RUN, check_unused, draw_trace, is_record  # imports what draws

    if isinstance(source, str | Path) and is_record(source):
        check_unused(source, ONE_RUN, algorithm=algorithm, size=size)
        return draw_trace(read_run(source), path, session_of(progress))
    return _find(source).animate(path, algorithm, size, progress=progress)


def plot(
    kind: str,
    source: Named,
    path: Path | str,
    algorithm: str | Algorithm | None = None,
    size: str | int | None = None,
    *,
    calibration: Source = None,
    progress: Progress | None = None,
) -> "Picture":
    """Draw a still picture of a scenario, as its ``plot`` does, or the critical "path" of a trace in a file.

    Raises InputError, also for another kind of a trace.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     plot("cluster", "star8", Path(folder, "star.png")).title
    'Eight hosts on a 10 Gbit/s switch'
    """
    from ringlab.commands.draw import ONE_RUN, check_unused, is_record, plot_trace  # imports what draws

    if isinstance(source, str | Path) and is_record(source):
        check_unused(source, ONE_RUN, algorithm=algorithm, size=size, calibration=calibration)
        return plot_trace(kind, source, path)
    return _find(source).plot(kind, path, algorithm, size, calibration=calibration, progress=progress)


def _find(scenario: Named) -> Scenario:
    if isinstance(scenario, str | Path):
        return load(scenario)
    if not isinstance(scenario, scenarios.LoadedScenario):
        raise InputError(f"scenario must be a name such as 'star8', a file, or the result of load, not {scenario!r}")
    return scenario if isinstance(scenario, Scenario) else extend(scenario)
