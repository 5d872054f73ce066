"""The rows of a prediction: what is simulated for each, what is said of them before, and which are the first."""

from collections.abc import Sequence
from typing import NamedTuple

from collectives.request import Request
from collectives.schedule.size_check import allowed
from collectives.units import count, format_time
from collectives.workload import Training
from ringlab.answers.announcing import Expected, announce
from ringlab.answers.progress import Progress
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import MOST_MESSAGES
from simcomm.engine_choice import FEW
from simcomm.model.trouble import NO_TROUBLE, Trouble

LONG_S = 60.0  # of simulating a row


class Row(NamedTuple):
    """A row of the answer that is to be simulated."""

    place: int  # 0 of the scenario's own cluster, then of its what-ifs
    asked: Request | Training
    cluster: Cluster
    trouble: Trouble
    expected: Expected

    @property
    def name(self) -> str:
        """What is simulated."""
        return self.asked.algorithm.full_name if isinstance(self.asked, Request) else f"training/{self.asked.sync_name}"

    @property
    def is_long(self) -> bool:
        """Whether simulating it takes longer than one waits for."""
        return self.expected.seconds > LONG_S

    @property
    def may_be_too_large(self) -> bool:
        """Whether it can only be simulated where a shortcut applies, which is found out then."""
        return self.messages > allowed(MOST_MESSAGES) * self.runs * self.expected.collectives

    @property
    def needs_machine_code(self) -> bool:
        """Whether it has too many messages for the simpy engine, as it is or repeated."""
        return self.messages > FEW * self.expected.collectives

    @property
    def messages(self) -> int:
        """How many are simulated, in all repetitions."""
        return self.expected.messages

    @property
    def runs(self) -> int:
        """How often it is simulated."""
        return self.trouble.runs


def is_auto(asked: Request | Training) -> bool:
    """Return whether the model chose its algorithm."""
    algorithm = asked.algorithm if isinstance(asked, Request) else asked.gradient_sync
    return algorithm is not None and algorithm.by_model


def announce_rows(rows: Sequence[Row], progress: Progress | None) -> None:
    """Say how many messages there are to simulate, and how long that should take, where it is more than a moment.

    Of an algorithm that ``auto`` chose without trouble it is said what it takes in trouble, where that is long.
    """
    seconds = sum(row.expected.seconds for row in rows)
    announce(
        progress, f"{sum(row.messages for row in rows):,} messages to simulate in {count(len(rows), 'row')}", seconds
    )
    in_trouble = [row for row in rows if is_auto(row.asked) and row.is_long and row.trouble != NO_TROUBLE]
    for name, longest in {row.name: row for row in sorted(in_trouble, key=lambda row: row.expected.seconds)}.items():
        if progress is not None:
            progress.note(
                f"{name} is the fastest without trouble, but about {format_time(longest.expected.seconds)} of that are "
                "to simulate it in trouble; an algorithm that is named in place of auto may take far less"
            )


def in_order(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of the rows as they are to be simulated.

    Those that may be refused for their size are the first, so that no other has been in vain, and those that take long
    are the last, so that an interrupt leaves the others.
    """
    return sorted(range(len(rows)), key=lambda number: (not rows[number].may_be_too_large, rows[number].is_long))
