"""The report: complete, self-contained, and without markup from names."""

import html
import json
import re
from base64 import b64decode
from collections.abc import Sequence
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import viz_traces
from matplotlib.collections import LineCollection
from PIL import Image

import ringlab
import viz
from collectives.errors import InputError
from ringlab.pictures.report import write_report
from ringlab.session import Session
from ringlab.shared.figures import CollectiveFigures, side_by_side
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.table import Cell, Table, format_digits, render_html
from viz.accuracy import Dots, accuracy_figure
from viz.report import ReportParts, render_report
from viz.space_time import space_time_figure
from viz.style import render_figure

Content = dict[str, Any]
TITLE = "<script>alert('x')</script>"
NOTHING = ReportParts()


class Answer(ScenarioAnswer[Any]):
    kind = "comparison"


def collective(name: str, seconds: Any, low: Any, high: Any, nbytes: int = 1 << 20) -> CollectiveFigures[Any]:
    return CollectiveFigures(
        collective="all_reduce", algorithm=name, world_size=4, bytes=nbytes, time_s=seconds,
        time_min_s=low, time_max_s=high, algbw_GBps=1.72, busbw_GBps=2.58,
    )  # fmt: skip


def answer(collectives: Sequence[Any] = ()) -> Answer:
    return Answer(
        title=TITLE, file="x.toml", cluster="four <b>hosts</b>", collectives=tuple(collectives), training=(),
        what_ifs=(), environment={"cpu": "A & B", "cores": 2}, conclusions=("Ring is 3.2 times as fast as naive.",),
    )  # fmt: skip


def comparison() -> Content:
    slow = collective("naive", side_by_side(0.25, 0.2), side_by_side(0.25, 0.19), side_by_side(0.25, 0.21))
    fast = collective("ring", side_by_side(0.0611, 0.0629), side_by_side(0.0611, 0.06), side_by_side(0.0611, 0.07))
    return answer([slow, fast]).to_dict()


