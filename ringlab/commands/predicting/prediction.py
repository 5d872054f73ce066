"""Predicts a scenario and its what-ifs, and draws conclusions from the times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from collectives.call import CollectiveCall
from collectives.records.limits import find_limits
from collectives.training.workload import Training
from collectives.units import format_size
from ringlab.session import Session
from ringlab.shared.conclusions import conclude
from ringlab.shared.figures import CollectiveFigures, Number
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import MOST_LOOKED_AT, Asked, Figures, Simulator, group_by_cluster
from scenarios import LoadedScenario
from simcomm.cluster.paths import keeping_paths
from simcomm.schedules import compact_schedule
from simcomm.simulate import simulate


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(ScenarioAnswer[Number]):
    """The result of ``ringlab predict``: simulated times in seconds. The time of a run that never ends is None."""

    kind: ClassVar[str] = "prediction"

    limits: str = ""  # the bottlenecks of the fastest run and of the user's algorithms, on the scenario's own cluster

    @property
    def sentences(self) -> Sequence[str]:
        """The conclusions and the bottlenecks."""
        return [*self.conclusions, *filter(None, [self.limits])]


def predict(scenario: LoadedScenario, session: Session | None = None, in_turns: bool = False) -> Prediction:
    """Simulate a scenario and its what-ifs.

    Collectives and training runs that are too large to simulate are skipped; the conclusions list them. If ``in_turns``
    is True, the age of the calibration does not add uncertainty. Raises InputError if a required calibration is
    missing, and TooLarge if everything is too large.
    """
    session = session or Session()
    simulator = Simulator(scenario, session.find_calibration(scenario))
    with session.computing(f"simulating {scenario.title}") as tick, keeping_paths():
        simulated = simulator.simulate(simulator.rows(tick), tick)
        if simulator.refused and not simulated:
            raise simulator.refused[0]
        simulated = simulator.with_uncertainty(simulated, in_turns)
        base, *others = group_by_cluster(simulator.places, simulated)
        answer = Prediction(
            title=scenario.title,
            file=str(scenario.path),
            cluster=scenario.cluster.title,
            collectives=base.collectives,
            training=base.training,
            what_ifs=tuple(others),
        )
        refused = "; ".join(dict.fromkeys(map(str, simulator.refused)))
        caveats = [*([f"Not simulated: {refused}."] if refused else []), *_caveats(simulator)]
        limits = _limits(simulator, [(row.asked, each) for row, each in simulated if not row.place.number])
        conclusions = conclude(answer, scenario, caveats)
        return replace(answer, conclusions=conclusions, limits=" ".join(dict.fromkeys(limits)))


def _limits(simulator: Simulator, rows: Sequence[tuple[Asked, Figures]]) -> Iterator[str]:
    """Yield the bottleneck of the fastest run and of each user-defined algorithm, at the largest size."""
    model = simulator.places[0].model
    largest = max((figures.bytes for _, figures in rows if isinstance(figures, CollectiveFigures)), default=None)
    ended = list[tuple[float, Asked]]()
    for job, figures in rows:
        if isinstance(figures, CollectiveFigures):
            if figures.bytes == largest and figures.time_s is not None and model.carried(job) is not None:
                ended.append((figures.time_s, job))
        elif largest is None and figures.step_s is not None:
            ended.append((figures.step_s, job))
    users = [call for _, call in ended if isinstance(call, CollectiveCall) and not call.algorithm.is_builtin]
    for job in [min(ended, key=lambda pair: pair[0])[1], *users] if ended else []:
        carried = model.carried(job)
        if carried is None or (isinstance(job, Training) and model.has_no_messages(job)):
            continue
        if compact_schedule(carried.algorithm, model.cluster.world_size, carried.root).messages > MOST_LOOKED_AT:
            continue
        name = f"training with {job.sync_name}" if isinstance(job, Training) else job.algorithm.label
        size = f", {format_size(job.nbytes)}" if isinstance(job, CollectiveCall) else ""
        limits = find_limits(simulate(model, job, steps=1, faults=simulator.places[0].faults))
        if limits.kind != "unknown":
            yield f"What limits {name}{size}: {limits.heading}. {limits.sentence}"


def _caveats(simulator: Simulator) -> list[str]:
    algorithms = simulator.scenario.collective.algorithms if simulator.scenario.collective else ()
    titles: dict[str, dict[str, None]] = {}
    for place in simulator.places:
        titles.setdefault("; ".join(place.model.caveats(algorithms)), {})[place.title] = None
    return [f"{' and '.join(alike)}: {notes}." for notes, alike in titles.items() if notes]
