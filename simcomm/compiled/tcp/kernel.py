"""Run the event loop of ranks on TCP connections, one event at a time.

Ranks that are ready run before any event. Simultaneous events are processed in an order that does not depend on the
order of calls: first ranks that end an action; then ranks that request a core; messages and notifications that enter
their streams, in the order in which their rank was ready for them; segments that leave their first link; other
segments, by stream and number; and arrived items, by their last segment.
"""

from collections.abc import Callable

import numpy as np

from simcomm.compiled.tcp.records import (
    AWAIT_RECEIVE,
    AWAIT_SEND,
    OCCUPY,
    POST_RECEIVE,
    POST_SEND,
    SEGMENT_PACKETS,
    SHARE,
    SPEND,
    TcpWorld,
)
from simcomm.jit import entry, inline, source_hash

# Classes of EVENT.order, in ascending order; ranks come first.
CORE, ENTRY, PASSING, SEGMENT, ARRIVAL = 1 << 20, 1 << 40, 1 << 60, 1 << 61, 1 << 62
ENTRIES, SEGMENTS = 1 << 32, 1 << 40  # order numbers per rank, and per stream

# Ranges of EVENT.event, above the numbers of segments: ranks that continue, items that enter their streams, ranks that
# request a core, items that a rank is informed of, and segments that have left their first link.
RANKS_FROM, ITEMS_FROM, CORES_FROM, KNOWN_FROM, PASSED_FROM = 1 << 40, 1 << 41, 1 << 42, 1 << 43, 1 << 44
SAME_SHARE = 1e-12  # relative to a time; less remaining compute is rounding
THROUGH = 1 << 30  # in place of a hop: only the wait for the last byte remains


@inline
def _push(w: TcpWorld, time: float, order: int, event: int) -> None:
    events, at = w.events, w.state[0].events
    w.state[0].events = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if (events[above].time, events[above].order) < (time, order):
            break
        events[at] = events[above]
        at = above
    events[at].time, events[at].order, events[at].event = time, order, event


@inline
def _pop(w: TcpWorld) -> int:
    events, size, at = w.events, w.state[0].events - 1, np.int64(0)
    event, last = events[0].event, (events[size].time, events[size].order)
    w.state[0].now, w.state[0].events = events[0].time, size
    while 2 * at + 1 < size:
        below = 2 * at + 1
        first = (events[below].time, events[below].order)
        if below + 1 < size and (events[below + 1].time, events[below + 1].order) < first:
            below += 1
            first = (events[below].time, events[below].order)
        if last < first:
            break
        events[at] = events[below]
        at = below
    events[at] = events[size]
    return event


@inline
def _serve_core(w: TcpWorld, seconds: float) -> float:
    """Occupy the first free core for ``seconds``, and return the end time. If cores are unlimited, start at once."""
    now, first = w.state[0].now, 0
    if len(w.cores) == 0:
        return now + seconds
    for core in range(1, len(w.cores)):
        if w.cores[core] < w.cores[first]:
            first = core
    w.cores[first] = max(now, w.cores[first]) + seconds
    return w.cores[first]


@inline
def _share_cores(w: TcpWorld, rank: int, seconds: float) -> None:
    _count_shares(w)
    w.ranks[rank].shares, w.ranks[rank].left = 1, seconds
    w.state[0].sharing += 1
    _await_first_share(w)


@inline
def _share_speed(w: TcpWorld) -> float:
    return min(1.0, w.terms[0].shared_cores / w.state[0].sharing)


@inline
def _count_shares(w: TcpWorld) -> None:
    if w.state[0].sharing > 0:
        computed = (w.state[0].now - w.state[0].counted_at) * _share_speed(w)
        for rank in range(len(w.ranks)):
            w.ranks[rank].left = max(0.0, w.ranks[rank].left - computed)
    w.state[0].counted_at = w.state[0].now


@inline
def _await_first_share(w: TcpWorld) -> None:
    first = np.inf
    for rank in range(len(w.ranks)):
        if w.ranks[rank].shares:
            first = min(first, w.ranks[rank].left)
    w.state[0].share_ends_at = w.state[0].now + first / _share_speed(w) if first < np.inf else np.inf


