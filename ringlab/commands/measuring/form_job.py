"""A scenario's training in a form of parallelism, as ranks of this machine are to carry it out."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import ModelProfile
from collectives.records.transformer_shapes import is_transformer
from collectives.training.parallelism import REPLICAS, Parallelism
from collectives.training.recipe import Recipe, check_known
from collectives.training.workload import DATASETS, Training, is_file_reference
from realcomm.training.rank_result import count_steps
from realcomm.training.trainer import count_images
from ringlab.shared.models import follow_model
from scenarios.loader import SpreadTraining, read_spread_training
from scenarios.training_form import TrainingForm
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.layers import cut_stages, is_unit
from simcomm.mesh.memory import check_form

if TYPE_CHECKING:
    from realcomm.forms.plan import FormPlan

STEPS = 10  # unless the scenario says how many samples an epoch has
CHECKED = 3  # steps that one rank also trains alone, unless all are asked for
LEARNT_BY = ("optimizer", "learning_rate", "momentum", "weight_decay")
OF_IMAGES = ("data_folder", "download", "verify", "num_workers", "prefetch_factor", "pin_memory", "random_crop",
             "flip")  # fmt: skip
KNOWN = (*LEARNT_BY, *OF_IMAGES, "model", "dataset", "image_shape", "batch_size", "global_batch_size", "epochs",
         "images", "samples_per_epoch", "seed", "parallelism", "accumulate")  # fmt: skip
PREDICTED_BY = ("compute", "price_per_hour", "loader", "loader_rate", "input_bytes", "contention", "variable_batches",
                "framework")  # fmt: skip
USUAL = Parallelism()
NOT_RUN = ("experts", "expert", "top_k", "recompute", "prefetch", "overlap", "sync_every", "half_weights",
           "gradient_bytes")  # fmt: skip


@dataclass(frozen=True)
class FormJob:
    """What ranks train, and the same as it is predicted."""

    spread: SpreadTraining
    job: TrainingJob  # on the mesh of all ranks
    plan: "FormPlan"

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self.spread.cluster.world_size


def read_form_job(scenario: str | Path, *overrides: str, check_all: bool = False) -> FormJob:
    """Return what a scenario with ``[training.parallelism]`` has ranks train.

    Raise InputError, which names file, key and value, for what torch's classes cannot give.
    """
    spread = read_spread_training(scenario, overrides)
    try:
        return make_form_job(spread, check_all)
    except InputError as error:
        raise InputError(f"{spread.path}: training: {error}") from error


def make_form_job(spread: SpreadTraining, check_all: bool = False) -> FormJob:
    """Return what ranks are to train; one rank trains the first steps alone, or all. Raise InputError."""
    training, cluster = spread.training, spread.cluster
    _check_keys(training)
    _check_images(training)
    form = _runnable(spread.parallelism).for_devices(cluster.world_size, cluster.local_ranks)
    profile = follow_model(training.model, spread.folder, training.shape)
    batch_size = _batch_size(training, form)
    job = TrainingJob(profile, batch_size // form.data, form, optimizer=training.optimizer)
    check_form(job)
    model = _model_from_here(training.model, spread.folder)
    recipe = Recipe(**training.model_dump(include={*LEARNT_BY}, exclude_unset=True))
    plan = plan_form(model, profile, form, batch_size, recipe, training.shape)
    images = _find_images(training, plan, spread.folder)
    steps = _count_steps(training, batch_size, images, form.data)
    checked = steps if check_all else min(CHECKED, steps)
    return FormJob(spread, job, plan._replace(steps=steps, checked=checked, seed=training.seed, images=images))


def plan_form(
    model: str,
    profile: ModelProfile,
    form: Parallelism,
    batch_size: int,
    recipe: Recipe,
    sample: tuple[int, ...] | None = None,
) -> "FormPlan":
    """Return what ranks are told of a training in a form whose mesh is whole; ``batch_size`` is of all of them.

    Raises InputError for a form that torch's classes cannot give the model, and a pipeline of one without stages.
    """
    from realcomm.forms.blocks import block_names  # imports torch, which --help does without
    from realcomm.forms.plan import FormPlan, check_divisible

    units = tuple(block.name for block in profile.blocks if is_unit(profile, block))
    plan = FormPlan(model, form, batch_size, recipe, sample, units=units)
    check_divisible(plan)
    if form.pipeline == 1:
        return plan
    return plan._replace(stages=stage_blocks(profile, block_names(model), form.pipeline * form.virtual))


def _check_keys(training: TrainingForm) -> None:
    """Raise InputError for keys that a training on a mesh does not have."""
    asked = {key: getattr(training, key) for key in training.model_fields_set}
    for key in asked.keys() - {*KNOWN, *PREDICTED_BY}:
        if (key, asked[key]) == ("precision", "float32"):
            continue
        raise InputError(
            f"{key} = {quote(asked[key])} is not of a training that runs by [training.parallelism]: it learns from "
            f"random samples or a dataset, in float32, by {', '.join(LEARNT_BY)}; leave {key} out, or parallelism for "
            "replicas"
        )


def _check_images(training: TrainingForm) -> None:
    """Raise InputError for keys of a data set where there is none, and for one that the model does not read."""
    if training.dataset in ("", "synthetic"):
        for key in OF_IMAGES:
            if key in training.model_fields_set:
                raise InputError(
                    f"{key} is of the images of a dataset; give dataset too: digits, cifar10 or imagefolder"
                )
        return
    check_known("dataset", training.dataset, DATASETS)
    if is_transformer(training.model):
        raise InputError(
            f"dataset is {quote(training.dataset)}, which are images, and model {quote(training.model)} reads words; "
            "leave dataset out, and it learns from random words"
        )


def _find_images(training: TrainingForm, plan: "FormPlan", folder: Path) -> Training | None:
    """Return the images of a data set as a replica has them, None where samples are random. Raise InputError."""
    from realcomm.forms.plan import count_classes

    given = {key: getattr(training, key) for key in OF_IMAGES if key in training.model_fields_set}
    if training.dataset in ("", "synthetic"):
        return None
    if "data_folder" in given:
        given["data_folder"] = str(folder / Path(training.data_folder).expanduser())
    if "images" in training.model_fields_set:
        given["images"] = training.images
    form = plan.form
    return Training(
        None,
        dataset=training.dataset,
        batch_size=plan.batch_size // form.data,
        epochs=training.epochs,
        seed=training.seed,
        image_shape=plan.source.sample,  # type: ignore[arg-type]  # of another length it is refused
        classes=count_classes(plan.model, plan.sample),
        **given,
    )


def _runnable(form: Parallelism) -> Parallelism:
    """Return the form that torch's own classes give. Raise InputError where they give none."""
    if form.form in REPLICAS:
        raise InputError(
            f"parallelism.form is {form.form}, which is {REPLICAS[form.form]} and predicted only; give ddp, "
            "zero_redundancy, zero2, fsdp or hsdp"
        )
    for name in NOT_RUN:
        if getattr(form, name) != getattr(USUAL, name):
            raise InputError(f"parallelism.{name} is {getattr(form, name)}, which is predicted only; leave it out")
    if form.form == "zero1":
        form = replace(form, form="zero_redundancy")
    if form.form == "zero_redundancy" and form.tensor > 1:
        raise InputError(
            f"parallelism.tensor is {form.tensor}, and torch's ZeroRedundancyOptimizer takes no divided matrices; "
            "give form ddp, zero2, fsdp or hsdp"
        )
    return form


