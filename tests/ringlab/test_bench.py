"""``ringlab bench``: options, measured rows, the printed table, and interrupts."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import fields
from io import StringIO
from pathlib import Path

import pytest
from command_line import Ringlab
from rich.console import Console

from collectives.errors import InputError
from realcomm.measuring.collective_run import RankFigures
from ringlab.commands.measuring.bench import (
    BenchAnswer,
    Benchmark,
    BenchOptions,
    BenchRow,
    BenchTable,
    bench,
    measurements,
    prepare,
)
from ringlab.shared.output import PlainConsole
from ringlab.shared.ranges import parse_short_size


def test_sizes_are_parsed_and_grow_as_in_nccl_tests():
    texts = ("8", "32K", "1m", "1 MiB", "1 MB")
    assert [parse_short_size(text, "-b") for text in texts] == [8, 32768, 1 << 20, 1 << 20, 10**6]
    timed = measurements(BenchOptions(begin="1K", end="20K", factor=4))
    assert [each.call.elements * 4 for each in timed] == [1024, 4096, 16384]
    (timed_once,) = measurements(BenchOptions(collective="all_to_all", ranks=3, begin="1K", end="1K"))
    assert timed_once.call.elements == 255


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"begin": "64K", "end": "1K"}, "-e at least -b"),
        ({"factor": 1.0}, "-f finite and greater than 1"),
        ({"begin": "0"}, "-b must be positive"),
        ({"factor": 1.001, "begin": "1M", "end": "1G"}, "more than 6,000 sizes"),
        ({"collective": "all_recuce"}, "all_recuce"),
        ({"algorithms": ("auto",)}, "--algorithm auto needs a calibration of this machine for 2 ranks with gloo"),
        ({"dtype": "int32", "op": "mean"}, "floating"),
        ({"collective": "broadcast", "root": 2}, "root must be"),
    ],
)
def test_bench_rejects_bad_options_before_it_starts(asked: dict, message: str):
    with pytest.raises(InputError, match=message):
        measurements(BenchOptions(**asked))


def test_bench_row_has_the_values_that_nccl_tests_defines():
    options = BenchOptions(
        collective="reduce_scatter", algorithms=("ring", "naive"), ranks=2, begin="1K", end="4K", iterations=3
    )
    rows = bench(options, timeout=60).to_dict()["collectives"]
    assert [(row["bytes"], row["algorithm"]) for row in rows] == [
        (1024, "ring"), (1024, "naive"), (4096, "ring"), (4096, "naive"),
    ]  # fmt: skip
    for row in rows:
        assert (row["count"], row["op"], row["root"], row["wrong"]) == (row["bytes"] // 8, "sum", -1, 0)
        assert row["algbw_GBps"] == pytest.approx(row["bytes"] / row["time_s"] / 1e9)
        assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"] / 2)
        assert row["time_min_s"] <= row["time_s"] <= row["time_max_s"]


def shown(options: BenchOptions) -> tuple[list[str], BenchAnswer, Benchmark]:
    shown = StringIO()
    console = Console(file=shown, width=300)
    benchmark = prepare(options, timeout=60)
    table = BenchTable(benchmark, console)
    table.show_head()
    answer = benchmark.run(table.show_row)
    table.show_foot(answer)
    return shown.getvalue().splitlines(), answer, benchmark


def test_bench_reports_no_time_for_an_empty_buffer():
    lines, answer, benchmark = shown(BenchOptions(begin="1", end="8", factor=8, iterations=2))
    empty, row = answer.to_dict()["collectives"]
    assert (empty["bytes"], empty["time_s"], empty["busbw_GBps"], empty["error"], empty["wrong"]) == (0, *[None] * 4)
    assert row["bytes"] == 8 and row["wrong"] == 0 and row["time_s"] > 0
    assert lines[4].split()[6:] == ["N/A"] * 6
    assert lines[-3 if benchmark.calibration is None else -2].endswith("0 OK")
    lines, *_ = shown(BenchOptions(begin="1", end="2", factor=2, iterations=2))
    assert any(line.endswith("0 not checked") for line in lines) and not any("Avg" in line for line in lines)


def test_bench_column_is_as_wide_as_the_longest_algorithm_name():
    wide = "hierarchical[gpus=2, rail=recursive_doubling]"
    options = BenchOptions(algorithms=("ring", wide), begin="1K", end="1K", iterations=2, check=False)
    lines, *_ = shown(options)
    ends = {line.index(word) + len(word) for line, word in zip(lines[2:6:2], ("algorithm", "ring"), strict=True)}
    assert len(ends) == 1 and lines[5].index(wide) + len(wide) in ends
    assert len({len(line) for line in (lines[2], *lines[4:6])}) == 1


def test_bench_has_a_column_for_queued_gpu_calls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ringlab.commands.measuring.bench.check_launch", lambda *_: None)
    benchmark = prepare(BenchOptions(begin="1K", end="1K"), backend="nccl")
    row = benchmark._row(benchmark.measurements[0], RankFigures(1e-3, 1e-3, 2e-3, 0, 5e-5))
    table = BenchTable(benchmark, Console())
    assert row.queued_s == 5e-5 and table._align(row.cells()).split()[-1] == "50.00"
    assert next(BenchAnswer((row,), False).show()).headings[-1] == "queued\n(us)"


def test_bench_writes_only_json_to_standard_output():
    done = ringlab("-b", "1K", "-e", "1K", "-n", "2", "-c", "0", "--collective", "broadcast", "--json", "-")
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    (row,) = json.loads(out)["collectives"]
    assert (row["op"], row["root"], row["wrong"]) == ("none", 0, None)


def test_interrupted_bench_writes_its_finished_rows(tmp_path):
    file = tmp_path / "rows.json"
    running = ringlab("-b", "1K", "-e", "512M", "-f", "2", "-n", "30", "--json", str(file))
    lines = []
    for line in running.stdout:
        lines.append(line)
        if sum(bool(re.match(r"\s*\d", line)) for line in lines) == 2:
            running.send_signal(signal.SIGINT)
            break
    rest, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert "# Interrupted" in rest and "# Out of bounds values : 0 OK" in rest
    answer = json.loads(file.read_text())
    assert answer["interrupted"] and 2 <= len(answer["collectives"]) < 20
    assert [row["bytes"] for row in answer["collectives"][:2]] == [1024, 2048]


def test_bench_writes_rows_to_the_file_when_the_pipe_breaks(ringlab: Ringlab, monkeypatch, tmp_path):
    """As with ``ringlab bench --json rows.json | head -1``. Without a file, the command ends."""
    row = BenchRow(**dict.fromkeys((field.name for field in fields(BenchRow)), None))
    taken: list[BenchRow] = []

    def measure(benchmark, on_row):
        for _ in range(2):
            on_row(row)
            taken.append(row)
        return BenchAnswer((row, row), interrupted=False)

    def break_pipe(*lines, **options):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(Benchmark, "run", measure)
    monkeypatch.setattr(PlainConsole, "print", break_pipe)
    file = tmp_path / "rows.json"
    assert ringlab("bench", "--json", file) == (1, "", "")
    assert len(taken) == 2 and len(json.loads(file.read_text())["collectives"]) == 2
    assert ringlab("bench") == (1, "", "")
    assert len(taken) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_bench_leaves_no_process_and_no_file_after_a_signal(number):
    """``timeout`` and a closed terminal send these signals."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # short enough for the sockets of those that start
        places, folder = {"TMPDIR": name, "XDG_CACHE_HOME": name}, Path(name)
        running = ringlab("-b", "64K", "-n", "1000000", **places)
        try:
            deadline = time.monotonic() + 120
            while not [*folder.glob("*/ringlab-*/store")]:  # a rank has come to meet the others
                assert time.monotonic() < deadline and running.poll() is None
                time.sleep(0.05)
            os.killpg(running.pid, number)
            assert running.wait(60) == 128 + number
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
        assert [*folder.iterdir()] == []


def ringlab(*options: str, **environment: str) -> subprocess.Popen:
    call = [sys.executable, "-m", "ringlab", "bench", *options]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(call, **streams, env={**os.environ, **environment}, start_new_session=True)
