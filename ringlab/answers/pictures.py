"""``Picture``: what ``animate`` drew, of a trace from a file or one simulated from a scenario."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import viz
from collectives.calibration.calibration import Calibration
from collectives.records.trace import Trace
from ringlab.answers.played_runs import predict_runs
from ringlab.answers.predicted_trace import algorithm_names, predict_to_failure
from ringlab.shared.answer import SCHEMA_VERSION, Record
from ringlab.shared.progress import NoProgress, Progress, computing
from scenarios import Scenario
from viz.captions import describe_failure


@dataclass(frozen=True)
class Picture(Record):
    """A picture of a trace, and the file that it was written to."""

    title: str
    file: str
    problem: str | None = None  # which program is wrong, and why; what is drawn then ends there

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "kind": "picture", **super().to_dict()}


def draw_trace(trace: Trace, path: Path | str, progress: Progress | None = None) -> Picture:
    """Draw a trace: a player as ``.html``, messages moving as ``.gif``, ranks against time as ``.png``.

    Raises InputError.
    """
    with computing(progress, f"drawing {path}"):
        viz.draw(trace, path)
    why = describe_failure(trace)
    return Picture(trace.title, str(path), f"{trace.title} {why}" if why else None)


def draw_scenario(
    scenario: Scenario,
    path: Path | str,
    *,
    calibration: Calibration | None = None,
    algorithm: str | None = None,
    nbytes: int | None = None,
    progress: Progress | None = None,
) -> Picture:
    """Simulate one of the scenario's algorithms and draw it; ``progress`` is told which, where it was not said.

    A player shows all of them, unless one is said. A program that is wrong is drawn as far as it comes, with a mark
    where it goes wrong.

    Raises InputError for an algorithm that is not in the scenario, and for a suffix that is none of a picture.
    """
    if viz.check_file(path, "a picture of messages").suffix.lower() == ".html":
        with computing(progress, f"drawing {path}") as tick:
            runs = predict_runs(scenario, calibration, algorithm, nbytes, tick)
            viz.write_player(scenario.title, runs, path)
        failures = (f"{run.trace.title} {why}" for run in runs if (why := describe_failure(run.trace)))
        return Picture(scenario.title, str(path), next(failures, None))
    with computing(progress, "simulating its messages"):
        trace = predict_to_failure(scenario, calibration, algorithm, nbytes)
    names = algorithm_names(scenario)
    if algorithm is None and len(names) > 1:
        note = f"drawn is {names[-1]}, the last of {', '.join(names)}; --algorithm NAME draws another"
        (progress or NoProgress()).note(note)
    return draw_trace(trace, path, progress)
