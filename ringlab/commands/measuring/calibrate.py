"""``ringlab calibrate``: measure this machine for its predictions, or import your own measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument

from collectives.call import CollectiveCall
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.training.workload import Training
from collectives.units import count, format_size
from planner.beliefs import believe, find_slopes
from planner.jobs import SearchedMesh
from planner.runs import OwnRuns, columns_of_runs, complete, read_own_runs
from planner.step import step_seconds
from ringlab.session import RANKS, Session, load_scenario, session_of
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.machines import check_gpu, machine_line, parse_keys, show_skipped, system_of_scenario
from ringlab.shared.options import TIMEOUT_S, BackendOpt, JsonOpt, SetOpt, TimeoutOpt, option, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress
from ringlab.table import NOTHING, Format, Part, Sentences, Table, format_digits, format_ratio, time_unit
from scenarios import LoadedScenario
from simcomm.nccl.catalogue import match_gpu
from simcomm.nccl.descriptions import System, describe_system, read_systems
from simcomm.nccl.measured.calibration import calibration_file, make_calibration
from simcomm.nccl.measured.nccl_tests import read_nccl_tests
from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.predict import predict_seconds

PHASES = ("loading", "forward", "backward", "optimizer")


@dataclass(frozen=True)
class CalibrateOptions:
    """The options for measuring this machine, and for importing measurements."""

    ranks: int | None = option(
        None, help="Number of processes to measure. Default: the scenario's ranks, or 2.", min=1, metavar="N"
    )
    backend: BackendOpt = "gloo"
    nccl_tests: Path | None = option(None, help="Adapt NCCL predictions to this output of nccl-tests.", metavar="FILE")
    runs: Path | None = option(
        None, help="Adapt predictions of device meshes to this table of measured training runs.", metavar="FILE.csv"
    )
    system: str | None = option(
        None,
        help="Machine that the nccl-tests output was measured on. Default: detected from the GPU name.",
        metavar="NAME",
    )
    collective: str | None = option(
        None, help="Collective that was measured, if the nccl-tests output does not name it.", metavar="NAME"
    )
    accept_noise: bool = option(False, help="Save the calibration even if its measurements are noisy.")
    timeout: TimeoutOpt = TIMEOUT_S


@with_groups
def command(
    scenario: Annotated[str | None, Argument(metavar="[SCENARIO]", help="Scenario to calibrate for.")] = None,
    *,
    options: CalibrateOptions,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Calibrate predictions: measure this machine, or import your own measurements."""
    check_outputs(json_to)
    file, system, keys = options.nccl_tests, options.system, set_keys or []
    if file is None and (system is not None or options.collective is not None):
        raise InputError("--system and --collective require --nccl-tests FILE")
    if options.runs is not None:
        if file is not None or scenario is not None or keys:
            raise InputError("--runs FILE.csv cannot be combined with a scenario, --set or --nccl-tests")
        deliver(calibrate_runs(options.runs), json_to)
        return
    if file is not None and scenario is not None and system is not None:
        raise InputError("the scenario and --system both name a system; remove one of them")
    loaded = None if scenario is None else load_scenario(scenario, *keys)
    if file is not None:
        deliver(calibrate_nccl(file, loaded, system, [] if loaded else keys, options.collective), json_to)
        return
    session = Session(backend=options.backend, timeout_s=options.timeout, progress=TerminalProgress())
    if loaded is None:
        result = session.calibrate(RANKS if options.ranks is None else options.ranks, accept_noise=options.accept_noise)
    else:
        result = session.calibrate_for(loaded, options.ranks, options.accept_noise)
    deliver(CalibrationAnswer(*result), json_to)


@dataclass(frozen=True)
class CalibrationAnswer(Answer):
    """The result of ``ringlab calibrate``: the calibration, and its cache file ("" if it was not saved)."""

    calibration: Calibration
    file: str

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "calibration", "file": self.file, **asdict(self.calibration)}

    def show(self) -> Iterator[Part]:
        calibration = self.calibration
        lines = {"one way": calibration.one_way, "both ways": calibration.both_ways, "reduction": calibration.reduction}
        unit, form = time_unit(line.fixed for line in lines.values())
        rows = []
        for name, line in lines.items():
            rate = format_ratio(1 / line.per_byte / 1e9) if line.per_byte else NOTHING
            rows.append([name, form(line.fixed), rate, f"{line.worst_residual:.0%}"])
        title = f"This machine, {count(calibration.ranks, 'rank')} of {count(calibration.threads, 'thread')}"
        yield Table(title, ["", f"fixed\n({unit})", "GB/s", "worst residual"], rows)
        unit, form = time_unit(getattr(point.phases, name) for point in calibration.compute for name in PHASES)
        rows = [
            [
                point.model, point.dataset, str(point.batch_size), f"{point.processes} x {point.threads}",
                *(form(getattr(point.phases, name)) for name in PHASES), f"{point.spread:.0%}",
            ]
            for point in calibration.compute
        ]  # fmt: skip
        if rows:
            times = [f"{name}\n({unit})" for name in PHASES]
            headings = ["model", "dataset", "batch", "processes\nx threads", *times, "spread"]
            yield Table("Training step without communication", headings, rows, words=2)
        if self.file:
            yield f"Saved to {self.file}; predictions use it for a day."


