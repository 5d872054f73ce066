"""Build the Trace of a run that failed: completed operations, the first failure, and unfinished messages.

Each rank reports the operations of its current execution. A killed rank reports nothing; its messages are derived from
its peers' reports.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from typing import NamedTuple

from collectives.call import CollectiveCall
from collectives.records.messages import Message, Messages
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace, Unfinished
from collectives.step import Kind, Operation, extent
from realcomm.execution.events import EXECUTION, Account, Event
from realcomm.launching.failures import LaunchFailed
from realcomm.launching.types import Ranks


class MessageHalf(NamedTuple):
    """The send or the receive of a message on one rank. ``event`` is None until the rank has posted it."""

    rank: int
    channel: int
    step: int
    operation: Operation
    event: Event | None


@contextmanager
def tracing_failures(trace: Callable[[LaunchFailed], Trace | None]) -> Iterator[None]:
    """Set the ``trace`` of a LaunchFailed that leaves the context to ``trace(error)``."""
    try:
        yield
    except LaunchFailed as error:
        error.trace = trace(error)
        raise


def trace_broken_run(call: CollectiveCall, cluster: Ranks, error: LaunchFailed) -> Trace | None:
    """Return the Trace of the failed execution, or None if no rank has reported one.

    Times count from the first rank's start. ``failed`` has the rank that failed first; it is empty after a timeout.
    """
    accounts = latest_accounts(error)
    if not accounts:
        return None
    start = min(account.begin for account in accounts.values())
    messages, unfinished = follow_messages(call, cluster.world_size, accounts, start)
    trace = make_broken_trace(cluster, error, start, messages, local_spans(accounts, start), unfinished)
    return replace(
        trace,
        title=call.algorithm.full_name,
        facts={"nbytes": float(call.nbytes)},
        root=call.root,
        chunks=call.algorithm.chunks(cluster.world_size),
    ).of_program(call.algorithm)


def latest_accounts(error: LaunchFailed) -> dict[int, Account]:
    """Return the reports of the ranks that have started the latest execution."""
    reports = {rank: subjects.get(EXECUTION) for rank, subjects in error.reports.items()}
    accounts = {rank: account for rank, account in reports.items() if isinstance(account, Account)}
    latest = max((account.number for account in accounts.values()), default=0)
    return {rank: account for rank, account in accounts.items() if account.number == latest}


def local_spans(accounts: Mapping[int, Account], start: float) -> list[Span]:
    """Return the reductions and copies of each rank as spans. Both are named "reduce", as in a prediction."""
    return [
        Span(rank, "reduce", event.step, event.begin - start, event.end - start, event.channel)
        for rank, account in accounts.items()
        for event in account.events
        if event.operation.kind.is_local
    ]


def make_broken_trace(
    cluster: Ranks,
    error: LaunchFailed,
    start: float,
    messages: list[Message],
    spans: list[Span],
    unfinished: list[Unfinished],
) -> Trace:
    """Return a Trace without a title that ends at the time of its last event."""
    failed = {rank: max(0.0, at - start) for rank, at in error.failed.items()}
    ends = [*(message.end for message in messages), *(span.end for span in spans), *failed.values()]
    times = [*ends, *(wait.since for wait in unfinished)]
    hosts = list(cluster.hosts)
    return Trace(
        "",
        "measured",
        cluster.world_size,
        max(times, default=0.0),
        Messages.of(messages).sorted(),
        Spans.of(spans).sorted(),
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
        failed=failed,
        unfinished=unfinished,
    )


def follow_messages(
    call: CollectiveCall, world_size: int, accounts: Mapping[int, Account], start: float
) -> tuple[list[Message], list[Unfinished]]:
    """Return the messages that have arrived, and the sends and receives that were posted for the remaining messages."""
    size = _sizes(call, world_size)
    messages, unfinished = list[Message](), list[Unfinished]()
    for sent, received in _pairs(call, world_size, accounts, size):
        if _has_arrived(sent, received, received.rank in accounts):
            messages.append(_message(sent, received, size(sent.operation), start))
            continue
        posted = [half for half in (sent, received) if half.event is not None]
        for half, other in ((sent, received), (received, sent)):
            if half.event is not None and isnan(half.event.end):
                unfinished.append(_unfinished(half, other.rank, len(posted) == 2, start))
    return messages, unfinished


def _sizes(call: CollectiveCall, world_size: int) -> Callable[[Operation], int]:
    chunks, itemsize = call.algorithm.chunks(world_size), call.itemsize

    def size(op: Operation) -> int:
        return extent(op.chunk if op.kind is Kind.SEND else op.into, op.count, call.elements, chunks) * itemsize

    return size


def _pairs(
    call: CollectiveCall, world_size: int, accounts: Mapping[int, Account], size: Callable[[Operation], int]
) -> Iterator[tuple[MessageHalf, MessageHalf]]:
    """Yield the send and the receive of each message: the k-th send from a to b matches the k-th receive."""
    halves: dict[tuple[bool, int, int, int], list[MessageHalf]] = defaultdict(list)
    for rank in range(world_size):
        reported = accounts[rank].events if rank in accounts else ()
        events = {(event.channel, event.step, event.operation): event for event in reported}
        for channel, program in enumerate(call.algorithm.channels(rank, world_size, call.root)):
            for step, operations in enumerate(program):
                for op in operations:
                    if not op.kind.is_local and size(op):
                        sends = op.kind is Kind.SEND
                        ends = (rank, op.peer) if sends else (op.peer, rank)
                        half = MessageHalf(rank, channel, step, op, events.get((channel, step, op)))
                        halves[sends, *ends, channel].append(half)
    for (sends, src, dst, channel), sends_of_pair in halves.items():
        if sends:
            yield from zip(sends_of_pair, halves[False, src, dst, channel], strict=True)


def _has_arrived(sent: MessageHalf, received: MessageHalf, reports: bool) -> bool:
    """Return whether a message has arrived. ``reports`` tells whether its receiver has sent a report."""
    half = received if reports else sent
    return half.event is not None and not isnan(half.event.end)


def _message(sent: MessageHalf, received: MessageHalf, nbytes: int, start: float) -> Message:
    """Return a message. If a rank has no report, it is assumed to have posted its operation when its peer did."""
    arrival, posting = received.event or sent.event, sent.event or received.event
    assert arrival is not None
    assert posting is not None
    src_posted, dst_posted = posting.begin - start, arrival.begin - start
    return Message(
        *(sent.rank, received.rank, sent.step, sent.operation.chunk, nbytes),
        begin=max(src_posted, dst_posted),
        end=max(arrival.end - start, src_posted, dst_posted),
        channel=sent.channel,
        dst_step=received.step,
        count=sent.operation.count,
        into=received.operation.into,
        reduces=received.operation.kind.combines,
        src_posted=src_posted,
        dst_posted=dst_posted,
    )


def _unfinished(half: MessageHalf, peer: int, is_under_way: bool, start: float) -> Unfinished:
    op = half.operation
    sends = op.kind is Kind.SEND
    assert half.event is not None
    return Unfinished(
        *(half.rank, peer, sends, half.step, half.channel, half.event.begin - start, is_under_way),
        chunk=op.chunk if sends else op.into,
        count=op.count,
    )