@inline
def _end_shares(w: TcpWorld) -> None:
    """Advance the time until the first rank that computes on shared cores has finished, and end its action."""
    waited = w.state[0].share_ends_at - w.state[0].counted_at
    w.state[0].now = w.state[0].share_ends_at
    _count_shares(w)
    least = np.inf
    for rank in range(len(w.ranks)):
        if w.ranks[rank].shares:
            least = min(least, w.ranks[rank].left)
    least = max(least, SAME_SHARE * waited)
    for rank in range(len(w.ranks)):
        if w.ranks[rank].shares and w.ranks[rank].left <= least:
            w.ranks[rank].shares = 0
            w.state[0].sharing -= 1
            _end_action(w, rank)
    _await_first_share(w)


@inline
def _end_action(w: TcpWorld, rank: int) -> None:
    w.done[w.ranks[rank].at] = w.state[0].now
    w.ranks[rank].at += 1
    _make_ready(w, rank)


@inline
def _make_ready(w: TcpWorld, rank: int) -> None:
    w.ranks[rank].is_ready = 1
    w.ranks[w.state[0].ready_ranks].ready = rank
    w.state[0].ready_ranks += 1


@inline
def _put(w: TcpWorld, item: int, rank: int, delay: float) -> None:
    """Queue an item (data or notification) for its stream after ``delay`` seconds, but not before earlier items."""
    now, stream = w.state[0].now, w.items[item].stream
    delay = max(delay, w.streams[stream].entered_at - now)
    w.streams[stream].entered_at = now + delay
    w.ranks[rank].entries += 1
    _push(w, now + delay, ENTRY + rank * ENTRIES + w.ranks[rank].entries, ITEMS_FROM + item)


@inline
def _start_data(w: TcpWorld, message: int) -> None:
    _put(w, message, w.messages[message].src, w.terms[0].overhead + w.messages[message].late)


@inline
def _deliver_notification(w: TcpWorld, message: int) -> None:
    w.messages[message].is_notified = 1
    if w.messages[message].is_posted:
        _start_data(w, message)


@inline
def _wake(w: TcpWorld, rank: int, action: int, message: int) -> None:
    at = w.ranks[rank].at
    if at >= w.first_action[rank + 1] or w.ranks[rank].is_ready:
        return
    if w.actions[at] == action and w.message_of[at] == message:
        _make_ready(w, rank)


@inline
def _write(w: TcpWorld, stream: int) -> None:
    """Complete a stream's sends whose last byte has entered the send buffer."""
    item = np.int64(w.streams[stream].to_write)
    while item >= 0 and w.items[item].end - w.streams[stream].acknowledged <= w.terms[0].send_buffer:
        if item < len(w.messages):
            w.messages[item].is_written = 1
            _wake(w, w.messages[item].src, AWAIT_SEND, item)
        item = np.int64(w.items[item].after)
    w.streams[stream].to_write = item


@inline
def _cross(w: TcpWorld, segment: int) -> None:
    """Move a segment over as many links as it can cross now, and schedule when it continues."""
    now, stream = w.state[0].now, w.segments[segment].stream
    route = w.streams[stream].back if w.segments[segment].is_back else w.streams[stream].route
    first, last = np.int64(w.first_hop[route]), np.int64(w.first_hop[route + 1])
    while first + w.segments[segment].hop < last:
        head, tail = w.segments[segment].head, w.segments[segment].tail
        if head > now:
            _sleep(w, segment, head - now)
            return
        link = w.hop_link[first + w.segments[segment].hop]
        service = w.segments[segment].on_wire / w.links[link].rate
        begin = max(w.links[link].free_at, head - w.links[link].burst)
        w.links[link].free_at = begin + service
        w.segments[segment].head = max(begin, head) + w.links[link].latency
        w.segments[segment].tail = max(w.links[link].free_at, tail) + w.links[link].latency
        if w.segments[segment].hop == 0 and not w.segments[segment].is_back and w.terms[0].piece < np.inf:
            order = PASSING + w.streams[stream].number * SEGMENTS + w.segments[segment].number
            tail = w.segments[segment].tail - w.links[link].latency
            _push(w, now + max(tail - now, 0.0), order, PASSED_FROM + segment)
        w.segments[segment].hop += 1
    w.segments[segment].hop = THROUGH
    _sleep(w, segment, max(w.segments[segment].tail - now, 0.0))


