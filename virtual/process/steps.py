"""When the steps of optimizers end: what is between two of them is a step of training."""

from itertools import pairwise
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from virtual.matching.recorder import JobRecorder
from virtual.ranks.rank import Rank
from virtual.ranks.world import VirtualWorld

STEPS = "ends of steps"  # by which a rank keeps them


class StepClock:
    """Notes when the first optimizer of each rank that makes steps in a group ends them."""

    def __init__(self, world: VirtualWorld) -> None:
        self.world = world
        self._hook: Any = None

    def install(self) -> None:
        """Be told of every optimizer's step."""
        self._hook = register_optimizer_step_post_hook(self._note)

    def remove(self) -> None:
        """Be told no more."""
        self._hook.remove()

    def _note(self, optimizer: Optimizer, args: Any, named: Any) -> None:
        rank = self.world.me()
        recorders: list[JobRecorder] = [] if rank is None else rank.job.logs
        if rank is None or not recorders or rank.extra.setdefault("optimizer", optimizer) is not optimizer:
            return
        self.world.computing.charge(rank)
        ends: list[float] = rank.extra.setdefault(STEPS, [])
        recorders[0].step(rank, len(ends))
        ends.append(rank.clock)


def step_seconds(rank: Rank) -> list[float]:
    """Return what each step of a rank took by its clock."""
    ends: list[float] = rank.extra.get(STEPS, [])
    return [after - before for before, after in pairwise(ends)]
