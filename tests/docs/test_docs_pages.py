"""The pages fit the window, and what they link to and name is there."""

from pathlib import Path

import pytest
from check_docs import problems
from command_line import ROOT, run_python
from page_writer import all_parts, written


def test_the_pages_have_no_problems() -> None:
    done = run_python("docs/check_docs.py")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("page", sorted({*all_parts()} - {"docs/reports/tcp.md"}))  # that takes a minute
def test_what_programs_put_into_pages_is_as_they_make_it_now(page: str) -> None:
    assert written(page) == (ROOT / page).read_text(encoding="utf-8"), "make tables"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("x" * 121, "page.md:2: 121 characters, 120 at most"),
        ("| " + "x" * 121, None),
        ("[a](other.md)", "page.md:2: broken link other.md"),
        ("[a](#no-such)", "page.md:2: broken link #no-such"),
        ("[a](#the-page) [b](https://example.org)", None),
        ("`viz/nowhere.py`", "page.md:2: viz/nowhere.py does not exist"),
        ("`viz/*.py` and `viz/film/`", None),
        ("`viz.nothing`", "page.md:2: viz.nothing does not exist"),
        ("`viz.no.thing`", "page.md:2: viz.no.thing does not exist"),
        ("`viz.draw`, `collectives.records.trace.Trace.write` and `my.file`", None),
    ],
)
def test_each_problem_is_found(tmp_path: Path, line: str, problem: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# The page\n{line}\n```\n{'x' * 121}\n```\n")
    (tmp_path / "viz").symlink_to(ROOT / "viz")
    assert list(problems(page, tmp_path)) == ([problem] if problem else [])
