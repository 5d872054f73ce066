"""A newcomer's own file: its algorithm is checked, predicted, run, drawn and compared by the one name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FANCY = '''
from collectives import algorithm, recv, recv_reduce, send


@algorithm("all_reduce")
def fancy_all_reduce(rank, world_size):
    """A ring that begins elsewhere."""
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), recv_reduce(left, (rank - step - 1) % world_size)
    for step in range(world_size - 1):
        yield send(right, (rank + 1 - step) % world_size), recv(left, (rank - step) % world_size)
'''
ASKED = """
title = "mine against the ring"

[cluster]
topology = "star"
hosts = 2
bandwidth = "10 Gbit/s"
latency = "5 us"

[collective]
name = "all_reduce"
algorithms = ["ring", "my.py:fancy_all_reduce"]
sizes = ["4 KiB"]
"""
NAME = "my.py:fancy_all_reduce"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my.py").write_text(FANCY, encoding="utf-8")
    (tmp_path / "asked.toml").write_text(ASKED, encoding="utf-8")
    return tmp_path


def ringlab(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringlab", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def answer(folder: Path, *arguments: str) -> dict[str, list[dict[str, object]]]:
    done = ringlab(folder, *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return found


def test_it_is_proved(folder: Path) -> None:
    done = ringlab(folder, "check", NAME, "--world-sizes", "1-9")
    assert done.returncode == 0, done.stderr
    assert "RIGHT  all_reduce/fancy_all_reduce: proved for 1 to 9 ranks." in done.stdout


@pytest.mark.parametrize("command", ["predict", "run"])
def test_it_stands_beside_the_ring(folder: Path, command: str) -> None:
    found = answer(folder, command, "asked.toml")["collectives"]
    assert [entry["algorithm"] for entry in found] == ["ring", "fancy_all_reduce"]
    assert all(isinstance(entry["time_s"], float) and entry["time_s"] > 0 for entry in found)


@pytest.mark.parametrize("command", ["predict", "run"])
def test_a_mistake_is_told_before_anything_is_measured(folder: Path, command: str) -> None:
    (folder / "my.py").write_text(FANCY.replace("rank - step - 1", "rank - step - 2"), encoding="utf-8")
    done = ringlab(folder, command, "asked.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ringlab: all_reduce/fancy_all_reduce, world size 2, rank 0, step 0: send(to rank 1, chunk 0)" in done.stderr
    assert "measuring" not in done.stderr


@pytest.mark.parametrize("name", [NAME, "fancy_all_reduce"])
def test_it_is_drawn_by_its_name(folder: Path, name: str) -> None:
    done = ringlab(folder, "animate", "asked.toml", "--algorithm", name, "-o", "mine.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("all_reduce/fancy_all_reduce: ")
    assert (folder / "mine.png").stat().st_size > 1000


def test_it_can_win(folder: Path) -> None:
    chosen = ("--algorithm", NAME, "--algorithm", "naive", "--ranks", "8", "-b", "1M", "-e", "1M")
    (cell,) = answer(folder, "winners", *chosen)["cells"]
    assert (cell["algorithm"], cell["next_best"]) == ("fancy_all_reduce", "naive")
