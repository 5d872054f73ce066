"""Real ranks: processes of this machine, or of torchrun's, joined by torch.distributed.

``launch`` runs any function as ranks, ``run`` measures a collective, ``train`` trains a model, ``calibrate`` fits a
transport; ``all_reduce`` and its siblings are the collectives as functions on tensors, for any process of a group.
Importing this imports no torch; workers do, and what needs it when it is first asked for.
"""

from importlib import import_module
from typing import Any

from realcomm.launching.launcher import launch
from realcomm.measuring.calibration import calibrate
from realcomm.measuring.collective import run

_FUNCTIONS = (
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "reduce",
    "reduce_scatter_tensor",
)
_LISTS = ("all_gather", "all_to_all", "gather", "reduce_scatter", "scatter")

__all__ = ["calibrate", "classroom", "launch", "run", "train", *_FUNCTIONS, *_LISTS]


def __getattr__(name: str) -> Any:
    if name == "train":
        return import_module("realcomm.training.trainer").train
    if name == "classroom":
        return import_module("realcomm.classroom")
    if name in _FUNCTIONS:
        return getattr(import_module("realcomm.functions.tensor_collectives"), name)
    if name in _LISTS:
        return getattr(import_module("realcomm.functions.list_collectives"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is there to complete, also what is only loaded when it is asked for."""
    return sorted({*globals(), *__all__})
