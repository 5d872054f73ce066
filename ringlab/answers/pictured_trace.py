"""What ``ringlab animate`` draws: a trace from a file, or one simulated from a scenario."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from collectives.records.trace import Trace, read_trace
from collectives.units import parse_size
from ringlab.answers import answer, calibration_source
from scenarios import Scenario, load


def to_draw(
    source: str,
    algorithm: str | None,
    size: str | None,
    calibration: Path | None,
    set_keys: Sequence[str],
    console: Console,
) -> Trace:
    """The trace, and where there was a choice that nobody made, a line on ``console`` that says which it is.

    Raises InputError for a source, algorithm or size that cannot be used.
    """
    if source.endswith(".json"):
        return read_trace(Path(source))
    asked = load(source, set_keys)
    nbytes = None if size is None else parse_size(size)
    shown = answer.one_trace(asked, calibration_source.find(asked, calibration), algorithm, nbytes)
    names = _names(asked)
    if algorithm is None and len(names) > 1:
        console.print(
            f"drawn is {names[-1]}, the last of {', '.join(names)}; --algorithm NAME draws another",
            markup=False,
            soft_wrap=True,
        )
    return shown


def _names(asked: Scenario) -> list[str]:
    if asked.collective is not None:
        return [algorithm.label for algorithm in asked.collective.algorithms]
    return [job.sync_name for job in answer.predictable(asked.trainings)]
