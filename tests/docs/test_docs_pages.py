"""Pages have short lines, working links and current generated parts."""

from pathlib import Path

import pytest
from check_docs import problems
from command_line import ROOT, run_python
from page_writer import all_parts, written


def test_check_docs_finds_no_problems() -> None:
    done = run_python("docs/check_docs.py")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


SLOW = {"docs/reports/tcp.md"}  # a minute
SLOW |= {"docs/reference/command-line.md", "docs/reference/python.md"}  # change with every help text and docstring


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in sorted(all_parts())]
)
def test_generated_parts_of_page_are_current(page: str) -> None:
    assert written(page) == (ROOT / page).read_text(encoding="utf-8"), "run make tables"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("x" * 121, "page.md:2: 121 characters, 120 at most"),
        ("[a](other.md)", "page.md:2: broken link other.md"),
        ("[a](#the-page) [b](https://example.org)", None),
        ("`viz/nowhere.py`", "page.md:2: viz/nowhere.py does not exist"),
        ("`viz/*.py` and `viz/animation/`", None),
        ("`viz.no.thing`", "page.md:2: viz.no.thing does not exist"),
        ("`viz.draw`, `collectives.records.trace.Trace.write` and `my.file`", None),
    ],
)
def test_check_docs_reports_each_page_problem(tmp_path: Path, line: str, problem: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# The page\n{line}\n```\n{'x' * 121}\n```\n")
    (tmp_path / "viz").symlink_to(ROOT / "viz")
    assert list(problems(page, tmp_path)) == ([problem] if problem else [])
