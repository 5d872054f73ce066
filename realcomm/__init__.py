"""Real ranks: processes of this machine, or of torchrun's, joined by torch.distributed.

``launch`` runs any function as ranks, ``run`` measures a collective, ``train`` trains a model, ``calibrate`` fits a
transport. Importing this imports no torch; workers do, and ``train`` when it is first asked for.
"""

from typing import Any

from realcomm.calibrate import calibrate
from realcomm.launch import launch
from realcomm.run import run

__all__ = ["calibrate", "launch", "run", "train"]


def __getattr__(name: str) -> Any:
    if name == "train":
        from realcomm.training import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
