"""Predict training runs on emulated hosts from a profile of one rank, and measure them.

    python -m benchmarks.accuracy.one_rank SCENARIO --devices 2,4,8 --profile FILE.json

`make one-rank` writes the profile, and the table of docs/reports/strategies.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer import Option

from benchmarks.accuracy.emulated_rows import (
    WITHIN,
    EmulatedRow,
    EmulatedRows,
    Errors,
    compare_each,
    compare_trainings,
    find_pair,
    summarize_errors,
)
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration, ComputePoint, FittedLine, OverlapPoint, PairProbes
from collectives.records.environment import cores, threads_per_rank
from collectives.records.model_profile import Measured, ModelProfile, find_model_profile
from collectives.training.workload import ComputePhases, Training
from collectives.units import format_time
from realcomm.calibration.pair_calibration import with_pair
from ringlab.emulated import as_built, emulated, on_emulated
from ringlab.shared.answer import Answer
from ringlab.shared.failures import exit_with_a_line
from ringlab.shared.options import JsonOpt, ScenarioArg, SetOpt
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress
from ringlab.shared.ranges import parse_world_sizes
from ringlab.table import Part, Sentences, Table, format_or_dash
from scenarios import LoadedScenario, load

STEP = ": step"  # of the rows of a training, the one of its whole step
UNKNOWN = FittedLine(0.0, 0.0, 0.0)  # of messages on this machine, which hosts with a network of their own do not send


@dataclass(frozen=True, repr=False)
class ProfiledRank(Answer):
    """Predicted and measured training runs on emulated hosts, with the profile of one rank and its device."""

    kind: ClassVar[str] = "profiled rank"

    title: str
    file: str
    profile: str
    device: str
    found: EmulatedRows

    @property
    def steps(self) -> tuple[EmulatedRow, ...]:
        """The rows of whole steps."""
        return tuple(row for row in self.found.rows if row.what.endswith(STEP))

    @property
    def errors(self) -> Errors:
        """The absolute errors of whole steps."""
        return summarize_errors(self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        answer = super().to_dict()
        return {**answer.pop("found"), **answer, "errors": asdict(self.errors)}

    def show(self) -> Iterator[Part]:
        """Yield a table of training runs by number of hosts, and their errors."""
        rows = [
            [
                row.what.removesuffix(STEP),
                str(row.world_size),
                format_or_dash(row.predicted_s, format_time),
                format_time(row.measured_s),
                format_or_dash(row.error, lambda error: f"{100 * error:+.1f} %"),
            ]
            for row in self.steps
        ]
        yield Table(self.title, ["gradient sync", "hosts", "predicted", "measured", "error"], rows)
        sentences = [f"{name} hosts were not measured: {reason}" for name, reason in self.found.refused.items()]
        errors = self.errors
        sentences.append(
            f"Steps are off by {100 * errors.median:.1f} % in the middle, {100 * errors.worst:.1f} % at most; "
            f"{errors.within:.0%} within {WITHIN:.0%}."
        )
        sentences.append(f"Computing: {self.profile}, measured on {self.device}; messages: a pair of emulated hosts.")
        yield Sentences([*sentences, *filter(None, [self.found.busy])])


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    scenario: ScenarioArg,
    *,
    devices: Annotated[str, Option(metavar="2,4,8", help="Numbers of emulated hosts to train on.")],
    profile: Annotated[Path, Option(metavar="FILE.json", help="Profile of one rank, written by `ringlab profile`.")],
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Predict a scenario's trainings on emulated hosts from a profile of one rank, and measure them."""
    check_outputs(json_to, reads=profile)
    counts = parse_world_sizes(devices, "--devices")
    deliver(compare_devices(scenario, counts, set_keys or (), profile, TerminalProgress()), json_to)


