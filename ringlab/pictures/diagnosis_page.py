"""The report of a diagnosis: what was measured beside what should be, a run in time, the verdict with its causes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import viz
from ringlab.shared.answer import Answer
from ringlab.table import render_html
from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.facts import RunTrace
from simcomm.diagnosis.evidence.step_path import COMPUTING, COPYING, NOTHING
from simcomm.diagnosis.verdict import Diagnosis
from viz.accuracy import Dots, accuracy_figure
from viz.report import ReportParts
from viz.space_time import space_time_figure
from viz.style import render_figure
from viz.waterfall import Bar, waterfall_figure

MOST_TABLES, MOST_RANKS = 6, 16  # that are drawn


def write_diagnosis_page(found: Diagnosis, answer: Answer, path: Path | str) -> None:
    """Write a diagnosis as one HTML page. Raise InputError for another suffix than ``.html``."""
    pictures = {}
    dots = list(_dots(found))
    if dots:
        figure = accuracy_figure("Measured beside predicted", "each dot a size; lines: the 80 % interval", dots)
        pictures["On the line: as fast as it should be."] = render_figure(figure, "png")
    for one in found.case.facts.of(RunTrace)[:1]:
        if len(one.trace.spans) or len(one.trace.messages):
            pictures["The run, a rank a row."] = render_figure(space_time_figure(one.trace), "png")
    bars = list(_bars(found))
    if bars:
        title, about = (
            "A training step",
            "sync counts also while the GPU computes, so that parts may be more than the step",
        )
        pictures["Where the step goes."] = render_figure(waterfall_figure(title, about, bars), "png")
    said = list(map(_say, found.causes))
    told = answer.to_dict() | {"scenario": {"title": found.headline.partition(":")[0]}, "conclusions": said}
    parts = ReportParts(headline=found.headline, pictures=pictures, tables=render_html(answer.show()))
    viz.write_report(told, parts, path)


def _say(cause: Cause) -> str:
    """Return a cause with the line that shows it, what to do, and what that would gain."""
    where = f"{Path(cause.place.file).name}:{cause.place.line}" if cause.place.line else Path(cause.place.file).name
    gain = f" Without it {cause.gain:.2g} times as fast, by prediction." if cause.gain and cause.gain > 1 else ""
    return f"{cause.text} ({where}). To do: {cause.remedy}.{gain}"


def _bars(found: Diagnosis) -> Iterator[Bar]:
    """Yield the critical path of a profiled step, what it should take, and what the GPUs of its first ranks do."""
    step = found.case.profiled_step
    if step is None:
        return
    yield Bar(
        "step", "critical path", _parts((what, seconds) for (what, _), seconds in step.path.items()), step.seconds
    )
    if step.expected is not None:
        yield Bar("step", "should take", {"predicted": step.expected.seconds}, step.expected.seconds)
    for rank in sorted(step.streams[NOTHING])[:MOST_RANKS]:
        parts = _parts((what, by_rank.get(rank, 0.0)) for what, by_rank in step.streams.items())
        yield Bar("GPU of", f"rank {rank}", parts, step.seconds)


def _parts(seconds: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the seconds of each part that a picture tells apart; all collectives are sync."""
    found = dict.fromkeys((COMPUTING, "sync", COPYING, NOTHING), 0.0)
    for what, one in seconds:
        found[what if what in found else "sync"] += one
    return {what: one for what, one in found.items() if one > 0}


def _dots(found: Diagnosis) -> Iterator[Dots]:
    """Yield the sizes of each table, measured and predicted."""
    for number, one in enumerate(found.case.comparisons[:MOST_TABLES], start=1):
        below, above = np.exp(one.limits)
        ranges = list(zip((one.predicted / below).tolist(), (one.predicted * above).tolist(), strict=True))
        yield Dots(
            one.series.collective,
            f"{number}: {Path(one.place.file).name}",
            one.series.seconds.tolist(),
            one.predicted.tolist(),
            predicted_range=ranges,
        )
