"""Processes start together, fail with clear messages and leave nothing behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import real_workers
import torch
from warm_ranks import run_ranks

from collectives.errors import InputError, RunFailed
from collectives.records.environment import cores, threads_per_rank
from realcomm.launching.failures import RankFailed, TimedOut
from realcomm.launching.launcher import launch
from realcomm.launching.server import server_folder


@pytest.fixture(autouse=True, scope="module")
def after_the_first_launch() -> None:
    """Open multiprocessing's permanent files first."""
    launch(real_workers.sum_of_ranks, 1)


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launch leaves a process, thread, open file or temporary file, however it ends."""
    folder, threads = tmp_path_factory.mktemp("temporary"), threading.active_count()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    files, others = open_files(), workers_of(os.getpid())  # of other tests
    yield
    assert multiprocessing.active_children() == []
    assert {*workers_of(os.getpid())} <= {*others}
    assert threading.active_count() == threads
    assert [*folder.iterdir(), *server_folder().glob("ringlab-*")] == []
    assert open_files() == files


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def workers_of(launcher: int) -> list[int]:
    """Processes forked by the launcher's server or another child: its grandchildren."""
    return [worker.pid for child in psutil.Process(launcher).children() for worker in child.children()]


def test_launch_returns_the_results_of_one_group_in_rank_order():
    assert launch(real_workers.sum_of_ranks, 3, 3) == [(rank, threads_per_rank(3), 9.0) for rank in range(3)]
    assert [threads for _, threads, _ in launch(real_workers.sum_of_ranks, 2, threads=3)] == [3, 3]


def test_workers_inherit_environment_and_use_loopback(monkeypatch, tmp_path):
    monkeypatch.setenv("RINGLAB_TEST", "as of now")
    monkeypatch.chdir(tmp_path)
    for value, folder, addresses in launch(real_workers.settings, 2, "RINGLAB_TEST"):
        assert (value, folder) == ("as of now", str(tmp_path))
        assert addresses and set(addresses) == {"127.0.0.1"}


def test_progress_of_ranks_reaches_the_launcher():
    heard = []
    launch(real_workers.report_three, 2, progress=lambda *news: heard.append(news))
    assert sorted(heard) == [(rank, done, 3, f"part {done}") for rank in range(2) for done in (1, 2, 3)]


def test_launch_in_a_rank_of_a_group_uses_that_group():
    """As in a process of ``torch.multiprocessing.spawn``; here in a launch within a launch."""
    inner = [(rank, 1, 5.0) for rank in range(2)]
    assert [[(rank, 1, total) for rank, _, total in results] for results in launch(launch_again, 2)] == [inner, inner]


def launch_again(rank: int, world_size: int) -> list[tuple[int, int, float]]:
    with pytest.raises(InputError, match="the group has 2 ranks, but 3 are needed"):
        launch(real_workers.sum_of_ranks, 3)
    return launch(real_workers.sum_of_ranks, world_size, 5)


def test_finished_rank_waits_for_its_peers():
    assert launch(real_workers.leave_early, 3) == [1.0, 1.0, 1.0]


FAILURES = {
    "raise": (RankFailed, "rank 1 failed with ZeroDivisionError: no sheep .*counting sheep"),
    "SIGSEGV": (RankFailed, "rank 1 was killed by SIGSEGV.*counting sheep"),
    "_exit": (RankFailed, "rank 1 exited with status 7 before it finished"),
    "refuse": (InputError, r"^cake\.toml: there is no cake$"),
}


@pytest.mark.parametrize("how", FAILURES)
def test_failed_rank_is_named_with_its_cause(how: str):
    kind, message = FAILURES[how]
    with pytest.raises(kind, match=message) as caught:
        launch(real_workers.fail_on, 3, 1, how)
    assert kind is InputError or vars(caught.value)["rank"] == 1
    assert how != "raise" or "real_workers.py" in str(caught.value.__cause__)


@pytest.fixture(scope="module")
def long_enough() -> float:
    """Return a timeout that three hanging ranks surely exceed after their start, also on a busy machine."""
    begin = time.monotonic()
    launch(real_workers.sum_of_ranks, 3)
    return 1.0 + 3 * (time.monotonic() - begin)


def test_hang_ends_at_the_timeout_and_names_the_awaited_rank(long_enough: float):
    begin = time.monotonic()
    status = r"rank 0: .* waiting for .*; rank 1: counting sheep; rank 2: .*; the others wait for rank 1$"
    with pytest.raises(TimedOut, match=status) as caught:
        launch(real_workers.fail_on, 3, 1, "sleep", timeout=long_enough)
    assert long_enough <= time.monotonic() - begin
    assert isinstance(caught.value, RunFailed)


def test_slow_start_ends_at_the_timeout():
    with pytest.raises(TimedOut, match=r"timed out after 0\.3 s; rank 0: .*; rank 31: starting"):
        launch(real_workers.fail_on, 32, 1, "sleep", timeout=0.3)


def test_too_many_ranks_are_rejected():
    most = 32 * cores()
    with pytest.raises(InputError, match=f"{most + 1} ranks are too many .* use at most {most}"):
        launch(max, most + 1)


@pytest.mark.parametrize("after", [0.0, 0.7, pytest.param(0.03, marks=pytest.mark.slow)])
def test_interrupt_ends_all_ranks_while_they_start(after: float):
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        launch(real_workers.fail_on, 3, 1, "sleep", timeout=60)
    timer.join()


