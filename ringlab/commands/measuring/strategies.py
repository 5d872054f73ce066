"""``run`` and ``compare`` with ``[training.parallelism]``: train with torch's parallelism classes on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isclose
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from collectives.checks import check_path
from collectives.records.calibration import MachineLoad
from collectives.records.spans import Spans
from collectives.records.trace import Trace
from collectives.units import count, format_size, format_time
from planner.calls import States
from planner.prediction import StepParts
from realcomm.calibration.load import watch_load
from realcomm.launching.launcher import check_launch, launch
from realcomm.launching.server import preload
from realcomm.launching.torch_process import PRELOAD, check_torch
from ringlab.commands.measuring.strategy_job import StrategyJob, known_pieces, predict_step, read_strategy_job
from ringlab.session import Session, check_session, gpu_names, real_session
from ringlab.shared.answer import NOT_IN_JSON, Answer
from ringlab.shared.failures import refusals_about
from ringlab.shared.figures import SideBySide, side_by_side
from ringlab.shared.options import RealOptions
from ringlab.shared.output import check_outputs, deliver
from ringlab.table import (
    MOST_ROWS,
    NOTHING,
    Format,
    Line,
    Part,
    Sentences,
    Table,
    format_digits,
    format_interval,
    format_or_dash,
)

if TYPE_CHECKING:
    from realcomm.strategies.training import StrategyResult

WARM_UP = 2  # steps excluded from medians, in which torch agrees on buckets and message shapes
TOLERANCE = 1e-4  # relative error of a loss after a few steps, because float32 sums depend on their order
WITHIN = 1.4  # factor of the 80 % interval, measured with benchmarks/strategies.py
PARTS = {"compute": "compute", "optimizer": "optimizer", "tensor": "collectives within layers",
         "pipeline": "waiting for stages", "sync": "data axis", "input": "loading"}  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class StrategyAnswer(Answer):
    """The result of ``run`` or ``compare`` for a scenario with ``[training.parallelism]``.

    ``held_bytes`` is the size of each training state, such as the optimizer's, on the rank that uses the most memory.
    ``alone_losses`` are the losses of a single rank that trains the same first steps for comparison.
    """

    kind: ClassVar[str] = "strategy"

    title: str
    file: str
    cluster: str
    model: str
    strategy: str
    world_size: int
    batch_size: int  # of all ranks together
    step_s: SideBySide
    interval_s: tuple[float, float] | None = None  # 80 % interval of the prediction
    parts_s: dict[str, float] | None = None  # parts of the predicted step
    samples_per_s: SideBySide
    held_bytes: dict[str, SideBySide]
    losses: tuple[float, ...]
    alone_losses: tuple[float, ...]
    alone_step_s: float | None  # None if the whole model does not fit on one device
    same: bool | None  # whether the losses match those of a single rank
    load: MachineLoad | None = None
    traces: tuple[Trace, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)

    @property
    def apart(self) -> float:
        """The largest relative difference between ``losses`` and ``alone_losses``."""
        pairs = zip(self.losses, self.alone_losses, strict=False)
        return max((abs(loss / other - 1) for loss, other in pairs), default=0.0)

    def show(self) -> Iterator[Part]:
        is_predicted = self.step_s.predicted is not None
        pairs: list[tuple[str, SideBySide, Format]] = [
            ("step (80 %)" if self.interval_s else "step", self.step_s, format_time),
            ("samples/s", self.samples_per_s, format_digits),
            *(
                (f"{name} of a rank", pair, lambda size: format_size(round(size)))
                for name, pair in self.held_bytes.items()
            ),
        ]
        rows = []
        for name, pair, form in pairs:
            predicted = format_interval(pair.predicted, self.interval_s if pair is self.step_s else None, form)
            error = format_or_dash(pair.error, lambda share: f"{share:+.0%}")
            row = [name, predicted, format_or_dash(pair.measured, form), error]
            rows.append(row if is_predicted else row[::2])
        headings = ["", "predicted", "measured", "error"]
        last = len(self.losses) - 1
        alone = [*map("{:.6f}".format, self.alone_losses), *[NOTHING] * len(self.losses)]
        steps = (*range(min(last, MOST_ROWS - 1)), last)
        losses = [[str(step), f"{self.losses[step]:.6f}", alone[step]] for step in steps]
        about = f"{self.model} with {self.strategy}, {self.batch_size} samples per step, on {self.cluster}"
        yield Line(about, "bold", wrap=True)
        yield Table(None, headings if is_predicted else headings[::2], rows)
        yield Table(None, ["step", "loss", "single rank"], losses)
        yield Sentences([*self._sentences()])

    def _sentences(self) -> Iterator[str]:
        checked = count(len(self.alone_losses), "step")
        if self.alone_step_s is None:
            yield "The losses cannot be checked, because the whole model does not fit on one device."
        elif self.same:
            yield f"The losses of the first {checked} match those of a single rank within {max(self.apart, 1e-9):.0e}."
        else:
            yield (
                f"The losses of the first {checked} differ from those of a single rank by up to {self.apart:.2%}, so "
                "this strategy trains differently."
            )
        if self.alone_step_s is not None:
            ratio = format_digits(self.alone_step_s / (self.step_s.measured or 1.0))
            yield f"A single rank takes {format_time(self.alone_step_s)} for the same samples, {ratio} times as long."
        if self.parts_s is None or self.interval_s is None or self.step_s.predicted is None:
            return
        parts = ", ".join(f"{PARTS.get(name, name)} {format_time(value)}" for name, value in self.parts_s.items())
        yield f"The predicted step consists of parts that all ranks timed: {parts}."
        low, high = self.interval_s
        if self.load is not None and self.load.is_busy:
            yield f"This machine was busy: {self.load.describe()}. The times are not meaningful."
        elif not low <= (self.step_s.measured or 0.0) <= high:
            yield "The measured step is outside the 80 % interval of the prediction."


def carry_out(
    scenario: str,
    overrides: Sequence[str],
    real: RealOptions,
    json_to: str | None,
    *,
    predict: bool,
    trace: Path | None = None,
    weights: Path | None = None,
) -> None:
    """Run a scenario with parallelism, and write the result. If ``predict`` is True, also predict a training step."""
    check_outputs(json_to, trace, weights)
    answer = _train(scenario, overrides, real_session(real), weights, predict=predict)
    writers = [partial(answer.traces[-1].write, trace)] if trace is not None else []
    deliver(answer, json_to, *writers)


def run_strategy(
    scenario: str | Path, *overrides: str, session: Session | None = None, weights: Path | None = None
) -> StrategyAnswer:
    """Train a scenario's model on this machine with torch's own classes for its ``[training.parallelism]``.

    A single rank also trains the first three steps, and its losses are compared. The trained state_dict is written to
    ``weights``. Raises InputError if torch's classes do not support the training, and RunFailed if a rank fails.

    >>> run_strategy("examples/fsdp_here.toml").same  # doctest: +SKIP
    True
    """
    weights = None if weights is None else check_path("weights", weights)
    return _train(scenario, overrides, check_session(session), weights, predict=False)


def compare_strategy(scenario: str | Path, *overrides: str, session: Session | None = None) -> StrategyAnswer:
    """Predict a training step from the measured times of its parts, and then train like ``run_strategy``.

    Raises InputError if torch's classes do not support the training, or if the cluster is not this machine. Raises
    RunFailed if a rank fails.

    >>> compare_strategy("examples/fsdp_here.toml").step_s.error  # doctest: +SKIP
    -0.1
    """
    return _train(scenario, overrides, check_session(session), None, predict=True)


def _train(
    scenario: str | Path, overrides: Sequence[str], session: Session, weights: Path | None, *, predict: bool
) -> StrategyAnswer:
    job, worker, times = read_strategy_job(scenario, *overrides), "train_strategy", []
    if predict:
        with refusals_about(f"{job.spread.path}: cluster"):
            job.spread.cluster.check_measurable(session.backend, gpu_names)
        worker, times = "calibrate_and_train", [job.collectives]
    elif warning := job.spread.cluster.warn_of_run(session.backend):
        session.progress.note(warning)
    check_launch(job.world_size, session.backend, session.timeout_s)
    check_torch()
    session.report_images([job.plan.images] if job.plan.images else [])
    preload(PRELOAD, "realcomm.strategies.training")
    with session.progress.task(f"training by {job.plan.parallelism.label}") as tick, watch_load() as watch:
        options: dict[str, Any] = {"backend": session.backend, "timeout": session.timeout_s, "progress": tick}
        arguments = (job.plan, *times, weights)
        ranks = launch(f"realcomm.strategies.training:{worker}", job.world_size, *arguments, **options, renews=True)
    results, prediction = ranks, None
    if predict:
        pieces, results = map(list, zip(*ranks, strict=True))
        prediction = predict_step(job, known_pieces(job, pieces), gloo=session.backend == "gloo")
    return _answer(job, results, watch.share_of_others(), prediction)


def _answer(
    job: StrategyJob,
    results: "Sequence[StrategyResult]",
    load: MachineLoad | None,
    predicted: tuple[StepParts, States] | None = None,
) -> StrategyAnswer:
    plan, alone = job.plan, results[0].alone
    of_replicas = [rank.losses for rank in results if rank.losses]
    losses = tuple(sum(each) / len(each) for each in zip(*of_replicas, strict=True))
    step = max(median(rank.step_s[min(WARM_UP, plan.steps - 1) :]) for rank in results)
    fullest = max((rank.held for rank in results), key=sum)
    alone_losses = tuple(alone.losses) if alone else ()
    parts, states = ({}, {}) if predicted is None else (predicted[0]._asdict(), predicted[1]._asdict())
    total = sum(parts.values()) or None
    spans = Spans.of(span for rank_result in results for span in rank_result.spans).sorted()
    hosts = [f"rank {rank}" for rank in range(job.world_size)]
    label = f"{job.spread.title}: {plan.parallelism.label}"
    trace = Trace(label, "measured", len(hosts), float(spans.end.max()), spans=spans, nodes=sorted(hosts), hosts=hosts)
    return StrategyAnswer(
        title=job.spread.title,
        file=str(job.spread.path),
        cluster=job.spread.cluster.title,
        model=plan.model,
        strategy=plan.parallelism.label,
        world_size=job.world_size,
        batch_size=plan.batch_size,
        step_s=side_by_side(total, step),
        interval_s=None if total is None else (total / WITHIN, total * WITHIN),
        parts_s={name: value for name, value in parts.items() if value > 1e-6} or None,
        samples_per_s=side_by_side(total and plan.batch_size / total, plan.batch_size / step),
        held_bytes={name: side_by_side(states.get(name), float(size)) for name, size in fullest._asdict().items()},
        losses=losses,
        alone_losses=alone_losses,
        alone_step_s=median(alone.step_s[min(1, len(alone.step_s) - 1) :]) if alone else None,
        same=all(map(partial(isclose, rel_tol=TOLERANCE), losses, alone_losses)) if alone else None,
        load=load,
        traces=(trace,),
    )
