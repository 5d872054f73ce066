"""Check progress on standard error, and interrupts, which keep finished results."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numba
import pytest

import simcomm
import simcomm.compiling
from collectives import find_algorithm
from collectives import verdict as verdicts
from collectives.proof import verifier
from collectives.training.workload import Buckets, ComputePhases, Training
from ringlab.commands.check import check
from ringlab.commands.predicting import prediction
from ringlab.scenario import load
from ringlab.session import Session, load_scenario
from ringlab.shared import progress as terminal_progress
from ringlab.shared import workload
from ringlab.shared.output import PlainConsole
from ringlab.shared.progress import TerminalProgress, computing
from simcomm.cluster.calibrated import as_emulated
from simcomm.jit import OPTIONS
from simcomm.model.faults import NO_FAULTS
from simcomm.performance_models.network_model import NetworkModel
from simcomm.performance_models.performance_model import performance_model

LONG = """
[cluster]
topology = "star"
hosts = 8
bandwidth = "10 Gbit/s"
latency = "5 us"
[collective]
name = "all_reduce"
algorithms = ["ring", "naive"]
sizes = ["1 KiB"]
[[what_if]]
title = "jitter"
[what_if.faults]
repetitions = 100000
messages = { distribution = "exponential", mean = "5 ms" }
"""


class Heard:
    def __init__(self, interrupt_at: int | None = None) -> None:
        self.notes: list[str] = []
        self.news: list[tuple[int, int, str]] = []
        self.interrupt_at = interrupt_at

    def task(self, text: str, late_s: float = 0.0):
        from contextlib import nullcontext

        return nullcontext(self.tick)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def tick(self, rank: int, done: int, total: int, now: str) -> None:
        self.news.append((done, total, now))
        if self.interrupt_at is not None and done >= self.interrupt_at:
            raise KeyboardInterrupt


@pytest.fixture
def lines(monkeypatch) -> tuple[TerminalProgress, io.StringIO]:
    monkeypatch.setattr(terminal_progress._Lines, "every_s", 0.05)
    file = io.StringIO()
    return TerminalProgress(PlainConsole(file=file, force_terminal=False, width=100)), file


def test_progress_is_shown_for_slow_tasks_only(lines):
    progress, file = lines
    with progress.task("a task", late_s=10) as tick:
        tick(0, 1, 2, "parts")
    assert file.getvalue() == ""
    with progress.task("a task", late_s=0.01) as tick:
        tick(0, 1000, 2000, "parts")
        deadline = time.monotonic() + 20
        while len(file.getvalue().splitlines()) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
    shown = file.getvalue().splitlines()
    assert shown[0] == "a task ..." and shown[-1].startswith("  done in ")
    assert len(shown) > 3 and all(re.match(r"  1,000/2,000 parts, \d+ s", line) for line in shown[1:-1])


def test_failed_task_is_not_reported_as_done(lines):
    progress, file = lines
    with pytest.raises(ZeroDivisionError), progress.task("a task"):
        raise ZeroDivisionError
    assert file.getvalue() == "a task ...\n"


def test_compilation_is_reported_once():
    heard = Heard()
    with computing(heard, "simulating"):
        double = numba.njit(**OPTIONS)(lambda x: 2 * x)  # not cached
        assert double(2) == 4 and double(3) == 6
    simcomm.compiling.report_compilation()
    assert heard.notes == [simcomm.compiling.NOTE]


def test_progress_of_a_long_prediction_counts_messages(tmp_path):
    file = tmp_path / "long.toml"
    file.write_text(LONG.replace("100000", "10000"))
    heard = Heard(interrupt_at=126 + 8 * 112)
    with pytest.raises(KeyboardInterrupt):
        prediction.predict(load(file), Session(progress=heard))
    assert not [note for note in heard.notes if note != simcomm.compiling.NOTE]
    assert [done for done, *_ in heard.news[-2:]] == [126 + 7 * 112, 126 + 8 * 112]
    assert heard.news[-1][1] == 10001 * (14 + 112)


@pytest.mark.parametrize("is_emulated", [False, True])
@pytest.mark.parametrize("buckets", [None, Buckets(), Buckets(2.0, "ddp")])
def test_message_count_of_a_training_equals_its_simulation(
    buckets: Buckets | None, is_emulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_star, counted = simcomm.star(3, "10 Gbit/s", "5 us"), list[int]()
    star = as_emulated(plain_star) if is_emulated else plain_star
    training = Training(find_algorithm("all_reduce/ring"), compute=ComputePhases(0.1, 0.2, 0.01), buckets=buckets)

    def collective(model, call, options):
        trace = plain(model, call, replace(options, record=True))
        counted.append(len(trace.messages))
        return trace

    plain = NetworkModel.collective
    monkeypatch.setattr(NetworkModel, "collective", collective)
    simulated = len(simcomm.train(training, star).messages) + sum(counted)
    assert workload.count_work(training, performance_model(star), NO_FAULTS) == simulated > 0


def test_short_prediction_prints_no_progress_notes():
    heard = Heard()
    prediction.predict(load("star8"), Session(progress=heard))
    assert heard.notes == [] and heard.news[-1][0] == heard.news[-1][1]


def test_interrupted_check_keeps_finished_proofs(monkeypatch):
    verify = verifier.verify

    def verify_four(algorithm, world_size, root):
        if world_size > 4:
            raise KeyboardInterrupt
        return verify(algorithm, world_size, root)

    monkeypatch.setattr(verdicts, "verify", verify_four)
    answer = check("all_reduce/ring", "1-9")
    (verdict,) = answer.verdicts
    assert answer.interrupted and [report.world_size for report in verdict.reports] == [1, 2, 3, 4]
    assert answer.to_dict()["interrupted"] and not answer.to_dict()["algorithms"][0]["correct"]
    with pytest.raises(KeyboardInterrupt):
        check("all_reduce/ring", "5-9")


@contextmanager
def start(folder: Path, *arguments: str, stderr: int) -> "Iterator[subprocess.Popen[bytes]]":
    (folder / "long.toml").write_text(LONG)
    command = [sys.executable, "-m", "ringlab", *arguments]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(file: int, wanted: str) -> str:
    shown, end = b"", time.monotonic() + 60
    while not re.search(wanted.encode(), shown):
        assert time.monotonic() < end, shown
        shown += os.read(file, 1 << 16)
    return shown.decode()


def test_terminal_shows_a_bar_and_restores_the_cursor(tmp_path):
    ours, theirs = pty.openpty()
    with start(tmp_path, "predict", "long.toml", stderr=theirs) as process:
        os.close(theirs)
        output = read_until(ours, "messages, all_reduce/")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    rest = read_until(ours, "ringlab: interrupted")
    os.close(ours)
    assert "simulating long" in output and "\x1b[?25l" in output
    assert "\x1b[?25h" in rest


def test_reading_a_large_network_shows_progress(monkeypatch, capfd):
    monkeypatch.setattr("ringlab.shared.progress.LATE_S", 0.0)
    monkeypatch.setattr("scenarios.load", lambda reference, overrides: reference)
    assert load_scenario("large") == "large"
    assert "reading large and building its network ..." in capfd.readouterr().err
