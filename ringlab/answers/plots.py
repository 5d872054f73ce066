"""Still pictures of a scenario: the waterfall of its step, its scaling curve, its critical path and its cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import simcomm
import viz
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.records.summary import PHASES
from collectives.units import format_size
from ringlab.answers.figures import ClusterFigures, CollectiveFigures, training_figures
from ringlab.answers.pictures import Picture
from ringlab.answers.predicted_trace import predict_trace
from ringlab.answers.prediction import predict
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.answers.winner_maps import doublings
from ringlab.answers.workload import predictable, resolve_training
from scenarios import Scenario
from simcomm.model.trouble import NO_TROUBLE

KINDS = {"step": "a waterfall", "scaling": "a scaling curve", "path": "a critical path", "cluster": "a topology"}
STEP_WORDS = "a training step by its phases"
BELOW = "; what-ifs below"


def check_kind(kind: str, path: Path | str) -> None:
    """Raise InputError for a kind of picture that is not known, and for a file that cannot be one of that kind."""
    if kind not in KINDS:
        raise InputError(f"no picture is called {kind!r}; there are {', '.join(KINDS)}")
    viz.check_file(path, KINDS[kind])


def plot_scenario(
    scenario: Scenario,
    kind: str,
    path: Path | str,
    calibration: Calibration | None = None,
    algorithm: str | None = None,
    nbytes: int | None = None,
) -> Picture:
    """Simulate what a picture of a scenario needs, and draw it as .png, .svg or .pdf.

    ``algorithm`` and ``nbytes`` are those of the critical path. Raises InputError.
    """
    check_kind(kind, path)
    if kind == "step":
        viz.draw_waterfall(scenario.title, *waterfall(predict(scenario, calibration)), path)
    elif kind == "scaling":
        viz.draw_scaling(scenario.title, describe_curves(scenario), scaling_curves(scenario, calibration), path)
    elif kind == "path":
        viz.draw_path(predict_trace(scenario, calibration, algorithm, nbytes), path)
    else:
        viz.draw_topology(scenario.cluster.graph, scenario.cluster.hosts, scenario.cluster.title, path)
    return Picture(scenario.title, str(path))


def waterfall(answer: ScenarioAnswer[Any]) -> tuple[str, list[viz.Bar]]:
    """Return a subtitle and a bar for each training, or each collective at the largest size, of an answer's clusters.

    Raises InputError for an answer without either.
    """
    clusters: Sequence[ClusterFigures[Any]] = [answer.own, *answer.what_ifs]
    trained = [
        viz.Bar(
            cluster.title, one.gradient_sync,
            {} if (step := _predicted(one.step_s)) is None else
            {phase: _predicted(getattr(one, f"{phase}_s")) or 0.0 for phase in PHASES}, step,
        )
        for cluster in clusters for one in cluster.training
    ]  # fmt: skip
    if trained:
        return f"{STEP_WORDS}{BELOW if answer.what_ifs else ''}", trained
    entries: list[tuple[str, CollectiveFigures[Any]]] = [
        (cluster.title, one) for cluster in clusters for one in cluster.collectives
    ]
    if not entries:
        raise InputError(f"{answer.file}: there is neither a training nor a collective to draw")
    largest = max(one.bytes for _, one in entries)
    shown = [(title, one, _predicted(one.time_s)) for title, one in entries if one.bytes == largest]
    bars = [viz.Bar(title, one.algorithm, {one.collective: time or 0.0}, time) for title, one, time in shown]
    return f"{shown[0][1].collective} of {format_size(largest)}{BELOW if answer.what_ifs else ''}", bars


def _predicted(value: Any) -> float | None:
    """Return a figure, of two the predicted one."""
    found: float | None = getattr(value, "predicted", value)
    return found


def describe_curves(scenario: Scenario) -> str:
    """Return the line under the title of the scaling curve."""
    quiet = "" if scenario.trouble == NO_TROUBLE else " without trouble"
    return f"{scenario.cluster.title}; so many of its hosts, predicted{quiet}"


def scaling_curves(scenario: Scenario, calibration: Calibration | None) -> list[viz.Curve]:
    """Simulate each training on the first hosts of its cluster, for numbers of ranks that double.

    Raises InputError for a scenario without a training, or on this machine, whose calibration is for all its ranks.
    """
    trainings, whole = predictable(scenario.trainings), scenario.cluster
    if not trainings:
        raise InputError(f"{scenario.path}: there is no training in it whose scaling could be predicted")
    if whole.is_here:
        raise InputError(f"{scenario.path}: this machine is calibrated for all of its {whole.world_size} ranks alone")
    world_sizes = doublings(whole.world_size)
    curves = []
    for training in trainings:
        found = []
        for ranks in world_sizes:
            cluster = whole.on_first(ranks)
            resolved = resolve_training(training, cluster, calibration)
            trace = simcomm.train(resolved, cluster, calibration=calibration, record=False)
            found.append(training_figures(trace, resolved))
        rates, shares = [one.samples_per_s for one in found], [one.scaling_efficiency for one in found]
        curves.append(viz.Curve(training.sync_name, world_sizes, rates, shares))
    return curves
