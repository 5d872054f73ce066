"""Predict, run, compare and draw a scenario in one call: the name of a shipped one, a file, or one that is loaded."""

from pathlib import Path
from typing import TYPE_CHECKING

import scenarios
from collectives.errors import InputError
from collectives.records.profiles import read_run
from ringlab.answers.calibration_source import Source
from ringlab.answers.prediction import Prediction
from ringlab.answers.progress import Progress
from ringlab.scenario import Scenario, extend, load

if TYPE_CHECKING:  # predictions do without what compares and draws
    from ringlab.answers.comparison import Comparison
    from ringlab.answers.explanation import Explanation
    from ringlab.answers.pictures import Picture
    from ringlab.answers.real_run import RunAnswer

Named = str | Path | scenarios.Scenario  # the name of a shipped scenario, a file, or a scenario that is loaded


def predict(scenario: Named, calibration: Source = None, engine: str | None = None) -> Prediction:
    """Simulate a scenario and its what-ifs.

    ``scenario`` is the name of a shipped one, a file, or what ``load`` returns. ``calibration`` is a ``Calibration`` or
    the file of one, else the cached one of this machine; ``engine`` is "simpy", "compiled" or whichever suits the size.
    Raises InputError, also where a calibration is needed and missing.

    >>> predict("star8")
    <Prediction of 'Eight hosts on a 10 Gbit/s switch': 10 collectives, 2 trainings>
    """
    return _find(scenario).predict(calibration, engine)


def run(
    scenario: Named,
    *,
    calibration: Source = None,
    backend: str = "gloo",
    timeout: float = 600.0,
    emulate: bool = False,
) -> "RunAnswer":
    """Run a scenario on real processes of this machine; each run ends after ``timeout`` seconds.

    ``scenario`` is the name of a shipped one, a file, or what ``load`` returns; ``backend`` is "gloo" or "nccl". The
    calibration is for algorithms named ``auto`` only, and made where it is missing. With ``emulate`` they run on the
    scenario's network, built on this machine. Raises InputError and RunFailed.

    >>> run("here.toml", timeout=60)  # doctest: +SKIP
    <RunAnswer of 'two ranks here': 1 collective>
    """
    return _find(scenario).run(calibration=calibration, backend=backend, timeout=timeout, emulate=emulate)


def compare(
    scenario: Named,
    *,
    calibration: Source = None,
    backend: str = "gloo",
    timeout: float = 600.0,
    emulate: bool = False,
) -> "Comparison":
    """Run a scenario on this machine in turns with calibrating, and predict it from the calibration alone.

    ``scenario`` is the name of a shipped one, a file, or what ``load`` returns; ``backend`` is "gloo" or "nccl"; each
    run ends after ``timeout`` seconds. With ``emulate`` the scenario's network is built on this machine. Raises
    InputError, also for a cluster that is neither this machine nor emulated, and for trouble; RunFailed.

    >>> compare("here.toml", timeout=60)  # doctest: +SKIP
    <Comparison of 'two ranks here': 1 collective>
    """
    return _find(scenario).compare(calibration=calibration, backend=backend, timeout=timeout, emulate=emulate)


def explain(scenario: Named, path: Path | str | None = None) -> "Explanation":
    """Return what NCCL would pick for a scenario at each size and why; ``path`` is where its rings are drawn.

    ``scenario`` is the name of a shipped one, a file, or what ``load`` returns. Raises InputError, also where none of
    its clusters has ``transport = "nccl"``.

    >>> explain("two-p5")
    <Explanation of 'Two p5.48xlarge: NCCL and a plain ring over it': all_reduce, 2 clusters>
    """
    return _find(scenario).explain(path)


def animate(
    source: Named,
    path: Path | str,
    algorithm: str | None = None,
    size: str | None = None,
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
    if isinstance(source, str | Path) and is_record(source):
        from ringlab.answers.pictures import draw_trace  # imports what draws

        return draw_trace(read_run(source), path, progress)
    return _find(source).animate(path, algorithm, size, progress=progress)


def plot(
    kind: str,
    source: Named,
    path: Path | str,
    algorithm: str | None = None,
    size: str | None = None,
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
    if isinstance(source, str | Path) and is_record(source):
        if kind != "path":
            raise InputError(f"{source}: of a trace the critical path can be drawn, not {kind!r}")
        import viz  # other commands do without what draws
        from ringlab.answers.pictures import Picture

        trace = read_run(source)
        viz.draw_path(trace, path)
        return Picture(trace.title, str(path))
    return _find(source).plot(kind, path, algorithm, size, calibration=calibration, progress=progress)


def is_record(source: str | Path) -> bool:
    """Return whether a source of ``animate`` is a record of a run, not a scenario.

    >>> is_record("ring.trace.json"), is_record("star8")
    (True, False)
    """
    return str(source).endswith((".json", ".json.gz", "/"))


def _find(scenario: Named) -> Scenario:
    if isinstance(scenario, str | Path):
        return load(scenario)
    if not isinstance(scenario, scenarios.Scenario):
        raise InputError(f"scenario is {scenario!r}; give the name of one, like 'star8', a file, or what load returns")
    return scenario if isinstance(scenario, Scenario) else extend(scenario)
