"""The report: every number in it, nothing from outside, nothing taken for markup."""

import json
import re
from base64 import b64decode
from contextlib import nullcontext
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
from collectives.units import format_time
from ringlab.shared.progress import NoProgress
from viz.accuracy import Dots, accuracy_figure
from viz.report import (
    collectives_table,
    format_error,
    format_percent,
    format_rate,
    render_report,
    training_tables,
    what_if_table,
)
from viz.space_time import render_space_time

Entry = dict[str, Any]


TITLE = "<script>alert('x')</script>"


def both(predicted: float, measured: float) -> dict[str, float]:
    return {"predicted": predicted, "measured": measured, "error": (predicted - measured) / measured}


def collective(name: str, seconds: Any, low: Any, high: Any, algbw: Any) -> Entry:
    times = {"time_s": seconds, "time_min_s": low, "time_max_s": high}
    return {
        "collective": "all_reduce",
        "algorithm": name,
        "world_size": 4,
        "bytes": 1 << 20,
        **times,
        "algbw_GBps": algbw,
    }


def comparison() -> Entry:
    slow = collective("naive", both(0.25, 0.2), both(0.25, 0.19), both(0.25, 0.21), both(0.0042, 0.0052))
    fast = collective("ring", both(0.0611, 0.0629), both(0.0611, 0.06), both(0.0611, 0.07), both(1.72, 1.67))
    training = {
        "gradient_sync": "ring", "world_size": 2, "step_s": both(0.33, 0.3), "samples_per_s": both(206, 213.4),
        "scaling_efficiency": both(0.86, 0.81), "test_accuracy": 0.965, "examples_seen": 4311,
    }  # fmt: skip
    what_if = {
        "title": "Twice the <b>bandwidth</b>",
        "collectives": [collective("ring", 0.031, 0.031, 0.031, 3.4)],
        "training": [],
    }
    return {
        "schema_version": 2, "kind": "comparison", "scenario": {"title": TITLE, "cluster": {"hosts": 4}},
        "environment": {"cpu": "A & B", "cores": 2}, "collectives": [slow, fast], "training": [training],
        "what_if": [what_if], "conclusions": ["Ring is 3.2 times as fast as naive."],
    }  # fmt: skip


class Page(HTMLParser):
    """The words between tags, the tags, and what they point to."""

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


NUMBERS = """
250 ms,200 ms,+25.0 %,190 ms to 210 ms,4.2 MB/s,5.2 MB/s,−19.2 %,61.1 ms,62.9 ms,−2.9 %,60 ms to 70 ms,1.72 GB/s,
1.67 GB/s,+3.0 %,330 ms,300 ms,+10.0 %,206,213,−3.5 %,86.0 %,81.0 %,+6.2 %,96.5 %,31 ms,3.4 GB/s,1 MiB
"""


def test_every_number_is_there_in_units_that_people_read() -> None:
    words = Page(render_report(comparison(), {})).words
    numbers = [number.strip() for number in NUMBERS.split(",")]
    assert [number for number in [*numbers, "4,311"] if number not in words] == []


def test_every_number_is_there_as_it_was() -> None:
    page = Page(render_report(comparison(), {}))
    raw = "\n".join(page.words[page.words.index("{") :])
    assert json.JSONDecoder().raw_decode(raw)[0] == comparison()


def test_a_what_if_is_said_beside_what_is_and_of_the_quickest() -> None:
    slow, fast = collective("naive", 0.25, 0.25, 0.25, 0.1), collective("ring", 0.06, 0.06, 0.06, 0.2)
    then = [collective("naive", 0.3, 0.3, 0.3, 0.1), collective("ring", 0.09, 0.09, 0.09, 0.2)]
    found = what_if_table({"collectives": [slow, fast], "what_if": [{"title": "$half$", "collectives": then}]})
    assert found is not None
    assert [[cell.words for cell in row] for row in found.rows] == [
        ["as it is", "60 ms", "–"],
        ["$half$", "90 ms", "1.5 times"],
    ]
    ends = {"training": [{"gradient_sync": "ring", "step_s": both(0.3, 0.4)}]}
    never = {"title": "dead", "training": [{"gradient_sync": "ring", "step_s": None}]}
    found = what_if_table({**ends, "what_if": [never]})
    assert found is not None and [cell.words for cell in found.rows[1]] == ["dead", "never ends", "–"]
    assert what_if_table(ends) is None


