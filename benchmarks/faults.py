"""Cause faults in a training with checkpoints: report the message, lost steps, remaining processes, and the resumption.

    python benchmarks/faults.py [--only FAULT ...] [--add] [-o FILE]

``ringlab run`` trains ResNet-18 on two ranks for ``STEPS`` steps and writes checkpoints. Then one fault happens: a rank
raises, exits or is killed (``studies/faults_on_purpose.py``), the disk is full, the command gets a signal, or the
newest checkpoint is damaged. The training resumes with ``--resume auto``, and its final weights are compared bit by bit
with those of a training without faults. Seconds are from the fault to the end of the command.
"""

import argparse
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import torch

import realcomm
import ringlab
from benchmarks.studies.faults_on_purpose import Fault
from collectives.output_files import TEMPORARY, write_text
from collectives.records.environment import describe_environment
from collectives.training.workload import RESUME_NEWEST
from realcomm.training import trainer
from realcomm.training.checkpoints import find_newest
from ringlab.__main__ import main as main_of_process
from ringlab.cli import main as main_of_ringlab

RESULTS = Path(__file__).parent / "results" / "faults.json"
STEPS, EVERY, FAULT_STEP = 12, 5, 7  # in all, from one checkpoint to the next, and of the fault, from 0 on
TIMEOUT = 40.0  # seconds without a step of a run that hangs
PATIENCE = 300.0
DISK = "150m"  # holds one checkpoint, and no second
SCENARIO = f"""
[cluster]
preset = "this-machine"
world_size = 2

[training]
gradient_sync = "ring"
batch_size = 2
epochs = 1
checkpoints = "kept"
checkpoint_every = {EVERY}
"""
MARK = "RINGLAB_FAULTS_CASE"  # in the environment of all processes of a case

Row = dict[str, Any]
Strike = Callable[[subprocess.Popen[str], Path], float | None]  # returns when


@dataclass
class Ended:
    """The end of a command: exit status, message and time."""

    status: int  # negative: the signal
    said: list[str]  # on standard error
    fault_at: float | None  # in seconds since the epoch, as ``at``
    at: float


@dataclass
class Case:
    """A fault: on a rank, by ``strike`` on the running command, or on its checkpoints after its end."""

    name: str
    fault: Fault | None = None
    strike: Strike | None = None
    spoil: Callable[[Path], None] | None = None
    timeout: float = PATIENCE
    small_disk: bool = False


def cases() -> list[Case]:
    """Return all cases."""
    on_rank_1 = partial(Fault, rank=1, step=FAULT_STEP)
    return [
        Case("a rank raises in backward", on_rank_1("raise", phase="backward")),
        Case("a rank is killed in backward", on_rank_1("kill", phase="backward")),
        Case("a rank is killed in sync", on_rank_1("kill", phase="sync")),
        Case("a rank exits in optimizer", on_rank_1("exit", phase="optimizer")),
        Case("a rank is stopped in forward", on_rank_1("stop", phase="forward"), timeout=TIMEOUT),
        Case("a rank's loss is NaN", on_rank_1("nan", phase="forward")),
        Case("the disk is full under a checkpoint", small_disk=True),
        Case("the writer is killed in a checkpoint", Fault("kill writer", 0, 2 * EVERY - 1, "optimizer")),
        Case("the command is killed in a checkpoint", strike=partial(send_in_checkpoint, number=signal.SIGKILL)),
        Case("the command is interrupted in a checkpoint", strike=partial(send_in_checkpoint, number=signal.SIGINT)),
        Case("the command is terminated in a checkpoint", strike=partial(send_in_checkpoint, number=signal.SIGTERM)),
        Case("the newest checkpoint is corrupt", spoil=flip),
        Case("the newest checkpoint is cut off", spoil=cut),
    ]


# What happens to a command from outside -------------------------------------------------------------------------------


def wait_for_second_checkpoint(is_over: Callable[[], bool], checkpoints: Path) -> float | None:
    """Return the time at which the second checkpoint was started; None if the training ends before."""
    while not is_over():
        names = [path.name for path in checkpoints.glob("*")] if checkpoints.exists() else []
        if any(name.startswith("step") and name.endswith(".pt") for name in names) and unfinished(checkpoints):
            return time.time()
        time.sleep(0.0005)
    return None


def send_in_checkpoint(command: subprocess.Popen[str], checkpoints: Path, number: int) -> float | None:
    """Send the command a signal while it writes its second checkpoint; return the time."""
    begun = wait_for_second_checkpoint(lambda: command.poll() is not None, checkpoints)
    if begun is not None:
        command.send_signal(number)
    return begun


