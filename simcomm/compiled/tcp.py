"""Requests over TCP on the compiled engine: the reference engine's events, one by one, in machine code."""

from typing import TYPE_CHECKING

import numpy as np

from collectives.errors import InputError
from collectives.records.spans import Span
from collectives.schedule.size_check import allowed, ways_out
from collectives.transport import TcpTerms
from simcomm.compiled.kernel.arrays import Floats, LongInts, Records
from simcomm.compiled.kernel.tcp_world import COUNTS, EVENT, RANK, SEGMENT, SHAPED_LINK, TcpPlan, TcpWorld
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import Routes, find_routes
from simcomm.compiled.planning.tcp_plan import Reductions, TcpInput, plan_tcp
from simcomm.compiled.timing import MessageTimes, PostTimes, Timing
from simcomm.model.tcp_order import SEGMENT_PACKETS

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_AT_ONCE = 6_000_000  # segments; each takes about 150 bytes
EVENTS_A_LOOK = 1_000_000  # between two looks at whether there was an interrupt


def simulate_tcp(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Return the timing of a request whose transport has TCP terms; with ``messages`` the times of each.

    Shortcuts know nothing of connections, so that it is always found by events. Raises InputError for more messages or
    segments than fit into memory. A rank that waits for ever finishes at infinity.
    """
    inputs = inputs.with_table()
    found = plan_tcp(inputs)
    world = run_tcp(inputs, found)
    finished = world.ranks["finished"]
    timing = Timing(float(finished.max(initial=0.0)), finished.copy(), inputs.sent, "events")
    if not messages:
        return timing
    times, posted = _message_times(inputs, found, world.messages)
    return timing._replace(times=times, posted=posted, reductions=tuple(_spans(inputs, found.reductions, world)))


def run_tcp(inputs: EngineInput, found: TcpInput) -> TcpWorld:
    """Run a plan to its end and return the world as it is then."""
    from simcomm.compiled.kernel.lean import lean  # numba is slow to import
    from simcomm.compiled.kernel.tcp_loop import advance_tcp

    world = lean(_new_world(inputs, found))
    while not advance_tcp(world, EVENTS_A_LOOK):
        pass
    return world


def _new_world(inputs: EngineInput, found: TcpInput) -> TcpWorld:
    """Return the state at time zero, with all ranks about to begin."""
    terms, plan, world_size = inputs.transport.tcp, found.plan, inputs.schedule.world_size
    assert terms is not None
    routes = find_routes(inputs.cluster, inputs.transport, found.pairs)
    ranks = np.zeros(world_size, RANK)
    ranks["at"], ranks["finished"] = plan.first_deed[:-1], np.inf
    ranks["ready"], ranks["is_ready"] = np.arange(world_size)[::-1], 1
    most = _most_segments(plan, terms)
    limit = allowed(MOST_AT_ONCE)
    if most > limit:
        raise InputError(
            f"{inputs.schedule.describe()}: {most:,} segments of TCP may be under way at once, and up to "
            f"{limit:,} fit into memory; ask for smaller buffers, or give [cluster.terms] a window, or "
            f"{ways_out(most, limit)}"
        )
    segments = np.zeros(most, SEGMENT)
    segments["free"] = np.arange(len(segments))
    sizes = np.zeros(COUNTS, np.int64)
    sizes[0], sizes[2] = len(segments), world_size
    numbers = np.array(
        [
            *(terms.send_buffer, terms.window, terms.payload, terms.header, terms.acknowledgement),
            *(terms.packets_acknowledged, inputs.transport.overhead, terms.notice_overhead),
            *(terms.arrival_cpu, terms.piece),
        ]
    )
    cores = np.zeros(0 if terms.cores == np.inf else int(terms.cores))
    return TcpWorld(
        *plan, routes.first_hop, routes.hop_link, _links(inputs, routes, terms), ranks, segments,
        np.zeros(len(plan.items) + 2 * len(segments) + world_size, EVENT),
        np.zeros(len(plan.deeds)), sizes, np.zeros(1),
        cores, numbers, terms.notices,
    )  # fmt: skip


def _links(inputs: EngineInput, routes: Routes, terms: TcpTerms) -> Records:
    """Return all links, idle; in trouble they have a share of their rate."""
    shares = inputs.trouble.link_shares()
    links = np.zeros(len(routes.alone), SHAPED_LINK)
    links["rate"] = routes.alone * np.array([shares.get(edge, 1.0) for edge in inputs.cluster.graph.edges])
    links["latency"], links["burst"], links["free_at"] = routes.latency, terms.burst / links["rate"], -np.inf
    return links


def _most_segments(plan: TcpPlan, terms: TcpTerms) -> int:
    """Return how many segments can be under way at once: those of a window, and the last ones of items."""
    largest = SEGMENT_PACKETS * terms.payload
    stream, nbytes = plan.items["stream"], plan.items["nbytes"]
    count = len(plan.streams)
    items = np.bincount(stream, minlength=count)
    every = np.bincount(stream, np.ceil(nbytes / largest), minlength=count)
    return int(np.minimum(every, items + np.ceil(terms.window / largest) + 1).sum())


def _message_times(inputs: EngineInput, found: TcpInput, messages: Records) -> tuple[MessageTimes, PostTimes]:
    """Return the times of the program's messages, in the order of the schedule's sends; of slices, as of one."""
    plan_sends = inputs.schedule_plan.sends
    assert plan_sends is not None
    number = np.full(int(plan_sends.max(initial=-1)) + 1, -1)
    number[plan_sends] = np.arange(len(plan_sends))
    whole = number[found.sends]
    first, last = (_first(whole, messages[name], len(plan_sends)) for name in ("send_posted", "receive_posted"))
    end = np.full(len(plan_sends), -np.inf)
    np.maximum.at(end, whole, messages["end"])
    nbytes = inputs.schedule_plan.plan.messages["nbytes"].copy()
    return MessageTimes(*inputs.names, nbytes, np.maximum(first, last), end), PostTimes(first, last)


def _first(whole: LongInts, seconds: Floats, count: int) -> Floats:
    """Return the least of the seconds of each message's slices."""
    found = np.full(count, np.inf)
    np.minimum.at(found, whole, seconds)
    return found


def _spans(inputs: EngineInput, reductions: Reductions, world: TcpWorld) -> "Iterator[Span]":
    """Yield each reduction and copy of each rank."""
    end = world.done[reductions.deed]
    begin = np.where(np.isin(reductions.deed, world.first_deed), 0.0, world.done[reductions.deed - 1])
    sites = zip(*(column.tolist() for column in reductions[1:]), begin.tolist(), end.tolist(), strict=True)
    for rank, channel, step, since, until in sites:
        yield Span(rank, "reduce", step, since, until, channel, inputs.index)
