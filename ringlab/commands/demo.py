"""``ringlab demo``: the quickstart predicted and run here, as one table, three sentences, a report and an animation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

import typer

from collectives.catalogue import find_algorithm
from collectives.units import format_size, format_time
from ringlab.commands.draw import draw_scenario
from ringlab.commands.measuring.compare import Comparison, compare, describe_busy
from ringlab.pictures.report import write_report
from ringlab.session import Session, load_scenario
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.conclusions import busiest_sends
from ringlab.shared.figures import ClusterFigures, SideBySide
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, Stages, TerminalProgress, check_progress
from ringlab.table import Format, Line, Part, Sentences, Table, format_interval, format_or_dash, time_unit
from scenarios import LoadedScenario
from simcomm.cluster.cluster import Cluster

SCENARIO = "quickstart"
FOLDER = Path("ringlab-demo")
STEP = "training step"
SAME = 1.05  # times that differ by a smaller factor are about the same
TASKS = [
    ("calibrating", 17.0),
    *[("measuring", 0.5)] * 6,
    *[("training", 5.0)] * 3,
    ("writing", 6.0),
    ("drawing", 6.0),
]  # of the quickstart, in order, with about how many seconds each takes on two cores


def command(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Directory for the report and the animation.")
    ] = FOLDER,
) -> None:
    """Predict two ranks of this machine and eight hosts, run the two, and compare. Takes a minute."""
    deliver(demo(output, TerminalProgress()), None)


@dataclass(frozen=True)
class DemoRow(AnswerRecord):
    """A collective or a training step: seconds on two ranks of this machine, and predicted on eight hosts."""

    what: str
    algorithm: str
    here: SideBySide
    eight_hosts_s: float | None  # None for torch's own gradient sync, which is predicted on this machine only


@dataclass(frozen=True, kw_only=True, repr=False)
class Demo(Answer):
    """What ``demo`` found: a row for each collective and training step, sentences, and the files that it wrote."""

    kind: ClassVar[str] = "demo"

    title: str
    rows: tuple[DemoRow, ...]
    conclusions: tuple[str, ...]
    files: tuple[str, ...]

    def show(self) -> Iterator[Part]:
        """Yield the table, the sentences, how to open the files, and how to go on."""
        yield Line(self.title, "bold")
        unit, form = time_unit(time for one in self.rows for time in (one.here.measured, one.eight_hosts_s))
        headings = ["", "algorithm", *(f"{side}\n({unit})" for side in ("predicted", "measured")), "error\n(%)"]
        headings.append(f"8 hosts,\npredicted\n({unit})")
        yield Table(None, headings, [_cells(one, form) for one in self.rows], words=2)
        yield Sentences(self.conclusions, wrap=True)
        yield ""
        report, animation = self.files
        yield Line(f"Report:    {report}  (open it in a browser)")
        yield Line(f"Animation: {animation}  (a ring all-reduce on the eight hosts; open it in a browser)")
        yield Line("Next: `ringlab learn` teaches how this works, in eleven lessons.")


def demo(folder: Path | str = FOLDER, progress: Progress | None = None) -> Demo:
    """Predict the quickstart, run it on two processes, and write its report and an animation into a folder.

    This machine is calibrated first, unless that was done within a day. Raises InputError and RunFailed.

    >>> demo("out").rows[0].algorithm  # doctest: +SKIP
    'naive'
    """
    report, animation = Path(folder) / "report.html", Path(folder) / "ring.gif"
    check_outputs(report, animation)
    scenario = load_scenario(SCENARIO)
    with check_progress(progress).task("Predicting, running and drawing") as tick:
        session = Session(progress=Stages(tick, TASKS))
        found = compare(scenario, session)
        write_report(found, scenario, report, session.with_calibration(found.calibration))
        eight = replace(scenario, cluster=scenario.what_ifs[0].cluster, what_ifs=())
        draw_scenario(eight, animation, "ring", None, session.with_calibration(found.calibration))
    return summarize(found, scenario, (str(report), str(animation)))


def summarize(found: Comparison, scenario: LoadedScenario, files: tuple[str, str]) -> Demo:
    """Return the rows and the sentences of a comparison, whose one what-if is the eight hosts."""
    [there] = found.what_ifs
    elsewhere = dict(_times(there))
    rows = tuple(DemoRow(*name, here=seconds, eight_hosts_s=elsewhere.get(name)) for name, seconds in _times(found))
    busy = [describe_busy(found.load)] if found.load is not None and found.load.is_busy else []
    eight = scenario.what_ifs[0].cluster
    sentences = _compare_here(rows, scenario.cluster), _describe_errors(rows), _compare_there(rows, eight)
    return Demo(title=found.title, rows=rows, conclusions=(*sentences, *busy), files=files)


def _times(figures: Comparison | ClusterFigures[Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield name, algorithm and seconds of each collective, then of each training step."""
    for one in figures.collectives:
        yield (f"{one.collective}, {format_size(one.bytes)}", one.algorithm), one.time_s
    for training in figures.training:
        yield (STEP, training.gradient_sync), training.step_s


