"""``Comparison``: a prediction and the run that it is of, side by side."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from collectives.errors import InputError
from collectives.records.summary import COLLECTIVE_FIGURES, TRAINING_FIGURES
from collectives.records.trace import Trace
from ringlab.answers.conclusions import conclude
from ringlab.answers.figures import CollectiveFigures, Number, SideBySide, TrainingFigures, side_by_side
from ringlab.answers.prediction import Prediction
from ringlab.answers.real_run import RunAnswer
from ringlab.answers.scenario_answer import ScenarioAnswer
from scenarios import Scenario
from simcomm.model.trouble import NO_TROUBLE


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ScenarioAnswer[SideBySide]):
    """What ``compare`` found: each time and rate as predicted, as measured, and the error; what-ifs are predicted.

    ``traces`` are of what was measured at the largest size; they are no part of the JSON.
    """

    kind: ClassVar[str] = "comparison"

    traces: tuple[Trace, ...] = field(default=(), compare=False)


def check_comparable(scenario: Scenario) -> None:
    """Raise InputError unless the scenario can be both predicted and measured on this machine."""
    if not scenario.cluster.is_here:
        raise InputError(
            f"{scenario.path}: cluster: {scenario.cluster.title} is not this machine, so nothing of it can be "
            'measured; predict it, or compare preset = "this-machine" with it as a [[what_if]]'
        )
    if scenario.trouble != NO_TROUBLE:
        raise InputError(
            f"{scenario.path}: trouble: it cannot be brought about on this machine; "
            "leave [trouble] out, or predict it beside as [what_if.trouble]"
        )


def make_comparison(scenario: Scenario, predicted: Prediction, measured: RunAnswer) -> Comparison:
    """Return the prediction and the measurement of a scenario in one answer; None where something was only measured."""
    collectives = {_identity(one): one for one in predicted.collectives}
    training = {one.gradient_sync: one for one in predicted.training}
    answer = Comparison(
        title=predicted.title,
        file=predicted.file,
        cluster=predicted.cluster,
        environment=measured.environment,
        collectives=tuple(
            CollectiveFigures(**_with_prediction(collectives.get(_identity(one)), one, COLLECTIVE_FIGURES))
            for one in measured.collectives
        ),
        training=tuple(
            TrainingFigures(**_with_prediction(training.get(one.gradient_sync), one, TRAINING_FIGURES))
            for one in measured.training
        ),
        what_ifs=predicted.what_ifs,
        traces=measured.traces,
    )
    return replace(answer, **conclude(answer, scenario)._asdict())


def _identity(one: CollectiveFigures[Number]) -> tuple[str, str, int, int]:
    return one.collective, one.algorithm, one.world_size, one.bytes


Figures = CollectiveFigures[Number] | TrainingFigures[Number]


def _with_prediction(predicted: Figures | None, measured: Figures, compared: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of ``measured``, those of ``compared`` with the prediction beside them."""
    values = {one.name: getattr(measured, one.name) for one in fields(measured)}
    return values | {name: side_by_side(getattr(predicted, name, None), values[name]) for name in compared}
