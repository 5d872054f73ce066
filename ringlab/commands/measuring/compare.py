"""``ringlab compare``: a scenario predicted and run, side by side."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar

from collectives.errors import InputError
from collectives.records.calibration import Calibration, MachineLoad
from collectives.records.trace import Trace
from collectives.training.workload import Training
from collectives.units import count
from realcomm.launching.launcher import check_launch
from ringlab.commands.measuring.measurement import (
    Kept,
    RunAnswer,
    gpu_names,
    measure,
    measure_in_turns,
    measure_when_free,
    with_counted_models,
)
from ringlab.commands.predicting.prediction import Prediction, predict_whole
from ringlab.emulated import as_built, calibrate_for_emulation, emulated, on_emulated
from ringlab.session import Session, load_scenario, real_session
from ringlab.shared.answer import NOT_IN_JSON
from ringlab.shared.conclusions import Conclusions, conclude
from ringlab.shared.failures import refusals_about
from ringlab.shared.figures import (
    COLLECTIVE_FIGURES,
    TRAINING_FIGURES,
    CollectiveFigures,
    Number,
    SideBySide,
    TrainingFigures,
    side_by_side,
)
from ringlab.shared.options import (
    AnswerOptions,
    CheckOpt,
    RealOptions,
    ReportOpt,
    RunOptions,
    ScenarioArg,
    SetOpt,
    with_groups,
)
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.table import MOST_SENTENCES, keep_few
from scenarios import LoadedScenario
from scenarios.loader import is_spread
from simcomm.model.faults import NO_FAULTS


@with_groups
def command(
    scenario: ScenarioArg,
    real: RealOptions,
    report: ReportOpt = None,
    check: CheckOpt = False,
    *,
    outputs: AnswerOptions,
    set_keys: SetOpt = None,
) -> None:
    """Predict and run a scenario, and show the error of each prediction."""
    overrides, session = tuple(set_keys or ()), real_session(real)
    json_to, explain = outputs.json_to, outputs.explain
    if is_spread(scenario, overrides):
        if report is not None or real.emulate or real.calibration is not None:
            raise InputError("--report, --emulate and --calibration cannot be combined with [training.parallelism]")
        from ringlab.commands.measuring.forms import carry_out  # others do without

        carry_out(scenario, overrides, real, outputs, RunOptions(check), predict=True)
        return
    if check:
        raise InputError("--check requires [training.parallelism]; for replicas, set check_every in [training]")
    loaded = load_scenario(scenario, *overrides)
    writers = []
    check_outputs(json_to, report, reads=real.calibration)
    answer = compare(loaded, session, real.emulate)
    if report is not None:
        from ringlab.pictures.report import write_report

        writers.append(partial(write_report, answer, loaded, report, session))
    deliver(answer, json_to, *writers, explain=explain)


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ScenarioAnswer[SideBySide]):
    """What ``compare`` found: each time and rate as predicted, as measured, and the error; what-ifs are predicted.

    ``load`` is what else the machine did while it was calibrated. ``traces`` are of what was measured at the largest
    size, and ``calibration`` is what was predicted from; they and ``limits`` are no part of the JSON.
    """

    kind: ClassVar[str] = "comparison"

    load: MachineLoad | None = None
    traces: tuple[Trace, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)
    limits: str = field(default="", compare=False, metadata=NOT_IN_JSON)  # what limits the quickest run, as predicted
    calibration: Calibration | None = field(default=None, compare=False, metadata=NOT_IN_JSON)

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        return super().to_dict() | {"load": asdict(self.load) if self.load else None}


def check_comparable(scenario: LoadedScenario, backend: str = "gloo") -> None:
    """Raise InputError unless the scenario can be both predicted and measured on this machine."""
    with refusals_about(f"{scenario.path}: cluster"):
        scenario.cluster.check_measurable(backend, gpu_names)
    if scenario.faults != NO_FAULTS:
        raise InputError(
            f"{scenario.path}: faults cannot be reproduced on this machine; remove [faults], or "
            "predict them with [what_if.faults]"
        )


def make_comparison(
    scenario: LoadedScenario, predicted: Prediction, measured: RunAnswer, calibration: Calibration | None
) -> Comparison:
    """Return the prediction and the measurement of a scenario in one answer; None where something was only measured."""
    collectives = {_identity(one): one for one in predicted.collectives}
    training = {one.gradient_sync: one for one in predicted.training}
    load = calibration.load if calibration else None
    is_free = load is None or not load.is_busy
    answer = Comparison(
        title=predicted.title,
        file=predicted.file,
        cluster=predicted.cluster,
        environment=measured.environment,
        collectives=tuple(
            CollectiveFigures(**_with_prediction(collectives.get(_identity(one)), one, COLLECTIVE_FIGURES, is_free))
            for one in measured.collectives
        ),
        training=tuple(
            TrainingFigures(**_with_prediction(training.get(one.gradient_sync), one, TRAINING_FIGURES, is_free))
            for one in measured.training
        ),
        what_ifs=predicted.what_ifs,
        traces=measured.traces,
        limits=predicted.limits,
        calibration=calibration,
        load=load,
    )
    concluded = conclude(answer, scenario)
    if load is not None and load.is_busy:
        busy = (
            f"This machine was busy: {load.describe()}. Errors with a ? are not to be trusted; compare when it is idle."
        )
        few, more = keep_few(*concluded, most=MOST_SENTENCES - 1)
        concluded = Conclusions((busy, *few), more)
    return replace(answer, **concluded._asdict())


def _identity(one: CollectiveFigures[Number]) -> tuple[str, str, int, int]:
    return one.collective, one.algorithm, one.world_size, one.bytes


Figures = CollectiveFigures[Number] | TrainingFigures[Number]


def _with_prediction(
    predicted: Figures | None, measured: Figures, compared: tuple[str, ...], is_free: bool
) -> dict[str, Any]:
    """Return the fields of ``measured``, those of ``compared`` with the prediction beside them."""
    values = {one.name: getattr(measured, one.name) for one in fields(measured)}
    uncertain = predicted.uncertainty if predicted is not None else None
    return values | {
        name: replace(
            side_by_side(getattr(predicted, name, None), values[name], (uncertain or {}).get(name)), trusted=is_free
        )
        for name in compared
    }


def compare(scenario: LoadedScenario, session: Session, emulate: bool = False) -> Comparison:
    """Run a scenario in turns with calibrating, in one launch, and predict it from the calibration alone.

    With a calibration of before, the scenario is predicted from that and run by itself. With ``emulate`` its network is
    built on this machine, and the calibration is of two hosts of such a network. Raises InputError, also for another
    cluster and for faults; RunFailed.
    """
    check_launch(scenario.cluster.world_size, session.backend, session.timeout_s)
    scenario = with_counted_models(scenario)
    if emulate:
        return _compare_emulated(on_emulated(scenario), session)
    check_comparable(scenario, session.backend)
    if scenario.trainings:
        session.progress.note(_describe_training(scenario.trainings))
    in_turns = session.calibration is None and scenario.cluster.is_here
    found: Calibration | None
    if in_turns:
        run = partial(measure_in_turns, scenario, session.calibration_to_choose(scenario), session)
        measured, found = measure_when_free(run, session.progress)
        session.keep_if_none(found)
    else:
        found = session.find_or_calibrate(scenario)
        measured = measure(scenario, found, session, Kept())
    predicted = predict_whole(scenario, session.with_calibration(found), in_turns)
    return make_comparison(scenario, predicted, measured, found)


def _describe_training(trainings: Sequence[Training]) -> str:
    """Return what is trained, and how to do less."""
    first, names = trainings[0], ", ".join(one.sync_name for one in trainings)
    return (
        f"{first.model} is trained for {count(first.epochs, 'epoch')} of {first.dataset} by each of {names}, beside "
        "calibrating: minutes; --set training.epochs=1 is less, and a file without [training] trains nothing"
    )


def _compare_emulated(scenario: LoadedScenario, session: Session) -> Comparison:
    found = session.find_calibration(scenario) if session.calibration is not None else None
    with emulated(scenario.cluster, session.progress) as network:
        found = found or calibrate_for_emulation(scenario, session)
        predicted = predict_whole(as_built(scenario, network), session.with_calibration(found))
        measured = measure(scenario, found, session, Kept(), network)
    return make_comparison(scenario, predicted, measured, found)
