"""A program's own log: messages whose meaning is known, other exceptions and warnings, times of steps, and hangs.

Where ranks stand still is said by torch's watchdog and flight recorder, stacks of py-spy, and who ended first.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectives.checks import MOST_RANKS
from collectives.errors import InputError
from collectives.quoting import make_printable, name_ranks, quote
from simcomm.diagnosis.evidence.facts import (
    CollectiveMismatch,
    Complaint,
    Fact,
    FilePlace,
    Fingerprint,
    FlightCall,
    FlightGroup,
    Progressing,
    RankEnded,
    RankTimeout,
    StackTop,
    StepTime,
    Unexplained,
)
from simcomm.diagnosis.evidence.messages import MESSAGES
from simcomm.diagnosis.readers.lines import LogLine

KNOWN = tuple((key, re.compile(message.pattern)) for key, message in MESSAGES.items())
ANY_KNOWN = re.compile("|".join(message.pattern for message in MESSAGES.values()))
CHANNEL = "NCCL INFO Channel "  # of which a log has most lines
RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Failure|Interrupt)): \S")
FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in ')
BEGINS = "Traceback (most recent call last):"
NOT_OWN = ("site-packages/", "dist-packages/", "torch/", "/lib/python", "<frozen")
DATA_TIME = re.compile(
    r"\b(?:[Dd]ata(?:[ _]?(?:time|loading|load|wait))?|dataloader(?:[ _]time)?)[\s:=]+(\d+(?:\.\d+)?)\s*(ms|s\b)?"
)
STEP_TIME = re.compile(
    r"\b(?:[Tt]ime|(?:[Ss]tep|[Ii]ter(?:ation)?|[Bb]atch)[ _]?(?:time)?(?: \(ms\))?)[\s:=]+(\d+\.\d+)\s*(ms|s\b)?"
)


def read_messages(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield what lines stand for; of an exception or warning that is not known, that it was, and where."""
    frame, is_raised = "", False
    for line in lines:
        if not line.text or CHANNEL in line.text or line.text.startswith("#"):
            continue
        small = line.text.lower()
        keys = [key for key, pattern in KNOWN if pattern.search(small)] if ANY_KNOWN.search(small) else []
        for key in keys:
            yield Complaint(line.place(file), key)
        if line.text.endswith(BEGINS):
            frame, is_raised = "", True
        elif (found := FRAME.match(line.text)) and not any(part in found[1] for part in NOT_OWN):
            frame = f"{found[1]}:{found[2]}"
        elif is_raised and RAISED.match(line.text):
            is_raised = False
            if not keys:
                yield Unexplained(line.place(file), frame)
        elif " NCCL WARN " in line.text and not keys:
            yield Unexplained(line.place(file), "")