def calibrate(
    ranks: int = 2,
    trainings: Sequence[Training] = (),
    *,
    calls: Sequence[CollectiveCall] = (),
    backend: str = "gloo",
    timeout: float = TIMEOUT_S,
    progress: Progress | None = None,
    accept_noise: bool = False,
) -> CalibrationAnswer:
    """Measure this machine with ``ranks`` processes, so that collectives and training runs can be predicted.

    ``trainings`` and ``calls`` are the training runs and collectives to predict. The result is cached for a day.
    ``backend`` is "gloo" or "nccl". The processes are stopped after ``timeout`` seconds. Raises InputError if a value
    is invalid. Raises RunFailed if a rank fails, or if measurements are noisy and ``accept_noise`` is not set.

    >>> calibrate(1, accept_noise=True).calibration.ranks  # doctest: +SKIP
    1
    """
    session = session_of(progress, backend=backend, timeout_s=timeout)
    return CalibrationAnswer(*session.calibrate(ranks, trainings, calls, accept_noise))


@dataclass(frozen=True)
class NcclRow(AnswerRecord):
    """A row of an nccl-tests table: the measured time, and the prediction before the calibration, in seconds."""

    collective: str
    nbytes: int
    measured: float
    predicted: float


@dataclass(frozen=True)
class NcclCalibrationAnswer(Answer):
    """The result of ``ringlab calibrate --nccl-tests``. Its predictions do not use the new calibration."""

    kind = "nccl calibration"

    system: str
    hosts: int
    ranks: int
    rows: tuple[NcclRow, ...]
    file: str
    skipped: tuple[str, ...]

    def show(self) -> Iterator[Part]:
        unit, form = time_unit(seconds for row in self.rows for seconds in (row.measured, row.predicted))
        rows = [
            [row.collective, format_size(row.nbytes), form(row.measured), *_compare(row.predicted, row.measured, form)]
            for row in self.rows
        ]
        title = f"{self.system}: {count(self.ranks, 'rank')} on {count(self.hosts, 'host')}"
        yield Table(title, ["", "size", f"measured\n({unit})", f"predicted\n({unit})", "error"], rows)
        yield from show_skipped(self.skipped)
        yield f"Saved to {self.file}; predictions for this hardware are adapted to it."


def _compare(predicted: float, measured: float, form: Format = format_digits) -> list[str]:
    return [form(predicted), f"{predicted / measured - 1:+.0%}"]


def calibrate_nccl(
    file: Path | str,
    scenario: LoadedScenario | None = None,
    system: str | None = None,
    keys: Sequence[str] = (),
    collective: str | None = None,
) -> NcclCalibrationAnswer:
    """Calibrate NCCL predictions for a system with the output of nccl-tests, and save the calibration.

    The system is the cluster of ``scenario``, which must have ``transport = "nccl"``, or the machine ``system``. By
    default, it is a machine with the GPU that the output names. ``keys`` such as ``net=ib`` complete its description.
    Raises InputError if the output is invalid, or if the system is unknown, incomplete or has a different GPU.
    """
    described = None if scenario is None else system_of_scenario(scenario, "--nccl-tests")
    settings = parse_keys(keys)
    ranks = described.ranks if described else int(settings.get("nodes", 0)) * int(settings.get("gpus", 0))
    output = read_nccl_tests(file, collective, ranks)
    run = output.as_one_run()
    described = described or _find_system(file, run, system, settings)
    check_gpu(file, run, described)
    calibration = make_calibration(described, run, str(file))
    measured = describe_system(described.slug, calibration.system)
    rows = tuple(
        NcclRow(name, nbytes, seconds, float(predict_seconds(measured, name, nbytes)[0]))
        for name, nbytes, seconds in calibration.rows
    )
    calibration.adapted()
    path = calibration_file(measured)
    calibration.write(path)
    skipped = tuple(reason for _, reason in output.skipped)
    return NcclCalibrationAnswer(described.slug, measured.nodes, measured.ranks, rows, str(path), skipped)


