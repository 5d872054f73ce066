"""What torch says of collectives that do not end: its watchdog, its wrapper that compares collectives, its store.

And what torchrun, DeepSpeed, Slurm and Open MPI say of the process that ended first.
"""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import (
    CollectiveMismatch,
    Complaint,
    Fact,
    Fingerprint,
    Progressing,
    RankEnded,
    RankTimeout,
)
from simcomm.diagnosis.readers.lines import LogLine

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
SECOND = re.compile(
    r"but Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+),? ?OpType=(\w+)(?:, "
    r"TensorShape=\[([^\]]*)\])?"
)
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


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
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
            elements, rank = int(found[5]) if found[5] else None, _rank(line, found[1] or found[2])
            yield RankTimeout(line.place(file), rank, int(found[3]), found[4], elements)
        if found := POSITION.search(line.text):
            group, completed = found["guid"] or found[1], int(found["completed"])
            numbers = {"enqueued": int(found["enqueued"]), "completed": completed}
            rank = _rank(line, found["rank"])
            yield RankTimeout(line.place(file), rank, completed + 1, "", group=group, **numbers)
        if "running collective: CollectiveFingerPrint" in line.text:
            one, other = MISMATCH.search(line.text), SECOND.search(line.text)
            if one is not None and other is not None:
                yield CollectiveMismatch(line.place(file), _fingerprint(one), _fingerprint(other))
        if STORE.search(line.text):
            yield Complaint(line.place(file), "store-timeout")
        if found := BAR.match(line.text):
            yield Progressing(line.place(file), found[1].strip(), min(1.0, int(found[2]) / 100))


def _rank(line: LogLine, of_group: str) -> int:
    found = OF_RANK.match(line.text)
    return int(found[1] if found else of_group)


def _fingerprint(found: "re.Match[str]") -> Fingerprint:
    return Fingerprint(int(found[1]), int(found[2]), found[3], found[4] or "")