def compare_devices(
    scenario: str, devices: Sequence[int], overrides: Sequence[str], profile: Path, progress: Progress
) -> ProfiledRank:
    """Predict a scenario's training runs on each number of emulated hosts from a profile of one rank, and measure them.

    ``profile`` is a file of ``ringlab profile MODEL --batch-size N --threads 1``: one process with a core of its own.
    Besides the profile, only a pair of emulated hosts is measured. Everything is predicted before it runs. Raises
    RunFailed if a rank fails, and InputError if the profile is of another model or batch.
    """
    if min(devices) < 2:
        raise InputError(f"devices must be numbers of hosts of at least 2, such as 2,4,8, not {list(devices)}")
    chosen = [(str(count), on_emulated(load(scenario, [*overrides, f"cluster.hosts={count}"]))) for count in devices]
    first = chosen[0][1]
    if not first.trainings:
        raise InputError(f"{first.path}: a [training] table is required to use a profile")
    known = find_model_profile(profile)
    computing = computing_of(known, [training for _, each in chosen for training in each.trainings], str(profile))

    def compare(scenario: LoadedScenario, pairs: dict[float, PairProbes], refused: dict[str, str]) -> list[EmulatedRow]:
        calibration = with_pair(computing, find_pair(scenario, pairs, progress))
        with emulated(scenario.cluster, progress) as network:
            return [*compare_trainings(as_built(scenario, network), calibration, network, progress)]

    named = [(name, replace(each, collective=None, what_ifs=())) for name, each in chosen]
    rows = compare_each(named, compare, progress)
    return ProfiledRank(first.title, str(first.path), str(profile), known.measured[-1].device, rows)


def computing_of(profile: ModelProfile, trainings: Sequence[Training], where: str) -> Calibration:
    """Return the compute calibration of ranks that share this machine's cores, computed from a profile of one rank.

    Up to as many ranks as cores are assumed not to disturb each other. The slowdown of backward by communication is
    unknown. Raises InputError for a profile of another model.
    """
    points, overlaps = list[ComputePoint](), list[OverlapPoint]()
    for training in dict.fromkeys(trainings):
        measured = check_profile(profile, training, where)
        phases = ComputePhases(sum(measured.forward), sum(measured.backward), measured.optimizer)
        kind = (training.model_kind, training.data_kind, training.batch_size)
        if any((each.model, each.dataset, each.batch_size) == kind for each in points):
            continue
        points += [ComputePoint(*kind, processes, measured.threads, phases, 0.0) for processes in {1, cores()}]
        gradients = [(each.nbytes, each.ready) for each in profile.gradients(backward=measured.backward)]
        overlaps.append(
            OverlapPoint(
                *kind,
                processes=cores(),
                threads=measured.threads,
                gradients=gradients,
                all_reduce=[(training.gradient_bytes, 0.0)],
                overlap_slowdown=0.0,
                copies_s=0.0,
                broadcast_s=0.0,
            )
        )
    return Calibration(cores(), 1, UNKNOWN, UNKNOWN, UNKNOWN, compute=points, overlap=overlaps)


def check_profile(profile: ModelProfile, training: Training, where: str) -> Measured:
    """Return the measured times of a training's step. Raise InputError for another model, batch or processor."""
    threads = threads_per_rank(cores())
    make = f"make one with `ringlab profile MODEL --batch-size {training.batch_size} --threads {threads} -o FILE.json`"
    if not profile.measured:
        raise InputError(f"profile {where} contains no times; {make}")
    measured = profile.measured[-1]
    if profile.parameters != training.parameter_count:
        raise InputError(
            f"profile {where} is for {quote(profile.model)} with {profile.parameters:,} parameters, "
            f"but the scenario's model {quote(training.model)} has {training.parameter_count:,}"
        )
    if (measured.batch_size, measured.precision) != (training.batch_size, training.precision):
        raise InputError(
            f"profile {where} is for batch size {measured.batch_size} in {measured.precision}, but the "
            f"scenario uses batch size {training.batch_size} in {training.precision}; {make}"
        )
    if measured.threads != threads:
        processor = f"{measured.threads} threads" if measured.threads else "no processor whose threads are known"
        raise InputError(
            f"profile {where} was measured with {processor}, but ranks on this machine have {threads}; {make}"
        )
    return measured


if __name__ == "__main__":
    exit_with_a_line(app)
