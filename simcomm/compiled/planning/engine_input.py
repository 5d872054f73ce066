"""What the compiled engine is asked to simulate, and what follows from it, each thing worked out when first wanted.

Inputs of one program may differ in sizes, bandwidths and latencies alone. A plan, pairs, routes and which links are
private do not depend on how fast links are, as long as routes do not. So ``SharedInputs`` hands them from one input to
the next, and the answers are the same to the last bit.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
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
from simcomm.cluster.graph import complete_links
from simcomm.cluster.routing import ListedRouter, RailAwareRouter, Router, ShortestRouter, rail_aware, shortest
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints, LinkRecords
from simcomm.compiled.planning.link_records import (
    check_some_routes,
    cyclic_one_at_a_time,
    make_link_records,
    one_at_a_time,
    private_links,
)
from simcomm.compiled.planning.routes import Pairs, Routes, find_routes, with_speeds
from simcomm.compiled.planning.schedule_plan import (
    ChunkSizes,
    SchedulePlan,
    cyclic_pairs,
    distances,
    plan_cyclic,
    plan_table,
    sent_messages,
)
from simcomm.model.faults import NO_FAULTS, Faults


class MessageNames(NamedTuple):
    """What tells a message from all others of a collective; each array has one entry for each message sent."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks


Value = TypeVar("Value")


class worked_out(Generic[Value]):  # noqa: N801  # it is used as a decorator
    """A property that is found once for all inputs that differ in their faults only."""

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
    """A call, its schedule, and the cluster that carries it out."""

    call: CollectiveCall
    schedule: AnySchedule
    cluster: Cluster
    transport: Transport
    faults: Faults = NO_FAULTS
    starts: Floats | None = None  # [ranks]: seconds at which each one's channels begin; 0 unless given
    index: int = 0  # which collective of the faults's run it is
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # whatever the faults

    @property
    def sizes(self) -> ChunkSizes:
        """Bytes of chunks, and the cost of reducing them."""
        return ChunkSizes(self.schedule.chunks, self.call.elements, self.call.itemsize, self.transport.gamma)

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
        return written.under(self.faults, self.starts, self.index)

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
            if self.call.elements >= self.schedule.chunks:
                return self.posted
            return sent_messages(self.schedule, self.sizes)
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

    def under(self, faults: Faults, starts: Floats | None = None, index: int = 0) -> "EngineInput":
        """Return the input with other faults, with what is worked out of its schedule and its cluster."""
        other = replace(self, faults=faults, starts=starts, index=index)
        object.__setattr__(other, "known", self.known)
        return other

    @worked_out
    def found_routes(self) -> Routes:
        """The route of each pair, with links as they are without faults."""
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
        routes, faults = self.found_routes, self.faults
        if not faults.links or faults.changes_links:
            return routes
        key = "routes", faults.links
        if key not in self.known:
            shares = faults.link_shares()
            left = np.array([shares.get(edge, 1.0) for edge in self.cluster.graph.edges])
            self.known[key] = routes._replace(alone=routes.alone * left, shared=routes.shared * left)
        narrower: Routes = self.known[key]
        return narrower

    @property
    def link_records(self) -> LinkRecords:
        """The network as the kernel reads it, without links that never hold a message back."""
        key = "link_records", self.faults.links
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
    """Within the context, inputs that differ in their faults only share what is worked out, whoever makes them."""
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
        if is_same and (one.call, one.transport) == (asked.call, asked.transport):
            return one.under(asked.faults, asked.starts, asked.index)
    before.append(asked)
    return asked


def busiest_link_seconds(inputs: EngineInput) -> float:
    """Return seconds that no run goes below: a message's least delay, and then all bytes over the busiest link.

    Where a schedule says once what all ranks say, each chunk counts as the shortest. Raises TooLarge as an engine does.
    """
    nbytes, routes = _bytes_of_pairs(inputs), inputs.routes
    if len(nbytes) == 0:
        return 0.0
    crossing = np.repeat(nbytes, np.diff(routes.first_hop))
    loads = np.bincount(routes.hop_link, weights=crossing, minlength=len(routes.alone))
    return float(routes.delay.min() + (loads / np.maximum(routes.alone, routes.shared)).max(initial=0.0))


def _bytes_of_pairs(inputs: EngineInput) -> Floats:
    """Return the bytes that each pair of ranks sends, or fewer; [pairs]."""
    schedule = inputs.schedule
    if not isinstance(schedule, SymmetricSchedule):
        messages = inputs.schedule_plan.plan.messages
        return np.bincount(messages["route"], weights=messages["nbytes"], minlength=len(inputs.pairs.src))
    return np.tile(_bytes_by_distance(schedule, inputs), schedule.world_size)


