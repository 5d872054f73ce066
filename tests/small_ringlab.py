"""``python -m small_ringlab`` as a rank of torchrun: the command line, whose trainings are of a small model.

In torchrun's first attempt rank 1 is killed in its fifth step, while it waits for gradients.
"""

from typing import Any

import training_workers

from realcomm.launching.torchrun import restarts
from realcomm.training import trainer
from ringlab.__main__ import main

train_rank: Any = trainer.train_rank


def train_rank_with_fault(*given: Any) -> object:
    *before, observers = given
    return train_rank(*before, (*observers, training_workers.faulty("kill", "sync")))


if __name__ == "__main__":
    training_workers.make_small()
    if restarts() == 0:
        vars(trainer).update(train_rank=train_rank_with_fault)
    main()
