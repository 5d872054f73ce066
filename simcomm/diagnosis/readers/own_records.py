"""What Ringlab's own commands write: ``metrics.jsonl`` of a training, and the JSON of ``bench``."""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.input_files import parse_json
from collectives.quoting import quote
from collectives.records.spans import Span
from collectives.records.summary import PHASES
from collectives.records.trace import Trace
from simcomm.diagnosis.evidence.facts import BenchedRow, Fact, FilePlace, RunTrace

LONGEST = 1e6  # seconds of a phase


def is_metrics(text: str) -> bool:
    """Return whether a text is the rows of a training's metrics.

    >>> is_metrics('{"kind": "step", "step": 0}')
    True
    """
    return text.lstrip().startswith(('{"kind": "step"', '{"kind": "epoch"'))


def read_metrics(path: Path, text: str) -> Iterator[Fact]:
    """Yield the steps as a run of one rank, phase after phase. Raise InputError that names the line."""
    spans: list[Span] = []
    at = 0.0
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}: line {number}"
        try:
            row: Any = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not a row of metrics: {error}") from error
        if not isinstance(row, dict) or row.get("kind") not in ("step", "epoch"):
            raise InputError(f"{where}: not a row of metrics: its kind is neither step nor epoch")
        if row["kind"] == "step":
            seconds = [_seconds(where, f"{name}_s", row.get(f"{name}_s", 0.0)) for name in PHASES]
            ends = [at, *accumulate(seconds, initial=at)][1:]
            step = sum(span.name == PHASES[0] for span in spans)
            spans += [
                Span(0, name, step, begin, end, collective=step)
                for name, begin, end in zip(PHASES, ends[:-1], ends[1:], strict=True)
            ]
            at = ends[-1]
    if spans:
        yield RunTrace(FilePlace(str(path), 0, ""), Trace("training/metrics", "measured", 1, at, spans=spans))  # type: ignore[arg-type]  # rows become columns


def _seconds(where: str, key: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LONGEST:
        raise InputError(f"{where}: {key} = {quote(value)}; give seconds from 0 on")
    return float(value)


def read_bench(path: Path, content: dict[str, Any]) -> Iterator[Fact]:
    """Yield each row that ``bench --json`` wrote with a prediction beside it. Raise InputError that names the row."""
    rows = content.get("collectives")
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        where = f"{path}: collectives.{number}"
        if not isinstance(row, dict) or not isinstance(row.get("algorithm"), str):
            raise InputError(f"{where} is {quote(row)}; bench writes objects with an algorithm there")
        measured, predicted = row.get("time_s"), row.get("predicted_s")
        if measured is not None and predicted is not None:
            place = FilePlace.of(str(path), 0, f"row {number}: {row['algorithm']}, {row.get('bytes')} bytes")
            seconds = _seconds(where, "time_s", measured), _seconds(where, "predicted_s", predicted)
            if min(seconds) > 0:
                yield BenchedRow(place, row["algorithm"], *seconds)
