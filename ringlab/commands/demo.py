"""``ringlab demo``: predict and run the quickstart, compare the times, and write a report and an animation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

from collectives.catalogue import find_algorithm
from collectives.schedule.build import build_schedule
from collectives.units import format_size, format_time
from ringlab.commands.draw import draw_scenario
from ringlab.commands.measuring.compare import Comparison, compare, describe_busy
from ringlab.session import Session, load_scenario
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.figures import ClusterFigures, SideBySide
from ringlab.shared.options import output_option
from ringlab.shared.output import deliver
from ringlab.shared.progress import Progress, TerminalProgress, check_progress
from ringlab.table import Line, Part, Sentences, Table, format_interval, format_or_dash, time_unit
from scenarios import LoadedScenario
from simcomm.cluster.cluster import Cluster
from viz.file_types import check_file

SCENARIO = "quickstart"
FOLDER = Path("ringlab-demo")
STEP = "training step"
SAME = 1.05  # times that differ by a smaller factor count as equal


def command(
    output: Annotated[Path, output_option("Directory for the report and the animation.", "DIR")] = FOLDER,
) -> None:
    """Predict and run the quickstart on this machine, and predict it on eight hosts. Takes a minute."""
    deliver(demo(output, TerminalProgress()), None)


@dataclass(frozen=True)
class DemoRow(AnswerRecord):
    """A collective or training step of the demo: seconds on two ranks of this machine, and predicted on eight hosts."""

    what: str
    algorithm: str
    here: SideBySide
    eight_hosts_s: float | None  # None for DistributedDataParallel, which is only predicted on this machine


@dataclass(frozen=True, kw_only=True, repr=False)
class Demo(Answer):
    """The result of ``ringlab demo``."""

    kind: ClassVar[str] = "demo"

    title: str
    rows: tuple[DemoRow, ...]
    conclusions: tuple[str, ...]
    files: tuple[str, ...]

    def show(self) -> Iterator[Part]:
        yield Line(self.title, "bold")
        unit, form = time_unit(time for row in self.rows for time in (row.here.measured, row.eight_hosts_s))
        headings = ["", "algorithm", f"predicted\n({unit}, 80 %)", f"measured\n({unit})", "error\n(%)"]
        rows = [
            [
                row.what, row.algorithm, format_interval(row.here.predicted, row.here.interval, form),
                format_or_dash(row.here.measured, form),
                format_or_dash(row.here.error, lambda error: f"{100 * error:+.0f}"),
                format_or_dash(row.eight_hosts_s, form),
            ]
            for row in self.rows
        ]  # fmt: skip
        yield Table(None, [*headings, f"8 hosts,\npredicted\n({unit})"], rows, words=2)
        yield Sentences(self.conclusions)
        yield ""
        report, animation = self.files
        yield Line(f"Report:    {report}  (open it in a browser)")
        yield Line(f"Animation: {animation}  (a ring all-reduce on the eight hosts; open it in a browser)")
        yield Line("Next: `ringlab learn` teaches how this works, in eleven lessons.")


def demo(folder: Path | str = FOLDER, progress: Progress | None = None) -> Demo:
    """Predict the quickstart, run it on two processes, and write a report and an animation to ``folder``.

    This machine is calibrated first unless a calibration from the last 24 hours exists. Raises InputError if
    ``folder`` is not writable or if torch or matplotlib is missing, and RunFailed if a rank fails.

    >>> demo("out").rows[0].algorithm  # doctest: +SKIP
    'naive'
    """
    from realcomm.launching.torch_process import check_installed  # takes 0.1 s to import

    check_installed("torch")
    report = check_file(Path(folder) / "report.html", "a report")
    animation = check_file(Path(folder) / "ring.gif", "an animation")
    from ringlab.pictures.report import write_report  # requires matplotlib

    scenario, session = load_scenario(SCENARIO), Session(progress=check_progress(progress))
    comparison = compare(scenario, session)
    calibrated = session.with_calibration(comparison.calibration)
    write_report(comparison, scenario, report, calibrated)
    eight = replace(scenario, cluster=scenario.what_ifs[0].cluster, what_ifs=())
    draw_scenario(eight, animation, "ring", None, calibrated)
    return summarize(comparison, scenario, (str(report), str(animation)))


def summarize(comparison: Comparison, scenario: LoadedScenario, files: tuple[str, str]) -> Demo:
    """Return the answer of the demo. The only what-if in ``comparison`` must be the cluster of eight hosts."""
    eight_hosts = dict(_times(comparison.what_ifs[0]))
    rows = tuple(DemoRow(*name, here=time, eight_hosts_s=eight_hosts.get(name)) for name, time in _times(comparison))
    here = [row for row in rows if row.what != STEP]
    steps = [row for row in rows if row.what == STEP]
    ranked = _rank({row.algorithm: row.here.measured for row in here if row.what == here[-1].what})
    ranked_there = _rank({row.algorithm: row.eight_hosts_s for row in steps if row.eight_hosts_s is not None})
    sends, sends_there = (_describe_busiest(each.cluster) for each in (scenario, scenario.what_ifs[0]))
    sentences = [
        f"On this machine, {here[-1].what}: {ranked}. {sends}; both directions share one memory.",
        _describe_errors(rows),
        f"On eight hosts, {STEP}: {ranked_there}. {sends_there}.",
    ]
    if comparison.load is not None and comparison.load.is_busy:
        sentences.append(describe_busy(comparison.load))
    return Demo(title=comparison.title, rows=rows, conclusions=tuple(sentences), files=files)


def _times(figures: Comparison | ClusterFigures[Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    for row in figures.collectives:
        yield (f"{row.collective}, {format_size(row.bytes)}", row.algorithm), row.time_s
    for step in figures.training:
        yield (STEP, step.gradient_sync), step.step_s


def _rank(seconds: dict[str, float | None]) -> str:
    """Compare the times of naive and ring in words.

    >>> _rank({"naive": 0.62, "ring": 0.146})
    'ring takes 146 ms and is 4.2 times as fast as naive'
    >>> _rank({"naive": 0.62, "ring": 0.61})
    'naive and ring take about the same, 620 ms and 610 ms'
    """
    naive, ring = (seconds[name] or inf for name in ("naive", "ring"))
    (slow, slower), (fast, faster) = sorted([(naive, "naive"), (ring, "ring")], reverse=True)
    if slow < SAME * fast:
        return f"naive and ring take about the same, {format_time(naive)} and {format_time(ring)}"
    return f"{faster} takes {format_time(fast)} and is {slow / fast:.1f} times as fast as {slower}"


def _describe_busiest(cluster: Cluster) -> str:
    sends = {}
    for name in ("ring", "naive"):
        schedule = build_schedule(find_algorithm(f"all_reduce/{name}"), cluster.world_size)
        sends[name] = int(schedule.elements_sent(schedule.chunks).max(initial=0)) / schedule.chunks
    ring, naive = (f"{sends[name]:.3g} times the buffer with {name}" for name in ("ring", "naive"))
    return f"The busiest rank sends {ring}, and {naive}"


def _describe_errors(rows: Sequence[DemoRow]) -> str:
    errors = [(abs(row.here.error), f"{row.what} with {row.algorithm}") for row in rows if row.here.error is not None]
    worst, where = max(errors)
    return (
        f"The median prediction error is {median(error for error, _ in errors):.0%}. The largest is {worst:.0%}, for "
        f"{where}."
    )