def _cells(row: DemoRow, form: Format) -> list[str]:
    """Return the cells of a row: the prediction with its interval, the measurement, the error, and eight hosts."""
    seconds, share = row.here.predicted, row.here.uncertainty
    predicted = format_or_dash(seconds, form)
    if seconds is not None and share is not None:
        predicted = format_interval(predicted, form(seconds * max(0.0, 1 - share)), form(seconds * (1 + share)))
    error = format_or_dash(row.here.error, lambda error: f"{100 * error:+.0f}")
    return [row.what, row.algorithm, predicted, format_or_dash(row.here.measured, form), error,
            format_or_dash(row.eight_hosts_s, form)]  # fmt: skip


def _compare_here(rows: Sequence[DemoRow], cluster: Cluster) -> str:
    """Return which algorithm is faster on this machine at the largest size, and why."""
    naive, ring = (_find(rows, name, step=False).here.measured or inf for name in ("naive", "ring"))
    size = _find(rows, "ring", step=False).what
    return f"Here, {size}: {_rank(naive, ring)}. {_describe_busiest(cluster)}, and both directions share one memory."


def _compare_there(rows: Sequence[DemoRow], cluster: Cluster) -> str:
    """Return what eight hosts gain by the ring, and why."""
    naive, ring = (_find(rows, name, step=True).eight_hosts_s or inf for name in ("naive", "ring"))
    return f"On eight hosts, {STEP}: {_rank(naive, ring)}. {_describe_busiest(cluster)}."


def _find(rows: Sequence[DemoRow], algorithm: str, step: bool) -> DemoRow:
    """Return the last row of an algorithm: its training step, or its collective at the largest size."""
    return [row for row in rows if row.algorithm == algorithm and (row.what == STEP) == step][-1]


def _rank(naive: float, ring: float) -> str:
    """Return which of two times is shorter.

    >>> _rank(0.62, 0.146), _rank(0.62, 0.61)
    ('ring takes 146 ms and is 4.2 times as fast as naive', 'naive and ring take about the same, 620 ms and 610 ms')
    """
    (slow, slower), (fast, faster) = sorted([(naive, "naive"), (ring, "ring")], reverse=True)
    if slow < SAME * fast:
        return f"naive and ring take about the same, {format_time(naive)} and {format_time(ring)}"
    return f"{faster} takes {format_time(fast)} and is {slow / fast:.1f} times as fast as {slower}"


def _describe_busiest(cluster: Cluster) -> str:
    naive, ring = (busiest_sends(find_algorithm(f"all_reduce/{name}"), cluster) for name in ("naive", "ring"))
    return f"The ring's busiest rank sends {ring:.3g} times the buffer, that of naive {naive:.3g} times"


def _describe_errors(rows: Sequence[DemoRow]) -> str:
    """Return how far the predictions were off."""
    errors = [(abs(row.here.error), f"{row.what} with {row.algorithm}") for row in rows if row.here.error is not None]
    worst, where = max(errors)
    return (
        f"The predictions were off by {median(error for error, _ in errors):.0%} in the median, and by at most "
        f"{worst:.0%}, for {where}."
    )
