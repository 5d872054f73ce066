"""``ModelParallelAnswer``: one device, a model on two, and data parallelism over such pairs; predicted and run."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from collectives.checks import check_whole_number
from collectives.records.environment import cores
from collectives.records.spans import Spans
from collectives.records.trace import Trace
from ringlab.commands.measuring.form_job import stage_blocks
from ringlab.shared.answer import AnswerRecord
from simcomm.mesh.pipeline import StageTimes, pipeline_program

WARM_UP = 2  # steps left out of medians


class ModelParallelRow(NamedTuple):
    """A way to spread the model: seconds of a step, predicted from its stages by themselves, and measured."""

    name: str
    processes: int
    predicted_s: float
    measured_s: float
    samples_per_s: float
    speed_up: float  # over one device
    predicted_speed_up: float
    final_loss: float

    @property
    def error(self) -> float:
        """The prediction's error, as a share of what was measured."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, repr=False)
class ModelParallelAnswer(AnswerRecord):
    """What ``model_parallel`` found."""

    model: str
    batch_size: int
    rows: tuple[ModelParallelRow, ...]
    traces: tuple[Trace, ...] = ()

    def __repr__(self) -> str:
        return f"<ModelParallelAnswer of {self.model}: {len(self.rows)} ways>"


def model_parallel(
    model: str = "resnet18",
    *,
    shape: tuple[int, ...] | None = (3, 32, 32),
    batch_size: int = 32,
    stages: int = 2,
    replicas: Sequence[int] = (1, 2),
    steps: int = 10,
    timeout: float = 600.0,
) -> ModelParallelAnswer:
    """Train on one process, on a row of ``stages``, and on several such rows; predict each step beside it.

    Each process is a device with one thread. A row is predicted from its stages by themselves, a message and an average
    of gradients, all timed before its steps. Raises InputError and RunFailed.

    >>> answer = model_parallel(steps=4, timeout=60)  # doctest: +SKIP
    >>> answer.rows[1].speed_up < 1  # one device works at a time  # doctest: +SKIP
    True
    """
    check_whole_number("stages", stages, at_least=2)
    check_whole_number("steps", steps, at_least=1)
    from realcomm.forms.blocks import block_names
    from realcomm.launching.launcher import launch
    from realcomm.launching.server import preload
    from realcomm.launching.torch_process import PRELOAD
    from realcomm.model_parallel import StagePlan, run_stage
    from realcomm.profiling.tracing import trace_model

    profile, known = trace_model(model, shape), block_names(model)
    rows, traces = list[ModelParallelRow](), list[Trace]()
    preload(PRELOAD, "torchvision", "realcomm.model_parallel")
    for parts, copies in [(1, 1), *((stages, count) for count in replicas)]:
        plan = StagePlan(model, shape, stage_blocks(profile, known, parts), copies, batch_size, WARM_UP + steps)
        ranks = launch(run_stage, plan.world_size, plan, threads=1, timeout=timeout)
        predicted = predict_stages([[one.calibration for one in ranks[s * copies : (s + 1) * copies]]
                                    for s in range(parts)])  # fmt: skip
        measured = max(median(one.step_s[WARM_UP:]) for one in ranks[:copies])
        losses = [one.losses[-1] for one in ranks[-copies:]]
        name = "one device" if parts == 1 else f"model on {parts}" + (f", {copies} rows" if copies > 1 else "")
        one_s, one_predicted_s = (rows[0].measured_s, rows[0].predicted_s) if rows else (measured, predicted)
        rows.append(
            ModelParallelRow(
                name=name,
                processes=plan.world_size,
                predicted_s=predicted,
                measured_s=measured,
                samples_per_s=copies * batch_size / measured,
                speed_up=copies * one_s / measured,
                predicted_speed_up=copies * one_predicted_s / predicted,
                final_loss=sum(losses) / copies,
            )
        )
        spans = Spans.of(span for one in ranks for span in one.spans).sorted()
        hosts = [f"stage {rank // copies}" for rank in range(plan.world_size)]
        elapsed = float(spans.end.max())
        traces.append(
            Trace(name, "measured", plan.world_size, elapsed, spans=spans, nodes=sorted({*hosts}), hosts=hosts)
        )
    return ModelParallelAnswer(model, batch_size, tuple(rows), tuple(traces))


def predict_stages(calibrations: Sequence[Sequence["object"]], at_once: int | None = None) -> float:
    """Return the seconds of a step, by stage the calibrations of its replicas; the slowest of them counts.

    The timeline is that of ``simcomm.mesh``: a naive schedule, and behind each stage's backward its average and
    its optimizer. No step is shorter than all that its processes compute, spread over the cores: ``at_once`` of them,
    this machine's unless given.
    """
    of = [
        {name: max(float(getattr(one, name)) for one in stage) for name in
         ("forward", "backward", "optimizer", "message", "sync")}
        for stage in calibrations
    ]  # fmt: skip
    sends = [*(stage["message"] for stage in of[1:]), 0.0]
    times = [StageTimes(stage["forward"], stage["backward"], send) for stage, send in zip(of, sends, strict=True)]
    program = pipeline_program("gpipe", times, len(of), 1)
    ends = [0.0] * len(of)
    for task, interval in zip(program.tasks, program.intervals(), strict=True):
        ends[task.stream[0]] = max(ends[task.stream[0]], interval.end)
    timeline = max(end + stage["sync"] + stage["optimizer"] for end, stage in zip(ends, of, strict=True))
    replicas, phases = len(calibrations[0]), ("forward", "backward", "sync", "optimizer")
    worked = replicas * (sum(stage[name] for stage in of for name in phases) + 2 * sum(sends))
    return max(timeline, worked / min(at_once or cores(), replicas * len(of)))
