"""Predict, run, compare and draw a scenario in one call: the name of a shipped one, a file, or one that is loaded."""

from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import scenarios
from collectives.errors import InputError
from collectives.records.kineto import read_run
from ringlab.scenario import Scenario, extend, load
from ringlab.session import Source
from ringlab.shared.progress import Progress

if TYPE_CHECKING:  # predictions do without what compares and draws
    from ringlab.answers.pictures import Picture

Named = str | Path | scenarios.Scenario  # the name of a shipped scenario, a file, or a scenario that is loaded


Given = ParamSpec("Given")
Answer = TypeVar("Answer")


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
