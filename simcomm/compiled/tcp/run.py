"""Collectives over TCP, segment by segment, in machine code."""

import numpy as np

from collectives.budget import Gigabyte, check_fits
from collectives.transport import TcpTerms
from simcomm.compiled.kernel.arrays import Floats, LongInts, Records
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import Routes, find_routes
from simcomm.compiled.tcp.plan import Phases, TcpPlan, plan_tcp, records_of, rows_of_sends
from simcomm.compiled.tcp.records import EVENT, RANK, SEGMENT, SEGMENT_PACKETS, SHAPED_LINK, STATE, TERMS, TcpWorld

EVENTS_A_LOOK = 1_000_000  # between two looks at whether there was an interrupt


class TcpRun:
    """Collectives, one after the other, that were carried out over TCP; with ``phases`` the syncs of a training."""

    def __init__(self, collectives: list[EngineInput], phases: Phases | None = None) -> None:
        self.plan = plan_tcp(collectives, phases)
        self._sends = rows_of_sends(self.plan, collectives[0])  # of each message, in the schedule's table
        self._collective = np.array([send[0] for send in self.plan.sends], np.int64)
        world = _new_world(self.plan, collectives, self._sends)
        cores = None if phases is None else phases.cores
        world.terms["shared_cores"] = np.inf if cores is None else cores
        _run_to_end(world)
        self._messages, self.done = world.messages, world.done
        self.finished: Floats = world.ranks["finished"].copy()

    def message_times(self, inputs: EngineInput) -> tuple[Floats, Floats, Floats]:
        """Return when a collective's sends and receives were posted and its messages came, of slices as of one.

        They are in the order of the schedule's sends.
        """
        sends = inputs.schedule_plan.sends
        assert sends is not None
        number = np.full(int(sends.max(initial=-1)) + 1, -1)
        number[sends] = np.arange(len(sends))
        own = np.flatnonzero(self._collective == inputs.index)
        whole, messages = number[self._sends[own]], self._messages[own]
        sent, received = (_first(whole, messages[name], len(sends)) for name in ("send_posted", "receive_posted"))
        end = np.full(len(sends), -np.inf)
        np.maximum.at(end, whole, messages["end"])
        return sent, received, end


def _first(whole: LongInts, seconds: Floats, count: int) -> Floats:
    """Return the least of the seconds of each message's slices."""
    found = np.full(count, np.inf)
    np.minimum.at(found, whole, seconds)
    return found


def _run_to_end(world: TcpWorld) -> None:
    from simcomm.compiled.tcp.kernel import advance_tcp  # numba is slow to import

    while not advance_tcp(world, EVENTS_A_LOOK):
        pass


def _new_world(plan: TcpPlan, collectives: list[EngineInput], sends: LongInts) -> TcpWorld:
    """Return the state at time zero, with all ranks about to begin."""
    inputs = collectives[0]
    terms, world_size = inputs.transport.tcp, plan.world_size
    assert terms is not None
    routes = find_routes(inputs.cluster, inputs.transport, plan.pairs)
    first_deed, (messages, items, streams) = np.array(plan.first_deed, np.int32), records_of(plan)
    if inputs.faults.messages is not None:
        columns, index = inputs.schedule.table().columns, np.array([send[0] for send in plan.sends], np.int64)
        names = (columns.rank, columns.peer, columns.channel, columns.step, columns.chunk)
        messages["late"] = inputs.faults.delay(index, *(column[sends] for column in names))
    ranks = np.zeros(world_size, RANK)
    ranks["at"], ranks["finished"] = first_deed[:-1], np.inf
    ranks["ready"], ranks["is_ready"] = np.arange(world_size)[::-1], 1
    segments = np.zeros(_most_segments(inputs, items, streams, terms), SEGMENT)
    segments["free"] = np.arange(len(segments))
    state = np.zeros(1, STATE)
    state["free_segments"], state["ready_ranks"], state["share_ends_at"] = len(segments), world_size, np.inf
    return TcpWorld(
        deeds=np.array(plan.kinds, np.int32),
        about=np.array(plan.about, np.int32),
        seconds=np.array(plan.seconds),
        held=np.array(plan.held),
        done=np.zeros(len(plan.kinds)),
        first_deed=first_deed,
        messages=messages,
        items=items,
        streams=streams,
        first_hop=np.array(routes.first_hop),
        hop_link=np.array(routes.hop_link),
        links=_links(inputs, routes, terms),
        ranks=ranks,
        segments=segments,
        events=np.zeros(len(items) + 2 * len(segments) + world_size, EVENT),
        cores=np.zeros(0 if terms.cores == np.inf else int(terms.cores)),
        terms=_terms(inputs, terms),
        state=state,
    )


def _terms(inputs: EngineInput, terms: TcpTerms) -> Records:
    """Return what the kernel knows of the transport."""
    found = np.zeros(1, TERMS)
    for name in set(TERMS.names or ()) & set(TcpTerms.__dataclass_fields__):
        found[name] = getattr(terms, name)
    found["overhead"] = inputs.transport.overhead
    return found


def _links(inputs: EngineInput, routes: Routes, terms: TcpTerms) -> Records:
    """Return all links, idle; in faults they have a share of their rate."""
    shares = inputs.faults.link_shares()
    links = np.zeros(len(routes.alone), SHAPED_LINK)
    links["rate"] = routes.alone * np.array([shares.get(edge, 1.0) for edge in inputs.cluster.graph.edges])
    links["latency"], links["burst"], links["free_at"] = routes.latency, terms.burst / links["rate"], -np.inf
    return links


def _most_segments(inputs: EngineInput, items: Records, streams: Records, terms: TcpTerms) -> int:
    """Return how many segments can be under way at once: those of a window, and the last ones of items.

    Raises InputError where they do not fit into memory.
    """
    largest = SEGMENT_PACKETS * terms.payload
    stream, nbytes, count = items["stream"], items["nbytes"], len(streams)
    last = np.bincount(stream, minlength=count)
    every = np.bincount(stream, np.ceil(nbytes / largest), minlength=count)
    most = int(np.minimum(every, last + np.ceil(terms.window / largest) + 1).sum())
    what = f"{inputs.schedule.describe()}: {most:,} segments of TCP may be under way at once"
    check_fits(most, Gigabyte.SEGMENTS, what, "ask for smaller buffers, or give [cluster.terms] a window")
    return most
