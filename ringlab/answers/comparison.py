"""``Comparison``: a prediction and the run that it is of, side by side."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

from collectives.calibration.calibration import Calibration, MachineLoad
from collectives.errors import InputError
from collectives.records.summary import COLLECTIVE_FIGURES, TRAINING_FIGURES
from collectives.records.trace import Trace
from ringlab.answers.conclusions import Conclusions, conclude
from ringlab.answers.figures import CollectiveFigures, Number, SideBySide, TrainingFigures, side_by_side
from ringlab.answers.prediction import Prediction
from ringlab.answers.real_run import RunAnswer
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.table import MOST_SENTENCES, keep_few
from scenarios import Scenario
from simcomm.model.trouble import NO_TROUBLE


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ScenarioAnswer[SideBySide]):
    """What ``compare`` found: each time and rate as predicted, as measured, and the error; what-ifs are predicted.

    ``load`` is what else the machine did while it was calibrated. ``traces`` are of what was measured at the largest
    size, and ``calibration`` is what was predicted from; they and ``limits`` are no part of the JSON.
    """

    kind: ClassVar[str] = "comparison"

    load: MachineLoad | None = None
    traces: tuple[Trace, ...] = field(default=(), compare=False)
    limits: str = field(default="", compare=False)  # what limits the quickest run, as predicted
    calibration: Calibration | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        return super().to_dict() | {"load": asdict(self.load) if self.load else None}


def gpu_names() -> list[str]:
    """Return this machine's GPUs as the driver names them."""
    import torch  # predictions do without it

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def check_comparable(scenario: Scenario, backend: str = "gloo") -> None:
    """Raise InputError unless the scenario can be both predicted and measured on this machine."""
    try:
        scenario.cluster.check_measurable(backend, gpu_names)
    except InputError as error:
        raise InputError(f"{scenario.path}: cluster: {error}") from error
    if scenario.trouble != NO_TROUBLE:
        raise InputError(
            f"{scenario.path}: trouble: it cannot be brought about on this machine; "
            "leave [trouble] out, or predict it beside as [what_if.trouble]"
        )


def make_comparison(
    scenario: Scenario, predicted: Prediction, measured: RunAnswer, calibration: Calibration | None
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
