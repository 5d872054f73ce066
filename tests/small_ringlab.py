"""``python -m small_ringlab`` as a rank of torchrun: the command line, whose trainings are of a small model.

In torchrun's first attempt rank 1 is killed in its fifth step, while it waits for gradients. With ``LOST_NODE=1`` the
rank and the torchrun that has started it are killed after that step; with ``LOST_NODE=0`` nothing happens to it.
"""

import os
import signal
from typing import Any

import training_workers

from realcomm.launching.torchrun import restarts
from realcomm.training import trainer
from realcomm.training.observing import Observed, Observer, StepRecord
from ringlab.__main__ import main

train_rank: Any = trainer.train_rank


class LostNode(Observer):
    """Ends the node that this rank is on."""

    def step_done(self, running: Observed, record: StepRecord) -> None:
        if record.step == 4:
            for process in (os.getppid(), os.getpid()):
                os.kill(process, signal.SIGKILL)


FAULTS = {"1": [LostNode()], "0": [], None: [training_workers.faulty("kill", "sync")]}


def train_rank_with_fault(*given: Any) -> object:
    *before, observers = given
    return train_rank(*before, (*observers, *FAULTS[os.environ.get("LOST_NODE")]))


if __name__ == "__main__":
    training_workers.make_small()
    if restarts() == 0:
        vars(trainer).update(train_rank=train_rank_with_fault)
    main()
