"""What is asked of the engine, and what follows from it, each thing worked out when it is first wanted."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.schedule.cyclic import CyclicSchedule
from collectives.schedule.schedule import Schedule
from collectives.schedule.table import StepTable
from collectives.step import Kind
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.cyclic_demand import cyclic_demand, distances, pairs_at, travelling
from simcomm.compiled.demand import Demand, Sizes, demand
from simcomm.compiled.pairs import Pairs, routes_between
from simcomm.compiled.private_links import cyclic_singles, private_links, singles
from simcomm.compiled.routes import Bools, Floats, Ints, Routes
from simcomm.model.trouble import NO_TROUBLE, Trouble

AnySchedule = Schedule | CyclicSchedule | StepTable
MOST_RECORDED = 3_000_000  # that can be looked at one by one; each takes about a kilobyte
MOST_MESSAGES = 50_000_000  # that are simulated one by one; each takes 100 to 300 bytes


def message_count(schedule: AnySchedule) -> int:
    """How many messages a built schedule has, empty ones included."""
    if isinstance(schedule, CyclicSchedule):
        return schedule.world_size * int((schedule.kind == Kind.SEND).sum())
    columns = schedule.columns if isinstance(schedule, StepTable) else schedule
    return int((columns.kind == Kind.SEND).sum())


class Names(NamedTuple):
    """Every message that travels, by its sender's step; one entry of each array for each."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks


@dataclass(frozen=True)
class EngineInput:
    """A built schedule on a cluster, and a buffer of ``n`` elements per rank."""

    schedule: AnySchedule
    cluster: Cluster
    transport: Transport
    n: int
    itemsize: int
    starts: Floats | None = None  # [ranks]: seconds at which each one's channels begin; 0 unless said
    trouble: Trouble = NO_TROUBLE
    turn: int = 0  # which collective of the trouble's run it is

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.schedule.chunks, self.n, self.itemsize, self.transport.gamma)

    @property
    def alike(self) -> bool:
        """Whether nothing tells ranks apart but their program and the cluster."""
        disturbed = self.trouble.touches_ranks or self.trouble.links_change or self.in_turn
        return not disturbed and self.starts is None

    @property
    def in_turn(self) -> bool:
        """Whether a link serves one message at a time."""
        return self.cluster.sharing == "fifo"

    def in_full(self, most: int = MOST_MESSAGES) -> "EngineInput":
        """The same with every message written down, so that it can be told what each of them is.

        Raises InputError where there are more than ``most``.
        """
        self._check_number(most)
        return replace(self, schedule=self.schedule.table()) if isinstance(self.schedule, CyclicSchedule) else self

    @property
    def posted(self) -> int:
        """How many messages the schedule has, empty ones included."""
        return message_count(self.schedule)

    @cached_property
    def travelling(self) -> int:
        """How many of them are sent."""
        if isinstance(self.schedule, CyclicSchedule):
            return travelling(self.schedule, self.sizes)
        return len(self.demand.plan.messages)

    @cached_property
    def demand(self) -> Demand:
        """Stages, messages and pairs of ranks; of a cyclic schedule without empty messages.

        Raises InputError where there are too many to write down.
        """
        self._check_number(MOST_MESSAGES)
        if isinstance(self.schedule, CyclicSchedule):
            return cyclic_demand(self.schedule, self.sizes)
        return demand(self.schedule.table(), self.sizes)

    def _check_number(self, most: int) -> None:
        if self.posted > most:
            schedule = self.schedule
            raise InputError(
                f"{schedule.describe()}: its {self.posted} messages would "
                f"have to be told one by one here, which takes too much memory; up to {most} will do"
            )

    @cached_property
    def names(self) -> Names:
        """What each message is, of a schedule written down in full."""
        columns, sends = self.schedule.table().columns, self.demand.sends
        assert sends is not None, "ask in_full"
        return Names(*(getattr(columns, name)[sends] for name in ("rank", "peer", "channel", "step", "chunk")))

    @cached_property
    def pairs(self) -> Pairs:
        """Who sends to whom."""
        if isinstance(self.schedule, CyclicSchedule):
            return pairs_at(self.schedule, distances(self.schedule))
        return self.demand.pairs

    @cached_property
    def routes(self) -> Routes:
        """By pair. Links that have only a share of their bandwidth all the time are narrower links."""
        routes, trouble = routes_between(self.cluster, self.transport, self.pairs), self.trouble
        if not trouble.links or trouble.links_change:
            return routes
        shares = trouble.link_shares()
        left = np.array([shares.get(edge, 1.0) for edge in self.cluster.graph.edges])
        return routes._replace(alone=routes.alone * left, shared=routes.shared * left)

    @cached_property
    def private(self) -> Bools:
        """Which links never carry two messages at once."""
        cyclic = isinstance(self.schedule, CyclicSchedule)
        single = cyclic_singles(self.schedule, self.pairs) if cyclic else singles(self.demand)
        return private_links(single, self.pairs, self.routes)
