"""``ringlab compare``: a scenario predicted and run, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from collectives.errors import InputError
from collectives.records.calibration import Calibration, MachineLoad
from collectives.records.trace import Trace
from collectives.training.workload import Training
from collectives.units import count
from realcomm.calibration.load import watch_load
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

if TYPE_CHECKING:
    from realcomm.launching.types import RankNetwork


@with_groups
def command(
    scenario: ScenarioArg,
    real: RealOptions,
    report: ReportOpt = None,
    check: CheckOpt = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Calibrate and run in turns, for minutes, so that drift cancels out.")
    ] = False,
    *,
    outputs: AnswerOptions,
    set_keys: SetOpt = None,
) -> None:
    """Predict and run a scenario, and show the error of each prediction."""
    overrides, session = tuple(set_keys or ()), real_session(real)
    json_to, explain = outputs.json_to, outputs.explain
    if is_spread(scenario, overrides):
        if report is not None or thorough or real.emulate or real.calibration is not None:
            raise InputError(
                "--report, --thorough, --emulate and --calibration cannot be combined with [training.parallelism]"
            )
        from ringlab.commands.measuring.strategies import carry_out  # others do without

        carry_out(scenario, overrides, real, outputs, RunOptions(check), predict=True)
        return
    if check:
        raise InputError("--check requires [training.parallelism]; for replicas, set check_every in [training]")
    loaded = load_scenario(scenario, *overrides)
    writers = []
    check_outputs(json_to, report, reads=real.calibration)
    answer = compare(loaded, session, real.emulate, thorough)
    if report is not None:
        from ringlab.pictures.report import write_report

        writers.append(partial(write_report, answer, loaded, report, session))
    deliver(answer, json_to, *writers, explain=explain)


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ScenarioAnswer[SideBySide]):
    """What ``compare`` found: each time and rate as predicted, as measured, and the error; what-ifs are predicted.

    ``load`` is what else the machine did while it was calibrated or measured. ``traces`` are of what was measured at
    the largest size, and ``calibration`` is what was predicted from; they and ``limits`` are no part of the JSON.
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
    scenario: LoadedScenario,
    predicted: Prediction,
    measured: RunAnswer,
    calibration: Calibration | None,
    load: MachineLoad | None = None,
) -> Comparison:
    """Return the prediction and the measurement of a scenario in one answer; None where something was only measured.

    ``load`` is what else the machine did; it is the calibration's unless given.
    """
    collectives = {_identity(one): one for one in predicted.collectives}
    training = {one.gradient_sync: one for one in predicted.training}
    load = load or (calibration.load if calibration else None)
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
        busy = f"{describe_busy(load)} The errors say little; compare when the machine is idle."
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


def describe_busy(load: MachineLoad) -> str:
    """Return the sentence that says what else the machine did.

    >>> describe_busy(MachineLoad(others=0.31, steal=0.0))
    "This machine was busy: other processes took 31% of this machine's cores."
    """
    return f"This machine was busy: {load.describe()}."


def compare(scenario: LoadedScenario, session: Session, emulate: bool = False, thorough: bool = False) -> Comparison:
    """Predict a scenario from a calibration, run it, and return both side by side.

    The kept calibration is used if there is one, else one is made. Where ``thorough``, the scenario runs in turns with
    calibrating, in one launch. With ``emulate`` its network is built on this machine, and the calibration is of two
    hosts of such a network. Raises InputError, also for another cluster and for faults; RunFailed.
    """
    if thorough and (emulate or session.calibration is not None or not scenario.cluster.is_here):
        raise InputError(
            "--thorough requires a scenario of this machine, and cannot be combined with --emulate and --calibration"
        )
    check_launch(scenario.cluster.world_size, session.backend, session.timeout_s)
    scenario = with_counted_models(scenario)
    if emulate:
        return _compare_emulated(on_emulated(scenario), session)
    check_comparable(scenario, session.backend)
    if not thorough:
        return run_beside_prediction(scenario, session, Kept())
    if scenario.trainings:
        session.progress.note(_describe_training(scenario.trainings))
    run = partial(measure_in_turns, scenario, session.calibration_to_choose(scenario), session)
    measured, found = measure_when_free(run, session.progress)
    session.keep_if_none(found)
    predicted = predict_whole(scenario, session.with_calibration(found), in_turns=True)
    return make_comparison(scenario, predicted, measured, found)


def run_beside_prediction(
    scenario: LoadedScenario, session: Session, kept: Kept, show: Callable[[Prediction], None] = lambda _: None
) -> Comparison:
    """Predict a scenario from the kept calibration, or one made now, ``show`` that, then run it; return both.

    Raises InputError and RunFailed.
    """
    found = session.find_or_calibrate(scenario)
    predicted = predict_whole(scenario, session.with_calibration(found))
    show(predicted)
    return _measure_beside(scenario, predicted, found, session, kept)


def _measure_beside(
    scenario: LoadedScenario,
    predicted: Prediction,
    calibration: Calibration | None,
    session: Session,
    kept: Kept,
    network: "RankNetwork | None" = None,
) -> Comparison:
    """Run a scenario next to its prediction, and note what else the machine did in the busier of both times."""
    with watch_load() as watch:
        measured = measure(scenario, calibration, session, kept, network)
    loads = [calibration.load if calibration else None, watch.share_of_others()]
    load = max((one for one in loads if one), key=lambda one: one.others + one.steal, default=None)
    return make_comparison(scenario, predicted, measured, calibration, load)


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
        return _measure_beside(scenario, predicted, found, session, Kept(), network)