def flip(checkpoints: Path) -> None:
    """Change a byte in the middle of the newest checkpoint."""
    path = max(checkpoints.glob("*.pt"))
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def cut(checkpoints: Path) -> None:
    """Truncate the newest checkpoint."""
    path = max(checkpoints.glob("*.pt"))
    os.truncate(path, path.stat().st_size // 2)


def unfinished(checkpoints: Path) -> list[str]:
    """Return the names of incomplete files."""
    return [path.name for path in checkpoints.glob(f"{TEMPORARY}*")]


# A command ------------------------------------------------------------------------------------------------------------


def run_ringlab(arguments: list[str], fault: Fault | None, main: Callable[[], None] = main_of_ringlab) -> int:
    """Run the command ``ringlab`` with a fault and few training steps in this process; return its exit status."""
    plain, argv = trainer.train, sys.argv
    looking_on = () if fault is None else (fault,)
    vars(trainer)["train"] = lambda *arguments, **named: plain(
        *arguments, **{**named, "steps": STEPS, "observers": (*named.get("observers", ()), *looking_on)}
    )
    sys.argv = ["ringlab", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    finally:
        vars(trainer)["train"], sys.argv = plain, argv
    return 0


def command(folder: Path, case: Case) -> Ended:
    """Run the scenario in a folder with the fault of a case, and return its end.

    A fault from outside needs a separate process. All others run in this process, which is faster.
    """
    call = ["run", "scenario.toml", "--timeout", str(case.timeout)]
    if case.strike is not None:
        return command_of_its_own(folder, case.strike, call)
    fault = None if case.fault is None else replace(case.fault, told=folder / "told")
    out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(folder)
    over, checkpoints = Event(), folder / "kept" / "ring"
    try:
        with redirect_stdout(out), redirect_stderr(err), ThreadPoolExecutor(1) as beside:
            begun = beside.submit(wait_for_second_checkpoint, over.is_set, checkpoints)
            status, at = run_ringlab(call, fault), time.time()
            over.set()
    finally:
        over.set()
        os.chdir(here)
    time_file = folder / "told"
    fault_at = float(time_file.read_text()) if time_file.exists() else begun.result() if case.small_disk else None
    return Ended(status, lines_of(err.getvalue()), fault_at, at)


def command_of_its_own(folder: Path, strike: Strike, call: list[str]) -> Ended:
    """Run the command in a separate process, on which ``strike`` acts."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--as-ringlab", *call],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    struck = strike(process, folder / "kept" / "ring")
    _, err = process.communicate(timeout=2 * PATIENCE)
    return Ended(process.returncode, lines_of(err), struck, time.time())


def lines_of(text: str) -> list[str]:
    """Return the non-empty lines of a text."""
    return [line.strip() for line in text.splitlines() if line.strip()]


class Left(NamedTuple):
    """The remaining processes, and the remaining files in the temporary directory."""

    processes: int
    files: int


def count_left(before: Left, folder: Path) -> Left:
    """Return the number of new processes and files, a moment after a run in a folder."""
    deadline = time.monotonic() + 5.0
    while (now := count(folder)).processes > before.processes and time.monotonic() < deadline:
        time.sleep(0.05)
    return Left(max(0, now.processes - before.processes), max(0, now.files - before.files))


def count(folder: Path) -> Left:
    """Return the number of processes of this benchmark, and of temporary files outside ``folder``.

    If a disk is mounted in ``folder``, that folder is a temporary one itself and has the checkpoints.
    """
    mark, processes = f"{MARK}={os.environ[MARK]}".encode(), 0
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            processes += mark in (path / "environ").read_bytes().split(b"\0")
    files = [path for path in Path(tempfile.gettempdir()).rglob("*") if folder not in path.parents]
    return Left(processes, sum(path.is_file() for path in files))


def prepare(folder: Path) -> Path:
    """Make the folder of a case."""
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(SCENARIO)
    return folder


def train_to_the_end(folder: Path) -> dict[str, torch.Tensor]:
    """Train from the newest complete checkpoint in a folder, or from the beginning; return the final weights."""
    scenario = ringlab.load(folder / "scenario.toml")
    [training] = scenario.trainings
    realcomm.train(replace(training, checkpoints=folder / "kept"), scenario.cluster, steps=STEPS, resume=RESUME_NEWEST)
    newest = find_newest(folder / "kept" / "ring").newest
    assert newest is not None and newest.about["step"] == STEPS, "the run came to its end"
    weights: dict[str, torch.Tensor] = newest.state["shared"]["model"]
    return weights


# A case ---------------------------------------------------------------------------------------------------------------


def try_case(case: Case, folder: Path, undisturbed: dict[str, torch.Tensor]) -> Row:
    """Run a case in a folder and return its row."""
    before, checkpoints = count(folder), folder / "kept" / "ring"
    ended = command(folder, case)
    left, remains = count_left(before, folder), len(unfinished(checkpoints))
    if case.spoil is not None:
        case.spoil(checkpoints)
    newest, skipped = find_newest(checkpoints)
    step = newest.about["step"] if newest is not None else 0
    reached = STEPS if case.spoil is not None else 2 * EVERY
    if case.fault is not None and case.fault.step == FAULT_STEP:
        reached = FAULT_STEP
    if case.small_disk:
        subprocess.run(["mount", "-o", "remount,size=1g", str(folder / "kept")], check=True)
    weights = train_to_the_end(folder)
    return {
        "fault": case.name,
        "status": ended.status,
        "seconds": None if ended.fault_at is None else ended.at - ended.fault_at,
        "timeout": case.timeout if case.timeout != PATIENCE else None,
        "said": says(ended.said, folder) if case.spoil is None else skipped[-1].replace(f"{folder}/", ""),
        "load": os.getloadavg()[0],  # runnable processes, mean of a minute
        "goes_on_from": step,
        "lost_steps": reached - step,
        **left._asdict(),
        "unfinished": remains,
        "unfinished_after_resuming": len(unfinished(checkpoints)),
        "same_weights": all(weights[name].equal(tensor) for name, tensor in undisturbed.items()),
    }


def says(lines: list[str], folder: Path) -> str:
    """Return the message with which a command ended, without the folder; empty if it printed none."""
    errors = [line.partition(": ")[2] for line in lines if line.startswith("ringlab: ")]
    return (errors or [""])[-1].replace(f"{folder}/", "")


def try_on_small_disk(name: str, undisturbed: dict[str, torch.Tensor]) -> Row:
    """Run a case in its own namespaces, in which a small disk can be mounted without further permissions."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        file, weights = Path(folder, "row.json"), Path(folder, "weights.pt")
        torch.save(undisturbed, weights)
        inner = [sys.executable, __file__, "--inside", name, folder, "-o", str(file)]
        subprocess.run(["unshare", "--user", "--map-root-user", "--mount", *inner], check=True, timeout=4 * PATIENCE)
        row: Row = json.loads(file.read_text())
        return row


def inside(name: str, work: Path) -> Row:
    """Mount the small disk and run the case."""
    realcomm.launch(max, 2)  # what serves all launches of this process is there before and after
    folder = prepare(work / "case")
    (folder / "kept").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder / "kept")], check=True)
    [case] = [case for case in cases() if case.name == name]
    return try_case(case, folder, torch.load(work / "weights.pt", weights_only=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="FAULT", help="only these, by their names")
    parser.add_argument("--add", action="store_true", help="keep the rows of other faults that are in the file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--inside", nargs=2, metavar=("FAULT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        write_text(options.output, json.dumps(inside(options.inside[0], Path(options.inside[1]))))
        return
    before = json.loads(options.output.read_text())["rows"] if options.add else []
    rows = {row["fault"]: row for row in before}
    with working_folder() as work:
        undisturbed = train_to_the_end(prepare(work / "undisturbed"))
        for case in cases():
            if options.only and case.name not in options.only:
                continue
            if case.small_disk:
                row = try_on_small_disk(case.name, undisturbed)
            else:
                row = try_case(case, prepare(work / "case"), undisturbed)
            shutil.rmtree(work / "case", ignore_errors=True)
            rows[case.name] = row
            print(json.dumps(row), flush=True)
            write_results(options.output, [rows[case.name] for case in cases() if case.name in rows])


@contextmanager
def working_folder() -> Iterator[Path]:
    """Create a folder for all cases, which marks their processes and contains their temporary files."""
    with tempfile.TemporaryDirectory(prefix="faults-") as work:
        temporary = Path(work, "tmp")
        temporary.mkdir()
        os.environ.update({MARK: work, "TMPDIR": str(temporary)})
        tempfile.tempdir = None
        yield Path(work)


def write_results(path: Path, rows: list[Row]) -> None:
    """Write the rows with the environment."""
    results = {
        "kind": "benchmark",
        "schema_version": 1,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": describe_environment(),
        "steps": STEPS,
        "checkpoint_every": EVERY,
        "rows": rows,
    }
    write_text(path, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-ringlab"]:
        sys.exit(run_ringlab(sys.argv[2:], None, main_of_process))
    main()
