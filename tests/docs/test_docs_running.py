"""The programs of README.md, docs/how-to/run-local.md and docs/tutorials/own-algorithm.md do what the pages say."""

import re
import runpy
from pathlib import Path

import pytest
from command_line import Ringlab

from collectives import verify

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "run-local.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = PROGRAM.findall(PAGE)
GUIDE = PROGRAM.findall((ROOT / "docs" / "tutorials" / "own-algorithm.md").read_text(encoding="utf-8"))


def test_there_is_one_for_the_functions_and_one_for_the_class():
    assert ["realcomm.all_reduce(" in program for program in PROGRAMS] == [True, False]
    assert "classroom.all_reduce(" in PROGRAMS[1]


@pytest.mark.parametrize("program", [*PROGRAMS, *GUIDE])
def test_each_program_prints_what_stands_beside_its_print(
    program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "program.py"
    file.write_text(program)
    runpy.run_path(str(file), run_name="__main__")
    printed = capfd.readouterr().out.splitlines()
    assert printed and printed == re.findall(r"print\(.*\)  # (.*)$", program, re.MULTILINE)


def test_every_function_and_every_option_of_bench_is_named():
    assert all(f"`{option}" in PAGE for option in ("-b", "-e", "-f", "-n", "-w", "-c 0", "-d", "-o", "-r", "--json"))
    assert all(f"`{name}`" in PAGE for name in ("broadcast", "all_gather", "all_to_all_single", "barrier"))


def test_readme_program_prints_what_readme_shows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM.findall(README)[0])
    runpy.run_path("program.py", run_name="__main__")
    printed = capfd.readouterr().out
    assert printed and f"```\n{printed}```" in README
    assert (tmp_path / "ring.gif").stat().st_size > 10_000


def test_readme_ring_is_correct():
    names: dict = {}
    exec(PROGRAM.findall(README)[1], names)
    for world_size in (1, 2, 5):
        verify(names["my_ring"], world_size)


def test_readme_shows_what_predict_prints(ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, *shown = README.partition("$ ringlab predict")[2].partition("```")[0].splitlines()
    out = [line.rstrip() for line in ringlab("predict", *command.split()).out.splitlines()]
    assert len(shown) > 5 and [line for line in shown if line not in (*out, "...")] == []
