"""The rows of a prediction: what is simulated for each, how many messages that is, and which are the first."""

from collections.abc import Sequence
from typing import NamedTuple

from collectives.catalogue import find_algorithm
from collectives.declaration import GLOO, Algorithm
from collectives.request import Request
from collectives.schedule.size_check import allowed
from collectives.schedule.symbolic_build import message_count
from collectives.workload import Training
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import MOST_MESSAGES
from simcomm.engine_choice import FEW
from simcomm.model.trouble import NO_TROUBLE, Trouble
from simcomm.schedules import compact_schedule
from simcomm.size_limits import check_one_by_one, check_simpy
from simcomm.time_models.choice import time_model


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
    def needs_machine_code(self) -> bool:
        """Whether it has too many messages for the simpy engine, as it is or repeated."""
        return self.messages > FEW * self.work.collectives

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


def count_work(
    asked: Request | Training, cluster: Cluster, engine: str | None = None, trouble: Trouble = NO_TROUBLE
) -> Work:
    """Return how many messages are to be simulated, 0 of what is predicted as a whole.

    Raises TooLarge, and ProgramError for a program that cannot work.
    """
    algorithm, root, times = _called(asked, cluster)
    if algorithm is None or algorithm.is_nccl:
        return Work()
    check_size(asked, cluster, engine)
    messages = message_count(compact_schedule(algorithm, cluster.world_size, root))
    return Work(times * messages * trouble.runs, times)


def check_size(asked: Request | Training, cluster: Cluster, engine: str | None = None) -> None:
    """Raise TooLarge for a collective that is too large by a look at what a few ranks say first."""
    if isinstance(asked, Training) and asked.buckets is not None:  # predicted as a whole, by no engine
        return
    over_tcp = cluster.transport is not None and cluster.transport.tcp is not None
    algorithm, root, times = _called(asked, cluster)
    if engine == "simpy" and algorithm is not None and not algorithm.is_nccl:
        check_simpy(algorithm, cluster.world_size, root, times)
    elif isinstance(asked, Request) and engine != "simpy" and not over_tcp:
        check_one_by_one(asked, cluster)


def _called(asked: Request | Training, cluster: Cluster) -> tuple[Algorithm | None, int, int]:
    """Return the algorithm that is simulated, its root and how often: a few steps' syncs, or each bucket once.

    It is None for torch's own sync, but on an emulated cluster, where gloo's all_reduce carries the buckets.
    """
    if isinstance(asked, Request):
        return asked.algorithm, asked.root, 1
    algorithm = asked.gradient_sync
    if algorithm is None and cluster.is_emulated:
        algorithm = find_algorithm(f"all_reduce/{GLOO}")
    if algorithm is not None and asked.overlaps:
        return algorithm, 0, len(asked.fill_buckets(asked.gradients))
    return algorithm, 0, time_model(cluster).steps
