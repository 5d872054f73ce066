"""Programs on pages print the text of the comments next to their prints, and outputs on pages are real."""

import re
import runpy
from pathlib import Path

import pytest
from check_docs import pages
from command_line import ROOT, Ringlab

from collectives import verify

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
PROGRAMS = {
    f"{page.stem}-{number}": program
    for page in pages()
    for number, program in enumerate(PROGRAM.findall(page.read_text(encoding="utf-8")))
    if PRINTED.search(program)
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_what_page_shows(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[name])
    runpy.run_path(str(file), run_name="__main__")
    assert capfd.readouterr().out.splitlines() == PRINTED.findall(PROGRAMS[name])


def test_readme_program_prints_what_readme_shows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM.findall(README)[0])
    runpy.run_path("program.py", run_name="__main__")
    printed = capfd.readouterr().out
    assert printed and f"```\n{printed}```" in README
    assert (tmp_path / "ring.html").stat().st_size > 10_000


def test_tutorial_ring_is_correct() -> None:
    page = (ROOT / "docs" / "tutorials" / "own-algorithm.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(PROGRAM.findall(page)[0], names)
    for world_size in (1, 2, 5):
        verify(names["ring"], world_size)


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("README.md", "predict examples/gpt2_xl.toml --devices 8,64"),
        ("docs/get-started.md", "predict star8"),
        ("docs/how-to/predict-n-gpus.md", "predict examples/gpt2_xl.toml --devices 8,64"),
        ("docs/how-to/search-layout.md", "search examples/llama2_70b.toml --devices 64 --top 3"),
    ],
)
def test_page_shows_command_output(page: str, command: str, ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / page).read_text(encoding="utf-8")
    after = text.partition(f"ringlab {command}\n")[2]
    assert after
    block = re.match(r"(?:```\n\n```\n)?(.*?)```", after, re.DOTALL)
    if page == "docs/get-started.md":
        block = re.search(r"largest size:\n\n```\n(.*?)```", after, re.DOTALL)
    assert block is not None
    shown = block[1].splitlines()
    out = [line.rstrip() for line in ringlab(*command.split()).out.splitlines()]
    assert len(shown) > 3 and [line for line in shown if line not in (*out, "...")] == []
