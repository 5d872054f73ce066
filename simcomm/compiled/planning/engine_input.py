"""Define the input of the compiled engine, and the data derived from it, which is computed on first use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from collectives.budget import Gigabyte, allowed, check_fits
from collectives.call import CollectiveCall
from collectives.schedule.size_check import check_pairs
from collectives.schedule.symbolic_build import AnySchedule
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints, LinkRecords
from simcomm.compiled.planning.routes import (
    Routes,
    cyclic_one_at_a_time,
    find_routes,
    make_link_records,
    one_at_a_time,
    private_links,
)
from simcomm.compiled.planning.schedule_plan import (
    ChunkSizes,
    Pairs,
    SchedulePlan,
    cyclic_pairs,
    distances,
    plan_cyclic,
    plan_table,
    sent_messages,
)
from simcomm.model.faults import NO_FAULTS, Faults


class MessageNames(NamedTuple):
    """The identity of each sent message within its collective. Each array has one entry per message."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks


Value = TypeVar("Value")


class derived_property(Generic[Value]):  # noqa: N801  # it is used as a decorator
    """A cached property that is shared by all inputs that ``EngineInput.under`` creates from one input."""

    def __init__(self, function: "Callable[[EngineInput], Value]") -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __get__(self, inputs: "EngineInput", _: Any = None) -> Value:
        derived = inputs.derived
        if self.name not in derived:
            derived[self.name] = self.function(inputs)
        value: Value = derived[self.name]
        return value


@dataclass(frozen=True)
class EngineInput:
    """A collective call, its schedule, and the cluster that executes it."""

    call: CollectiveCall
    schedule: AnySchedule
    cluster: Cluster
    transport: Transport
    faults: Faults = NO_FAULTS
    starts: Floats | None = None  # [ranks]: start of the rank's channels in seconds; None: 0
    index: int = 0  # number of the collective within the run, for the draws of faults
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # for any faults

    @property
    def sizes(self) -> ChunkSizes:
        """The sizes of chunks, and the cost of reducing them."""
        return ChunkSizes(self.schedule.chunks, self.call.elements, self.call.itemsize, self.transport.gamma)

    def with_table(self, most: int = Gigabyte.WRITTEN) -> "EngineInput":
        """Return the input with its schedule as a table of all ranks' operations, which ``names`` requires.

        Raise TooLarge if there are more than ``most`` messages per gigabyte of the memory limit.
        """
        self.check_number(most)
        if not isinstance(self.schedule, SymmetricSchedule):
            return self
        if "with_table" not in self.derived:
            self.derived["with_table"] = replace(self, schedule=self.schedule.table())
        expanded: EngineInput = self.derived["with_table"]
        return expanded.under(self.faults, self.starts, self.index)

    def to_record(self) -> "EngineInput":
        """Return the input with a table, to record messages. Raise TooLarge for too many messages or routes."""
        expanded = self.with_table(Gigabyte.RECORDED)
        if self.posted > allowed(Gigabyte.ROUTED):
            pairs = len(expanded.pairs.src)
            routes = f"{self.schedule.describe()}: the routes of its {pairs:,} pairs of ranks"
            check_fits(pairs, Gigabyte.ROUTED, f"{routes} take too much memory to record messages")
        return expanded

    @property
    def posted(self) -> int:
        """The number of messages in the schedule, including empty ones."""
        return self.schedule.messages

    @derived_property
    def sent(self) -> int:
        """The number of messages that are not empty, and therefore sent."""
        if isinstance(self.schedule, SymmetricSchedule):
            if self.call.elements >= self.schedule.chunks:
                return self.posted
            return sent_messages(self.schedule, self.sizes)
        return len(self.schedule_plan.plan.messages)

    @derived_property
    def schedule_plan(self) -> SchedulePlan:
        """The schedule as stages, messages and pairs of ranks. A symmetric schedule must not have empty messages.

        Raise TooLarge if there are too many messages.
        """
        self.check_number(Gigabyte.MESSAGES)
        if isinstance(self.schedule, SymmetricSchedule):
            return plan_cyclic(self.schedule, self.sizes)
        return plan_table(self.schedule.table(), self.sizes)

    def check_number(self, most: int) -> None:
        """Raise TooLarge if there are more than ``most`` messages per gigabyte of the memory limit."""
        messages = f"{self.schedule.describe()}: its {self.posted:,} messages"
        check_fits(self.posted, most, f"{messages} take too much memory to simulate one by one")

    @derived_property
    def names(self) -> MessageNames:
        """The identity of each sent message. The schedule must be a table: see ``with_table``."""
        columns, sends = self.schedule.table().columns, self.schedule_plan.sends
        assert sends is not None, "only a schedule written out names its messages: use with_table"
        return MessageNames(*(getattr(columns, name)[sends] for name in ("rank", "peer", "channel", "step", "chunk")))

    @derived_property
    def pairs(self) -> Pairs:
        """The pairs of sender and receiver. Raise TooLarge if there are too many."""
        if isinstance(self.schedule, SymmetricSchedule):
            check_pairs(self.schedule, len(distances(self.schedule)) * self.schedule.world_size)
            return cyclic_pairs(self.schedule)
        return self.schedule_plan.pairs

    def under(self, faults: Faults, starts: Floats | None = None, index: int = 0) -> "EngineInput":
        """Return the input with other faults. The two inputs share all derived data that does not depend on faults."""
        other = replace(self, faults=faults, starts=starts, index=index)
        object.__setattr__(other, "derived", self.derived)
        return other

    @derived_property
    def found_routes(self) -> Routes:
        """The route of each pair of ranks, and the bandwidths and latencies of all links without faults."""
        return find_routes(self.cluster, self.transport, self.pairs)

    @property
    def routes(self) -> Routes:
        """The route of each pair of ranks. Links that are degraded for the whole run have their reduced bandwidth."""
        routes, faults = self.found_routes, self.faults
        if not faults.links or faults.changes_links:
            return routes
        key = "routes", faults.links
        if key not in self.derived:
            shares = faults.link_shares()
            shares_left = np.array([shares.get(edge, 1.0) for edge in self.cluster.graph.edges])
            self.derived[key] = routes._replace(alone=routes.alone * shares_left, shared=routes.shared * shares_left)
        narrower: Routes = self.derived[key]
        return narrower

    @property
    def link_records(self) -> LinkRecords:
        """The network as arrays for the kernel, without the links that never limit a message."""
        key = "link_records", self.faults.links
        if key not in self.derived:
            self.derived[key] = make_link_records(self.routes, self.private, self.posted)
        records: LinkRecords = self.derived[key]
        return records

    @derived_property
    def private(self) -> Bools:
        """Boolean mask of the links that never carry two messages at once; shape [links]."""
        is_symmetric = isinstance(self.schedule, SymmetricSchedule)
        single = cyclic_one_at_a_time(self.schedule) if is_symmetric else one_at_a_time(self.schedule_plan)
        return private_links(single, self.pairs, self.found_routes)


