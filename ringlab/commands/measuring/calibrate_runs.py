"""``ringlab calibrate --runs``: a user's own runs of language models on meshes, kept for `search` and `predict`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collectives.units import count
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.table import Part, Sentences, Table, format_digits
from simcomm.mesh_search.columns import to_columns
from simcomm.mesh_search.own_runs import OwnRuns, compare_runs, read_own_runs
from simcomm.mesh_search.parameters import PRIORS
from simcomm.mesh_search.runs import complete
from simcomm.mesh_search.uncertainty import believe, find_slopes

MOVED = 0.25  # of a prior's deviation, from which on a parameter is named
MOST_NAMED = 6
STRANGE = 0.2  # of adapted runs, in the median: something else than parameters is wrong


@dataclass(frozen=True)
class OwnRun(AnswerRecord):
    """A run: its measured seconds, and those predicted without and with the runs of this table."""

    gpus: int
    mesh: str
    measured: float
    before: float
    after: float


@dataclass(frozen=True)
class RunsKept(AnswerRecord):
    """The runs on one GPU by one framework, what they moved, and the file that keeps them."""

    gpu: str
    framework: str
    runs: tuple[OwnRun, ...]
    moved: dict[str, float]  # parameters, as factors
    within: float  # half the logarithm's interval of 80 % of these runs, before
    within_after: float
    file: str


@dataclass(frozen=True)
class RunsCalibrationAnswer(Answer):
    """What a table of runs made of the predictions of meshes."""

    kind = "runs_calibration"
    source: str
    kept: tuple[RunsKept, ...]
    refused: dict[str, int]

    def show(self) -> Iterator[Part]:
        """Yield each run beside what was predicted before and is now."""
        for one in self.kept:
            rows = [
                [
                    str(run.gpus), run.mesh, format_digits(run.measured), format_digits(run.before),
                    f"{run.before / run.measured - 1:+.0%}", format_digits(run.after),
                    f"{run.after / run.measured - 1:+.0%}",
                ]
                for run in one.runs
            ]  # fmt: skip
            heads = ["GPUs", "mesh", "step\n(s)", "before\n(s)", "error", "adapted\n(s)", "error"]
            yield Table(f"{one.gpu}, {one.framework}", heads, rows)
            moved = ", ".join(f"{name} x {by:.2f}" for name, by in one.moved.items())
            said = [f"Runs like these are now expected within {one.within_after:.0%} (80 %), before {one.within:.0%}."]
            left = float(np.median([run.after / run.measured for run in one.runs])) - 1
            if abs(left) > STRANGE:
                said.append(
                    f"They stay {left:+.0%} off: more than parameters differ between published clusters. See whether "
                    "the table says all (recompute, nic_gbps, node_gpus, attention, precision), or what else is slow."
                )
            said += [f"Moved most: {moved}."] if moved else []
            said.append(
                f"Kept in {one.file}; search, predict --devices and plan use it for {one.gpu} with framework "
                f"{one.framework}, and without one where no other is kept."
            )
            yield Sentences(tuple(said), wrap=True)
        if self.refused:
            reasons = "; ".join(f"{reason} ({number})" for reason, number in self.refused.items())
            yield f"{count(sum(self.refused.values()), 'row')} left out: {reasons}."


def calibrate_runs(file: Path) -> RunsCalibrationAnswer:
    """Read a table of runs, and keep them by GPU and framework. Raise InputError for one without a run with a time."""
    found = read_own_runs(file)
    return RunsCalibrationAnswer(str(file), tuple(map(_keep, found.groups)), dict(found.refused))


def _keep(own: OwnRuns) -> RunsKept:
    before, after, runs = believe(), own.belief, [complete(row) for row in own.rows]
    slopes = find_slopes(to_columns(runs), after.parameters)
    logs = {name: float(np.log(after.parameters[name] / before.parameters[name])) for name in after.parameters}
    named = (name for name in logs if abs(logs[name]) > MOVED * PRIORS[name].spread)
    moved = sorted(named, key=lambda name: -abs(logs[name]))
    return RunsKept(
        gpu=own.gpu,
        framework=own.framework,
        runs=tuple(
            OwnRun(run["gpus"], _mesh(run), *seconds) for run, seconds in zip(runs, compare_runs(own), strict=True)
        ),
        moved={name: float(np.exp(logs[name])) for name in moved[:MOST_NAMED]},
        within=float(np.log(np.median(before.factors_of(slopes)))),
        within_after=float(np.log(np.median(after.factors_of(slopes)))),
        file=str(own.write()),
    )


def _mesh(run: dict[str, Any]) -> str:
    axes = [f"{name} {run[name]}" for name in ("tp", "cp", "ep", "pp", "vp") if run[name] > 1]
    again = [] if run["recompute"] == "none" else [run["recompute"]]
    return ", ".join([f"{run['sharding']} {run['dp']}", *axes, f"mb {run['micro_batch']}", *again])
