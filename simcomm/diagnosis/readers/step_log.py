"""Seconds of a training step and of waiting for data, as common training scripts log them."""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import Fact, StepTime
from simcomm.diagnosis.readers.lines import LogLine

DATA = re.compile(
    r"\b(?:[Dd]ata(?:[ _]?(?:time|loading|load|wait))?|dataloader(?:[ _]time)?)[\s:=]+(\d+(?:\.\d+)?)\s*(ms|s\b)?"
)
STEP = re.compile(
    r"\b(?:[Tt]ime|(?:[Ss]tep|[Ii]ter(?:ation)?|[Bb]atch)[ _]?(?:time)?(?: \(ms\))?)[\s:=]+(\d+\.\d+)\s*(ms|s\b)?"
)


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield both of a line that has both: one of them alone is not comparable."""
    for line in lines:
        if "NCCL INFO" in line.text:
            continue
        data = DATA.search(line.text)
        rest = line.text if data is None else f"{line.text[: data.start()]} {line.text[data.end() :]}"
        step = STEP.search(rest)
        if data is not None and step is not None:
            yield StepTime(line.place(file), "data", _seconds(data))
            yield StepTime(line.place(file), "step", _seconds(step))


def _seconds(found: "re.Match[str]") -> float:
    return float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)
