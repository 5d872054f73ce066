"""Simulate collectives over TCP in machine code, segment by segment."""

import numpy as np

from collectives.budget import Gigabyte, check_fits
from collectives.transport import TcpTerms
from simcomm.compiled.kernel.arrays import Floats, LongInts, Records
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import Routes, find_routes
from simcomm.compiled.tcp.plan import Phases, TcpPlan, plan_tcp, records_of, rows_of_sends
from simcomm.compiled.tcp.records import EVENT, RANK, SEGMENT, SEGMENT_PACKETS, SHAPED_LINK, STATE, TERMS, TcpWorld

EVENTS_A_LOOK = 1_000_000  # events per call of machine code, which an interrupt cannot end


class TcpRun:
    """A simulation of collectives over TCP, which its constructor runs.

    If ``phases`` is given, the collectives are the gradient syncs of a training run with these compute phases.
    """

    def __init__(self, collectives: list[EngineInput], phases: Phases | None = None) -> None:
        from simcomm.compiled.tcp.kernel import advance_tcp  # imports numba, which is slow

        self.plan = plan_tcp(collectives, phases)
        self._sends = rows_of_sends(self.plan, collectives[0])  # of each message, in the schedule's table
        self._collective = np.array([send[0] for send in self.plan.sends], np.int64)
        world = _new_world(self.plan, collectives, self._sends)
        cores = None if phases is None else phases.cores
        world.terms["shared_cores"] = np.inf if cores is None else cores
        while not advance_tcp(world, EVENTS_A_LOOK):
            pass
        self._messages, self.done = world.messages, world.done
        self.finished: Floats = world.ranks["finished"].copy()

    def message_times(self, inputs: EngineInput) -> tuple[Floats, Floats, Floats]:
        """Return three times in seconds per message: when its send was posted, its receive was posted, and it arrived.

        All slices of a message count as one message. Messages are in the order of the schedule's sends.
        """
        sends = inputs.schedule_plan.sends
        assert sends is not None
        number = np.full(int(sends.max(initial=-1)) + 1, -1)
        number[sends] = np.arange(len(sends))
        selected = np.flatnonzero(self._collective == inputs.index)
        message, messages = number[self._sends[selected]], self._messages[selected]
        sent, received = np.full((2, len(sends)), np.inf)
        np.minimum.at(sent, message, messages["send_posted"])
        np.minimum.at(received, message, messages["receive_posted"])
        end = np.full(len(sends), -np.inf)
        np.maximum.at(end, message, messages["end"])
        return sent, received, end


def _new_world(plan: TcpPlan, collectives: list[EngineInput], sends: LongInts) -> TcpWorld:
    inputs = collectives[0]
    terms, world_size = inputs.transport.tcp, plan.world_size
    assert terms is not None
    routes = find_routes(inputs.cluster, inputs.transport, plan.pairs)
    first_action, (messages, items, streams) = np.array(plan.first_action, np.int32), records_of(plan)
    if inputs.faults.messages is not None:
        columns, index = inputs.schedule.table().columns, np.array([send[0] for send in plan.sends], np.int64)
        names = (columns.rank, columns.peer, columns.channel, columns.step, columns.chunk)
        messages["late"] = inputs.faults.delay(index, *(column[sends] for column in names))
    ranks = np.zeros(world_size, RANK)
    ranks["at"], ranks["finished"] = first_action[:-1], np.inf
    ranks["ready"], ranks["is_ready"] = np.arange(world_size)[::-1], 1
    segments = np.zeros(_most_segments(inputs, items, streams, terms), SEGMENT)
    segments["free"] = np.arange(len(segments))
    state = np.zeros(1, STATE)
    state["free_segments"], state["ready_ranks"], state["share_ends_at"] = len(segments), world_size, np.inf
    return TcpWorld(
        actions=np.array(plan.kinds, np.int32),
        message_of=np.array(plan.message_of, np.int32),
        seconds=np.array(plan.seconds),
        occupied=np.array(plan.occupied),
        done=np.zeros(len(plan.kinds)),
        first_action=first_action,
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
    record = np.zeros(1, TERMS)
    for name in set(TERMS.names or ()) & set(TcpTerms.__dataclass_fields__):
        record[name] = getattr(terms, name)
    record["overhead"] = inputs.transport.overhead
    return record


def _links(inputs: EngineInput, routes: Routes, terms: TcpTerms) -> Records:
    shares = inputs.faults.link_shares()
    links = np.zeros(len(routes.alone), SHAPED_LINK)
    links["rate"] = routes.alone * np.array([shares.get(edge, 1.0) for edge in inputs.cluster.graph.edges])
    links["latency"], links["burst"], links["free_at"] = routes.latency, terms.burst / links["rate"], -np.inf
    return links


def _most_segments(inputs: EngineInput, items: Records, streams: Records, terms: TcpTerms) -> int:
    """Return the maximum number of segments in flight. Raise TooLarge if the memory limit does not allow it."""
    largest = SEGMENT_PACKETS * terms.payload
    stream, nbytes, count = items["stream"], items["nbytes"], len(streams)
    last = np.bincount(stream, minlength=count)
    segments = np.bincount(stream, np.ceil(nbytes / largest), minlength=count)
    most = int(np.minimum(segments, last + np.ceil(terms.window / largest) + 1).sum())
    description = f"{inputs.schedule.describe()}: {most:,} TCP segments may be in flight at once"
    check_fits(most, Gigabyte.SEGMENTS, description, "use smaller buffers, or a transport with a smaller TCP window")
    return most
