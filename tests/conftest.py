"""Fixtures and settings of all tests."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from command_line import Ringlab, in_this_process
from virtual_runs import VirtualRuns, virtual_runs

from collectives.errors import RunFailed
from collectives.output_files import cache_folder
from collectives.programs import sandbox
from collectives.records.calibration import PARTS
from collectives.training.workload import Training
from realcomm.training.trainer import preload_for
from ringlab.shared.failures import exit_with_a_line

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))  # the programs that write pages share a module

gc.set_threshold(100_000)  # thousands of tests and their imports hold many objects for long

# Tests with their own cache folder share the machine code.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "machine-code"))

# Threads that spin while they wait would take the cores from parallel tests and from the rank they wait for.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The duration of an example depends on the load of the machine.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

NOT_BORNE = "this machine is busy or cannot emulate this rate"  # an error of `realcomm.emulation.builder`

preload_for([Training(None)])  # one server has the ranks of all tests, whichever is the first to launch some
LEAN_START = sandbox.START
sandbox.START = f"import torch; {LEAN_START}"  # once for the workers of all tests, of which many trace models


@pytest.fixture
def ringlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ringlab:
    """Run the command line in this process, with its own cache folder and without the progress of slow commands."""
    monkeypatch.setattr("ringlab.shared.progress.LATE_S", 60.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return in_this_process(monkeypatch, capsys)


@pytest.fixture
def accuracy_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ringlab:
    from benchmarks.accuracy import __main__ as accuracy  # few tests need scipy, and what draws

    monkeypatch.setenv("COLUMNS", "160")
    return in_this_process(monkeypatch, capsys, partial(exit_with_a_line, accuracy.app))


@pytest.fixture(scope="session")
def virtual() -> Iterator[VirtualRuns]:
    """Run programs on virtual ranks, in forks of a server that imports torch once."""
    with virtual_runs() as runs:
        yield runs


@pytest.fixture
def one_server(virtual: VirtualRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run programs on virtual ranks in forks of the tests' server."""
    for module in ("ringlab.commands.virtual", "ringlab.commands.learn"):
        monkeypatch.setattr(f"{module}.VirtualHost", lambda: nullcontext(virtual.host))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip a test that emulates a network if other work has kept the machine from reaching its rates."""
    try:
        return (yield)
    except (RunFailed, AssertionError) as error:
        if item.get_closest_marker("namespaces") is not None and NOT_BORNE in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(autouse=True, scope="session")
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests write no calibrations into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def signals_as_in_a_terminal() -> Iterator[None]:
    """Interrupts and hangups have their usual effect, even if nohup or ``&`` started the tests."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGHUP)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # unlike SIG_IGN, not inherited by a new program
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def lean_workers() -> Iterator[None]:
    """Worker processes import no more than a user's do, for tests of their memory and time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "START", LEAN_START)
        end_server_of_workers()
        yield
    end_server_of_workers()


def end_server_of_workers() -> None:
    """Let the next worker start from a new server."""
    if sandbox._Only.server is not None:
        sandbox._Only.server.close()


BRIEF = {
    "SIZES": (4096, 1 << 20),
    "LINE_SIZES": (4096, 1 << 18),
    "TURNS": PARTS - 1,
    "MESSAGE_TURNS": PARTS - 1,
    "PROBE_S": 0.01,
    "LONE_PROBE_S": 0.01,
    "REPETITIONS": (1, 3),
    "LONE_REPETITIONS": (3, 3),
}


@pytest.fixture
def brief_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate with few sizes and short probes, for tests that ignore the measured values."""
    for name, value in BRIEF.items():
        monkeypatch.setattr(f"realcomm.calibration.calibration.{name}", value)