def _find_system(file: Path | str, run: NcclTestsRun, name: str | None, keys: Mapping[str, Any]) -> System:
    where = {**({"nodes": run.hosts, "gpus": run.gpus} if run.hosts else {}), **keys}
    systems = read_systems()
    if name in systems and not keys:
        return systems[name]
    if name is not None:
        return describe_system(name, {**machine_line(name), **where})
    if not {"nodes", "gpus"} <= where.keys():
        raise InputError(f"{file}: the output does not list its devices; pass for example --set nodes=1 --set gpus=8")
    if "gpu" not in where:
        gpu = match_gpu(run.gpu_name)
        if gpu is None:
            raise InputError(
                f"{file}: GPU {run.gpu_name!r} is not in the hardware catalog; specify the machine with --system"
            )
        where["gpu"] = gpu.name
    if run.hosts > 1 and not {"net", "nic"} <= where.keys():
        raise InputError(
            f"{file}: the network between the {run.hosts} hosts is unknown; specify the machine with "
            "--system, or pass for example --set net=ib --set 'nic=200 Gbit/s' (all NICs of a host)"
        )
    return describe_system(str(where["gpu"]), where)


STRANGE = 0.2  # median error after the calibration that parameters alone cannot explain


@dataclass(frozen=True)
class OwnRun(AnswerRecord):
    """A user's training run: its measured step time in seconds, and those predicted before and after calibration."""

    gpus: int
    mesh: str
    measured: float
    before: float
    after: float


@dataclass(frozen=True)
class RunsKept(AnswerRecord):
    """The calibration that was saved for one GPU type and framework, with the training runs that it is based on."""

    gpu: str
    framework: str
    runs: tuple[OwnRun, ...]
    within: float  # half the 80 % interval of such a run before the calibration, as a share
    within_after: float
    file: str


@dataclass(frozen=True)
class RunsCalibrationAnswer(Answer):
    """The result of ``ringlab calibrate --runs``."""

    kind = "runs_calibration"
    source: str
    kept: tuple[RunsKept, ...]
    refused: dict[str, int]

    def show(self) -> Iterator[Part]:
        for group in self.kept:
            rows = [
                [
                    str(run.gpus), run.mesh, format_digits(run.measured), *_compare(run.before, run.measured),
                    *_compare(run.after, run.measured),
                ]
                for run in group.runs
            ]  # fmt: skip
            heads = ["GPUs", "mesh", "step\n(s)", "before\n(s)", "error", "adapted\n(s)", "error"]
            yield Table(f"{group.gpu}, {group.framework}", heads, rows)
            sentences = [
                f"The 80 % interval of such runs is now ± {group.within_after:.0%}; it was ± {group.within:.0%}."
            ]
            error = float(np.median([run.after / run.measured for run in group.runs])) - 1
            if abs(error) > STRANGE:
                sentences.append(
                    f"The median error of the adapted predictions is still {error:+.0%}, which is unusual. Check the "
                    "table's columns (recompute, nic_gbps, node_gpus, attention, precision) and the cluster."
                )
            sentences.append(
                f"Saved to {group.file}. search, predict --devices and plan use this calibration for {group.gpu} with "
                f"framework {group.framework}. Without a framework, they use it if no other one is saved."
            )
            yield Sentences(tuple(sentences))
        if self.refused:
            reasons = "; ".join(f"{reason} ({number})" for reason, number in self.refused.items())
            yield f"{count(sum(self.refused.values()), 'row')} left out: {reasons}."


def calibrate_runs(file: Path) -> RunsCalibrationAnswer:
    """Save a calibration per GPU type and framework in a table of training runs. Raise InputError if none is valid."""
    groups, refused = read_own_runs(file)
    return RunsCalibrationAnswer(str(file), tuple(map(_keep, groups)), dict(refused))


def _keep(group: OwnRuns) -> RunsKept:
    before, after, runs = believe(), group.belief, [complete(row) for row in group.rows]
    columns = columns_of_runs(runs)
    meshes = [SearchedMesh(*(run[axis] for axis in SearchedMesh._fields)) for run in runs]
    slopes, unadapted = find_slopes(columns, after.parameters), step_seconds(columns, before.parameters)
    return RunsKept(
        gpu=group.gpu,
        framework=group.framework,
        runs=tuple(
            OwnRun(run["gpus"], mesh.name, float(run["step_s"]), float(a), float(b))
            for run, mesh, a, b in zip(runs, meshes, unadapted, np.exp(slopes.logs), strict=True)
        ),
        within=float(np.log(np.median(before.factors_of(slopes)))),
        within_after=float(np.log(np.median(after.factors_of(slopes)))),
        file=str(group.write()),
    )
