"""The report of a replay: what limits it, its critical path, its player and its tables, in one file."""

from math import inf
from pathlib import Path

from ringlab.commands.predicting.replay import ReplayAnswer
from ringlab.shared.workload import MOST_LOOKED_AT
from ringlab.table import Sentences, render_html
from viz.path_strip import path_figure
from viz.player.page import PlayedRun, render_player
from viz.report import ReportParts, write_report
from viz.style import render_figure


def write_replay_page(answer: ReplayAnswer, path: Path) -> None:
    """Write a replay as one HTML page. Raises InputError for another suffix than ``.html``."""
    trace = answer.trace
    is_drawn = 0 < len(trace.messages) <= MOST_LOOKED_AT and 0 < trace.elapsed < inf
    critical = {}
    if is_drawn and trace.is_complete:
        critical["What the end of the run waited for, one after the other, and in all."] = render_figure(
            path_figure(trace), "png"
        )
    parts = ReportParts(
        tables=render_html(part for part in answer.show() if not isinstance(part, Sentences)),
        critical=critical,
        player=render_player(answer.title, [PlayedRun(trace, answer.own.cluster)]) if is_drawn else "",
        assumptions=answer.notes,
    )
    said = {"scenario": {"title": answer.title, "cluster": answer.own.cluster}, "conclusions": list(answer.stuck)}
    write_report(answer.to_dict() | said, parts, path)
