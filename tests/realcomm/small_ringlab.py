"""``python -m small_ringlab`` as a rank of torchrun: the command line, with a small model for trainings.

In torchrun's first attempt, rank 1 is killed in its fifth step, while it waits for gradients. With ``LOST_NODE=1``, the
rank and its torchrun are killed after that step; with ``LOST_NODE=0`` nothing is killed. With ``WAITS=1``, a rank that
is alone takes half a second more for each step, so that another one can return.
"""

import os
import signal
import time
from typing import Any

import training_workers

from realcomm.launching.torchrun import restarts
from realcomm.training import trainer
from realcomm.training.observing import Observer, StepRecord
from realcomm.training.running import RunningTraining
from ringlab.__main__ import main

train_rank: Any = trainer.train_rank


class LostNode(Observer):
    def step_done(self, running: RunningTraining, record: StepRecord) -> None:
        if record.step == 4:
            for process in (os.getppid(), os.getpid()):
                os.kill(process, signal.SIGKILL)


class Waiting(Observer):
    """Slows down while this rank is alone."""

    def step_done(self, running: RunningTraining, record: StepRecord) -> None:
        if running.world_size == 1:
            time.sleep(0.5)


FAULTS = {"1": [LostNode()], "0": [], None: [training_workers.faulty("kill", "sync")]}


def train_rank_with_fault(*arguments: Any) -> object:
    *before, observers = arguments
    faults = FAULTS[os.environ.get("LOST_NODE")] if restarts() == 0 else []
    return train_rank(*before, (*observers, *faults, *([Waiting()] if "WAITS" in os.environ else [])))


if __name__ == "__main__":
    training_workers.make_small()
    vars(trainer).update(train_rank=train_rank_with_fault)
    main()
