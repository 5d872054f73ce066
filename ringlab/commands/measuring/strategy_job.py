"""Plans a training with ``[training.parallelism]``, and predicts its step from the measured times of its parts."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectives.checks import check_known
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.environment import cores
from collectives.records.model_profile import ModelProfile, is_transformer
from collectives.training.parallelism import REPLICAS, Parallelism
from collectives.training.recipe import Recipe
from collectives.training.workload import DATASETS, Training, is_file_reference
from planner.calls import Call, States, check_strategy, is_unit, stage_calls, stage_states
from planner.hosts import Group
from planner.jobs import STATE_BYTES, Job
from planner.pipeline import cut_stages, pipeline_seconds
from planner.prediction import StepParts
from planner.rates import Compute, as_measured
from realcomm.training.rank_result import count_steps
from realcomm.training.trainer import count_images
from ringlab.shared.failures import refusals_about
from ringlab.shared.models import follow_model
from scenarios.loader import SpreadTraining, read_spread_training
from scenarios.training_section import TrainingSection

if TYPE_CHECKING:
    from realcomm.strategies.pieces import RankTimes, TimedCollective
    from realcomm.strategies.plan import StrategyPlan

STEPS = 10  # default, if the scenario does not set the number of samples
CHECKED = 3  # steps that a single rank also trains
LEARNT_BY = ("optimizer", "learning_rate", "momentum", "weight_decay")
OF_IMAGES = ("data_folder", "download", "num_workers", "prefetch_factor", "pin_memory", "random_crop",
             "flip")  # fmt: skip
KNOWN = (*LEARNT_BY, *OF_IMAGES, "model", "dataset", "image_shape", "batch_size", "global_batch_size", "epochs",
         "images", "samples_per_epoch", "seed", "parallelism", "accumulate")  # fmt: skip
PREDICTED_BY = ("compute", "price_per_hour", "loader", "loader_rate", "variable_batches",
                "framework")  # fmt: skip
RANDOM = ("", "synthetic")  # datasets
USUAL = Parallelism()
NOT_RUN = ("experts", "expert", "top_k", "recompute", "overlap", "sync_every", "half_weights", "gradient_bytes")


@dataclass(frozen=True)
class StrategyJob:
    """A training with a parallelism strategy: the plan that its ranks execute, and the planner's job to predict it."""

    spread: SpreadTraining
    job: Job  # on the mesh of all ranks
    plan: "StrategyPlan"

    @property
    def world_size(self) -> int:
        return self.spread.cluster.world_size

    @property
    def collectives(self) -> "list[TimedCollective]":
        """The distinct collectives that the planner expects in a training step."""
        return [*dict.fromkeys(_timed(call) for calls in stage_calls(self.job) for call in calls)]