def test_what_is_predicted_is_never_called_measured() -> None:
    waits = {"gradient_sync": "ring", "world_size": 8, "step_s": 0.8, "waited": {"rank 1": 0.2}}
    (table,) = training_tables([waits])
    assert table.heads == ["", "ring, 8 ranks"] and not table.groups


def test_conclusions_come_first() -> None:
    page = render_report(comparison(), {})
    assert page.index("Ring is 3.2 times as fast") < page.index("<table")


def test_text_is_never_taken_for_markup() -> None:
    text = render_report(comparison(), {'"><script>evil()</script>': render_space_time(viz_traces.ring(2))})
    page = Page(text)
    assert "script" not in page.tags and "b" not in page.tags
    assert TITLE in page.words
    assert "A & B  ·  2 cores" in page.words


def test_nothing_is_loaded_from_elsewhere_and_pictures_are_inside(tmp_path: Path) -> None:
    viz.animate(viz_traces.ring(2), tmp_path / "film.gif", seconds=0.5, fps=4)
    still = render_space_time(viz_traces.ring(2))
    viz.write_report(comparison(), {"moving": tmp_path / "film.gif", "still": still}, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "http" not in text and "url(" not in text and "@import" not in text
    gif, png = Page(text).sources
    assert b64decode(gif.removeprefix("data:image/gif;base64,")) == (tmp_path / "film.gif").read_bytes()
    assert b64decode(png.removeprefix("data:image/png;base64,")) == still
    with Image.open(BytesIO(b64decode(png.split(",")[1]))) as image:
        assert image.size[0] == 1500


@pytest.mark.parametrize("kind", ["prediction", "measurement"])
def test_plain_numbers_make_plain_tables(kind: str) -> None:
    entry = collective("ring", 0.0629, 0.06, 0.07, 1.67)
    page = Page(render_report({"kind": kind, "collectives": [entry], "training": []}, {}))
    assert {"62.9 ms", "60 ms to 70 ms", "1.67 GB/s"} <= set(page.words)
    assert not {"predicted", "measured", "error"} & set(page.words)
    assert "Ringlab" in page.words


def test_a_phone_is_told_to_swipe_where_pictures_are_wider_than_it_is() -> None:
    narrow = [rule for rule in re.findall("@media .*", render_report(comparison(), {})) if "figure" in rule]
    (rule,) = (one for one in narrow if "Swipe" in one)
    assert "width: 640px" in rule and "max-width: 480px" in rule


def test_bars_compare_algorithms_in_the_same_case_only() -> None:
    entries = [collective("naive", 0.2, 0.2, 0.2, 1), collective("ring", 0.05, 0.05, 0.05, 4)]
    alone = {**collective("ring", 0.4, 0.4, 0.4, 4), "bytes": 8 << 20}
    rows = collectives_table([*entries, alone]).rows
    assert [max(cell.share for cell in row) for row in rows] == [1.0, 0.25, 0.0]


def test_large_errors_stand_out() -> None:
    entries = [collective("x", both(measured * 0.01, 1.0), None, None, 1) for measured in (105, 80, 200)]
    assert [row[5].kind for row in collectives_table(entries).rows] == ["good", "fair", "poor"]


def test_what_is_missing_stays_visible() -> None:
    entry = {
        "collective": "all_reduce",
        "algorithm": "ring",
        "world_size": 4,
        "bytes": None,
        "time_s": {"predicted": 1.0, "measured": None},
    }
    words = [cell.words for cell in collectives_table([entry]).rows[0]]
    assert words == ["all_reduce/ring", "4", "–", "1 s", "–", "–"]


def test_training_tables_split_so_that_each_fits_a_page() -> None:
    entries = [{"gradient_sync": f"a{i}", "world_size": 2, "step_s": both(1, 1)} for i in range(4)]
    tables = list(training_tables(entries))
    assert [title for table in tables for title, _ in table.groups if title] == [f"a{i}, 2 ranks" for i in range(4)]
    assert [len(table.heads) for table in tables] == [10, 4]
    assert all(len(row) == len(table.heads) for table in tables for row in table.rows)


def test_shares_and_rates_are_written_for_people() -> None:
    assert [format_error(value) for value in (0.031, -0.031, 0.0)] == ["+3.1 %", "−3.1 %", "+0.0 %"]
    assert [format_rate(value) for value in (12.5, 0.1, 0.0057)] == ["12.5 GB/s", "0.1 GB/s", "5.7 MB/s"]
    assert format_percent(0.965) == "96.5 %"


def test_a_report_of_no_answer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"answer is 'ring'; give what the to_dict\(\) of an answer returns"):
        viz.write_report("ring", {}, tmp_path / "r.html")


