"""A program's own log: messages whose meaning is known, other exceptions and warnings, and times of steps."""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import Complaint, Fact, StepTime, Unexplained
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