def test_interrupt_while_reporting_results_is_raised():
    with pytest.raises(KeyboardInterrupt):
        launch(real_workers.report_three, 2, progress=lambda *news: os.kill(os.getpid(), signal.SIGINT))


@pytest.mark.parametrize("settings", [{"world_size": "2"}, {"backend": "mpi"}, {"timeout": 0.0}, {"timeout": "60"}])
def test_invalid_launch_is_rejected(settings: dict):
    with pytest.raises(InputError, match=next(iter(settings))):
        launch(real_workers.sum_of_ranks, **{"world_size": 1, **settings})


def test_nccl_without_a_gpu_is_rejected():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="needs a CUDA GPU"):
        launch(real_workers.sum_of_ranks, 2, backend="nccl")


PLAIN = """
from realcomm.launching.launcher import launch
print(launch(max, 2))
"""

ASLEEP = """
import os, sys, time
from pathlib import Path
from realcomm.launching.launcher import launch
from realcomm.launching.server import server_folder

def sleep(rank, world_size):
    Path(f"{rank}.pid").write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    Path("folder").write_text(str(server_folder()))
    launch(sleep, 2)
"""


def written(path: Path, text: str) -> list[str]:
    path.write_text(text)
    return [sys.executable, "-W", "error", str(path)]


@pytest.mark.parametrize(
    "temporary", ["short", pytest.param("a folder whose path is too long for a socket" * 3, marks=pytest.mark.slow)]
)
def test_script_without_main_guard_can_launch(tmp_path: Path, temporary: str):
    folder = tmp_path / temporary
    folder.mkdir()
    command, environment = written(tmp_path / "plain.py", PLAIN), {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2, 2]\n", "")  # max(rank, world_size)
    assert [*folder.iterdir()] == []


@contextmanager
def started(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a launcher whose workers sleep; check that nothing is left of it at the end."""
    command = written(tmp_path / "asleep.py", ASLEEP)
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    ) as launcher:
        yield launcher
        wait_until(lambda: session(launcher.pid) == [])
    assert [*folder.iterdir()] == [] and not Path((tmp_path / "folder").read_text()).exists()


@pytest.mark.parametrize(
    ("number", "is_at_work"),
    [
        (signal.SIGKILL, True),
        (signal.SIGKILL, False),
        *(pytest.param(signal.SIGINT, is_at_work, marks=pytest.mark.slow) for is_at_work in (True, False)),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow),
    ],
)
def test_workers_end_when_the_launcher_is_killed(tmp_path: Path, number: signal.Signals, is_at_work: bool):
    """Also while its server still imports, with multiprocessing's tracker of resources as a third process."""
    with started(tmp_path) as launcher:
        if is_at_work:
            wait_until(lambda: len([*tmp_path.glob("*.pid")]) == 2)
        else:
            wait_until(lambda: len(session(launcher.pid)) == 3)
        launcher.send_signal(number)
        launcher.wait(60)
        assert is_at_work or not [*tmp_path.glob("*.pid")]  # it has not gone on to start workers


def session(leader: int) -> list[int]:
    """Processes in the session of ``leader``, without zombies."""
    pids = list[int]()
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getsid(process.pid) == leader:
                pids.append(process.pid)
    return pids


def wait_until(is_so, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "not so in time"
        time.sleep(0.02)


UNDER_TORCHRUN = """
import os
import numpy as np
import real_workers, realcomm, simcomm
from collectives.errors import InputError
from realcomm.launching.failures import RankFailed, TimedOut
from realcomm.launching.launcher import launch
from realcomm.launching.torchrun import under_torchrun

def error_of(kind, *args, **settings):
    try:
        launch(*args, **settings)
    except kind as error:
        return str(error)
    raise AssertionError("no error")

assert under_torchrun()
rank, heard = int(os.environ["RANK"]), []
assert [total for _, _, total in launch(real_workers.sum_of_ranks, 2, 5)] == [5.0, 5.0]
assert launch(real_workers.report_three, 2, progress=lambda *news: heard.append(news[:2])) == [None, None]
assert heard == [(rank, done) for done in (1, 2, 3)], heard
buffers = [np.full(3, 1.0), np.full(3, 2.0)]
trace = realcomm.run("all_reduce/ring", simcomm.this_machine(2), buffers=buffers, repetitions=1)
assert [buffer.tolist() for buffer in buffers] == [[3.0] * 3] * 2 and trace.facts["wrong"] == 0
assert "--nproc-per-node 3" in error_of(InputError, real_workers.sum_of_ranks, 3)
failed = error_of(RankFailed, real_workers.fail_on, 2, rank, "raise")
assert failed.startswith(f"rank {rank} failed with ZeroDivisionError: no sheep (line "), failed
assert failed.endswith(" of real_workers.py) (status: counting sheep)"), failed
early = error_of(TimedOut, real_workers.fail_on, 2, rank, "time out", timeout=500)
assert early.startswith(f"rank {rank} timed out after "), early
assert " s (the limit is 500 s): RuntimeError: [x]:7" in early, early
"""


def test_launch_under_torchrun_acts_as_the_rank_of_its_process(tmp_path: Path):
    (tmp_path / "program.py").write_text(UNDER_TORCHRUN)
    assert run_ranks(2, tmp_path, tmp_path / "program.py") == [(0, "", "")] * 2
