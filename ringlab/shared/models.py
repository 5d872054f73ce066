"""The model that a scenario names: shipped, of published trainings, followed on the meta device, or a size alone."""

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import (
    ModelProfile,
    find_model_profile,
    read_model_profile,
    shipped_model_profiles,
)
from simcomm.mesh.job import TrainingJob
from simcomm.scaling.gpu_rates import ComputeSource
from simcomm.scaling.models import PROFILES, even_model, find_model, models

if TYPE_CHECKING:
    from scenarios.training_form import TrainingForm


def find_profile(training: "TrainingForm", folder: Path) -> ModelProfile:
    """Return the profile of a scenario in ``folder``: of the file that it names, or of its model. Raise InputError."""
    if training.compute is not None and training.compute.profile is not None:
        name = training.compute.profile
        return find_model_profile(name) if name in shipped_model_profiles() else read_model_profile(folder / name)
    return find_training_model(training.model, folder, training.shape, training.parameters)


def find_job(training: "TrainingForm", folder: Path) -> TrainingJob:
    """Return what a scenario in ``folder`` trains. Raise InputError for a model that is not known or followed."""
    return TrainingJob(
        model=find_profile(training, folder),
        batch=training.batch_size,
        parallelism=training.mesh,
        precision=training.precision,
        optimizer=training.optimizer,
        loader=training.loader,
        loader_rate=training.loader_rate,
        variable_batches=training.variable_batches,
        input_bytes=training.input_bytes,
        contention=frozenset(training.contention),
        framework=training.framework,
    )


def find_source(training: "TrainingForm", batch: int) -> ComputeSource:
    """Return what a scenario says of how fast one device computes; stated phases are of ``batch`` samples."""
    said = training.compute
    if said is None:
        return ComputeSource()
    return ComputeSource(said.rate, said.gpu, said.phases, batch, is_profiled=said.profile is not None)


def find_training_model(
    name: str, folder: Path, shape: tuple[int, ...] | None = None, parameters: int | None = None
) -> ModelProfile:
    """Return the profile of a model by any name: a shipped one, that of published trainings, or one to follow.

    ``shape`` is of a sample where it is not the profile's own; of ``parameters`` alone the layers are alike. Raises
    InputError.

    >>> find_training_model("ResNet-50", Path(".")).model
    'resnet50'
    """
    if parameters is not None:
        if shape is not None:
            raise InputError("image_shape beside parameters, from which the work is guessed; leave one of the two out")
        return even_model(name, parameters)
    known, shipped = {_plain(one): one for one in models()}, shipped_model_profiles()
    named = name if name in shipped else known.get(_plain(name), name)
    followed = PROFILES.get(named, named.lower() if named.lower() in shipped else name)
    if named in known.values() or followed in shipped:
        if shape is None:
            return find_model(named)
        if followed not in shipped or find_model(named).shape is not None:
            raise InputError(f"image_shape beside model {quote(name)}, whose samples are its own; leave it out")
    return follow_model(followed, folder, shape)


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def follow_model(model: str, folder: Path, shape: tuple[int, ...] | None = None) -> ModelProfile:
    """Return the profile of a model of torchvision, of a transformer by its dimensions, or of FILE.py:NAME.

    A file is one in ``folder``, unless its name says where it is; it is executed in a process of its own. ``shape`` is
    of a sample. Raises InputError for a model that is not known, or that cannot be followed.

    >>> follow_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10", Path(".")).parameters
    1000
    """
    return _follow(str(folder / model), shape) if ".py:" in model else _follow_known(model, shape)


def _follow(model: str, shape: tuple[int, ...] | None) -> ModelProfile:
    from realcomm.profiling.tracing import trace_model  # imports torch

    return trace_model(model, shape)


_follow_known = lru_cache(maxsize=16)(_follow)  # not of a user's file, which may change
