"""``ringlab compare``: predict and run a scenario, and show predicted and measured times side by side."""

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from collectives.call import CollectiveCall
from collectives.errors import InputError
from collectives.records.calibration import Calibration, MachineLoad
from collectives.records.trace import Trace
from collectives.training.workload import Training
from collectives.units import count
from realcomm.calibration.blocks import make_calibration
from realcomm.calibration.calibration import run_in_turns
from realcomm.calibration.load import watch_load
from realcomm.launching.launcher import check_launch
from realcomm.launching.torchrun import spans_nodes
from realcomm.training.model_files import count_parameters
from ringlab.commands.measuring.run import Kept, RunAnswer, Work, has_parallelism, measure
from ringlab.commands.predicting.prediction import Prediction, predict
from ringlab.emulated import as_built, calibrate_for_emulation, emulated, on_emulated
from ringlab.session import Session, gpu_names, load_scenario, real_session
from ringlab.shared.answer import NOT_IN_JSON
from ringlab.shared.conclusions import conclude
from ringlab.shared.failures import refusals_about
from ringlab.shared.figures import (
    COLLECTIVE_FIGURES,
    TRAINING_FIGURES,
    CollectiveFigures,
    Number,
    SideBySide,
    side_by_side,
)
from ringlab.shared.options import JsonOpt, RealOptions, ReportOpt, ScenarioArg, SetOpt, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.scenario_answer import ScenarioAnswer
from scenarios import LoadedScenario
from simcomm.model.faults import NO_FAULTS

if TYPE_CHECKING:
    from realcomm.launching.types import RankNetwork


