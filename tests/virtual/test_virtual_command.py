"""``ringlab virtual``: options, exit statuses, messages and files."""

import json
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import Ringlab
from virtual_runs import star

from collectives.errors import RunFailed
from collectives.records.calibration import Calibration, FittedLine, MachineLoad, MessageCurve, cache_file
from virtual.hosting.host import VirtualHost
from virtual.options import VirtualOptions
from virtual.process.programs import UserProgram

PROGRAMS = Path(__file__).parent / "virtual_programs"


pytestmark = pytest.mark.usefixtures("one_server")


def test_virtual_reports_times_and_writes_files(ringlab: Ringlab, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.json" for name in ("json", "trace", "recording")}
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    done = ringlab("virtual", "--ranks", 4, "--on", "two-racks", *options, PROGRAMS / "all_reduce.py", "1000")
    assert done.status == 0, done.err
    assert "[rank 0] 10.0" in done.out and "of virtual time on" in done.out
    answer = json.loads(files["json"].read_text())
    assert (answer["kind"], answer["timing"], len(answer["ranks"])) == ("virtual", "live", 4)
    assert answer["elapsed_s"] > 0 and answer["ranks"][0]["called_bytes"] == 4000
    again = ringlab("virtual", "--ranks", 4, "--on", "two-racks", "--timing", "recorded", "--json", "-",
                    PROGRAMS / "all_reduce.py", "1000")  # fmt: skip
    assert json.loads(again.out)["elapsed_s"] == pytest.approx(answer["elapsed_s"], rel=1e-6)


def test_hang_is_reported_with_status_1(ringlab: Ringlab, tmp_path: Path) -> None:
    program = tmp_path / "hang.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group()\n"
        "dist.recv(torch.ones(4), 1 - dist.get_rank())\n"
    )
    done = ringlab("virtual", "--ranks", 2, program)
    assert done.status == 1
    assert "deadlock: ranks 0-1 all receive first" in done.out and "hang.py:3" in done.out


EARLY_EXIT = """
import sys, torch, torch.distributed as dist
{full}
dist.init_process_group()
if dist.get_rank() == 1:
    sys.exit()
dist.all_reduce(torch.ones(4))
"""


def test_finding_is_printed_when_files_cannot_be_written(ringlab: Ringlab, tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(EARLY_EXIT.format(full=""))
    files = [word for name in ("trace", "recording", "json") for word in (f"--{name}", tmp_path / f"{name}.json")]
    done = ringlab("virtual", "--ranks", 2, "--timing", "recorded", *files, tmp_path / "early.py")
    assert done.status == 1 and "rank 1 exited after 0 collectives" in done.out
    assert f"{tmp_path / 'trace.json'}: not written, because the run has findings" in done.err
    assert json.loads((tmp_path / "json.json").read_text())["findings"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("os.kill(os.getpid(), 40)", "was ended by signal 40"),
        ("os._exit(5)", "ended with status 5"),
    ],
)
def test_unexpected_end_of_a_program_is_reported(fault: str, message: str, ringlab: Ringlab, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(f"import os\n{fault}\n")
    done = ringlab("virtual", "--ranks", 2, tmp_path / "ends.py")
    assert (done.status, done.err) == (1, f"ringlab: the process of ends.py {message}\n")


@pytest.mark.parametrize(
    ("end", "first", "error"),
    [("sys.exit()", "rank 1 exited after 0 collectives", "afterwards: OSError"), ("pass", "failed with OSError", "")],
)
def test_failed_write_and_early_exit_are_reported(ringlab: Ringlab, tmp_path: Path, end: str, first: str, error: str):
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))"
    (tmp_path / "full.py").write_text(EARLY_EXIT.replace("sys.exit()", end).format(full=full))
    done = ringlab("virtual", "--ranks", 2, tmp_path / "full.py")
    assert done.status == 1 and "Traceback" not in done.err and first in done.err.splitlines()[0]
    assert f"{error}: [Errno 27] File too large" in done.err


def test_exit_of_the_virtual_server_is_reported_with_its_signal(tmp_path: Path) -> None:
    (tmp_path / "kills.py").write_text("import os\nos.kill(os.getppid(), 9)\nwhile True: pass\n")
    options = VirtualOptions(UserProgram(str(tmp_path / "kills.py"), ()), 2, star(2))
    with VirtualHost() as host, pytest.raises(RunFailed, match=r"the server .* was ended by SIGKILL; run again"):
        host.run(options, timeout=60)


