"""What the compiled engine is asked to simulate, and what follows from it, each thing worked out when first wanted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from collectives.budget import Gigabyte, allowed, check_fits
from collectives.request import Request
from collectives.schedule.size_check import check_pairs
from collectives.schedule.symbolic_build import AnySchedule
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.routing import Router
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints, LinkRecords
from simcomm.compiled.planning.cyclic_plan import cyclic_pairs, distances, plan_cyclic, sent_messages
from simcomm.compiled.planning.link_records import (
    check_some_routes,
    cyclic_one_at_a_time,
    make_link_records,
    one_at_a_time,
    private_links,
)
from simcomm.compiled.planning.routes import Pairs, Routes, find_routes
from simcomm.compiled.planning.schedule_plan import ChunkSizes, SchedulePlan, plan_table
from simcomm.model.trouble import NO_TROUBLE, Trouble


class MessageNames(NamedTuple):
    """What tells a message from all others of a collective; each array has one entry for each message sent."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks


Value = TypeVar("Value")


class worked_out(Generic[Value]):  # noqa: N801  # it is used as a decorator
    """A property that is found once for all inputs that differ in their trouble only."""

    def __init__(self, function: "Callable[[EngineInput], Value]") -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __get__(self, asked: "EngineInput", _: Any = None) -> Value:
        known = asked.known
        if self.name not in known:
            known[self.name] = self.function(asked)
        found: Value = known[self.name]
        return found


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
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # whatever the trouble

    @property
    def sizes(self) -> ChunkSizes:
        """Bytes of chunks, and the cost of reducing them."""
        return ChunkSizes(self.schedule.chunks, self.request.elements, self.request.itemsize, self.transport.gamma)

    @property
    def is_steady(self) -> bool:
        """Whether links are shared fairly, nothing is drawn, no link changes and no rank fails."""
        trouble = self.trouble
        return not (self.is_fifo or trouble.is_random or trouble.links_change or trouble.fails_ranks)

    @property
    def is_fifo(self) -> bool:
        """Whether a link serves one message at a time."""
        return self.cluster.sharing == "fifo"

    def with_table(self, most: int = Gigabyte.WRITTEN) -> "EngineInput":
        """Return the input with its schedule written out, so that every message has its ``names``.

        Raises TooLarge where there are more than ``most`` messages.
        """
        self.check_number(most)
        if not isinstance(self.schedule, SymmetricSchedule):
            return self
        if "with_table" not in self.known:
            self.known["with_table"] = replace(self, schedule=self.schedule.table())
        written: EngineInput = self.known["with_table"]
        return written.under(self.trouble, self.starts, self.index)

    def to_record(self) -> "EngineInput":
        """Return the input ``with_table``. Raise TooLarge for more messages or pairs than can be looked at."""
        written = self.with_table(Gigabyte.RECORDED)
        if self.posted > allowed(Gigabyte.ROUTED):
            pairs = len(written.pairs.src)
            what = f"{self.schedule.describe()}: the routes of its {pairs:,} pairs of ranks take too much memory"
            check_fits(pairs, Gigabyte.ROUTED, f"{what} where messages are looked at one by one")
        return written

    @property
    def posted(self) -> int:
        """How many messages the schedule has, empty ones included."""
        return self.schedule.messages

    @worked_out
    def sent(self) -> int:
        """How many messages are sent: empty ones are not."""
        if isinstance(self.schedule, SymmetricSchedule):
            if self.request.elements >= self.schedule.chunks:
                return self.posted
            return sent_messages(self.schedule, self.sizes) if self.schedule.is_cyclic else self.with_table().sent
        return len(self.schedule_plan.plan.messages)

    @worked_out
    def schedule_plan(self) -> SchedulePlan:
        """Stages, messages and pairs of ranks; a symmetric schedule must have no empty messages.

        Raises TooLarge where there are too many messages to write down.
        """
        self.check_number(Gigabyte.MESSAGES)
        if isinstance(self.schedule, SymmetricSchedule):
            return plan_cyclic(self.schedule, self.sizes)
        return plan_table(self.schedule.table(), self.sizes)

    def check_number(self, most: int) -> None:
        """Raise TooLarge where there are more than ``most`` messages."""
        what = f"{self.schedule.describe()}: its {self.posted:,} messages would have to be simulated one by one here"
        check_fits(self.posted, most, f"{what}, which takes too much memory")

    @worked_out
    def names(self) -> MessageNames:
        """Which message each one sent is. Raises AssertionError unless the schedule is written out."""
        columns, sends = self.schedule.table().columns, self.schedule_plan.sends
        assert sends is not None, "only a schedule written out names its messages: use with_table"
        return MessageNames(*(getattr(columns, name)[sends] for name in ("rank", "peer", "channel", "step", "chunk")))

    @worked_out
    def pairs(self) -> Pairs:
        """Which ranks send to which. Raises TooLarge where there are too many pairs."""
        if isinstance(self.schedule, SymmetricSchedule):
            check_pairs(self.schedule, len(distances(self.schedule)) * self.schedule.world_size)
            return cyclic_pairs(self.schedule)
        return self.schedule_plan.pairs

    def under(self, trouble: Trouble, starts: Floats | None = None, index: int = 0) -> "EngineInput":
        """Return the input in other trouble, with what is worked out of its schedule and its cluster."""
        other = replace(self, trouble=trouble, starts=starts, index=index)
        object.__setattr__(other, "known", self.known)
        return other

    @worked_out
    def found_routes(self) -> Routes:
        """The route of each pair, with links as they are without trouble."""
        router: Router | None = self.known.pop("router", None)
        return find_routes(self.cluster, self.transport, self.pairs, router)

    def check_some_routes(self) -> None:
        """Raise TooLarge for too many messages to be simulated one by one, and where some routes say so of all."""
        self.check_number(Gigabyte.MESSAGES)
        if "found_routes" not in self.known:
            self.known["router"] = self.cluster.router()
            check_some_routes(self.cluster, self.transport, self.known["router"], self.pairs, self.posted)

    @property
    def routes(self) -> Routes:
        """The route of each pair. Links that have only a share of their bandwidth all the time are narrower links."""
        routes, trouble = self.found_routes, self.trouble
        if not trouble.links or trouble.links_change:
            return routes
        key = "routes", trouble.links
        if key not in self.known:
            shares = trouble.link_shares()
            left = np.array([shares.get(edge, 1.0) for edge in self.cluster.graph.edges])
            self.known[key] = routes._replace(alone=routes.alone * left, shared=routes.shared * left)
        narrower: Routes = self.known[key]
        return narrower

    @property
    def link_records(self) -> LinkRecords:
        """The network as the kernel reads it, without links that never hold a message back."""
        key = "link_records", self.trouble.links
        if key not in self.known:
            self.known[key] = make_link_records(self.routes, self.private, self.posted)
        found: LinkRecords = self.known[key]
        return found

    @worked_out
    def private(self) -> Bools:
        """Which links never carry two messages at once."""
        says_once = isinstance(self.schedule, SymmetricSchedule)
        one = cyclic_one_at_a_time(self.schedule) if says_once else one_at_a_time(self.schedule_plan)
        return private_links(one, self.pairs, self.found_routes)


_repeated: ContextVar[list[EngineInput] | None] = ContextVar("repeated_inputs", default=None)


@contextmanager
def repetitions() -> Iterator[None]:
    """Within the context, inputs that differ in their trouble only share what is worked out, whoever makes them."""
    token = _repeated.set([])
    try:
        yield
    finally:
        _repeated.reset(token)


def share_repetitions() -> None:
    """Share what is worked out, as within ``repetitions``, from now on; in a process that does nothing else."""
    if _repeated.get() is None:
        _repeated.set([])


def as_repeated(asked: EngineInput) -> EngineInput:
    """Return the input, within ``repetitions`` with what was worked out of one before it that asks the same."""
    before = _repeated.get()
    if before is None:
        return asked
    for one in before:
        is_same = one.schedule is asked.schedule and one.cluster == asked.cluster
        if is_same and (one.request, one.transport) == (asked.request, asked.transport):
            return one.under(asked.trouble, asked.starts, asked.index)
    before.append(asked)
    return asked
