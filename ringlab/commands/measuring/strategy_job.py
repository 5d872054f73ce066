"""The training of ``[training.parallelism]``: the plan of its ranks, and its prediction from measured pieces.

All ranks time the model's layers, the optimizer, each collective alone, and a step without communication;
``planner.mesh`` combines them. No parameter is fitted to a step.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.environment import cores
from collectives.records.model_profile import ModelProfile, is_transformer
from collectives.training.parallelism import REPLICAS, Parallelism
from collectives.training.recipe import Recipe, check_known
from collectives.training.workload import DATASETS, Training, is_file_reference
from planner.hosts import Group
from planner.mesh.compute import Compute, as_measured
from planner.mesh.interconnect import Served
from planner.mesh.job import TrainingJob
from planner.mesh.layers import is_unit
from planner.mesh.memory import check_strategy
from planner.mesh.prediction import StepParts, StepPrediction
from planner.mesh.step import StepModel
from planner.stages import cut_stages
from realcomm.training.rank_result import count_steps
from realcomm.training.trainer import count_images
from ringlab.shared.failures import refusals_about
from ringlab.shared.models import follow_model
from scenarios.loader import SpreadTraining, read_spread_training
from scenarios.training_section import TrainingSection

if TYPE_CHECKING:
    from realcomm.strategies.pieces import Question, RankTimes
    from realcomm.strategies.plan import StrategyPlan

STEPS = 10  # unless the scenario says how many samples an epoch has
CHECKED = 3  # steps that one rank also trains alone, unless all are asked for
LEARNT_BY = ("optimizer", "learning_rate", "momentum", "weight_decay")
OF_IMAGES = ("data_folder", "download", "verify", "num_workers", "prefetch_factor", "pin_memory", "random_crop",
             "flip")  # fmt: skip
KNOWN = (*LEARNT_BY, *OF_IMAGES, "model", "dataset", "image_shape", "batch_size", "global_batch_size", "epochs",
         "images", "samples_per_epoch", "seed", "parallelism", "accumulate")  # fmt: skip
PREDICTED_BY = ("compute", "price_per_hour", "loader", "loader_rate", "variable_batches",
                "framework")  # fmt: skip
USUAL = Parallelism()
NOT_RUN = ("experts", "expert", "top_k", "recompute", "prefetch", "overlap", "sync_every", "half_weights",
           "gradient_bytes")  # fmt: skip


@dataclass(frozen=True)
class StrategyJob:
    """The plan of the ranks, and the job to predict."""

    spread: SpreadTraining
    job: TrainingJob  # on the mesh of all ranks
    plan: "StrategyPlan"

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.spread.cluster.world_size


def read_strategy_job(scenario: str | Path, *overrides: str, check_all: bool = False) -> StrategyJob:
    """Return the training of a scenario. Raise InputError for settings that torch's classes do not support."""
    spread = read_spread_training(scenario, overrides)
    with refusals_about(f"{spread.path}: training"):
        return make_strategy_job(spread, check_all)


