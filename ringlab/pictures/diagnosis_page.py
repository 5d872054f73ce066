"""The report of a diagnosis: what was measured beside what should be, a run in time, the verdict with its causes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import viz
from ringlab.shared.answer import Answer
from ringlab.table import render_html
from simcomm.diagnosis.evidence.facts import RunTrace
from simcomm.diagnosis.verdict import Diagnosis
from viz.accuracy import Dots, accuracy_figure
from viz.report import ReportParts
from viz.space_time import space_time_figure
from viz.style import render_figure

MOST_TABLES = 6  # that are drawn


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
    said = [f"{cause.text}: {cause.remedy}" for cause in found.causes]
    told = answer.to_dict() | {"scenario": {"title": found.headline.partition(":")[0]}, "conclusions": said}
    parts = ReportParts(headline=found.headline, pictures=pictures, tables=render_html(answer.show()))
    viz.write_report(told, parts, path)


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
