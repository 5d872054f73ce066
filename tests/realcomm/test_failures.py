"""A failed run first names the rank, its status and the cause, whatever fails while that is reported."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import training_workers
from command_line import Done, Ringlab, small_files

import realcomm
import ringlab as package
from collectives.errors import InputError
from realcomm.launching import server
from realcomm.launching.failures import RankFailed

TESTS = Path(__file__).parent
SCENARIO = f"""
[cluster]
preset = "this-machine"
world_size = 2
[training]
model = "{TESTS / "faulty_model.py"}:build"
gradient_sync = "ring"
batch_size = 4
epochs = 2
images = 24
checkpoints = "kept"
checkpoint_every = 2
"""
KILLED = "SIGKILL, perhaps because the system ran out of memory"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a scenario for a user's model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own.toml").write_text(SCENARIO)
    return tmp_path


def check_failed(done: Done, message: str) -> list[str]:
    first, *notes = [line for line in done.err.partition("ringlab: ")[2].splitlines() if line]
    assert done.status == 1 and re.match(message, first), done.err
    return notes


IN_OWN_MODEL = {
    "SIGKILL forward": f"rank 1 was killed by {KILLED} ",
    "40 forward": "rank 1 was killed by signal 40 ",
    "raise backward": r"rank 1 failed with ZeroDivisionError: a fault of the user's \(line \d+ of faulty_model.py\) ",
    "nan": "rank 1 failed: the loss of step 3 is nan after the forward pass; .* ",
}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("40")) for name in IN_OWN_MODEL]
)
def test_run_names_the_cause_when_a_users_model_fails(
    fault: str, here: Path, ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGLAB_FAULT", fault)
    done = ringlab("run", "own.toml", "--log-dir", "logs")
    phase = "backward" if "backward" in fault else "forward"
    (resume,) = check_failed(done, rf"{IN_OWN_MODEL[fault]}\(status: training step 3, {phase}.*\)")
    assert re.match(r"ring: the newest checkpoint is kept/ring/step-0000000[23]\.pt .*; resume it with --res", resume)


IN_HANDLING = {
    "looking for checkpoints": (
        "realcomm.training.checkpoints.find_newest",
        InputError("kept/ring is not a directory"),
    ),
    "removing remains": ("realcomm.training.checkpoints.CheckpointFolder.close", OSError(5, "Input/output error")),
}
FAILED = "rank 1 was killed by SIGKILL (status: training step 3, forward)"


@pytest.fixture
def failed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> None:
        (here / "kept" / "ring").mkdir(parents=True, exist_ok=True)
        raise RankFailed(1, FAILED)

    monkeypatch.setattr("realcomm.training.trainer.launch", fail)


@pytest.mark.usefixtures("failed")
@pytest.mark.parametrize("place", IN_HANDLING)
def test_error_in_failure_handling_is_noted(place: str, ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch) -> None:
    name, error = IN_HANDLING[place]
    broken = Mock(side_effect=error)
    monkeypatch.setattr(name, broken)
    notes = check_failed(ringlab("run", "own.toml"), re.escape(FAILED))
    assert broken.called and f"afterwards: {type(error).__name__}: {error}" in notes
    if place == "removing remains":
        scenario = package.load("own.toml")
        with pytest.raises(RankFailed, match=f"^{re.escape(FAILED)}") as caught:
            realcomm.train(scenario.trainings[0], scenario.cluster, resume="auto")
        assert f"afterwards: {type(error).__name__}: {error}" in caught.value.__notes__


def test_failing_observer_does_not_replace_the_ranks_failure(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLAB_FAULT", "raise forward")
    scenario = package.load("own.toml")
    with pytest.raises(RankFailed, match="rank 1 failed with ZeroDivisionError") as caught:
        realcomm.train(scenario.trainings[0], scenario.cluster, observers=[training_workers.FailingAtTheEnd()])
    assert "afterwards: OSError: no space for the last line" in str(caught.value.__cause__)


def test_launch_on_a_full_disk_names_the_file(tmp_path: Path) -> None:
    with small_files(100), pytest.raises(OSError, match=r"File too large: '.*board'"):
        realcomm.launch(max, 2)


def test_hang_of_a_users_model_is_reported(here: Path, ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLAB_FAULT", "hang forward")
    status = "rank 0: training step 3, sync, .* waiting for rank 1; rank 1: training step 3, forward;"
    done = ringlab("run", "own.toml", "--timeout", 3)
    check_failed(done, f"no progress for 3 s; {status} the others wait for rank 1")


@pytest.mark.parametrize(
    ("command", "text", "error"),
    [
        ("run", "def build(:\n", r"SyntaxError: .*invalid syntax \(line 1 of mine.py\)"),
        *(
            (command, "def build():\n    raise ValueError('wide')\n", r"ValueError: wide \(line 2 of mine.py\)")
            for command in ("run", "compare", "calibrate")
        ),
    ],
)
def test_model_that_cannot_be_built_is_named_with_its_line(
    command: str, text: str, error: str, here: Path, ringlab: Ringlab
) -> None:
    (here / "mine.py").write_text(text)
    done = ringlab(command, "own.toml", "--set", "training.model='mine.py:build'")
    assert done.status == 2 and re.search(f"model '.*mine.py:build': {error}", done.err), done.err


@pytest.mark.parametrize("command", ["compare", pytest.param("calibrate --accept-noise", marks=pytest.mark.slow)])
def test_other_commands_name_the_cause_when_a_users_model_fails(
    command: str, here: Path, ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch, brief_calibration: None
) -> None:
    monkeypatch.setenv("RINGLAB_FAULT", "SIGKILL backward")
    name, *options = command.split()
    check_failed(ringlab(name, "own.toml", *options), rf"rank 1 was killed by {KILLED} \(status: calibrating a tra")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_end_of_the_launch_server_names_its_signal(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, time\nif sys.argv[1] == '15': sys.exit(143)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(int(number))]) as process:
        monkeypatch.setattr(server, "server_pid", lambda: process.pid)
        if number == signal.SIGKILL:
            assert server.server_end() == ""
            process.kill()
        assert server.server_end(60) == f"was killed by {KILLED if number == signal.SIGKILL else 'SIGTERM'}"
    monkeypatch.setattr(server, "server_pid", lambda: None)
    assert server.server_end() == "has ended"
