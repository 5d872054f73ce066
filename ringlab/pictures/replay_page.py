"""The report of a replay: what limits it, its critical path, its player and its tables, in one file."""

from math import inf
from pathlib import Path

from collectives.records.trace import Trace
from ringlab.shared.answer import Answer
from ringlab.shared.workload import MOST_LOOKED_AT
from ringlab.table import Sentences, render_html
from viz.path_strip import path_figure
from viz.player.page import render_player
from viz.player.runs import PlayedRun
from viz.report import ReportParts, write_report
from viz.style import render_figure


def write_replay_page(answer: Answer, trace: Trace, cluster: str, path: Path) -> None:
    """Write a replay as one HTML page. Raises InputError for another suffix than ``.html``."""
    answered = answer.to_dict()
    is_drawn = 0 < len(trace.messages) <= MOST_LOOKED_AT and 0 < trace.elapsed < inf
    critical = {}
    if is_drawn and trace.is_complete:
        critical["What the end of the run waited for, one after the other, and in all."] = render_figure(
            path_figure(trace), "png"
        )
    parts = ReportParts(
        tables=render_html(part for part in answer.show() if not isinstance(part, Sentences)),
        critical=critical,
        player=render_player(trace.title, [PlayedRun(trace, cluster)]) if is_drawn else "",
        assumptions=answered["notes"],
    )
    said = {"scenario": {"title": trace.title, "cluster": cluster}, "conclusions": answered["stuck"]}
    write_report(answered | said, parts, path)
