"""Check names in messages and on pages: suggestions for unknown names, and characters that hide text."""

from pathlib import Path

import pytest

from collectives import InputError
from collectives.quoting import suggest
from collectives.records.trace import Trace
from ringlab.pictures.report import write_report
from ringlab.scenario import load
from ringlab.session import Session
from ringlab.shared.ranges import parse_world_sizes

KNOWN = ("all_reduce/ring", "all_gather/ring", "all_reduce/chain")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("all_reduce/rnig", "did you mean all_reduce/ring? (choices: all_reduce/ring, "),
        ("rnig", "did you mean all_reduce/ring or all_gather/ring? (choices: "),
        ("broadcast/chian", "did you mean all_reduce/chain? (choices: "),
        ("all_reduce/xyz", "choose one of all_reduce/ring, all_gather/ring, all_reduce/chain"),
    ],
)
def test_close_names_are_suggested_first(name: str, start: str) -> None:
    assert suggest(name, KNOWN).startswith(start)


def test_suggestion_lists_names_and_other_accepted_values() -> None:
    assert suggest("x", ["a", "b"], ", or FILE.py:NAME") == "choose one of a, b, or FILE.py:NAME"


def test_reversed_rank_range_error_suggests_the_right_order() -> None:
    with pytest.raises(InputError, match="--ranks '8-2': 8-2 is reversed; write 2-8"):
        parse_world_sizes("8-2")


TURNED = "a\u202e\x1b[31mb"


def written(folder: Path, name: str, title: str = "") -> Path:
    file = folder / name
    plain = load("star8").path.read_text().replace('title = "Eight hosts on a 10 Gbit/s switch"', "")
    file.write_text(f"{title}{plain}")
    return file


@pytest.mark.parametrize("key", ["title", "what_if.0.title"])
def test_title_must_be_printable(key: str, tmp_path: Path) -> None:
    head = 'title = "a\\u202eb"\n' if key == "title" else ""
    file = written(tmp_path, "s.toml", head)
    if not head:
        more = '[[what_if]]\ntitle = "a\\u202eb"\nfaults.rank = [{ rank = 0, slowdown = 2 }]\n'
        file.write_text(f"{file.read_text()}\n{more}")
    with pytest.raises(InputError, match=r"s\.toml: .*title must contain only printable characters, not 'a\\u202eb'"):
        load(str(file))


def test_trace_names_must_be_printable() -> None:
    for fields in ({"title": TURNED}, {"title": "a", "nodes": [TURNED]}):
        with pytest.raises(InputError, match="must contain only printable characters"):
            Trace(**{"kind": "predicted", "world_size": 1, "elapsed": 1.0, **fields})  # type: ignore[arg-type]


def test_pages_escape_file_names(tmp_path: Path) -> None:
    scenario = load(str(written(tmp_path, f"{TURNED}.toml")))
    assert scenario.title == "a\\u202e\\x1b[31mb"
    write_report(scenario.predict(), scenario, tmp_path / "r.html", Session())
    page = (tmp_path / "r.html").read_text()
    assert TURNED not in page and "\u202e" not in page and "\x1b" not in page and "a\\u202e" in page
