"""Every benchmark starts and writes complete results. The tests do not check the measured values."""

import doctest
import importlib
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run_python
from curves_table import by_recipe

FOLDER = Path(__file__).parents[2] / "benchmarks"
TWO = ["ring", "ring[overlap]"]
SMALLEST = {  # options with which each takes seconds
    "nccl_errors.py": ["--left-out", str(FOLDER / "results" / "nccl_errors.json")],
    "against_gloo.py": ["--ranks", "2", "--sizes", "1K", "4M", "--repetitions", "3"],
    "against_simgrid.py": ["--fewer", "8", "--repetitions", "1"],
    "engine.py": ["--fewer", "64", "--repetitions", "1"],
    "nccl_structure.py": ["--draws", "1", "--only", "no launch time per channel"],
    "faults.py": ["--only", "a rank raises in backward", "the newest checkpoint is cut off"],
    "growth.py": ["--parts", "lockstep", "--only", "broadcast", "--repetitions", "1", "--fewer", "64"],
    "methods.py": ["--ranks", "32", "--repetitions", "1"],
    "overlap.py": ["--rounds", "1", "--batch-size", "2", "--way", "ring[overlap]"],
    "replaying.py": ["--messages", "20000"],
    "side_by_side.py": ["--before", str(FOLDER.parent), "--fewer", "64", "--rounds", "1"],
    "traces.py": ["--ranks", "32"],
    "virtual_programs.py": ["--only", "ddp_plain", "start"],
    "waiting.py": ["--repetitions", "1", "--hosts", "2", "--ranks", "8"],
    "training_curves.py": ["--steps", "2", "--seeds", "0", "--ranks", "1", "--parts", "ways", "ranks", "--way", *TWO],
}
SLOW = pytest.mark.slow
MINUTES = {"strategies.py", "virtual_launches.py", "virtual_on_gloo.py"}  # too long for the suite
DOWNLOADS = {"virtual_packages.py"}  # runs packages that are not installed
FOR_GPUS = {  # tested in other files, because they need a GPU or a profile of one
    "gpu.py", "gpu_wheels.py",  # test_gpu_plan.py
    "gpu_steps.py",
    "data_parallel.py",  # test_data_parallel.py
    "other_gpus.py",  # test_scaling_one_gpu.py
}  # fmt: skip


