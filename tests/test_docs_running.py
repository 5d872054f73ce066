"""The programs of README.md and docs/running.md do what the pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from collectives import verify

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = PROGRAM.findall(PAGE)


def test_there_is_one_for_the_functions_and_one_for_the_class():
    assert ["realcomm.all_reduce(" in program for program in PROGRAMS] == [True, False]
    assert "classroom.all_reduce(" in PROGRAMS[1]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_each_program_prints_what_stands_beside_its_print(number: int, tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[number])
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)$", PROGRAMS[number], re.MULTILINE)


def test_every_function_and_every_option_of_bench_is_named():
    assert all(f"`{option}" in PAGE for option in ("-b", "-e", "-f", "-n", "-w", "-c 0", "-d", "-o", "-r", "--json"))
    assert all(f"`{name}`" in PAGE for name in ("broadcast", "all_gather", "all_to_all_single", "barrier"))


@pytest.mark.parametrize(
    ("number", "printed", "written"),
    [
        (0, ["naive 0.094", "ring 0.0118", "["], "ring.gif"),
        (1, ["eight simulated ranks: 0.0118", "two real"], "ring.png"),
    ],
)
def test_the_programs_of_the_readme_run(number: int, printed: list[str], written: str, tmp_path: Path):
    program = PROGRAM.findall(README)[number]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[: len(begin)] for line, begin in zip(lines, printed, strict=True)] == printed
    assert (tmp_path / written).stat().st_size > 10_000


def test_the_ring_of_the_readme_is_right():
    names: dict = {}
    exec(PROGRAM.findall(README)[2], names)
    for world_size in (1, 2, 5):
        verify(names["my_ring"].__algorithm__, world_size)
