"""Write each real rank's log, join the logs of all ranks, and start local ranks."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, NamedTuple

from collectives.errors import RunFailed
from collectives.input_files import FileBytes
from collectives.quoting import name_ranks
from collectives.records.files import read_record, write_record
from collectives.units import count
from replay.recording import Did, Recording, SourceLine
from replay.recording_builder import UNKNOWN, RecordedCollective, RecordingBuilder

SEND, RECV = "send", "recv"
LOOK_S = 0.05  # seconds between checks for the other ranks' files
UNEVEN = "an all_to_all with parts of different sizes is replayed with equal parts"
UNWAITED = "calls that the program never waits for do not delay it"


class NotedCall(NamedTuple):
    """A communication call of one rank. ``what`` is the collective, "send" or "recv". ``peer`` is a global rank."""

    what: str
    group: int
    elements: int
    itemsize: int
    dtype: str
    op: str
    root: int
    peer: int  # a message's other rank; -1: source not known yet
    tag: int
    location: int
    is_sync: bool  # the program waits for it at once


class NotedEntry(NamedTuple):
    """The start of a call, or a wait for one. It takes ``took`` seconds, after ``seconds`` of computing."""

    did: int
    number: int
    seconds: float
    took: float


@dataclass
class CallLog:
    """The calls and log entries of a rank. ``groups`` lists the names and global ranks of its process groups."""

    SCHEMA_VERSION: ClassVar[int] = 1

    rank: int
    world_size: int
    title: str
    backend: str
    calls: list[NotedCall] = field(default_factory=list)
    entries: list[NotedEntry] = field(default_factory=list)
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    locations: list[tuple[str, int, str]] = field(default_factory=list)
    tail: float = 0.0
    notes: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        write_record(folder / file_of(self.rank), self)


def file_of(rank: int) -> str:
    return f"rank{rank}.json"


def read_logs(folder: Path, world_size: int, timeout: float) -> list[CallLog]:
    """Wait for the logs of all ranks and return them. Raise RunFailed if one is missing after ``timeout`` seconds."""
    end = time.monotonic() + timeout
    missing = list(range(world_size))
    while missing := [rank for rank in missing if not (folder / file_of(rank)).exists()]:
        if time.monotonic() > end:
            raise RunFailed(
                f"{folder}: no log of {name_ranks(missing)} after {timeout:g} s; check whether these ranks failed"
            )
        time.sleep(LOOK_S)
    return [read_record(folder / file_of(rank), CallLog, FileBytes.RECORDING) for rank in range(world_size)]


def join_logs(logs: Sequence[CallLog]) -> Recording:
    """Join the logs of all ranks into a recording. Raise InputError if the calls of the ranks do not match.

    In each process group, the k-th collectives of all ranks belong together. For each sender, receiver and tag, the
    k-th send belongs to the k-th receive.
    """
    first = logs[0]
    builder = RecordingBuilder(first.title, first.world_size, first.backend)
    for log in logs:
        _add(builder, log)
        builder.compute(log.rank, log.tail)
    builder.notes += dict.fromkeys(note for log in logs for note in log.notes)
    return builder.recording()


def _add(builder: RecordingBuilder, log: CallLog) -> None:
    waited = {entry.number for entry in log.entries if entry.did == Did.WAIT}
    numbers = [_add_call(builder, log, call) for call in log.calls]
    for entry in log.entries:
        if entry.did == Did.POST:
            builder.post(log.rank, numbers[entry.number], entry.seconds, entry.took)
            if log.calls[entry.number].is_sync and entry.number not in waited:
                builder.wait(log.rank, numbers[entry.number])
        else:
            builder.wait(log.rank, numbers[entry.number], entry.seconds, entry.took)
    if any(not call.is_sync and number not in waited for number, call in enumerate(log.calls)):
        log.notes.append(UNWAITED)


def _add_call(builder: RecordingBuilder, log: CallLog, call: NotedCall) -> int:
    name, ranks = log.groups[call.group]
    location = SourceLine(*log.locations[call.location]) if call.location >= 0 else UNKNOWN
    if call.what in (SEND, RECV):
        ends = (log.rank, call.peer) if call.what == SEND else (call.peer, log.rank)
        key = builder.in_order(call.what, name, ends, call.tag)
        nbytes = call.elements * call.itemsize
        post = builder.send if call.what == SEND else builder.recv
        return post(log.rank, call.peer, nbytes, key=key, tag=max(0, call.tag), location=location)
    key = builder.in_order(log.rank, name, ranks)
    collective = RecordedCollective(
        call.what, ranks, call.elements, call.itemsize, call.dtype, call.op, call.root, group=name
    )
    line = name if log.backend == "nccl" else ""
    return builder.collective(log.rank, key, collective, line=line, location=location)


GRACE_S = 10.0  # for torchrun to end its ranks


def parts_folder(output: Path) -> Path:
    """Return the directory of the ranks' log files. The port in its name keeps parallel launches apart."""
    return output.with_name(f".{output.name}.{os.environ.get('MASTER_PORT', '0')}.parts")


def join_parts(folder: Path, output: Path, world_size: int, timeout: float) -> Recording:
    """Join the ranks' logs, write the recording, and delete the logs.

    Raise RunFailed if the log of a rank is missing after ``timeout`` seconds.
    """
    recording = join_logs(read_logs(folder, world_size, timeout))
    recording.write(output)
    shutil.rmtree(folder, ignore_errors=True)
    return recording


def start_ranks(ranks: int, command: Sequence[str], timeout: float) -> None:
    """Run a Ringlab command on local ranks under torchrun, using only the loopback interface.

    With several ranks, each output line is prefixed with its rank. Raise RunFailed if the command fails or exceeds
    ``timeout`` seconds, after ending all its processes.
    """
    options = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    with TemporaryDirectory(prefix="ringlab-ranks-") as logs:
        if ranks > 1:
            options += ["--tee", "3", "--log-dir", logs, "--log-line-prefix-template", "[rank${rank}]: "]
            environment.setdefault("PYTHONUNBUFFERED", "1")  # torchrun shows the ranks' files
        torchrun = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "ringlab", *command]
        _run_until_ended(torchrun, environment, ranks, timeout)


def _run_until_ended(torchrun: list[str], environment: dict[str, str], ranks: int, timeout: float) -> None:
    started = subprocess.Popen(torchrun, env=environment, start_new_session=True)
    try:
        status = started.wait(timeout)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{count(ranks, 'rank')} did not finish in {timeout:g} s; increase --timeout") from error
    finally:
        _end(started)
    if status:
        raise RunFailed(f"torchrun failed with status {status}; see the ranks' messages above")


def _end(started: "subprocess.Popen[bytes]") -> None:
    if started.poll() is None:
        started.terminate()
        try:
            started.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