def _batch_size(training: TrainingForm, form: Parallelism) -> int:
    """Return the samples of a step of all ranks. Raise InputError for ones that replicas cannot share equally."""
    if "global_batch_size" not in training.model_fields_set:
        return training.batch_size * form.data
    if training.global_batch_size % form.data:
        raise InputError(
            f"global_batch_size is {training.global_batch_size}, and the data axis has {form.data} devices with equal "
            f"shares; give a multiple of {form.data}"
        )
    return training.global_batch_size


def _count_steps(training: TrainingForm, batch_size: int, images: Training | None, replicas: int) -> int:
    epoch = training.epoch if images is None else training.samples_per_epoch
    steps = None if epoch is None else max(1, training.epochs * (epoch // batch_size))
    if images is None:
        return steps or STEPS
    return count_steps(images, lambda: count_images(images), replicas, steps)[1]


def _model_from_here(model: str, folder: Path) -> str:
    return os.path.relpath(folder / model) if is_file_reference(model) else model


def stage_blocks(profile: ModelProfile, known: Sequence[str], parts: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of each stage's blocks; one that the profile has not, as it computes nothing, follows the last.

    Raises InputError for a profile whose blocks are not these, and for more stages than blocks.
    """
    cut = cut_stages(profile, parts)
    stage_of = {block.name: number for number, stage in enumerate(cut) for block in stage}
    found, last = [list[str]() for _ in cut], 0
    for name in known:
        last = stage_of.get(name, last)
        found[last].append(name)
    named = [name for stage in found for name in stage]
    apart = {block.name for block in profile.blocks if block.parameters} - {*known}
    if named != [*known] or apart:
        raise InputError(f"model {quote(profile.model)}: its blocks {', '.join(known)} are not those of its profile")
    return tuple(map(tuple, found))