def read_strategy_job(scenario: str | Path, *overrides: str) -> StrategyJob:
    """Plan the training of a scenario. Raise InputError for settings that torch's classes do not support."""
    spread = read_spread_training(scenario, overrides)
    training, cluster = spread.training, spread.cluster
    with refusals_about(f"{spread.path}: training"):
        _check_keys(training)
        is_global = "global_batch_size" in training.model_fields_set
        job = Job(
            follow_model(training.model, spread.folder, training.shape),
            training.global_batch_size if is_global else training.batch_size,
            _runnable(spread.parallelism),
            optimizer=training.optimizer,
            is_global=is_global,
        ).on(cluster.world_size, cluster.local_ranks)
        check_strategy(job)
        profile, parallelism, batch_size = job.model, job.parallelism, job.global_batch
        model = training.model
        model = os.path.relpath(spread.folder / model) if is_file_reference(model) else model  # relative path
        recipe = Recipe(**training.model_dump(include={*LEARNT_BY}, exclude_unset=True))
        plan = plan_strategy(model, profile, parallelism, batch_size, recipe, training.shape)
        images = _find_images(training, plan, spread.folder)
        epoch = training.epoch if images is None else training.samples_per_epoch
        steps = None if epoch is None else max(1, training.epochs * (epoch // batch_size))
        if images is None:
            steps = steps or STEPS
        else:
            _, steps = count_steps(images, lambda: count_images(images), parallelism.data, steps)
        return StrategyJob(
            spread, job, plan._replace(steps=steps, checked=min(CHECKED, steps), seed=training.seed, images=images)
        )


def plan_strategy(
    model: str,
    profile: ModelProfile,
    parallelism: Parallelism,
    batch_size: int,
    recipe: Recipe,
    sample: tuple[int, ...] | None = None,
) -> "StrategyPlan":
    """Return the plan that the ranks run. ``batch_size`` is the sum over all ranks.

    Raises InputError if torch's classes do not support the strategy for this model.
    """
    from realcomm.strategies.blocks import block_names
    from realcomm.strategies.plan import StrategyPlan, check_divisible

    units = tuple(block.name for block in profile.blocks if is_unit(profile, block))
    plan = StrategyPlan(model, parallelism, batch_size, recipe, sample, units=units)
    check_divisible(plan)
    if parallelism.pipeline == 1:
        return plan
    return plan._replace(stages=_stage_blocks(profile, block_names(model), parallelism.pipeline * parallelism.virtual))


def _check_keys(training: TrainingSection) -> None:
    keys = training.model_fields_set
    for key in keys - {*KNOWN, *PREDICTED_BY}:
        value = getattr(training, key)
        if (key, value) != ("precision", "float32"):
            raise InputError(
                f"{key} = {quote(value)} is not supported with [training.parallelism]; remove {key}, or remove "
                "[training.parallelism] to train replicas"
            )
    if training.dataset in RANDOM:
        for key in OF_IMAGES:
            if key in keys:
                raise InputError(f"{key} requires an image dataset; set dataset to digits, cifar10 or imagefolder")
        return
    check_known("dataset", training.dataset, DATASETS)
    if is_transformer(training.model):
        raise InputError(
            f"dataset {quote(training.dataset)} contains images, but model {quote(training.model)} "
            "expects tokens; remove dataset to train on random tokens"
        )


def _find_images(training: TrainingSection, plan: "StrategyPlan", folder: Path) -> Training | None:
    from realcomm.strategies.plan import count_classes

    if training.dataset in RANDOM:
        return None
    values = {key: getattr(training, key) for key in (*OF_IMAGES, "images") if key in training.model_fields_set}
    if "data_folder" in values:
        values["data_folder"] = str(folder / Path(training.data_folder).expanduser())
    return Training(
        None,
        dataset=training.dataset,
        batch_size=plan.batch_size // plan.parallelism.data,
        epochs=training.epochs,
        seed=training.seed,
        image_shape=plan.source.sample,  # type: ignore[arg-type]  # of another length it is refused
        classes=count_classes(plan.model, plan.sample),
        **values,
    )


def _runnable(parallelism: Parallelism) -> Parallelism:
    if parallelism.strategy in REPLICAS:
        raise InputError(
            f"parallelism.strategy = {parallelism.strategy} can only be predicted; use ddp, zero_redundancy, zero2, "
            "fsdp or hsdp"
        )
    for name in NOT_RUN:
        if getattr(parallelism, name) != getattr(USUAL, name):
            raise InputError(f"parallelism.{name} = {getattr(parallelism, name)} can only be predicted; remove {name}")
    if parallelism.strategy == "zero1":
        parallelism = replace(parallelism, strategy="zero_redundancy")
    if parallelism.strategy == "zero_redundancy" and parallelism.tensor > 1:
        raise InputError(
            f"parallelism.tensor = {parallelism.tensor} is not supported by torch's ZeroRedundancyOptimizer; "
            "use strategy ddp, zero2, fsdp or hsdp"
        )
    return parallelism


def _stage_blocks(profile: ModelProfile, known: Sequence[str], parts: int) -> tuple[tuple[str, ...], ...]:
    """Return the block names of each pipeline stage. A block without compute joins the stage of the previous block."""
    cut = cut_stages(profile, parts)
    stage_of = {block.name: number for number, stage in enumerate(cut) for block in stage}
    stages, last = [list[str]() for _ in cut], 0
    for name in known:
        last = stage_of.get(name, last)
        stages[last].append(name)
    named = [name for stage in stages for name in stage]
    apart = {block.name for block in profile.blocks if block.parameters} - {*known}
    if named != [*known] or apart:
        raise InputError(
            f"model {quote(profile.model)}: the profile does not match the model's blocks {', '.join(known)}"
        )
    return tuple(map(tuple, stages))


def _timed(call: Call) -> "TimedCollective":
    from realcomm.strategies.pieces import TimedCollective  # imports torch

    size = 2 if call.collective == "send_recv" else call.group.size
    return TimedCollective(call.collective, round(call.nbytes), size, call.group.stride)


class KnownPieces(NamedTuple):
    """The measured times of a training step's parts, in seconds."""

    collectives: "dict[TimedCollective, float]"  # on the slowest rank
    computing: Compute  # while all ranks compute at once
    loading: float  # of a batch
    silent: float  # a step without communication, on the slowest rank

    def seconds(self, calls: Iterable[Call]) -> float:
        """Return the total time of calls that run one after another, in seconds."""
        return sum(call.times * self.collectives[_timed(call)] for call in calls)


def known_pieces(job: StrategyJob, pieces: "Sequence[RankTimes]") -> KnownPieces:
    """Combine the times of all ranks: the maximum for collectives and the step without communication, else a median."""
    seconds = {timed: max(rank.collectives_s[place] for rank in pieces) for place, timed in enumerate(job.collectives)}
    middle = sorted(pieces, key=lambda rank: rank.computing.step)[len(pieces) // 2].computing
    optimizer = median(rank.optimizer_s for rank in pieces)
    computing = replace(as_measured(replace(job.job.model, measured=(middle,))), optimizer=optimizer)
    loading = median(rank.loading_s for rank in pieces)
    return KnownPieces(seconds, computing, loading, max(rank.silent_s for rank in pieces))


def predict_step(strategy_job: StrategyJob, pieces: KnownPieces, *, gloo: bool) -> tuple[StepParts, States]:
    """Return the predicted times of a step's parts, and the memory of the rank that uses the most.

    The compute time is that of a step without communication, which includes torch's copies and dispatch. With gloo, no
    communication overlaps if the strategy uses DTensors, because torch waits for each call, or if there are at least as
    many ranks as cores. Otherwise, gradient communication overlaps backward, except for the last call.
    """
    job, ranks = strategy_job.job, strategy_job.world_size
    calls, states = stage_calls(job), stage_states(job)
    updated = max(state.optimizer for state in states) / (STATE_BYTES[job.optimizer] * job.model.parameters)
    optimizer = pieces.computing.optimizer * updated  # only for the states of one rank
    if job.parallelism.pipeline > 1:
        parts = _pipelined(job, ranks, calls, pieces, optimizer)
    else:
        within, exchanged = _split(job, calls[0])
        tensor, sync = pieces.seconds(within), pieces.seconds(exchanged)
        compute = max(0.0, pieces.silent - optimizer)
        if not (gloo and (job.parallelism.has_dtensors or ranks >= cores())) and exchanged:
            last = pieces.collectives[_timed(exchanged[-1])]
            sync = max(last, sync - compute * sum(pieces.computing.backward) / pieces.computing.sample)
        parts = StepParts(compute=compute, optimizer=optimizer, tensor=tensor, sync=sync)
    loading = max(0.0, pieces.loading - parts.total) if strategy_job.plan.loads_ahead else pieces.loading
    return parts._replace(input=loading), max(states, key=sum)


def _split(job: Job, calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Return the tensor-parallel calls and the data-parallel calls. Messages between stages are omitted."""
    parallelism = job.parallelism
    within = [call for call in calls if parallelism.tensor > 1 and call.group == Group(parallelism.tensor)]
    return within, [call for call in calls if call not in within and call.collective != "send_recv"]


def _pipelined(
    job: Job, ranks: int, calls: Sequence[Sequence[Call]], pieces: KnownPieces, optimizer: float
) -> StepParts:
    """Return the times of the parts of a pipelined step on the rank with the most work.

    With more ranks than cores, waiting ranks free their cores, so a rank computes faster than when all ranks compute at
    once. The predicted step is at least as long as the measured step without communication.
    """
    parallelism, profile = job.parallelism, job.model
    stages = cut_stages(profile, parallelism.pipeline * parallelism.virtual)
    layer_seconds = [a + b for a, b in zip(pieces.computing.forward, pieces.computing.backward, strict=True)]
    of_block = {block.name: 0.0 for block in profile.blocks}
    for layer, seconds in zip(profile.layers, layer_seconds, strict=True):
        of_block[layer.block] += job.microbatch * seconds / parallelism.tensor
    busy = np.array([[sum(of_block[block.name] for block in stage) for stage in stages]])
    split = [_split(job, stage) for stage in calls]
    inside = [pieces.seconds(within) for within, _ in split]
    each = [
        inside[number % parallelism.pipeline] / parallelism.pieces / parallelism.virtual
        for number in range(len(stages))
    ]
    messages = [call for stage in calls for call in stage if call.collective == "send_recv"]
    send = max((pieces.collectives[_timed(message)] for message in messages), default=0.0)
    ahead = busy * sum(pieces.computing.forward) / pieces.computing.sample + np.array([each]) / 2
    back = busy + np.array([each]) - ahead
    schedule = "gpipe" if parallelism.schedule == "naive" else parallelism.schedule
    sends = np.full((1, len(stages) - 1), send)
    end = float(pipeline_seconds(schedule, ahead, back, sends, parallelism.pipeline, parallelism.pieces)[0])
    computed = parallelism.pieces * busy[0].reshape(-1, parallelism.pipeline).sum(axis=0)
    most = int(np.argmax(computed + np.array(inside)))
    compute, waiting = float(computed[most]), end - float(computed[most]) - inside[most]
    longer = pieces.silent * min(1.0, cores() / ranks) / (compute + optimizer)
    sync = max(pieces.seconds(exchanged) for _, exchanged in split)
    parts = StepParts(
        compute=longer * compute,
        optimizer=longer * optimizer,
        pipeline=longer * waiting,
        tensor=inside[most],
        sync=sync,
    )
    return parts._replace(pipeline=parts.pipeline + max(0.0, pieces.silent - parts.total))
