"""Models that are not shipped, followed on the meta device when a scenario names them."""

from functools import lru_cache
from pathlib import Path

from collectives.records.model_profile import ModelProfile


def follow_model(model: str, folder: Path, shape: tuple[int, ...] | None = None) -> ModelProfile:
    """Return the profile of a model of torchvision, of a transformer by its dimensions, or of FILE.py:NAME.

    A file is one in ``folder``, unless its name says where it is; it is executed in a process of its own. ``shape`` is
    of a sample. Raises InputError for a model that is not known, or that cannot be followed.

    >>> follow_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10", Path(".")).parameters
    1000
    """
    return _follow(str(folder / model), shape) if ".py:" in model else _follow_known(model, shape)


def _follow(model: str, shape: tuple[int, ...] | None) -> ModelProfile:
    from realcomm.profiling.file_models import trace_model  # imports torch

    return trace_model(model, shape)


_follow_known = lru_cache(maxsize=16)(_follow)  # not of a user's file, which may change
