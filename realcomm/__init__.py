"""Real ranks: processes of this machine, or of torchrun's, joined by torch.distributed.

* ``run`` measures a collective, ``train`` trains a model, ``calibrate`` measures this machine for predictions.
* ``emulate`` makes a cluster's network on this machine, on which the others then run.
* ``launch`` calls any function as ranks. In it, ``set_status`` and ``report_progress`` say what a rank is doing.
* ``all_reduce`` and the other eleven collectives work on tensors in any process that has a group of torch.distributed,
  and ``classroom`` has four of them with the signatures of a first exercise.
* ``execute`` and ``Executor`` run any rank program on a tensor.
* ``RunFailed`` is raised when a run breaks: ``RankFailed`` by a rank, ``TimedOut`` by its timeout.

Importing this does not import torch; what needs it is imported when it is first used.
"""

from importlib import import_module
from typing import Any

from collectives.errors import RunFailed
from realcomm.calibration.calibration import calibrate
from realcomm.emulation.network import emulate
from realcomm.launching.failures import RankFailed, TimedOut
from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.collective_run import run

_LAZY = {  # by module
    "realcomm.functions.tensor_collectives": [
        "all_gather",
        "all_gather_into_tensor",
        "all_reduce",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "gather",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
    ],
    "realcomm.execution.executor": ["Executor", "execute"],
    "realcomm.training.trainer": ["train"],
}
_MODULES = {name: module for module, names in _LAZY.items() for name in names}

__all__ = [
    "RankFailed",
    "RunFailed",
    "TimedOut",
    "calibrate",
    "classroom",
    "emulate",
    "launch",
    "report_progress",
    "run",
    "set_status",
    *_MODULES,
]


def __getattr__(name: str) -> Any:
    if name == "classroom":
        return import_module("realcomm.classroom")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all names to complete, also those that are imported when they are first used."""
    return sorted({*globals(), *__all__})
