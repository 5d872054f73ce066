"""Find the model profile and the job of a scenario's training, and adapt predicted steps to saved runs."""

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import (
    ModelProfile,
    find_model_profile,
    is_transformer,
    read_model_profile,
    shipped_model_profiles,
)
from collectives.training.workload import TO_TRAIN_ON
from planner.clusters import host_of_cluster
from planner.gpus import PRECISIONS, can_multiply, describe_unpublished, is_published
from planner.hosts import Host
from planner.jobs import LIMITED_LOADERS, PROFILES, Job, even_model, find_model, models, transformer_model
from planner.prediction import SOURCE, Training, is_language
from planner.rates import find_compute
from planner.runs import find_own_runs
from ringlab.shared.failures import refusals_about
from scenarios.loader import SpreadTraining
from scenarios.training_section import TrainingSection


def find_job(training: TrainingSection, folder: Path, *, is_traced: bool = True) -> Job:
    """Return the training job of a scenario file in ``folder``.

    If ``is_traced`` is False, the model must be a transformer, and its profile has equal layers. Raise InputError if
    the model or training.compute.profile is unknown or invalid, or if keys exclude each other.
    """
    name = None if training.compute is None else training.compute.profile
    if is_transformer(training.model) and training.loader in LIMITED_LOADERS:
        raise InputError(f'loader = "{training.loader}" only applies to images; set loader = "text", or remove loader')
    is_global = "global_batch_size" in training.model_fields_set
    if is_global and training.compute is not None and training.compute.phases is not None:
        raise InputError(
            f"global_batch_size ({training.global_batch_size}) cannot be combined with stated compute times, which are "
            "those of a device's batch; set batch_size"
        )
    if name is not None:
        profile = find_model_profile(name) if name in shipped_model_profiles() else read_model_profile(folder / name)
    elif is_transformer(training.model) and training.dataset in TO_TRAIN_ON:
        raise InputError(
            f"dataset {quote(training.dataset)} contains images, but model {quote(training.model)} expects tokens; "
            "remove dataset"
        )
    elif not is_traced and training.shape is None:
        profile = transformer_model(training.model)
    else:
        profile = find_training_model(training.model, folder, training.shape, training.parameters)
    return Job(
        model=profile,
        batch=training.global_batch_size if is_global else training.batch_size,
        is_global=is_global,
        parallelism=training.mesh,
        precision=training.precision,
        optimizer=training.optimizer,
        loader=training.loader,
        loader_rate=training.loader_rate,
        variable_batches=training.variable_batches,
        framework=training.framework,
    )


def find_training_model(
    name: str, folder: Path, shape: tuple[int, ...] | None = None, parameters: int | None = None
) -> ModelProfile:
    """Return the profile of a built-in model or of a model with published runs. Trace any other model.

    ``shape`` overrides the shape of a sample. If ``parameters`` is set, return an estimate for a model with so many
    parameters and equal layers. Raises InputError if the model is unknown, or does not support ``shape``.

    >>> find_training_model("ResNet-50", Path(".")).model
    'resnet50'
    """
    if parameters is not None:
        if shape is not None:
            raise InputError("image_shape and parameters are mutually exclusive; remove one of them")
        return even_model(name, parameters)
    base, _, tokens = name.partition(":context=")
    if base in shipped_model_profiles() and tokens.isdecimal():
        return find_training_model(base, folder, shape).with_sequence(int(tokens))
    known, shipped = {_plain(model): model for model in models()}, shipped_model_profiles()
    named = name if name in shipped else known.get(_plain(name), name)
    followed = PROFILES.get(named, named.lower() if named.lower() in shipped else name)
    if named in known.values() or followed in shipped:
        if shape is None:
            return find_model(named)
        if followed not in shipped or find_model(named).shape is not None:
            raise InputError(f"image_shape cannot be set for model {quote(name)}; remove image_shape")
    return follow_model(followed, folder, shape)


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def follow_model(model: str, folder: Path, shape: tuple[int, ...] | None = None) -> ModelProfile:
    """Trace a torchvision model, a transformer by its dimensions, or FILE.py:NAME, and return its profile.

    The path of a file is relative to ``folder``; the file is executed in a subprocess. ``shape`` is a sample's shape.
    Raises InputError for an unknown model, or one that cannot be traced.

    >>> follow_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10", Path(".")).parameters
    1000
    """
    return _follow(str(folder / model), shape) if ".py:" in model else _follow_known(model, shape)


def _follow(model: str, shape: tuple[int, ...] | None) -> ModelProfile:
    from realcomm.profiling.tracing import trace_model  # imports torch

    return trace_model(model, shape)


_follow_known = lru_cache(maxsize=16)(_follow)  # a user's file may change and is not cached


def find_training(spread: SpreadTraining, stated_batch: int) -> Training:
    """Return a scenario's training. Compute times that the scenario states are for ``stated_batch`` samples.

    If a language model on GPUs in the catalog has no stated times, they are computed from its dimensions. Raise
    InputError if the model is unknown, or a key does not apply to the model or the GPUs.
    """
    host = host_of_cluster(spread.cluster, spread.algorithm)
    with refusals_about(f"{spread.path}: training"):
        if spread.training.variable_batches and host.gpu is None:
            raise InputError('variable_batches requires transport = "nccl"; set it, or remove variable_batches')
        job = find_job(spread.training, spread.folder)
        language = find_language_model(spread.training, job, host)
    if language is not None:
        return language
    with refusals_about(f"{spread.path}: training.compute"):
        stated, compute = dict[str, Any](), spread.training.compute
        if compute is not None:
            if compute.loading:
                raise InputError(
                    "loading only applies to ranks of this machine; remove loading, and set training.loader_rate "
                    "to the samples/s of a host's data loaders"
                )
            stated = {"rate": compute.rate, "rate_gpu": compute.gpu, "phases": compute.phases, "batch": stated_batch}
            stated["is_profiled"] = compute.profile is not None
        gpu = host.gpu if isinstance(host.gpu, str) else None
        return Training(job, host, find_compute(job, gpu, **stated))


def find_language_model(training: TrainingSection, job: Job, host: Host) -> Training | None:
    """Return the training of a language model whose compute time follows from its dimensions, else None.

    Saved runs on the same GPU and framework adapt the prediction. Raise InputError if the GPU does not support the
    job's precision.
    """
    named = replace(job, optimizer=named_optimizer(training))
    if host.gpu is None or training.compute is not None or not is_language(named):
        if "framework" in training.model_fields_set:
            raise InputError(
                f"framework = {quote(training.framework)} only applies to language models on cataloged "
                "GPUs without given compute times; remove it"
            )
        return None
    gpu = host.device.name
    if not can_multiply(gpu, job.precision):
        known = ", ".join(name for name in PRECISIONS if can_multiply(gpu, name))
        raise InputError(f"{gpu} does not support {job.precision}; set precision to {known}")
    own_runs = find_own_runs(gpu, training.framework)
    if own_runs is not None:
        return Training(named, host, None, own_runs.belief, f"{SOURCE}, adapted to {own_runs.title}")
    return Training(named, host, source=SOURCE if is_published(gpu) else f"{SOURCE}; {describe_unpublished([gpu])}")


def named_optimizer(training: TrainingSection) -> str:
    """Return the scenario's optimizer, or "adamw" (usual for language models) if it names none."""
    return str(training.optimizer) if "optimizer" in training.model_fields_set else "adamw"
