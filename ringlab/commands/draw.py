"""``ringlab animate`` and ``ringlab plot``: draw the messages of a scenario or of a trace file."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, ClassVar

import typer

import viz
from collectives.catalogue import load_file
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.input_files import FileBytes
from collectives.records.kineto import read_run
from collectives.records.trace import Trace
from collectives.units import as_bytes
from ringlab.commands.predicting.prediction import predict
from ringlab.pictures.plots import describe_curves, scaling_curves, waterfall
from ringlab.pictures.traces import OneRun, algorithm_names, predict_runs
from ringlab.session import Session, load_scenario
from ringlab.shared.answer import Answer
from ringlab.shared.options import CalibrationOpt, JsonOpt, SetOpt, drawing, option, output_option, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import TerminalProgress
from ringlab.table import Part
from scenarios import LoadedScenario
from simcomm.cluster.paths import keeping_paths
from viz.captions import describe_failure
from viz.file_types import FILE_TYPES

USUAL = "star8"  # the scenario in which an algorithm file is drawn by default


def _load_drawn(source: str, algorithm: str | None, set_keys: Sequence[str]) -> tuple[LoadedScenario, str | None]:
    """Return the scenario to draw, and the name of the algorithm to draw, or None to draw the default.

    If ``source`` is a ``FILE.py``, its algorithms are drawn in the scenario ``star8``. If ``algorithm`` is
    ``FILE.py:NAME``, it replaces the scenario's algorithms, unless the scenario already loads NAME from a file.
    """
    if _names_program(source):
        if algorithm is not None:
            raise InputError(f"--algorithm {algorithm} cannot be combined with {source}; pass FILE.py:NAME instead")
        return _with_programs(USUAL, source, set_keys), None
    scenario = load_scenario(source, *set_keys)
    if algorithm is None or not _names_program(algorithm):
        return scenario, algorithm
    programs = scenario.collective.programs if scenario.collective else ()
    if algorithm.rpartition(".py:")[2] in [program.name for program in programs if program.source]:
        return scenario, algorithm
    return _with_programs(source, algorithm, set_keys), None


def _names_program(reference: str) -> bool:
    return reference.endswith(".py") or ".py:" in reference


def _with_programs(scenario: str, reference: str, set_keys: Sequence[str]) -> LoadedScenario:
    file, _, name = reference.partition(".py:")
    path = Path(f"{file}.py" if name else reference)
    every = load_file(path)
    programs = [program for program in every if name in ("", program.name, program.full_name)]
    if len({program.spec.name for program in programs}) != 1:  # several algorithms of one collective are drawn together
        names = ", ".join(f"{path}:{program.full_name}" for program in programs or every)
        raise InputError(f"{reference}: specify one algorithm as FILE.py:NAME; the file declares {names}")
    keys = {
        "title": f"{path.name} on eight hosts of one switch" if scenario == USUAL and not set_keys else path.name,
        "collective.name": programs[0].spec.name,
        "collective.algorithms": [f"{path.absolute()}:{program.name}" for program in programs],
    }
    return load_scenario(scenario, *(f"{key}={json.dumps(value)}" for key, value in keys.items()), *set_keys)


IMAGES = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}
ONE_RUN = "a trace has only one run"
KINDS = ("step", "scaling", "path", "cluster")


@dataclass(frozen=True)
class DrawOptions:
    """The options that ``animate`` and ``plot`` share."""

    size: str | None = option(None, help="Buffer size. Default: the scenario's largest.", metavar="SIZE")
    calibration: CalibrationOpt = None
    json_to: JsonOpt = None
    set_keys: SetOpt = None

    def session(self) -> Session:
        return Session(calibration=self.calibration, progress=TerminalProgress())

    def check_unused(self, trace: str, algorithm: str | None) -> None:
        """Raise InputError if an option is set that has no effect on a trace, such as ``--algorithm``."""
        others = {"--size": self.size, "--calibration": self.calibration, "--set": self.set_keys}
        check_unused(trace, ONE_RUN, **{"--algorithm": algorithm, **others})


@with_groups
def animate_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|FILE.py[:NAME]|TRACE",
            help="Scenario, algorithm file, .trace.json file, or torch.profiler trace (FILE.json or FOLDER/).",
        ),
    ],
    output: Annotated[
        Path,
        drawing(
            "a picture of messages",
            "Output file. .html: player. .gif: animation. .png, .svg, .pdf: timeline of the ranks. "
            ".perfetto.json: Perfetto trace.",
            "-o",
            "--output",
        ),
    ],
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Algorithm to draw: a name or FILE.py:NAME. Default: the scenario's last algorithm. A player "
            "shows its last nine.",
        ),
    ] = None,
    *,
    drawn: DrawOptions,
) -> None:
    """Visualize the messages of a collective: as an interactive player, an animation or a timeline.

    An incorrect algorithm is drawn up to its first error.
    """
    check_outputs(drawn.json_to, output, reads=drawn.calibration)
    session = drawn.session()
    if is_record(source):
        drawn.check_unused(source, algorithm)
        answer = draw_trace(read_run(source), output, session)
    else:
        scenario, named = _load_drawn(source, algorithm, drawn.set_keys or ())
        answer = draw_scenario(scenario, output, named, drawn.size, session)
    deliver(answer, drawn.json_to)


@with_groups
def plot_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="step|scaling|path|cluster",
            help="Plot to draw: step (phases of a training step, with what-ifs), scaling (samples/s against ranks), "
            "path (critical path) or cluster (topology).",
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|TRACE", help="Scenario. The plot `path` also accepts a Trace or a torch.profiler trace."
        ),
    ],
    output: Annotated[Path, output_option("Output file: .png, .svg or .pdf.")],
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Algorithm whose critical path is drawn. Default: the scenario's last one."),
    ] = None,
    *,
    drawn: DrawOptions,
) -> None:
    """Plot a scenario's predictions, or the critical path of a trace."""
    _check_kind(kind, output)
    check_outputs(drawn.json_to, output, reads=drawn.calibration)
    session = drawn.session()
    if is_record(source):
        drawn.check_unused(source, algorithm)
        answer = plot_trace(kind, source, output)
    else:
        answer = plot_scenario(
            load_scenario(source, *(drawn.set_keys or ())), kind, output, algorithm, drawn.size, session
        )
    deliver(answer, drawn.json_to)