@pytest.mark.parametrize(("options", "message"), [((), "pass --ranks N unless"), (("--ranks", 2), "a message with")])
def test_program_without_communication_is_reported(
    options: tuple[object, ...], message: str, ringlab: Ringlab, tmp_path: Path
) -> None:
    (tmp_path / "empty.py").touch()
    done = ringlab("virtual", tmp_path / "empty.py", *options)
    assert done.status == 0 and message in done.out and "finished" not in done.out


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("--ranks 1 shown.py --n 3 --ranks 7 -m x", "--n 3 --ranks 7 -m x"),
        ("--ranks 1 shown.py -- --n", "--n"),
        ("shown.py --ranks 1 --on=star8 --lr 3 --on x", "--lr 3 --on x"),
        ("shown.py --ranks 1 -- --ranks 7", "--ranks 7"),
        ("--ranks 1 -m shown -q --ranks 3", "-q --ranks 3"),
    ],
)
def test_arguments_after_ringlabs_options_belong_to_the_program(
    ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, passed: str
) -> None:
    (tmp_path / "shown.py").write_text("import sys\nprint(sys.argv[1:], __name__)\n")
    monkeypatch.chdir(tmp_path)
    done = ringlab("virtual", *words.split())
    assert f"[rank 0] {passed.split()} __main__" in done.out, done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "2"], "Missing argument 'SCRIPT"),
        (["--ranks", "99", "--on", "two-p5", "x.py"], "99 ranks do not fit"),
        (["--on", "star9", "x.py"], "unknown scenario or machine 'star9'"),
        (["--compute", "H1000", "--ranks", "1", str(PROGRAMS / "ring.py")], "unknown compute 'H1000'"),
        (["--algorithm", "ring", "x.py"], "expected COLLECTIVE=NAME"),
        (["--only", "0,x", "x.py"], "--only must be ranks separated by commas, such as 0,32, not 0,x"),
        (["--only", "0", "--ranks", "2", "x.py"], "`only` requires `fake`"),
        (["--as", "mpi", "x.py"], "must be gloo or nccl, not 'mpi'"),
        (["-m", "torch.distributed.run", "x.py"], "run the script that it starts: ringlab virtual --ranks N SCRIPT"),
    ],
)
def test_virtual_rejects_invalid_options(ringlab: Ringlab, arguments: list[str], message: str) -> None:
    done = ringlab("virtual", *arguments)
    assert done.status == 2 and message in done.err, done


def test_missing_file_is_reported_before_torch_is_imported(ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringlab.commands.virtual.VirtualHost", None)
    done = ringlab("virtual", "--ranks", 2, "none.py")
    assert (done.status, done.err) == (2, "ringlab: none.py: No such file or directory\n")


def test_virtual_can_be_called_from_python() -> None:
    import ringlab

    lines: list[str] = []
    answer = ringlab.virtual.run(
        PROGRAMS / "ring.py", ranks=4, on="star8", show=lambda stream, text: lines.append(text)
    )
    assert repr(answer) == "<VirtualAnswer of ring.py: 4 ranks, 1.32 ms>"
    assert "".join(lines).count("True") == 4


def test_virtual_warns_when_each_rank_spawns_ranks(ringlab: Ringlab) -> None:
    program = PROGRAMS / "right" / "spawn_argparse.py"
    twice, once = (ringlab("virtual", "--ranks", ranks, program) for ranks in (2, 0))
    assert "warning: each rank started the program's ranks" in twice.out and "--ranks 0" in twice.out
    assert "warning" not in once.out


def test_virtual_output_states_when_compute_takes_no_time(ringlab: Ringlab) -> None:
    program = PROGRAMS / "right" / "ddp_plain.py"
    free, modelled = (ringlab("virtual", "--ranks", 2, "--compute", compute, program) for compute in ("zero", "model"))
    assert "; compute takes no time (--compute zero)" in free.out
    assert "a step takes" in modelled.out and "takes no time" not in modelled.out


@pytest.mark.parametrize("load", [0.0, 0.8])
def test_interval_of_short_steps_depends_on_machine_load(
    ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    line, latency = FittedLine(1e-5, 1e-9, 0.0), [(1, 1e-5), (1 << 20, 1e-3)]
    curves = [
        MessageCurve(pattern, 1, reduces, is_first, latency)
        for pattern in ("relay", "exchange", "fan in", "fan out")
        for reduces in (False, True)
        for is_first in (False, True)
    ]
    Calibration(2, 1, line, line, line, message_classes=curves, load=MachineLoad(0.0, 0.0)).write(cache_file(2))
    watch = Mock(share_of_others=lambda: MachineLoad(load, 0.0, ["make"]))
    monkeypatch.setattr("ringlab.commands.virtual.watch_load", lambda: nullcontext(watch))
    program = PROGRAMS / "right" / "ddp_plain.py"
    done = ringlab("virtual", "--ranks", 2, "--compute", "measured", "--on", "this-machine", "--json", "-", program)
    answer = json.loads(done.out)
    low, high = (bound / answer["step_s"] for bound in answer["step_range_s"])
    assert (low, high) == pytest.approx((0.6, 3.0 if load else 1.6))
    assert answer["load"].startswith("other processes took 80%" if load else "")
