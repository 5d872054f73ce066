"""Convert the recorded events of all ranks to the messages and the local operations of a collective."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collectives.call import CollectiveCall
from collectives.records.messages import Message
from collectives.records.spans import Span
from collectives.step import Kind, Operation, extent
from realcomm.execution.events import Event


class MessageHalf(NamedTuple):
    """The send or the receive of a message, as measured on one rank."""

    rank: int
    channel: int
    step: int
    operation: Operation
    event: Event
    nbytes: int


def local_spans(events: Sequence[Sequence[Event]], start: float) -> Iterator[Span]:
    """Yield each rank's reductions and copies as spans named "reduce", with times in seconds since ``start``."""
    for rank, of_rank in enumerate(events):
        for event in of_rank:
            if event.operation.kind.is_local:
                yield Span(rank, "reduce", event.step, event.begin - start, event.end - start, event.channel)


def follow_messages(call: CollectiveCall, events: Sequence[Sequence[Event]], start: float) -> Iterator[Message]:
    """Yield the messages of an execution, with times in seconds since ``start``.

    On each channel, the k-th send from rank a to rank b is matched with b's k-th receive from a.
    """
    halves: dict[tuple[bool, int, int, int], list[MessageHalf]] = defaultdict(list)
    for rank in range(len(events)):
        for half in _halves(call, rank, len(events), events[rank]):
            sends = half.operation.kind is Kind.SEND
            ends = (rank, half.operation.peer) if sends else (half.operation.peer, rank)
            halves[sends, *ends, half.channel].append(half)
    for (sends, src, dst, channel), sends_of_pair in halves.items():
        if sends:
            for pair in zip(sends_of_pair, halves[False, src, dst, channel], strict=True):
                yield _message(*pair, start)


def _halves(call: CollectiveCall, rank: int, world_size: int, events: Sequence[Event]) -> Iterator[MessageHalf]:
    by_operation = {(event.channel, event.step, event.operation): event for event in events}
    chunks = call.algorithm.chunks(world_size)
    for channel, program in enumerate(call.algorithm.channels(rank, world_size, call.root)):
        for step, operations in enumerate(program):
            for op in operations:
                first = op.chunk if op.kind is Kind.SEND else op.into
                nbytes = extent(first, op.count, call.elements, chunks) * call.itemsize
                if not op.kind.is_local and nbytes:
                    yield MessageHalf(rank, channel, step, op, by_operation[channel, step, op], nbytes)


def _message(sent: MessageHalf, received: MessageHalf, start: float) -> Message:
    src_posted, dst_posted = sent.event.begin - start, received.event.begin - start
    return Message(
        *(sent.rank, received.rank, sent.step, sent.operation.chunk, sent.nbytes),
        begin=max(src_posted, dst_posted),
        end=max(received.event.end - start, src_posted, dst_posted),
        channel=sent.channel,
        dst_step=received.step,
        count=sent.operation.count,
        into=received.operation.into,
        reduces=received.operation.kind.combines,
        src_posted=src_posted,
        dst_posted=dst_posted,
    )
