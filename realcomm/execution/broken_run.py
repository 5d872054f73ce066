"""The Trace of a run that broke: what ranks had done, who failed, and who waits for whom for ever.

Ranks tell what they have done in the execution that broke. A rank that was killed tells nothing; what its peers had
sent and received is known from them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """What one rank does for a message: a send or receive of its program, and the event if it has got there."""

    rank: int
    channel: int
    step: int
    operation: Operation
    event: Event | None


@contextmanager
def tracing_what_breaks(call: CollectiveCall, cluster: Ranks) -> Iterator[None]:
    """Within the context, a launch that breaks has the Trace of what happened up to there as its ``trace``."""
    try:
        yield
    except LaunchFailed as error:
        error.trace = trace_broken_run(call, cluster, error)
        raise


def trace_broken_run(call: CollectiveCall, cluster: Ranks, error: LaunchFailed) -> Trace | None:
    """Return what happened in the execution that broke; None if no rank had begun one or none can tell.

    Its times count from the first rank's start. ``failed`` is the rank that failed first; a run that took too long has
    none.
    """
    accounts = latest_accounts(error)
    if not accounts:
        return None
    start = min(account.begin for account in accounts.values())
    messages, unfinished = follow_messages(call, cluster.world_size, accounts, start)
    spans = [
        Span(rank, "reduce", one.step, one.begin - start, one.end - start, one.channel)
        for rank, account in accounts.items()
        for one in account.events
        if one.operation.kind.is_local
    ]
    trace = make_broken_trace(cluster, error, start, messages, spans, unfinished)
    return replace(
        trace,
        title=call.algorithm.full_name,
        facts={"nbytes": float(call.nbytes)},
        root=call.root,
        chunks=call.algorithm.chunks(cluster.world_size),
    ).of_program(call.algorithm)


def latest_accounts(error: LaunchFailed) -> dict[int, Account]:
    """Return what ranks say of the latest execution that one of them has begun."""
    told = {rank: subjects.get(EXECUTION) for rank, subjects in error.so_far.items()}
    accounts = {rank: account for rank, account in told.items() if isinstance(account, Account)}
    latest = max((account.number for account in accounts.values()), default=0)
    return {rank: account for rank, account in accounts.items() if account.number == latest}


def make_broken_trace(
    cluster: Ranks,
    error: LaunchFailed,
    start: float,
    messages: list[Message],
    spans: list[Span],
    unfinished: list[Unfinished],
) -> Trace:
    """Return a Trace without a title that ends when the last thing happened."""
    failed = {rank: max(0.0, at - start) for rank, at in error.failed.items()}
    ends = [*(message.end for message in messages), *(span.end for span in spans), *failed.values()]
    times = [*ends, *(one.since for one in unfinished)]
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
    """Return the messages that had arrived, and the halves of others that were posted."""
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
    """Return the function that gives the bytes of an operation."""
    chunks, itemsize = call.algorithm.chunks(world_size), call.itemsize

    def size(op: Operation) -> int:
        return extent(op.chunk if op.kind is Kind.SEND else op.into, op.count, call.elements, chunks) * itemsize

    return size


def _pairs(
    call: CollectiveCall, world_size: int, accounts: Mapping[int, Account], size: Callable[[Operation], int]
) -> Iterator[tuple[MessageHalf, MessageHalf]]:
    """Yield the two halves of each message of the programs: the k-th send from a to b meets the k-th receive."""
    halves: dict[tuple[bool, int, int, int], list[MessageHalf]] = defaultdict(list)
    for rank in range(world_size):
        own = {(one.channel, one.step, one.operation): one for one in _events(accounts.get(rank))}
        for channel, program in enumerate(call.algorithm.channels(rank, world_size, call.root)):
            for step, operations in enumerate(program):
                for op in operations:
                    if not op.kind.is_local and size(op):
                        sends = op.kind is Kind.SEND
                        ends = (rank, op.peer) if sends else (op.peer, rank)
                        half = MessageHalf(rank, channel, step, op, own.get((channel, step, op)))
                        halves[sends, *ends, channel].append(half)
    for (sends, src, dst, channel), found in halves.items():
        if sends:
            yield from zip(found, halves[False, src, dst, channel], strict=True)


def _events(account: Account | None) -> Sequence[Event]:
    return () if account is None else account.events


def _has_arrived(sent: MessageHalf, received: MessageHalf, tells: bool) -> bool:
    """Return whether a message has arrived, for all that is known; ``tells`` is whether its receiver says."""
    one = received if tells else sent
    return one.event is not None and not isnan(one.event.end)


def _message(sent: MessageHalf, received: MessageHalf, nbytes: int, start: float) -> Message:
    """Return a message; a rank that cannot tell is taken to have posted its half when the other did."""
    there, here = received.event or sent.event, sent.event or received.event
    assert there is not None
    assert here is not None
    src_posted, dst_posted = here.begin - start, there.begin - start
    return Message(
        *(sent.rank, received.rank, sent.step, sent.operation.chunk, nbytes),
        begin=max(src_posted, dst_posted),
        end=max(there.end - start, src_posted, dst_posted),
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
