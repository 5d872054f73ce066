"""The rows of a prediction: what is simulated for each, how many messages that is, and which are the first."""

from collections.abc import Sequence
from typing import NamedTuple

from collectives.request import Request
from collectives.schedule.size_check import allowed
from collectives.workload import Training
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import MOST_MESSAGES
from simcomm.model.trouble import Trouble
from simcomm.schedules import compact_schedule
from simcomm.time_models.time_model import TimeModel


class Work(NamedTuple):
    """What there is to simulate for a row."""

    messages: int = 0  # of all repetitions
    collectives: int = 1  # that are simulated one after the other in a repetition


class Row(NamedTuple):
    """A row of the answer that is to be simulated."""

    place: int  # 0 of the scenario's own cluster, then of its what-ifs
    asked: Request | Training
    cluster: Cluster
    trouble: Trouble
    work: Work

    @property
    def name(self) -> str:
        """What is simulated."""
        return self.asked.algorithm.full_name if isinstance(self.asked, Request) else f"training/{self.asked.sync_name}"

    @property
    def may_be_too_large(self) -> bool:
        """Whether it can only be simulated where a shortcut applies, which is found out then."""
        return self.messages > allowed(MOST_MESSAGES) * self.runs * self.work.collectives

    @property
    def messages(self) -> int:
        """How many are simulated, in all repetitions."""
        return self.work.messages

    @property
    def runs(self) -> int:
        """How often it is simulated."""
        return self.trouble.runs


def is_auto(asked: Request | Training) -> bool:
    """Return whether the model chose its algorithm."""
    algorithm = asked.algorithm if isinstance(asked, Request) else asked.gradient_sync
    return algorithm is not None and algorithm.by_model


def in_order(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of the rows as they are to be simulated.

    Those that may be refused for their size are the first, so that no other has been in vain, and those with the most
    messages are the last, so that an interrupt leaves the others.
    """
    return sorted(range(len(rows)), key=lambda number: (not rows[number].may_be_too_large, rows[number].messages))


def count_work(asked: Request | Training, model: TimeModel, engine: str | None, trouble: Trouble) -> Work:
    """Return how many messages are to be simulated, 0 of what none carries.

    Raises TooLarge, and ProgramError for a program that cannot work.
    """
    carried = model.carried(asked)
    if carried is None:
        return Work()
    messages = compact_schedule(carried.algorithm, model.cluster.world_size, carried.root).messages
    return Work(carried.times * messages * trouble.runs, carried.times)