@dataclass(frozen=True)
class Picture(Answer):
    """A picture file. If the drawn algorithm is incorrect, ``problem`` describes its error."""

    kind: ClassVar[str] = "picture"

    title: str
    file: str
    problem: str | None = None  # the algorithm is drawn up to this error

    def show(self) -> Iterator[Part]:
        if self.problem is not None:
            yield f"WRONG  {self.problem}"
        yield f"{self.title}: {self.file}"

    def _repr_html_(self) -> str:
        shown = _embed(Path(self.file))
        return f"{super()._repr_html_()}\n{shown}" if self.problem or not shown else shown

    def _repr_png_(self) -> bytes | None:
        """Return the bytes of a .png file, for notebooks that do not show HTML. Return None for other file types."""
        path = Path(self.file)
        return path.read_bytes() if path.suffix.lower() == ".png" else None


def _embed(path: Path) -> str:
    """Return HTML that shows the picture. Return "" if the file is large, or notebooks do not show its type."""
    suffix = path.suffix.lower()
    if suffix not in (".html", *IMAGES) or path.stat().st_size > FileBytes.EMBEDDED:
        return ""
    if suffix == ".html":
        page = escape(path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="640" frameborder="0"></iframe>'
    return f'<img src="data:{IMAGES[suffix]};base64,{b64encode(path.read_bytes()).decode()}">'


def is_record(source: str | Path) -> bool:
    """Return whether a source is a recorded trace, not a scenario.

    >>> is_record("ring.trace.json"), is_record("star8")
    (True, False)
    """
    return str(source).endswith((".json", ".json.gz", "/"))


def check_unused(source: str | Path, why: str, **arguments: object) -> None:
    """Raise InputError if any of ``arguments`` is set. ``why`` is the reason that the message states."""
    names = [name for name, value in arguments.items() if value]
    if names:
        raise InputError(f"{source}: {why}; remove {' and '.join(names)}")


def draw_trace(trace: Trace, path: Path | str, session: Session) -> Picture:
    """Draw a trace as a player, an animation or a timeline. Raise InputError for an unknown suffix of ``path``."""
    with session.computing(f"drawing {path}") as tick:
        if viz.check_file(path, "a picture of messages").suffix.lower() in FILE_TYPES["an animation"]:
            viz.animate(trace, path, progress=lambda done, total: tick(0, done, total, "frames"))
        else:
            viz.draw(trace, path)
    why = describe_failure(trace)
    return Picture(trace.title, str(path), f"{trace.title} {why}" if why else None)


def draw_scenario(
    scenario: LoadedScenario,
    path: Path | str,
    algorithm: str | Algorithm | None,
    size: str | int | None,
    session: Session,
) -> Picture:
    """Simulate an algorithm of a scenario and draw its messages, up to the first error if it is incorrect.

    By default, the last algorithm is drawn, or the last nine in a player. Raises InputError for an unknown algorithm or
    suffix.
    """
    run = _one_run(scenario, algorithm, size, session)
    if viz.check_file(path, "a picture of messages").suffix.lower() == ".html":
        with session.computing(f"drawing {path}") as tick:
            runs = predict_runs(run, tick)
            viz.write_player(scenario.title, runs, path)
        failures = (f"{each.trace.title} {why}" for each in runs if (why := describe_failure(each.trace)))
        return Picture(scenario.title, str(path), next(failures, None))
    with session.computing("simulating its messages"):
        trace = run.simulate_to_failure()
    names = algorithm_names(scenario)
    if algorithm is None and len(names) > 1:
        session.progress.note(
            f"drawing {names[-1]}, the last of {', '.join(names)}; select another with --algorithm NAME"
        )
    return draw_trace(trace, path, session)


def plot_trace(kind: str, source: Path | str, path: Path | str) -> Picture:
    """Draw the critical path of a recorded trace. Raise InputError unless ``kind`` is "path"."""
    if kind != "path":
        raise InputError(f"{source}: a trace only supports the plot 'path', not {kind!r}")
    trace = read_run(source)
    viz.write_figure(viz.path_figure(trace), path)
    return Picture(trace.title, str(path))


def plot_scenario(
    scenario: LoadedScenario,
    kind: str,
    path: Path | str,
    algorithm: str | Algorithm | None,
    size: str | int | None,
    session: Session,
) -> Picture:
    """Simulate a scenario and plot it. ``algorithm`` and ``size`` are only valid if ``kind`` is "path".

    Raises InputError if ``kind`` or the suffix is unknown, or if the scenario has nothing of this kind to plot.
    """
    _check_kind(kind, path)
    if kind != "path":
        check_unused(scenario.path, f"the plot {kind!r} has no algorithm", algorithm=algorithm, size=size)
    if kind == "step":
        subtitle, bars = waterfall(predict(scenario, session))
        viz.write_figure(viz.waterfall_figure(scenario.title, subtitle, bars), path)
        return Picture(scenario.title, str(path))
    run = _one_run(scenario, algorithm, size, session)
    with keeping_paths(), session.computing(f"drawing {path}") as tick:
        if kind == "scaling":
            curves = scaling_curves(scenario, run.calibration, tick, session.progress)
            figure = viz.scaling_figure(scenario.title, describe_curves(scenario), curves)
        elif kind == "path":
            figure = viz.path_figure(run.simulate())
        else:
            cluster = scenario.cluster
            figure = viz.topology_figure(cluster.graph, cluster.hosts, cluster.title)
        viz.write_figure(figure, path)
    return Picture(scenario.title, str(path))


def _check_kind(kind: str, path: Path | str) -> None:
    if kind not in KINDS:
        raise InputError(f"unknown plot {kind!r}; use one of {', '.join(KINDS)}")
    viz.check_file(path, "a plot")


def _one_run(
    scenario: LoadedScenario, algorithm: str | Algorithm | None, size: str | int | None, session: Session
) -> OneRun:
    nbytes = None if size is None else as_bytes(size, "size")
    return OneRun(scenario, session.find_calibration(scenario), algorithm, nbytes)