@with_groups
def command(
    scenario: ScenarioArg,
    real: RealOptions,
    report: ReportOpt = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="Alternate between calibration and runs for several minutes, so that drift cancels out."
        ),
    ] = False,
    *,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Predict and run a scenario, and show the error of each prediction. The command also works under torchrun."""
    overrides = tuple(set_keys or ())
    replicas_only = {"--report": report, "--thorough": thorough, "--emulate": real.emulate,
                     "--calibration": real.calibration}  # fmt: skip
    if has_parallelism(scenario, overrides, replicas_only):
        from ringlab.commands.measuring.strategies import carry_out  # imports the planner

        carry_out(scenario, overrides, real, json_to, predict=True)
        return
    loaded, session, writers = load_scenario(scenario, *overrides), real_session(real), []
    check_outputs(json_to, report, reads=real.calibration)
    answer = compare(loaded, session, real.emulate, thorough)
    if report is not None:
        from ringlab.pictures.report import write_report  # imports viz

        writers.append(partial(write_report, answer, loaded, report, session))
    deliver(answer, json_to, *writers)


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ScenarioAnswer[SideBySide]):
    """The result of ``ringlab compare``: predicted times, measured times and errors. What-ifs are only predicted."""

    kind: ClassVar[str] = "comparison"

    load: MachineLoad | None = None  # of other processes during the calibration or the run
    traces: tuple[Trace, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)  # measured, at the largest size
    limits: str = field(default="", compare=False, metadata=NOT_IN_JSON)  # predicted bottleneck of the fastest run
    calibration: Calibration | None = field(default=None, compare=False, metadata=NOT_IN_JSON)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"load": asdict(self.load) if self.load else None}


def compare(scenario: LoadedScenario, session: Session, emulate: bool = False, thorough: bool = False) -> Comparison:
    """Predict a scenario from a calibration, run it, and return predicted and measured times side by side.

    If the session has no calibration, the cached one is used, or a new one is measured. If ``thorough`` is True,
    calibration and run alternate in one launch. If ``emulate`` is True, the network is emulated, and a new calibration
    uses two emulated hosts. Otherwise, the cluster must be this machine, unless a launcher started the ranks on several
    nodes. Raises RunFailed if a rank fails, and InputError if the scenario has faults or cannot be compared.
    """
    if thorough and (emulate or session.calibration is not None or not scenario.cluster.is_here):
        raise InputError(
            "--thorough requires a scenario of this machine; remove --thorough, or remove --emulate and --calibration"
        )
    check_launch(scenario.cluster.world_size, session.backend, session.timeout_s)
    scenario = replace(scenario, trainings=tuple(map(count_parameters, scenario.trainings)))  # predictions need them
    if emulate:
        scenario = on_emulated(scenario)
        known = session.find_calibration(scenario) if session.calibration is not None else None
        with emulated(scenario.cluster, session.progress) as network:
            known = known or calibrate_for_emulation(scenario, session)
            predicted = predict(as_built(scenario, network), session.with_calibration(known))
            return _run_predicted(scenario, predicted, known, session, network)
    if not spans_nodes(session.timeout_s):
        with refusals_about(f"{scenario.path}: cluster"):
            scenario.cluster.check_measurable(session.backend, gpu_names)
        if scenario.faults != NO_FAULTS:
            raise InputError(
                f"{scenario.path}: faults cannot be reproduced on this machine; remove [faults], or "
                "predict them with [what_if.faults]"
            )
    if not thorough:
        calibration = session.find_or_calibrate(scenario)
        predicted = predict(scenario, session.with_calibration(calibration))
        return _run_predicted(scenario, predicted, calibration, session)
    if scenario.trainings:
        first, names = scenario.trainings[0], ", ".join(training.sync_name for training in scenario.trainings)
        session.progress.note(
            f"Training {first.model} for {count(first.epochs, 'epoch')} of {first.dataset} with each of {names}, and "
            "calibrating in between. This takes minutes; --set training.epochs=1 takes less"
        )
    measured, calibration = _measure_in_turns(scenario, session.calibration_to_choose(scenario), session)
    session.keep_if_none(calibration)
    predicted = predict(scenario, session.with_calibration(calibration), in_turns=True)
    return make_comparison(scenario, predicted, measured, calibration)


def _run_predicted(
    scenario: LoadedScenario,
    predicted: Prediction,
    calibration: Calibration | None,
    session: Session,
    network: "RankNetwork | None" = None,
) -> Comparison:
    with watch_load() as watch:
        measured = measure(scenario, calibration, session, Kept(), network)
    loads = [calibration.load if calibration else None, watch.share_of_others()]
    load = max((each for each in loads if each), key=lambda each: each.others + each.steal, default=None)
    return make_comparison(scenario, predicted, measured, calibration, load)


def _measure_in_turns(
    scenario: LoadedScenario, calibration: Calibration | None, session: Session
) -> tuple[RunAnswer, Calibration]:
    """Alternate between running a scenario and calibrating. ``calibration`` selects the algorithms for ``auto``."""
    work = Work.of(scenario, calibration)
    session.report_images(work.jobs)
    with session.progress.task("calibrating and running in turns") as tick:
        options: dict[str, Any] = {"backend": session.backend, "timeout": session.timeout_s, "progress": tick}
        turns = run_in_turns(work.once, work.jobs, scenario.cluster, **options)
    measured: dict[CollectiveCall | Training, Trace] = {}
    measured |= zip([*work.once, *work.jobs], [*turns.collectives, *turns.trainings], strict=True)
    return work.answer(measured), make_calibration(turns.calibration, turns.setting)


def make_comparison(
    scenario: LoadedScenario,
    predicted: Prediction,
    measured: RunAnswer,
    calibration: Calibration | None,
    load: MachineLoad | None = None,
) -> Comparison:
    """Combine a prediction and a measurement of a scenario. ``load`` defaults to the load during the calibration."""
    collectives = {_identity(row): row for row in predicted.collectives}
    training = {row.gradient_sync: row for row in predicted.training}
    load = load or (calibration.load if calibration else None)
    answer = Comparison(
        title=predicted.title,
        file=predicted.file,
        cluster=predicted.cluster,
        environment=measured.environment,
        collectives=tuple(
            _with_prediction(collectives.get(_identity(row)), row, COLLECTIVE_FIGURES) for row in measured.collectives
        ),
        training=tuple(
            _with_prediction(training.get(row.gradient_sync), row, TRAINING_FIGURES) for row in measured.training
        ),
        what_ifs=predicted.what_ifs,
        traces=measured.traces,
        limits=predicted.limits,
        calibration=calibration,
        load=load,
    )
    return replace(answer, conclusions=conclude(answer, scenario))


def _identity(row: CollectiveFigures[Number]) -> tuple[str, str, int, int]:
    return row.collective, row.algorithm, row.world_size, row.bytes


def _with_prediction(predicted: Any, measured: Any, compared: tuple[str, ...]) -> Any:
    uncertainty = getattr(predicted, "uncertainty", None) or {}
    return replace(
        measured,
        **{
            name: side_by_side(getattr(predicted, name, None), getattr(measured, name), uncertainty.get(name))
            for name in compared
        },
    )
