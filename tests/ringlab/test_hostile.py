"""Hostile input ends with a short message, in bounded time and memory, and without lost files.

``hostile_cases.py`` has the cases. ``hostile_runs.py --seeds 100000:105000`` runs more random ones.
"""

import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from command_line import run_python

HERE = Path(__file__).parent
# Root may write where nobody may; without that right what is read-only is so for root too.
AS_ANYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", "--")


def as_anybody() -> tuple[str, ...]:
    """Return a prefix of commands that removes root's right to write everywhere; empty for other users."""
    return AS_ANYBODY if os.geteuid() == 0 and shutil.which("setpriv") else ()


def tried(*arguments: object) -> tuple[int, dict[str, list[str]]]:
    done = run_python(HERE / "hostile_runs.py", *arguments, before=as_anybody(), timeout_s=3000)
    assert done.returncode == 0, done.stderr
    *lines, last = map(json.loads, done.stdout.splitlines())
    return last["tried"], {line["case"]: line["problems"] for line in lines}


@pytest.mark.parametrize(
    ("every", "seeds", "least"), [(97, "1:31", 60), pytest.param(1, "101:1601", 6500, marks=pytest.mark.slow)]
)
def test_hostile_input_ends_with_an_error_message(every: int, seeds: str, least: int) -> None:
    count, problems = tried("--every", every, "--seeds", seeds)
    assert count > least
    assert not problems


@pytest.mark.skipif(os.geteuid() == 0 and not as_anybody(), reason="root may write everywhere, and setpriv is missing")
def test_missing_permission_is_reported_with_the_reason(tmp_path: Path) -> None:
    closed, unreadable = tmp_path / "closed", tmp_path / "a.toml"
    closed.mkdir()
    unreadable.write_text("")
    unreadable.chmod(0o000)
    closed.chmod(0o555)
    for arguments, message in (
        (
            ["star8", "--json", "closed/a.json"],
            f"closed/a.json cannot be written: {closed} is a directory in which you may not write",
        ),
        ([str(unreadable)], f"{unreadable}: Permission denied"),
    ):
        done = run_python("-m", "ringlab", "predict", *arguments, folder=tmp_path, before=as_anybody())
        assert (done.returncode, done.stdout) == (2, "") and message in done.stderr
    closed.chmod(0o755)
    assert [*closed.iterdir()] == []


@pytest.mark.parametrize(
    ("setting", "arguments", "status", "message"),
    [
        ("MPLBACKEND=no-such", ["animate", "star8", "--algorithm", "ring", "--size", "1 KiB", "-o", "a.png"], 0, ""),
        *(
            (f"{name}={value}", command, 2, f"ringlab: the environment variable {name} is '{value}'; set an")
            for name, value, *command in (
                ("RANK", "-1", "predict", "star8"),
                ("COLUMNS", "0", "list"),
                ("NUMBA_NUM_THREADS", "0", "predict", "star8"),
                ("OMP_NUM_THREADS", "x", "run", "quickstart"),
            )
        ),
        *(
            pytest.param(
                f"{name}={value}",
                ["run", "quickstart"],
                2,
                f"{name} is '{value}'; torch does not start with this value (",
                marks=() if name == "TORCH_LOGS" else pytest.mark.slow,
            )
            for name, value in (
                ("TORCH_DISTRIBUTED_DEBUG", "nope"),
                ("TORCHINDUCTOR_CACHE_DIR", "/dev/null"),
                ("TORCH_LOGS", "nope"),
                ("PYTORCH_ALLOC_CONF", "x"),
                ("TORCH_FR_BUFFER_SIZE", "x"),
            )
        ),
        ("NUMBA_DISABLE_JIT=1", ["predict", "star8", "--set=cluster.hosts=40"], 2, "NUMBA_DISABLE_JIT is set, but"),
    ],
)
def test_invalid_environment_variable_is_named_in_the_message(
    setting: str, arguments: list[str], status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries read these variables when they are imported, so that each case needs a new process."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # torch sets it in this process
    done = run_python("-m", "ringlab", *arguments, folder=tmp_path, **dict([setting.split("=")]))
    assert done.returncode == status, done.stderr
    assert message in done.stderr and not any(word in done.stderr for word in ("internal error", "Traceback", "#1:"))


def test_both_ranks_reject_an_unreachable_master(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    variables = {"WORLD_SIZE": "2", "MASTER_PORT": port, "MASTER_ADDR": "no such host"}
    words = ("-m", "ringlab", "run", "quickstart", "--timeout", "2")
    for rank in "01":
        done = run_python(*words, folder=tmp_path, RANK=rank, **variables)
        message = f"MASTER_ADDR is 'no such host'; no process answers at port {port} (MASTER_PORT) within 2 s"
        assert done.returncode == 2 and message in done.stderr and "[c10d]" not in done.stderr, done.stderr


def test_hostile_runner_reports_crashes_hangs_and_lost_files(monkeypatch):
    sys.path.insert(0, str(HERE))
    import hostile_runs
    from hostile_runs import Case

    def behave():
        match sys.argv[1]:
            case "crash":
                os.kill(os.getpid(), 11)
            case "fault":
                raise KeyError
            case "hang":
                signal.pause()
            case "lose":
                Path("precious").unlink()
        return 0

    monkeypatch.setattr(hostile_runs, "_status_of_main", behave)
    monkeypatch.setattr(hostile_runs, "WALL", 1.0)
    monkeypatch.setattr(hostile_runs, "MOST_BYTES", 1 << 40)  # a fork of this process has all of its memory
    cases = [Case(name, (name,), (("precious", b""),)) for name in ("fine", "crash", "fault", "hang", "lose", "good")]
    ended = list(hostile_runs.try_all(cases))
    assert {case.name for case, problems in ended if problems} == {"crash", "fault", "hang", "lose"}