def read_step_times(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield both of a line that has both: one of them alone is not comparable."""
    for line in lines:
        if "NCCL INFO" in line.text:
            continue
        data = DATA_TIME.search(line.text)
        rest = line.text if data is None else f"{line.text[: data.start()]} {line.text[data.end() :]}"
        step = STEP_TIME.search(rest)
        if data is not None and step is not None:
            yield StepTime(line.place(file), "data", _seconds(data))
            yield StepTime(line.place(file), "step", _seconds(step))


def _seconds(found: "re.Match[str]") -> float:
    return float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


RAN = re.compile(
    r"(?:\[[Rr]ank (\d+)\]|Rank (\d+)\]).*?WorkNCCL\((?:SeqNum|OpSeqNum)=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?"
)
POSITION = re.compile(
    r"\[PG (?:ID )?(\S+?)(?: PG GUID (?P<guid>\S+))?(?:\s?\([^)]*\))? Rank (?P<rank>\d+)\].*"
    r"last enqueued(?: NCCL)? work: (?P<enqueued>-?\d+), last completed(?: NCCL)? work: (?P<completed>-?\d+)"
)
OF_RANK = re.compile(r"^\[rank(\d{1,7})\]:")  # of all; what a group's lines say is the rank in the group
MISMATCH = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+),? ?OpType=(\w+)(?:, "
    r"TensorShape=\[([^\]]*)\])?"
)
SECOND = re.compile(f"but {MISMATCH.pattern}")
BAR = re.compile(r"^\s*(?:\[\S+\]:?)?\s*([A-Za-z][\w ()./#=,-]{2,60}?):?\s+(\d{1,3})%\|")
STORE = re.compile(
    r"(?:Timeout waiting for key|Socket Timeout|wait timeout after|Timed out initializing process group|"
    r"waitForInput: .*timed out)"
)
ROOT_CAUSE = "Root Cause (first observed failure)"
SIGNALS = {
    "Killed": -9,
    "Out Of Memory": -9,
    "Bus error": -7,
    "Segmentation fault": -11,
    "Terminated": -15,
    "Aborted": -6,
}
BY_SLURM = re.compile(rf"srun: error: (\S+): tasks? (\d+)[-,\d]*: ({'|'.join(SIGNALS)})")
BY_DEEPSPEED = re.compile(r"'--local_rank=(\d+)'.* exits with return code = (-?\d{1,5})\b")
BY_MPI = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)")
OF_FAILURE = re.compile(r"^\s*(host|rank|exitcode)\s*: (\S+)")
RANKS = re.compile(rf"\[\d{{1,7}}(?:, ?\d{{1,7}}){{0,{MOST_RANKS - 1}}}\]")
STATES = ("scheduled", "started", "completed")
KEYS = ("collective_seq_id", "p2p_seq_id", "seq_id")
PROCESS = re.compile(r"^Process (\d+): (.*)")
THREAD = re.compile(r'^Thread (?:\d+|0x[0-9A-Fa-f]+) \((?:active|idle)[^)]*\)(?:: "([^"]*)")?')
STACK_FRAME = re.compile(r"^\s+(\S+) \(([^():]+):(\d+)\)$")
STACK_RANK = re.compile(r"(?:--local[-_]rank[= ]|RANK=|rank[= ])(\d+)", re.IGNORECASE)
MAIN = ("MainThread", "")


def read_watchdog(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield what each rank was in when it was given up, and which ended first."""
    failure: dict[str, str] | None = None
    for line in lines:
        if ROOT_CAUSE in line.text:
            failure = {}
        elif failure is not None and (of_failure := OF_FAILURE.match(line.text)):
            failure[of_failure[1]] = of_failure[2]
            status = failure.get("exitcode", "")
            if re.fullmatch(r"-?\d{1,5}", status) and re.fullmatch(r"\d{1,7}", failure.get("rank", "")):
                yield RankEnded(line.place(file), int(failure["rank"]), failure.get("host", ""), int(status))
                failure = None
        if "NCCL INFO" in line.text:
            continue
        if found := BY_SLURM.search(line.text):
            yield RankEnded(line.place(file), int(found[2]), found[1], SIGNALS[found[3]])
        if found := BY_DEEPSPEED.search(line.text):
            yield RankEnded(line.place(file), int(found[1]), "", int(found[2]))
        if found := BY_MPI.search(line.text):
            yield RankEnded(line.place(file), int(found[1]), found[2], -int(found[3]))
        if found := RAN.search(line.text):
            elements, rank = int(found[5]) if found[5] else None, _rank_of_all(line, found[1] or found[2])
            yield RankTimeout(line.place(file), rank, int(found[3]), found[4], elements)
        if found := POSITION.search(line.text):
            group, completed = found["guid"] or found[1], int(found["completed"])
            numbers = {"enqueued": int(found["enqueued"]), "completed": completed}
            rank = _rank_of_all(line, found["rank"])
            yield RankTimeout(line.place(file), rank, completed + 1, "", group=group, **numbers)
        if "running collective: CollectiveFingerPrint" in line.text:
            one, other = MISMATCH.search(line.text), SECOND.search(line.text)
            if one is not None and other is not None:
                yield CollectiveMismatch(line.place(file), _fingerprint(one), _fingerprint(other))
        if STORE.search(line.text):
            yield Complaint(line.place(file), "store-timeout")
        if found := BAR.match(line.text):
            yield Progressing(line.place(file), found[1].strip(), min(1.0, int(found[2]) / 100))


def _rank_of_all(line: LogLine, of_group: str) -> int:
    found = OF_RANK.match(line.text)
    return int(found[1] if found else of_group)


def _fingerprint(found: "re.Match[str]") -> Fingerprint:
    return Fingerprint(int(found[1]), int(found[2]), found[3], found[4] or "")


def is_dump(content: dict[str, Any]) -> bool:
    """Return whether it is a dump: it has entries, and the version or configuration of process groups."""
    return "entries" in content and ("pg_config" in content or "version" in content)


def read_dump(path: Path, content: dict[str, Any]) -> Iterator[Fact]:
    """Yield each call. Raise InputError that names the entry and key."""
    entries = content["entries"]
    if not isinstance(entries, list):
        raise InputError(f"{path}: entries should be a list")
    rank = _rank_of_dump(path, content)
    groups = {one.group.partition(" ")[0]: one for one in _groups(path, rank, content)}
    yield from groups.values()
    for number, entry in enumerate(entries):
        where = f"{path}: entry {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{where} is {quote(entry)}; a flight recorder has objects there")
        sequence = next((entry[key] for key in KEYS[:1] + KEYS[2:] if type(entry.get(key)) is int), None)
        name, state = entry.get("profiling_name", ""), entry.get("state", "")
        if sequence is None or not isinstance(name, str) or state not in STATES:
            raise InputError(f"{where}: collective_seq_id, profiling_name or state ({', '.join(STATES)}) is missing")
        said = entry.get("process_group", ["0"])
        named = str(said[0] if isinstance(said, list) and said else said)[:80]
        yield FlightCall(
            FilePlace.of(str(path), 0, f"entry {number}: {name} {sequence} {state}"),
            rank,
            groups[named].group if named in groups else named,
            sequence,
            name.rpartition(":")[2],
            state,
            frame=_frame_outside_torch(entry),
            is_p2p=bool(entry.get("is_p2p")),
        )