def _bytes_by_distance(schedule: SymmetricSchedule, inputs: EngineInput) -> Floats:
    """Return the bytes that a rank sends to those at each distance, or fewer; [distances]."""
    sends = np.flatnonzero(schedule.kind == Kind.SEND)
    shortest = inputs.call.elements // schedule.chunks * inputs.call.itemsize
    every = distances(schedule)
    number = np.searchsorted(every, schedule.peer[sends])
    return np.bincount(number, weights=schedule.count[sends] * float(shortest), minlength=len(every))


SPEEDS = {"bandwidth", "shared_bandwidth", "usable_bandwidth", "latency"}
KNOWN_ROUTING = (shortest, rail_aware, ShortestRouter, RailAwareRouter, ListedRouter)  # see bandwidths by their ratios


class SharedInputs:
    """The inputs of one schedule without faults, one after the other."""

    def __init__(self, schedule: AnySchedule, *, keeps_plans: bool = True) -> None:
        """Take the schedule; ``keeps_plans`` where calls of one size come again."""
        self.schedule = schedule
        self._last: EngineInput | None = None
        self._plans: dict[tuple[int, int, float], SchedulePlan] = {}
        # messages of all plans that are kept
        self._keeps = 1_000_000 // max(1, schedule.messages) if keeps_plans else 0

    def next(self, call: CollectiveCall, cluster: Cluster, transport: Transport) -> EngineInput:
        """Return the input of a call, with all that it has in common with the one before."""
        self._keep_plan()
        found = EngineInput(call, self.schedule, cluster, transport)
        if call.elements < self.schedule.chunks:  # empty messages are not sent, so that pairs and plan are others
            return found
        known, last = found.known, self._last
        plan = self._plans.get(_plan_key(found))
        if plan is not None:
            known["schedule_plan"] = plan
        if last is not None and last.cluster is cluster and last.transport == transport:
            _hand_on(last, known, ("pairs", "found_routes", "private", ("link_records", ())))
        elif last is not None and "found_routes" in last.known and same_paths(last.cluster, cluster):
            _hand_on(last, known, ("pairs", "private"))
            known["found_routes"] = with_speeds(last.found_routes, cluster, transport)
        self._last = found
        return found

    def _keep_plan(self) -> None:
        """Keep the plan that the last input was simulated by, if it was and not too much is kept."""
        plan = self._last.known.get("schedule_plan") if self._last is not None else None
        if self._last is not None and plan is not None and len(self._plans) < self._keeps:
            self._plans[_plan_key(self._last)] = plan


def _plan_key(found: EngineInput) -> tuple[int, int, float]:
    return found.call.elements, found.call.itemsize, found.transport.gamma


def _hand_on(last: EngineInput, known: dict[Any, Any], names: tuple[Any, ...]) -> None:
    known.update({name: last.known[name] for name in names if name in last.known})


def same_paths(one: Cluster, other: Cluster) -> bool:
    """Return whether both clusters certainly route alike: the same but for latencies and the unit of bandwidth.

    >>> import simcomm
    >>> tree, wider, other = (simcomm.two_level_tree(2, 2, "1 GB/s", "1 us", over) for over in (1, 1, 4))
    >>> same_paths(tree, wider), same_paths(tree, other)
    (True, False)
    """
    if one.hosts != other.hosts or _policy(one.routing) is None or _policy(one.routing) != _policy(other.routing):
        return False
    if list(one.graph.nodes(data=True)) != list(other.graph.nodes(data=True)):
        return False
    if complete_links(one.graph) is not None and complete_links(other.graph) is not None:
        return True
    edges = [list(cluster.graph.edges(data=True)) for cluster in (one, other)]
    if len(edges[0]) != len(edges[1]):
        return False
    widths: dict[float, float] = {}
    for (src, dst, data), (src_there, dst_there, there) in zip(*edges, strict=True):
        if (src, dst) != (src_there, dst_there) or _beside_speeds(data) != _beside_speeds(there):
            return False
        if widths.setdefault(data["bandwidth"], there["bandwidth"]) != there["bandwidth"]:
            return False
    # each is compared with each
    return len(widths) <= 16 and all(a / b == widths[a] / widths[b] for a, b in product(widths, repeat=2) if a != b)


def _beside_speeds(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in SPEEDS}


def _policy(routing: Any) -> tuple[Any, ...] | None:
    """Return what tells a policy of ours from others; None of a user's own, which may look at anything."""
    if isinstance(routing, partial):
        inner = _policy(routing.func)
        policies = [value for value in (*routing.args, *routing.keywords.values()) if callable(value)]
        if inner is None or any(_policy(value) is None for value in policies):
            return None
        return (*inner, routing.args, tuple(sorted(routing.keywords.items(), key=str)))
    return (routing,) if routing in KNOWN_ROUTING else None