def make_strategy_job(spread: SpreadTraining, check_all: bool = False) -> StrategyJob:
    """Return the training; one rank also trains the first steps alone, or all. Raise InputError."""
    training, cluster = spread.training, spread.cluster
    _check_keys(training)
    _check_images(training)
    parallelism = _runnable(spread.parallelism).for_devices(cluster.world_size, cluster.local_ranks)
    profile = follow_model(training.model, spread.folder, training.shape)
    batch_size = _batch_size(training, parallelism)
    job = TrainingJob(profile, batch_size // parallelism.data, parallelism, optimizer=training.optimizer)
    check_strategy(job)
    model = training.model
    model = os.path.relpath(spread.folder / model) if is_file_reference(model) else model  # from here
    recipe = Recipe(**training.model_dump(include={*LEARNT_BY}, exclude_unset=True))
    plan = plan_strategy(model, profile, parallelism, batch_size, recipe, training.shape)
    images = _find_images(training, plan, spread.folder)
    steps = _count_steps(training, batch_size, images, parallelism.data)
    checked = steps if check_all else min(CHECKED, steps)
    return StrategyJob(spread, job, plan._replace(steps=steps, checked=checked, seed=training.seed, images=images))


def plan_strategy(
    model: str,
    profile: ModelProfile,
    parallelism: Parallelism,
    batch_size: int,
    recipe: Recipe,
    sample: tuple[int, ...] | None = None,
) -> "StrategyPlan":
    """Return the plan of the ranks. ``batch_size`` is that of all ranks.

    Raises InputError if torch's classes do not support the strategy for the model, and for a pipeline without stages.
    """
    from realcomm.strategies.blocks import block_names
    from realcomm.strategies.plan import StrategyPlan, check_divisible

    units = tuple(block.name for block in profile.blocks if is_unit(profile, block))
    plan = StrategyPlan(model, parallelism, batch_size, recipe, sample, units=units)
    check_divisible(plan)
    if parallelism.pipeline == 1:
        return plan
    return plan._replace(stages=stage_blocks(profile, block_names(model), parallelism.pipeline * parallelism.virtual))


def _check_keys(training: TrainingSection) -> None:
    """Raise InputError for unsupported keys."""
    asked = {key: getattr(training, key) for key in training.model_fields_set}
    for key in asked.keys() - {*KNOWN, *PREDICTED_BY}:
        if (key, asked[key]) == ("precision", "float32"):
            continue
        raise InputError(
            f"{key} = {quote(asked[key])} is not supported with [training.parallelism], which trains "
            f"on random samples or a dataset, in float32, with {', '.join(LEARNT_BY)}; remove {key}, "
            "or remove parallelism to train replicas"
        )


def _check_images(training: TrainingSection) -> None:
    """Raise InputError for image keys without an image dataset, and for a model that does not read images."""
    if training.dataset in ("", "synthetic"):
        for key in OF_IMAGES:
            if key in training.model_fields_set:
                raise InputError(f"{key} requires an image dataset; set dataset to digits, cifar10 or imagefolder")
        return
    check_known("dataset", training.dataset, DATASETS)
    if is_transformer(training.model):
        raise InputError(
            f"dataset {quote(training.dataset)} contains images, but model {quote(training.model)} "
            "expects tokens; remove dataset to train on random tokens"
        )


def _find_images(training: TrainingSection, plan: "StrategyPlan", folder: Path) -> Training | None:
    """Return the image dataset of a replica; None for random samples. Raise InputError."""
    from realcomm.strategies.plan import count_classes

    given = {key: getattr(training, key) for key in OF_IMAGES if key in training.model_fields_set}
    if training.dataset in ("", "synthetic"):
        return None
    if "data_folder" in given:
        given["data_folder"] = str(folder / Path(training.data_folder).expanduser())
    if "images" in training.model_fields_set:
        given["images"] = training.images
    parallelism = plan.parallelism
    return Training(
        None,
        dataset=training.dataset,
        batch_size=plan.batch_size // parallelism.data,
        epochs=training.epochs,
        seed=training.seed,
        image_shape=plan.source.sample,  # type: ignore[arg-type]  # of another length it is refused
        classes=count_classes(plan.model, plan.sample),
        **given,
    )


def _runnable(parallelism: Parallelism) -> Parallelism:
    """Return the strategy of torch's own classes. Raise InputError if they do not support it."""
    if parallelism.strategy in REPLICAS:
        raise InputError(
            f"parallelism.strategy = {parallelism.strategy} is {REPLICAS[parallelism.strategy]} and can only be "
            "predicted; use "
            "ddp, zero_redundancy, zero2, fsdp or hsdp"
        )
    for name in NOT_RUN:
        if getattr(parallelism, name) != getattr(USUAL, name):
            raise InputError(f"parallelism.{name} = {getattr(parallelism, name)} can only be predicted; remove it")
    if parallelism.strategy == "zero1":
        parallelism = replace(parallelism, strategy="zero_redundancy")
    if parallelism.strategy == "zero_redundancy" and parallelism.tensor > 1:
        raise InputError(
            f"parallelism.tensor = {parallelism.tensor} is not supported by torch's ZeroRedundancyOptimizer; "
            "use strategy ddp, zero2, fsdp or hsdp"
        )
    return parallelism


def _batch_size(training: TrainingSection, parallelism: Parallelism) -> int:
    """Return the samples of a step of all ranks. Raise InputError if the replicas cannot share them equally."""
    if "global_batch_size" not in training.model_fields_set:
        return training.batch_size * parallelism.data
    if training.global_batch_size % parallelism.data:
        raise InputError(
            f"global_batch_size {training.global_batch_size} is not divisible by the {parallelism.data} "
            f"devices of the data axis; use a multiple of {parallelism.data}"
        )
    return training.global_batch_size


def _count_steps(training: TrainingSection, batch_size: int, images: Training | None, replicas: int) -> int:
    epoch = training.epoch if images is None else training.samples_per_epoch
    steps = None if epoch is None else max(1, training.epochs * (epoch // batch_size))
    if images is None:
        return steps or STEPS
    return count_steps(images, lambda: count_images(images), replicas, steps)[1]


def stage_blocks(profile: ModelProfile, known: Sequence[str], parts: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of each stage's blocks. A block without compute stays in the stage of the previous one.

    Raises InputError if the profile has other blocks, and for more stages than blocks.
    """
    cut = cut_stages(profile, parts)
    stage_of = {block.name: number for number, stage in enumerate(cut) for block in stage}
    stages, last = [list[str]() for _ in cut], 0
    for name in known:
        last = stage_of.get(name, last)
        stages[last].append(name)
    named = [name for stage in stages for name in stage]
    apart = {block.name for block in profile.blocks if block.parameters} - {*known}
    if named != [*known] or apart:
        raise InputError(f"model {quote(profile.model)}: its blocks {', '.join(known)} do not match its profile")
    return tuple(map(tuple, stages))


class AskedCollectives:
    """A network on which collectives take no time, to collect the collectives of a step."""

    kind, nic, links = "", 1e12, None

    def __init__(self, ranks: int) -> None:
        self.node, self.questions = ranks, dict["Question", None]()

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Collect the collective."""
        if group.size > 1 and nbytes > 0:
            self.questions[_question(collective, nbytes, group)] = None
        return 0.0

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Reject parameter servers, which no strategy here uses."""
        raise AssertionError(f"{nbytes} bytes ({largest} of a layer) are to be served to {group}")


class TimedCollectives(AskedCollectives):
    """A network on which collectives take their measured times."""

    def __init__(self, ranks: int, known: "dict[Question, float]") -> None:
        super().__init__(ranks)
        self.known = known

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return the measured seconds."""
        return self.known[_question(collective, nbytes, group)] if group.size > 1 and nbytes > 0 else 0.0


def _question(collective: str, nbytes: float, group: Group) -> "Question":
    from realcomm.strategies.pieces import Question  # imports torch

    size = 2 if collective == "send_recv" else group.size
    return Question(collective, round(nbytes), size, group.stride)


class KnownPieces(NamedTuple):
    """The measured pieces of a step: collectives on the slowest rank, and compute on all ranks at once."""

    collectives: TimedCollectives
    computing: Compute
    loading: float  # seconds that a batch takes
    silent: float  # of a step in which nothing travels, on the slowest rank


def ask_collectives(jobs: Sequence[TrainingJob], ranks: int) -> "list[Question]":
    """Return the collectives of a step of each job, each once."""
    asked = AskedCollectives(ranks)
    for job in jobs:
        ones = (1.0,) * len(job.model.layers)
        StepModel(job, Compute(job.model, ones, ones, 1.0, "", 0.0), lambda _: asked).predict(ranks)
    return [*asked.questions]


def known_pieces(
    ranks: int, profile: ModelProfile, questions: "Sequence[Question]", pieces: "Sequence[RankTimes]"
) -> KnownPieces:
    """Return the pieces of a step from the times of all ranks."""
    seconds = {question: max(rank.collectives_s[place] for rank in pieces) for place, question in enumerate(questions)}
    middle = sorted(pieces, key=lambda rank: rank.computing.step)[len(pieces) // 2].computing
    optimizer = median(rank.optimizer_s for rank in pieces)
    computing = replace(as_measured(replace(profile, measured=(middle,))), optimizer=optimizer)
    loading = median(rank.loading_s for rank in pieces)
    silent = max(rank.silent_s for rank in pieces)
    return KnownPieces(TimedCollectives(ranks, seconds), computing, loading, silent)


def predict_step(
    job: TrainingJob, ranks: int, pieces: KnownPieces, *, gloo: bool = True, ahead: bool = False
) -> StepPrediction:
    """Combine the pieces into a step. ``ahead`` means that batches are loaded during the step.

    Compute is that of a step without communication, including torch's copies and dispatch. With gloo, nothing hides
    FSDP's collectives, because torch waits for each, nor those of other strategies if all cores compute.
    """
    parallelism = job.parallelism
    prediction = StepModel(job, pieces.computing, lambda _: pieces.collectives).predict(ranks)
    parts = prediction.parts
    if parallelism.pipeline > 1:
        parts = _pipelined(ranks, pieces, parts)
    else:
        parts = replace(parts, compute=max(0.0, pieces.silent - parts.optimizer))
        if gloo and (parallelism.has_dtensors or ranks >= cores()):
            called = sum(each.times * pieces.collectives.seconds(*each[:3]) for each in prediction.calls[0])
            parts = replace(parts, sync=max(0.0, called - parts.tensor), overlap_slowdown=0.0)
    loading = max(0.0, pieces.loading - parts.total) if ahead else pieces.loading
    return replace(prediction, parts=replace(parts, input=loading))


def _pipelined(ranks: int, pieces: KnownPieces, parts: StepParts) -> StepParts:
    """Return the parts of a pipeline's step.

    Waiting ranks leave their cores to others, so with more ranks than cores a rank computes faster than all at once. A
    step is never shorter than the compute of all ranks.
    """
    longer = pieces.silent * min(1.0, cores() / ranks) / (parts.compute + parts.optimizer)
    parts = replace(parts, **{name: longer * getattr(parts, name) for name in ("compute", "optimizer", "pipeline")})
    return replace(parts, pipeline=parts.pipeline + max(0.0, pieces.silent - parts.total))