@inline
def _sleep(w: TcpWorld, segment: int, delay: float) -> None:
    order = SEGMENT + w.streams[w.segments[segment].stream].number * SEGMENTS + w.segments[segment].number
    _push(w, w.state[0].now + delay, order, segment)


@inline
def _launch(w: TcpWorld, stream: int, item: int, nbytes: float) -> None:
    w.state[0].free_segments -= 1
    segment = np.int64(w.segments[w.state[0].free_segments].free)
    w.streams[stream].sent += nbytes
    w.items[item].left -= nbytes
    w.streams[stream].segments += 1
    w.segments[segment].is_last = 0
    if w.items[item].left <= 0:
        w.streams[stream].to_send = w.items[item].after
        w.segments[segment].is_last = 1
    w.segments[segment].stream, w.segments[segment].item = stream, item
    w.segments[segment].number = w.streams[stream].segments
    w.segments[segment].nbytes = nbytes
    w.segments[segment].on_wire = nbytes + np.ceil(nbytes / w.terms[0].payload) * w.terms[0].header
    w.segments[segment].is_back, w.segments[segment].hop = 0, 0
    w.segments[segment].head = w.segments[segment].tail = w.state[0].now
    _cross(w, segment)


@inline
def _send(w: TcpWorld, stream: int) -> None:
    """Send segments of a stream while they fit into its window. One segment may always be in flight."""
    while w.streams[stream].to_send >= 0:
        item = np.int64(w.streams[stream].to_send)
        nbytes = min(w.items[item].left, SEGMENT_PACKETS * w.terms[0].payload)
        under_way = w.streams[stream].sent - w.streams[stream].acknowledged
        if under_way > 0 and under_way + nbytes > w.terms[0].window:
            return
        leaving, route = w.streams[stream].sent - w.streams[stream].passed, np.int64(w.streams[stream].route)
        has_links = w.first_hop[route] < w.first_hop[route + 1]
        if has_links and leaving > 0 and leaving + nbytes > w.terms[0].piece:
            return
        _launch(w, stream, item, nbytes)


@inline
def _enter_stream(w: TcpWorld, item: int) -> None:
    stream = np.int64(w.items[item].stream)
    w.streams[stream].put += w.items[item].nbytes
    w.items[item].end = w.streams[stream].put
    w.items[item].left = w.items[item].nbytes
    w.items[item].after = -1
    if w.streams[stream].last >= 0:
        w.items[w.streams[stream].last].after = item
    w.streams[stream].last = item
    if w.streams[stream].to_send < 0:
        w.streams[stream].to_send = item
    if w.streams[stream].to_write < 0:
        w.streams[stream].to_write = item
    _write(w, stream)
    _send(w, stream)


@inline
def _arrive(w: TcpWorld, item: int) -> None:
    if item >= len(w.messages):
        _deliver_notification(w, item - len(w.messages))
        return
    w.messages[item].has_arrived = 1
    w.messages[item].end = w.state[0].now
    _wake(w, w.messages[item].dst, AWAIT_RECEIVE, item)


@inline
def _inform_receiver(w: TcpWorld, segment: int) -> None:
    """Schedule when the receiver notices an item, which is after a core has processed its arrival."""
    stream, item = np.int64(w.segments[segment].stream), np.int64(w.segments[segment].item)
    if w.terms[0].arrival_cpu == 0:
        _arrive(w, item)
        return
    now = w.state[0].now
    known_at = max(w.streams[stream].known_at, _serve_core(w, w.terms[0].arrival_cpu))
    w.streams[stream].known_at = known_at
    order = ARRIVAL + w.streams[stream].number * SEGMENTS + w.segments[segment].number
    _push(w, now + (known_at - now), order, KNOWN_FROM + item)