def cells(shown: ScenarioAnswer[Any]) -> list[list[Cell]]:
    table = next(part for part in shown.show() if isinstance(part, Table))
    return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in table.rows]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.words += data.split("\n") if self.tags[-1:] == ["pre"] else [data.strip()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_report_contains_the_whole_answer_as_json() -> None:
    words = Page(render_report(comparison(), NOTHING)).words
    assert json.JSONDecoder().raw_decode("\n".join(words[words.index("{") :]))[0] == comparison()


def test_report_never_interprets_text_as_markup() -> None:
    picture = {'"><script>evil()</script>': render_figure(space_time_figure(viz_traces.ring(2)))}
    tables = render_html(answer([collective("<u>", 1.0, 1.0, 1.0)]).show())
    text = render_report(comparison(), ReportParts(pictures=picture, tables=tables))
    page = Page(text)
    assert "script" not in page.tags and "u" not in page.tags
    assert TITLE in page.words
    assert "A & B  ·  2 cores" in page.words


def test_report_loads_nothing_and_embeds_pictures(tmp_path: Path) -> None:
    viz.animate(viz_traces.ring(2), tmp_path / "moving.gif", seconds=0.5, fps=4)
    still = render_figure(space_time_figure(viz_traces.ring(2)))
    pictures = {"moving": tmp_path / "moving.gif", "still": still}
    viz.write_report(comparison(), ReportParts(pictures=pictures), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "http" not in text and "url(" not in text and "@import" not in text
    gif, png = Page(text).sources
    assert b64decode(gif.removeprefix("data:image/gif;base64,")) == (tmp_path / "moving.gif").read_bytes()
    assert b64decode(png.removeprefix("data:image/png;base64,")) == still
    with Image.open(BytesIO(b64decode(png.split(",")[1]))) as image:
        assert image.size[0] == 1500


def test_report_grades_prediction_errors_as_good_fair_or_poor() -> None:
    times = [side_by_side(1.05, 1.0), side_by_side(0.8, 1.0), side_by_side(2.0, 1.0), side_by_side(0.5, None)]
    errors = [row[4] for row in cells(answer([collective("x", time, time, time) for time in times]))]
    assert [cell.kind for cell in errors] == ["good", "fair", "poor", ""]
    assert [cell.text for cell in errors] == ["+5", "-20", "+100", "-"]


@pytest.mark.parametrize(
    ("changes", "pictures", "name", "message"),
    [
        ({}, {}, "report.pdf", r"report\.pdf: a report is written as \.html"),
        ({"kind": "guess"}, {}, "r.html", "comparison, not 'guess'"),
        ({}, {"moving": b"RIFF...."}, "r.html", "picture 'moving' must be a PNG, GIF or JPEG"),
        ({}, {"moving": Path("no/such.png")}, "r.html", r"no/such\.png: no such file"),
    ],
)
def test_invalid_report_file_is_rejected(
    tmp_path: Path, changes: Content, pictures: dict[str, bytes | Path], name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        viz.write_report({**comparison(), **changes}, ReportParts(pictures=pictures), tmp_path / name)
    with pytest.raises(InputError, match=r"answer must be a dict from to_dict\(\), not 'ring'"):
        viz.write_report("ring", NOTHING, tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_report_starts_with_the_headline_and_folds_all_numbers() -> None:
    picture, tables = render_figure(space_time_figure(viz_traces.ring(2))), "<table></table>"
    parts = ReportParts(
        pictures={"waterfall": picture}, compared={"beside": picture}, headline="A step takes 300 ms.", tables=tables,
    )  # fmt: skip
    text = render_report({**comparison(), "limits": "What limits ring: h3 is slow."}, parts)
    order = ["and what limits it?", "A step takes 300 ms.", 'alt="waterfall"', "h3 is slow", 'alt="beside"']
    places = [text.index(words) for words in (*order, "Scenario and environment", "All numbers")]
    assert places == sorted(places)
    open_to_all = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "<table" not in open_to_all, "all numbers are folded away"


def written(scenario: ringlab.Scenario, folder: Path) -> tuple[Any, str]:
    answer = scenario.predict()
    write_report(answer, scenario, folder / "report.html", Session())
    return answer, (folder / "report.html").read_text(encoding="utf-8")


def test_predicted_report_has_cluster_waterfall_curve_and_player(tmp_path: Path) -> None:
    answer, text = written(ringlab.load("faults", "collective.sizes=64 KiB", "collective.algorithms=ring"), tmp_path)
    assert Page(text).tags.count("img") == 4  # cluster, waterfall, curve and critical path
    assert "iframe" in Page(text).tags
    assert '<p class="answer">star of 8 hosts, 10 Gbit/s: with ring a step takes 248 ms' in text
    assert answer.limits in Page(text).words


@pytest.mark.parametrize(("hosts", "has_curve"), [(2, False), (4, True)])
def test_report_omits_a_scaling_curve_with_one_point(hosts: int, has_curve: bool, tmp_path: Path) -> None:
    _, text = written(ringlab.load("star8", f"cluster.hosts={hosts}", "collective.sizes=64 KiB"), tmp_path)
    assert ("Predicted throughput on part of the cluster's hosts" in html.unescape(text)) == has_curve


@pytest.mark.parametrize(("world_size", "most"), [(1, 1_000_000), (8, 10)])
def test_report_has_no_player_for_zero_or_too_many_messages(
    world_size: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = ringlab.load("star8", f"cluster.world_size={world_size}", "collective.sizes=64 KiB")
    answer = scenario.predict()
    monkeypatch.setattr("collectives.budget.Gigabyte.RECORDED", most)
    monkeypatch.setattr("simcomm.performance_models.options.SIMPY_UP_TO", 0)
    write_report(answer, scenario, tmp_path / "report.html", Session())
    assert "iframe" not in Page((tmp_path / "report.html").read_text(encoding="utf-8")).tags


def test_notebook_shows_conclusions_and_tables() -> None:
    answer = ringlab.load("star8", "collective.sizes=8 MiB").predict()
    page = Page(answer._repr_html_())
    time = format_digits(1e3 * (answer.collectives[1].time_s or 0.0))
    assert {answer.title, *answer.conclusions, "ring", time} <= set(page.words)
    trace = Page(viz_traces.ring(4)._repr_html_())
    assert {"all_reduce/ring", "predicted", "4", "24", "12 MiB"} <= set(trace.words)


def test_accuracy_plot_draws_the_range_of_measured_values() -> None:
    dots = Dots("all", "ring", [1.0, 2.0], [1.1, 1.9], measured_range=[(0.9, 1.2), (1.8, 2.4)])
    (lines,) = accuracy_figure("", "", [dots]).axes[0].findobj(LineCollection)
    assert isinstance(lines, LineCollection)
    drawn = [segment.tolist() for segment in lines.get_segments()]
    assert drawn == [[[0.9, 1.1], [1.2, 1.1]], [[1.8, 1.9], [2.4, 1.9]]]