def benchmark(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run_python(FOLDER / name, *options, timeout_s=600)


def measured_here(monkeypatch: pytest.MonkeyPatch, name: str, file: Path, *options: str) -> Any:
    """Run a benchmark of real ranks in this process, which has already imported torch; return its results."""
    monkeypatch.syspath_prepend(FOLDER)  # ranks import functions from there
    monkeypatch.setattr(sys, "argv", [name, *options, "-o", str(file)])
    importlib.import_module(name.removesuffix(".py")).main()
    return json.loads(file.read_text())


def measured(name: str, file: Path, *options: str) -> Any:
    done = benchmark(name, *options, "-o", str(file))
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


def test_make_bench_runs_every_tested_benchmark():
    assert {path.name for path in FOLDER.glob("*.py")} - FOR_GPUS - MINUTES - DOWNLOADS == set(SMALLEST)
    (line,) = [line for line in (FOLDER.parent / "Makefile").read_text().splitlines() if "for program in" in line]
    named = set(line.replace(";", " ").split())
    assert {name for name in SMALLEST if f"benchmarks/{name}" not in named} == {"side_by_side.py"}
    for name in SMALLEST:  # each is a program, and its ``main`` can be called
        _, begins, last = (FOLDER / name).read_text().partition('\nif __name__ == "__main__":\n')
        assert begins and last.endswith("    main()\n")


@pytest.mark.parametrize("name", SMALLEST)
def test_benchmark_prints_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        importlib.import_module(name.removesuffix(".py")).main()
    assert end.value.code == 0 and "--help" in capsys.readouterr().out


def assert_has_environment(results: Any) -> None:
    assert (results["kind"], results["schema_version"]) == ("benchmark", 1)
    assert results["environment"]["cores"] >= 1 and results["environment"]["torch"]


def test_simgrid_agrees_with_the_event_engine(tmp_path: Path):
    done = benchmark("against_simgrid.py", *SMALLEST["against_simgrid.py"], "-o", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    if not done.stdout.startswith("left out: there is no "):
        results = json.loads((tmp_path / "found.json").read_text())
        assert_has_environment(results)
        assert len(results["rows"]) == 6 and all(row["full_differs"] < 1e-9 for row in results["rows"])


def test_growth_benchmark_counts_measurements_left_at_time_limit(tmp_path: Path):
    done = benchmark("growth.py", *SMALLEST["growth.py"], "--seconds", "0", "-o", str(tmp_path / "found.json"))
    assert done.stdout == "4 measurements are left: go on with --missing\n"


def rows_of(results: Any, key: str) -> list[Any]:
    return [row[key] for row in results["rows"]]


COMPLETE: dict[str, Callable[[Any], bool]] = {  # conditions on complete results
    "nccl_errors.py": lambda results: {*results["shipped"]["classes"]} == {"small", "mid", "large"},
    "nccl_structure.py": lambda results: (
        [[draw["seed"] for draw in draws] for draws in rows_of(results, "draws")] == [[1]]
        and {*results["put_aside"]} == {"small", "mid", "large"}
    ),
    "engine.py": lambda results: {*rows_of(results, "part")} == {"events", "reference", "commands"},
    "side_by_side.py": lambda results: {*rows_of(results, "part")} == {"commands", "calls", "ranks"},
    "waiting.py": lambda results: [*dict.fromkeys(rows_of(results, "part"))] == ["start", "cliffs", "peers", "calls"],
    "virtual_programs.py": lambda results: (
        results["rows"][0]["told"] == [] and results["rows"][0]["calls"] > 20 and results["rows"][1]["unit"] == "s"
    ),
    "overlap.py": lambda results: (
        [row["way"] for row in results["steps"]] == ["ddp", "ring[overlap]"]
        and results["steps"][0]["ratio"] == 1.0
        and all(row["step_s"] > 0 for row in results["steps"])
    ),
    "training_curves.py": lambda results: (
        [(row["ranks"], len(row["losses"])) for row in (*results["ways"], *results["ranks"])]
        == [(2, 2), (2, 2), (1, 2)]
        and results["ways"][1]["furthest"] < 1e-3
    ),
    "traces.py": lambda results: (
        (results["messages"], rows_of(results, "name")) == (2 * 31 * 32, ["make", "write", "read"])
        and all(row["seconds"] > 0 and row["needed_bytes"] >= row["held_bytes"] >= 0 for row in results["rows"])
    ),
    "methods.py": lambda results: (
        {(row["algorithm"], row["cluster"]): row["taken"] for row in results["rows"]}["all_reduce/ring", "star"]
        == "max-plus"
        and all(row["events"] > 0 for row in results["rows"])
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (name != "traces.py")) for name in COMPLETE])
def test_benchmark_writes_complete_results(name: str, tmp_path: Path):
    results = measured(name, tmp_path / "found.json", *SMALLEST[name])
    assert_has_environment(results)
    assert COMPLETE[name](results)


def test_overlapped_ring_is_as_fast_as_ddp_in_committed_results():
    results = json.loads((FOLDER / "results" / "overlap.json").read_text())
    assert {row["way"]: row["ratio"] for row in results["steps"]}["ring[overlap]"] <= 1.05
    curves, chosen = (runpy.run_path(str(FOLDER / "training_curves.py"))[name] for name in ("WAYS", "RECIPE"))
    results = json.loads((FOLDER / "results" / "training_curves.json").read_text())
    assert by_recipe(results["recipes"])[0][1] == chosen, "the recipe is the one that was chosen"
    assert {row["way"] for row in results["ways"]} == set(curves)
    assert all(row["accuracies"][-1] >= 0.95 and row["furthest"] < 1e-3 for row in results["ways"])


def test_gloo_benchmark_adds_rows_to_earlier_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "found.json"
    first = measured_here(monkeypatch, "against_gloo.py", file, *SMALLEST["against_gloo.py"])
    assert_has_environment(first)
    options = ["--ranks", "2", "3", "--sizes", "1K", "--repetitions", "2", "--add"]
    both = measured_here(monkeypatch, "against_gloo.py", file, *options)
    rows = {(row["ranks"], row["bytes"]): row for row in both["all_reduce"]}
    assert list(rows) == [(2, 1024), (2, 4 << 20), (3, 1024)]
    assert [row["pairs"] for row in rows.values()] == [2, 3, 2]
    assert both["step"] == first["step"] and rows[2, 4 << 20] == first["all_reduce"][1]
    for row in rows.values():
        assert 0 < row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert min(row["ours_s"], row["gloo_s"]) > 0 and max(row["ours_s"], row["gloo_s"]) < 10
    file.write_text(json.dumps({**both, "slice_bytes": 7}))
    refused = benchmark("against_gloo.py", *options, "-o", str(file))
    assert refused.returncode == 2 and "slice_bytes is 7 there" in refused.stderr


def test_engine_benchmark_adds_rows_only_from_the_same_machine(tmp_path: Path):
    file = tmp_path / "found.json"
    first = measured("engine.py", file, "--parts", "reference", *SMALLEST["engine.py"])
    assert_has_environment(first)
    both = measured("engine.py", file, "--parts", "events", "--fewer", "64", "--repetitions", "2", "--add")
    assert both["rows"][-len(first["rows"]) :] == first["rows"]
    rows = {row["name"]: row for row in both["rows"] if row["part"] == "events"}
    for row in both["rows"]:
        assert "at_most" not in row and "at_least" not in row
        assert 0 < row["spread"][0] <= row["measured"] <= row["spread"][1] < 1e9
    ring = "ring all-reduce, 16 ranks on a star, every latency different"
    assert rows[f"{ring}: share of messages with a unique end time"]["measured"] > 0.9
    file.write_text(json.dumps({**both, "environment": {}}))
    refused = benchmark("engine.py", "--parts", "reference", "--add", "-o", str(file))
    assert refused.returncode == 2 and "measured elsewhere" in refused.stderr


@pytest.mark.parametrize("path", sorted((FOLDER / "accuracy").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_accuracy_doctests_pass(path: Path) -> None:
    assert doctest.testmod(importlib.import_module(f"benchmarks.accuracy.{path.stem}")).failed == 0