def _groups(path: Path, rank: int, content: dict[str, Any]) -> Iterator[FlightGroup]:
    """Yield the groups of a rank by name and members: groups that are split off at once share one name."""
    found = content.get("pg_config")
    for name, one in found.items() if isinstance(found, dict) else ():
        listed = one.get("ranks") if isinstance(one, dict) else None
        text = listed if isinstance(listed, str) else str(listed if isinstance(listed, list) else "")
        if RANKS.fullmatch(text):
            members = tuple(map(int, text.strip("[]").split(",")))
            said = f"{one.get('desc', '')}"[:80]
            label = make_printable(f"{name} ({said + ' ' * bool(said)}of {name_ranks(members)})", most=200)
            yield FlightGroup(FilePlace(str(path), 0, ""), rank, label, members)


def _rank_of_dump(path: Path, content: dict[str, Any]) -> int:
    """Return the rank that the dump says, or that its name ends with."""
    said = content.get("rank")
    if type(said) is int and 0 <= said < 1_000_000:
        return said
    found = re.search(r"(\d{1,6})(?:\.json)?$", path.name)
    if found is None:
        raise InputError(f"{path}: which rank's? end the file's name with it, as trace_rank_3.json, or give a key rank")
    return int(found[1])


def _frame_outside_torch(entry: dict[str, Any]) -> str:
    """Return the innermost frame outside torch."""
    frames = entry.get("frames")
    for one in frames if isinstance(frames, list) else []:
        if isinstance(one, dict) and "torch/" not in str(one.get("filename", "")):
            return f"{one.get('name', '')} ({one.get('filename', '')}:{one.get('line', '')})"[:160]
    return ""


def read_stacks(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield the main thread's frames of each process, the innermost first; a rank stands for it where it is said."""
    process, header, frames, taking, count = "process 0", None, list[str](), False, 0
    for line in [*lines, LogLine(0, "Process 0: ")]:
        if found := PROCESS.match(line.text):
            if header is not None and frames:
                yield StackTop(header.place(file), process, tuple(frames))
            rank = STACK_RANK.search(found[2])
            process = f"rank {rank[1]}" if rank else f"process {count} (pid {found[1]})"
            header, frames, taking, count = line, [], False, count + 1
        elif found := THREAD.match(line.text):
            header = header or line  # a dump of which the first lines were left out
            taking = header is not None and not frames and (found[1] or "") in MAIN
        elif taking and (found := STACK_FRAME.match(line.text)):
            frames.append(f"{found[1]} ({found[2]}:{found[3]})")