@pytest.mark.parametrize(
    ("changes", "pictures", "name", "message"),
    [
        ({}, {}, "report.pdf", r"report\.pdf: a report is written as \.html"),
        ({"kind": "guess"}, {}, "r.html", "prediction, measurement, comparison; this result has kind 'guess'"),
        ({}, {"film": b"RIFF...."}, "r.html", "picture 'film' is neither PNG, GIF nor JPEG"),
        ({}, {"film": Path("no/such.png")}, "r.html", r"no/such\.png: no such file"),
    ],
)
def test_what_cannot_be_reported_is_refused(
    tmp_path: Path, changes: Entry, pictures: dict[str, bytes | Path], name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        viz.write_report({**comparison(), **changes}, pictures, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_report_answers_a_question_with_pictures_and_folds_its_numbers() -> None:
    text = render_report(
        {**comparison(), "limits": "What limits ring: h3 is slow."},
        {"waterfall": render_space_time(viz_traces.ring(2))},
        compared={"beside": render_space_time(viz_traces.ring(2))},
        headline="A step takes 300 ms.",
    )
    order = [
        "and what limits it?",
        "A step takes 300 ms.",
        'alt="waterfall"',
        "h3 is slow",
        ">What if<",
        'alt="beside"',
    ]
    places = [text.index(words) for words in (*order, "Assumptions and calibration", "Every number")]
    assert places == sorted(places)
    open_to_all = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert open_to_all.count("<table") == 1, "that of what-ifs; all other numbers are folded away"


def test_a_predicted_report_holds_its_cluster_waterfall_curve_and_player(tmp_path: Path) -> None:
    scenario = ringlab.load("trouble", "collective.sizes=64 KiB", "collective.algorithms=ring")
    answer = scenario.predict()
    scenario.write_report(answer, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert Page(page).tags.count("img") == 4  # cluster, waterfall, curve and critical path
    assert "iframe" in Page(page).tags
    assert '<p class="answer">star of 8 hosts, 10 Gbit/s: with ring a step takes 248 ms' in page
    assert answer.limits in Page(page).words


@pytest.mark.parametrize(("world_size", "most"), [(1, 1_000_000), (8, 10)])
def test_a_report_leaves_out_runs_without_messages_and_with_too_many(
    world_size: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = ringlab.load("star8", f"cluster.world_size={world_size}", "collective.sizes=64 KiB")
    answer = scenario.predict()
    monkeypatch.setattr("simcomm.compiled.planning.engine_input.MOST_RECORDED", most)
    monkeypatch.setattr("simcomm.time_models.options.FEW", 0)
    scenario.write_report(answer, tmp_path / "report.html")
    assert "iframe" not in Page((tmp_path / "report.html").read_text(encoding="utf-8")).tags


def test_a_report_says_that_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, tasks = ringlab.load("star8", "collective.sizes=64 KiB"), list[str]()

    def task(self: NoProgress, text: str, late_s: float = 0.0) -> Any:
        tasks.append(text)
        return nullcontext(lambda *_: None)

    monkeypatch.setattr(NoProgress, "task", task)
    scenario.write_report(scenario.predict(), tmp_path / "report.html", progress=NoProgress())
    assert tasks[-1] == f"writing {tmp_path / 'report.html'}"


def test_a_notebook_shows_conclusions_and_tables() -> None:
    answer = ringlab.load("star8", "collective.sizes=8 MiB").predict()
    page = Page(answer._repr_html_())
    ring = format_time(answer.collectives[1].time_s or 0.0)
    assert {answer.title, *answer.conclusions, "all_reduce/ring", ring} <= set(page.words)
    trace = Page(viz_traces.ring(4)._repr_html_())
    assert {"all_reduce/ring", "predicted", "4", "24", "12 MiB"} <= set(trace.words)


def test_ranges_are_drawn_where_they_were_measured() -> None:
    dots = Dots("all", "ring", [1.0, 2.0], [1.1, 1.9], measured_range=[(0.9, 1.2), (1.8, 2.4)])
    (lines,) = accuracy_figure("", "", [dots]).axes[0].findobj(LineCollection)
    assert isinstance(lines, LineCollection)
    drawn = [segment.tolist() for segment in lines.get_segments()]
    assert drawn == [
        [[0.9, 1.1], [1.2, 1.1]],
        [[1.8, 1.9], [2.4, 1.9]],
    ]
