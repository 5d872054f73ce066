"""Predict, run, draw and compare a user's algorithm by its name."""

import json
from pathlib import Path

import pytest
from command_line import Ringlab

import simcomm
from collectives import find_algorithm

FANCY = '''
from collectives import algorithm, recv, recv_reduce, send


@algorithm("all_reduce")
def fancy_all_reduce(rank, world_size):
    """A ring in which each chunk starts on another rank than in the library's ring."""
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), recv_reduce(left, (rank - step - 1) % world_size)
    for step in range(world_size - 1):
        yield send(right, (rank + 1 - step) % world_size), recv(left, (rank - step) % world_size)
'''
NAME = "my.py:fancy_all_reduce"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my.py").write_text(FANCY, encoding="utf-8")
    cluster = '[cluster]\ntopology = "star"\nhosts = 2\nbandwidth = "10 Gbit/s"\nlatency = "5 us"\n'
    calls = f'name = "all_reduce"\nalgorithms = ["ring", "{NAME}"]\nsizes = ["4 KiB"]\n'
    (tmp_path / "asked.toml").write_text(f"{cluster}[collective]\n{calls}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", ["predict", "run"])
def test_user_algorithm_is_compared_with_the_ring(folder: Path, ringlab: Ringlab, command: str) -> None:
    rows = json.loads(ringlab(command, "asked.toml", "--json", "-").out)["collectives"]
    assert [entry["algorithm"] for entry in rows] == ["ring", "fancy_all_reduce"]
    assert all(isinstance(entry["time_s"], float) and entry["time_s"] > 0 for entry in rows)


@pytest.mark.parametrize("command", ["predict", "run"])
def test_predict_and_run_stop_at_a_wrong_user_algorithm(folder: Path, ringlab: Ringlab, command: str) -> None:
    (folder / "my.py").write_text(FANCY.replace("rank - step - 1", "rank - step - 2"), encoding="utf-8")
    done = ringlab(command, "asked.toml")
    assert (done.status, done.out) == (2, "")
    assert "ringlab: all_reduce/fancy_all_reduce, world size 2, rank 0, step 0 (line 10 of my.py): send(to" in done.err
    assert "measuring" not in done.err


def test_user_algorithm_is_chosen_when_fastest(folder: Path) -> None:
    among = [find_algorithm(name, "all_reduce", folder=folder) for name in (NAME, "naive")]
    choice = simcomm.choose("all_reduce", simcomm.star(8, "10 Gbit/s", "5 us"), 1 << 20, among=among)
    assert choice.algorithm.name == "fancy_all_reduce"