_repeated: ContextVar[list[EngineInput] | None] = ContextVar("repeated_inputs", default=None)


@contextmanager
def repetitions() -> Iterator[None]:
    """Within the context, inputs that differ only in their faults share their derived data."""
    token = _repeated.set([])
    try:
        yield
    finally:
        _repeated.reset(token)


def share_repetitions() -> None:
    """Share derived data between inputs, as within ``repetitions``, until this worker process ends."""
    if _repeated.get() is None:
        _repeated.set([])


def as_repeated(inputs: EngineInput) -> EngineInput:
    """Return the input. Within ``repetitions``, it shares data with earlier inputs that differ only in their faults."""
    earlier = _repeated.get()
    if earlier is None:
        return inputs
    for other in earlier:
        is_same = other.schedule is inputs.schedule and other.cluster == inputs.cluster
        if is_same and (other.call, other.transport) == (inputs.call, inputs.transport):
            return other.under(inputs.faults, inputs.starts, inputs.index)
    earlier.append(inputs)
    return inputs


def busiest_link_seconds(inputs: EngineInput) -> float:
    """Return a lower bound on the time in seconds: the minimum message delay plus the busiest link's transfer time.

    For a symmetric schedule, all chunks count as the shortest chunk. Raise TooLarge if there are too many messages.
    """
    nbytes, routes = _bytes_of_pairs(inputs), inputs.routes
    if len(nbytes) == 0:
        return 0.0
    crossing = np.repeat(nbytes, np.diff(routes.first_hop))
    loads = np.bincount(routes.hop_link, weights=crossing, minlength=len(routes.alone))
    return float(routes.delay.min() + (loads / np.maximum(routes.alone, routes.shared)).max(initial=0.0))


def _bytes_of_pairs(inputs: EngineInput) -> Floats:
    """Return a lower bound on the bytes that the sender of each pair sends to its receiver; shape [pairs]."""
    schedule = inputs.schedule
    if not isinstance(schedule, SymmetricSchedule):
        messages = inputs.schedule_plan.plan.messages
        return np.bincount(messages["route"], weights=messages["nbytes"], minlength=len(inputs.pairs.src))
    return np.tile(_bytes_by_distance(schedule, inputs), schedule.world_size)


def _bytes_by_distance(schedule: SymmetricSchedule, inputs: EngineInput) -> Floats:
    """Return a lower bound on the bytes that a rank sends over each distance around the ring; shape [distances]."""
    sends = np.flatnonzero(schedule.kind == Kind.SEND)
    shortest = inputs.call.elements // schedule.chunks * inputs.call.itemsize
    all_distances = distances(schedule)
    number = np.searchsorted(all_distances, schedule.peer[sends])
    return np.bincount(number, weights=schedule.count[sends] * float(shortest), minlength=len(all_distances))
