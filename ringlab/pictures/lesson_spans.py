"""The forwards and backwards of a lesson's pipeline, from the files of its ranks."""

import json
from pathlib import Path
from typing import NamedTuple

from course.checks.exercise import StageSpan
from course.files import SPANS


class RankSpan(NamedTuple):
    """A rank, and one of its spans."""

    rank: int
    span: StageSpan


def read_spans(folder: Path, ranks: int) -> list[RankSpan]:
    """Return the spans that the ranks of a lesson wrote into a folder."""
    spans = list[RankSpan]()
    for rank in range(ranks):
        file = folder / SPANS.format(rank)
        rows = json.loads(file.read_text()) if file.exists() else []
        spans += [RankSpan(rank, StageSpan(*row)) for row in rows]
    return spans
