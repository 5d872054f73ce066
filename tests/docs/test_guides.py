"""Every command of the tutorials works in an empty folder, and the site has every page."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import Ringlab
from make_site import LINK, collect_pages

ROOT = Path(__file__).parents[2]


def blocks(guide: str, language: str = "") -> list[str]:
    """Return the code blocks of a tutorial in a language."""
    text = (ROOT / "docs" / "tutorials" / f"{guide}.md").read_text()
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in fences if name == language]


def commands(guide: str) -> list[list[str]]:
    """Return the Ringlab commands of a tutorial."""
    lines = [line for block in blocks(guide) for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ringlab ")]


@pytest.mark.usefixtures("one_server")
@pytest.mark.parametrize("guide", ["rent", "collectives", "own-algorithm"])
def test_every_command_of_a_guide_works(guide: str, ringlab: Ringlab, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for program in blocks(guide, "python"):  # that the reader saves, by the name in its first line
        (tmp_path / program.split()[1]).write_text(program)
    calls = commands(guide)
    assert len(calls) >= 4
    for words in calls:
        done = ringlab(*words)
        assert done.status == 0, (words, done.err)


def test_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    pages = collect_pages(tmp_path)
    menu = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in pages if f": {page.relative_to(tmp_path)}\n" not in menu] == []
    for page in pages:
        for _, _, link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            file = link.partition("#")[0]
            assert not file or "://" in file or (page.parent / file).is_file(), (page, link)
