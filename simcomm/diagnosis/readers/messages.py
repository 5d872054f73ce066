"""Messages of which is known what they stand for, in any log; and warnings and exceptions of which it is not."""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import Complaint, Fact, Unexplained
from simcomm.diagnosis.evidence.messages import MESSAGES
from simcomm.diagnosis.readers.lines import LogLine

KNOWN = tuple((key, re.compile(message.pattern)) for key, message in MESSAGES.items())
ANY = re.compile("|".join(message.pattern for message in MESSAGES.values()))
CHANNEL = "NCCL INFO Channel "  # of which a log has most lines
RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Failure|Interrupt)): \S")
FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in ')
BEGINS = "Traceback (most recent call last):"
NOT_OWN = ("site-packages/", "dist-packages/", "torch/", "/lib/python", "<frozen")


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield what lines stand for; of an exception or warning that is not known, that it was, and where."""
    frame, is_raised = "", False
    for line in lines:
        if not line.text or CHANNEL in line.text or line.text.startswith("#"):
            continue
        small = line.text.lower()
        keys = [key for key, pattern in KNOWN if pattern.search(small)] if ANY.search(small) else []
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
