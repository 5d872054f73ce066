"""The programs of docs/running.md do what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "running.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


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
