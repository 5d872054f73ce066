"""What the compiled engine is asked to simulate, and what follows from it, each thing worked out when first wanted."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from collectives.errors import TooLarge
from collectives.request import Request
from collectives.schedule.cyclic import CyclicSchedule
from collectives.schedule.grid import GridSchedule
from collectives.schedule.size_check import check_pairs
from collectives.schedule.symbolic_build import AnySchedule, message_count
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints
from simcomm.compiled.kernel.links import LinkRecords
from simcomm.compiled.planning.cyclic_plan import cyclic_pairs, distances, plan_cyclic, sent_messages
from simcomm.compiled.planning.link_records import make_link_records
from simcomm.compiled.planning.private_links import cyclic_one_at_a_time, one_at_a_time, private_links
from simcomm.compiled.planning.routes import Pairs, Routes, find_routes
from simcomm.compiled.planning.schedule_plan import ChunkSizes, SchedulePlan, plan_table
from simcomm.model.trouble import NO_TROUBLE, Trouble

MOST_RECORDED = 3_000_000  # messages that can be looked at one by one; each takes about a kilobyte
MOST_MESSAGES = 50_000_000  # that are simulated one by one; each takes 100 to 300 bytes


COMPACT = (CyclicSchedule, GridSchedule)  # schedules that say once what all ranks say


class MessageNames(NamedTuple):
    """What tells a message from all others of a collective; each array has one entry for each message sent."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks


@dataclass(frozen=True)
class EngineInput:
    """A request, its schedule, and the cluster that carries it out."""

    request: Request
    schedule: AnySchedule
    cluster: Cluster
    transport: Transport
    trouble: Trouble = NO_TROUBLE
    starts: Floats | None = None  # [ranks]: seconds at which each one's channels begin; 0 unless given
    index: int = 0  # which collective of the trouble's run it is

    @property
    def sizes(self) -> ChunkSizes:
        """Bytes of chunks, and the cost of reducing them."""
        return ChunkSizes(self.schedule.chunks, self.request.elements, self.request.itemsize, self.transport.gamma)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the schedule and the cluster tells ranks apart."""
        in_trouble = self.trouble.touches_ranks or self.trouble.links_change
        return not in_trouble and not self.is_fifo and self.starts is None

    @property
    def is_fifo(self) -> bool:
        """Whether a link serves one message at a time."""
        return self.cluster.sharing == "fifo"

    def with_table(self, most: int = MOST_MESSAGES) -> "EngineInput":
        """Return the input with its schedule written out, so that every message has its ``names``.

        Raises TooLarge where there are more than ``most`` messages.
        """
        self._check_number(most)
        return replace(self, schedule=self.schedule.table()) if isinstance(self.schedule, COMPACT) else self

    @property
    def posted(self) -> int:
        """How many messages the schedule has, empty ones included."""
        return message_count(self.schedule)

    @cached_property
    def sent(self) -> int:
        """How many messages are sent: empty ones are not."""
        if isinstance(self.schedule, CyclicSchedule):
            return sent_messages(self.schedule, self.sizes)
        if isinstance(self.schedule, GridSchedule) and self.request.elements >= self.schedule.chunks:
            return self.posted
        return len(self.schedule_plan.plan.messages)

    @cached_property
    def schedule_plan(self) -> SchedulePlan:
        """Stages, messages and pairs of ranks; a cyclic schedule must have no empty messages.

        Raises TooLarge where there are too many messages to write down.
        """
        self._check_number(MOST_MESSAGES)
        if isinstance(self.schedule, CyclicSchedule):
            return plan_cyclic(self.schedule, self.sizes)
        return plan_table(self.schedule.table(), self.sizes)

    def _check_number(self, most: int) -> None:
        if self.posted > most:
            raise TooLarge(
                f"{self.schedule.describe()}: its {self.posted:,} messages would have to be simulated one by one here, "
                f"which takes too much memory; up to {most:,} will do; ask for fewer ranks (--set cluster.hosts=N)"
            )

    @cached_property
    def names(self) -> MessageNames:
        """Which message each one sent is. Raises AssertionError unless the schedule is written out."""
        columns, sends = self.schedule.table().columns, self.schedule_plan.sends
        assert sends is not None, "only a schedule written out names its messages: use with_table"
        return MessageNames(*(getattr(columns, name)[sends] for name in ("rank", "peer", "channel", "step", "chunk")))

    @cached_property
    def pairs(self) -> Pairs:
        """Which ranks send to which. Raises TooLarge where there are too many pairs."""
        if isinstance(self.schedule, COMPACT):
            check_pairs(self.schedule, len(distances(self.schedule)) * self.schedule.world_size)
            return cyclic_pairs(self.schedule)
        return self.schedule_plan.pairs

    def under(self, trouble: Trouble, starts: Floats | None = None, index: int = 0) -> "EngineInput":
        """Return the input in other trouble, with what was worked out of its schedule and its cluster."""
        other = replace(self, trouble=trouble, starts=starts, index=index)
        kept = ("sent", "schedule_plan", "names", "pairs", "found_routes", "private")
        other.__dict__.update({name: self.__dict__[name] for name in kept if name in self.__dict__})
        return other

    @cached_property
    def found_routes(self) -> Routes:
        """The route of each pair, with links as they are without trouble."""
        return find_routes(self.cluster, self.transport, self.pairs)

    @cached_property
    def routes(self) -> Routes:
        """The route of each pair. Links that have only a share of their bandwidth all the time are narrower links."""
        routes, trouble = self.found_routes, self.trouble
        if not trouble.links or trouble.links_change:
            return routes
        shares = trouble.link_shares()
        left = np.array([shares.get(edge, 1.0) for edge in self.cluster.graph.edges])
        return routes._replace(alone=routes.alone * left, shared=routes.shared * left)

    @cached_property
    def link_records(self) -> LinkRecords:
        """The network as the kernel reads it, without links that never hold a message back."""
        return make_link_records(self.routes, self.private)

    @cached_property
    def private(self) -> Bools:
        """Which links never carry two messages at once."""
        cyclic = isinstance(self.schedule, CyclicSchedule)
        one = cyclic_one_at_a_time(self.schedule) if cyclic else one_at_a_time(self.schedule_plan)
        return private_links(one, self.pairs, self.found_routes)