@inline
def _advance_segment(w: TcpWorld, segment: int) -> None:
    """Move a segment on: over links to its receiver, or back to its sender as an acknowledgment."""
    if w.segments[segment].hop != THROUGH:
        _cross(w, segment)
        return
    stream, nbytes = np.int64(w.segments[segment].stream), w.segments[segment].nbytes
    if w.segments[segment].is_back:
        w.streams[stream].acknowledged += nbytes
        w.segments[w.state[0].free_segments].free = segment
        w.state[0].free_segments += 1
        _write(w, stream)
        _send(w, stream)
        return
    if w.segments[segment].is_last:
        _inform_receiver(w, segment)
    packets = np.ceil(nbytes / w.terms[0].payload)
    w.segments[segment].on_wire = packets / w.terms[0].packets_acknowledged * w.terms[0].acknowledgement
    w.segments[segment].is_back, w.segments[segment].hop = 1, 0
    w.segments[segment].head = w.segments[segment].tail = w.state[0].now
    _cross(w, segment)


@inline
def _run_rank(w: TcpWorld, rank: int) -> None:
    now = w.state[0].now
    while w.ranks[rank].at < w.first_action[rank + 1]:
        at = w.ranks[rank].at
        action, message = w.actions[at], np.int64(w.message_of[at])
        if action == SPEND:
            _push(w, now + w.seconds[at], rank, RANKS_FROM + rank)
            return
        if action == SHARE:
            _share_cores(w, rank, w.seconds[at])
            return
        if action == OCCUPY:
            _push(w, now, CORE + rank, CORES_FROM + rank)
            return
        if action == AWAIT_SEND and not w.messages[message].is_written:
            w.ranks[rank].slept = 1
            return
        if action == AWAIT_RECEIVE and not w.messages[message].has_arrived:
            w.ranks[rank].slept = 1
            return
        if w.ranks[rank].slept:
            w.ranks[rank].slept = 0
            if w.occupied[at] > 0:
                _push(w, now, CORE + rank, CORES_FROM + rank)
                return
        if action == POST_SEND:
            w.messages[message].is_posted = 1
            w.messages[message].send_posted = now
            if w.messages[message].is_notified:
                _start_data(w, message)
        if action == POST_RECEIVE:
            w.messages[message].receive_posted = now
            if w.terms[0].receive_ready:
                _put(w, len(w.messages) + message, rank, w.terms[0].receive_ready_overhead)
            else:
                _deliver_notification(w, message)
        w.done[at] = now
        w.ranks[rank].at = at + 1
    w.ranks[rank].finished = now


@inline
def _process_event(w: TcpWorld, event: int) -> None:
    if event >= PASSED_FROM:
        segment = event - PASSED_FROM
        w.streams[w.segments[segment].stream].passed += w.segments[segment].nbytes
        _send(w, np.int64(w.segments[segment].stream))
    elif event >= KNOWN_FROM:
        _arrive(w, event - KNOWN_FROM)
    elif event >= CORES_FROM:
        now, rank = w.state[0].now, event - CORES_FROM
        at = w.ranks[rank].at
        end = _serve_core(w, w.occupied[at]) - (w.occupied[at] - w.seconds[at])
        _push(w, now + (end - now), rank, RANKS_FROM + rank)
    elif event >= ITEMS_FROM:
        _enter_stream(w, event - ITEMS_FROM)
    elif event >= RANKS_FROM:
        _end_action(w, event - RANKS_FROM)
    else:
        _advance_segment(w, event)


def _entry(version: int) -> Callable[[TcpWorld, int], bool]:
    @entry
    def simulate_tcp(w: TcpWorld, most_events: int) -> bool:
        """Process up to ``most_events`` events. Return whether none remains. Ready ranks continue before any event."""
        for _ in range(most_events):
            while w.state[0].ready_ranks > 0:
                w.state[0].ready_ranks -= 1
                rank = np.int64(w.ranks[w.state[0].ready_ranks].ready)
                w.ranks[rank].is_ready = 0
                _run_rank(w, rank)
            if w.state[0].events > 0 and w.events[0].time < w.state[0].share_ends_at:
                _process_event(w, _pop(w))
            elif w.state[0].share_ends_at < np.inf:
                _end_shares(w)
            else:
                return version >= 0
        return version < 0

    return simulate_tcp


_simulate = _entry(source_hash(__file__))


def advance_tcp(w: TcpWorld, most_events: int) -> bool:
    """Process up to ``most_events`` events. Return True if no events remain."""
    return _simulate(w, most_events)
