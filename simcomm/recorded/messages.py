"""The messages of a replay: those of collectives, through the templates of their ways, and those that programs send."""

from typing import NamedTuple

import numpy as np

from collectives.records.columns import Bools, Floats, Ints
from collectives.records.recording import Recording
from simcomm.recorded.calls import NEVER, ReplayedCalls, Segments
from simcomm.recorded.carriers import NetworkCarrier, Way
from simcomm.recorded.layout import ReplayLayout


class ReplayedMessages(NamedTuple):
    """Messages by number; one entry of each array for each. Where a half is missing its rank is the other's peer."""

    source: Ints  # the stage that sends it; where no rank does, one that never begins
    sink: Ints
    src: Ints
    dst: Ints
    nbytes: Floats
    seconds: Floats  # that it takes beside its links
    crosses: Bools  # links
    collective: Ints  # the key of its collective, or its own
    channel: Ints
    step: Ints
    dst_step: Ints
    chunk: Ints
    count: Ints  # type: ignore[assignment]
    into: Ints
    reduces: Ints


def find_messages(
    recording: Recording,
    segments: Segments,
    calls: ReplayedCalls,
    laid: tuple[ReplayLayout, list[Way]],
    carrier: NetworkCarrier,
) -> ReplayedMessages:
    """Return all messages of a layout with its ways: those of programs first."""
    layout, ways = laid
    parts = [_of_programs(recording, segments, calls, layout, carrier)]
    for way, bases in zip(ways, layout.bases, strict=True):
        if way.template is not None and len(way.template.messages.source):
            parts.append(_of_collectives(way, bases, calls, carrier.collectives_cross))
    return ReplayedMessages(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _of_collectives(way: Way, bases: Ints, calls: ReplayedCalls, crosses: bool) -> ReplayedMessages:
    """Return the messages of collectives that are carried alike, one collective after the other."""
    template, number = way.template, len(way.collectives)
    assert template is not None
    one, tables = template.messages, bases.reshape(number, template.ranks, template.channels)

    def stage(of_template: Ints) -> Ints:
        member, channel = np.divmod(template.agent[of_template], template.channels)
        return (tables[:, member, channel] + template.place[of_template]).reshape(-1)

    ranks, shape = calls.rank[way.parts], (number, len(one.source))
    names = {name: np.tile(getattr(one, name), number) for name in one._fields[4:]}
    return ReplayedMessages(
        source=stage(one.source),
        sink=stage(one.sink),
        src=ranks[:, one.src].reshape(-1),
        dst=ranks[:, one.dst].reshape(-1),
        crosses=np.full(number * len(one.source), crosses),
        collective=np.broadcast_to(calls.key[way.collectives][:, None], shape).reshape(-1),
        **names,
    )


def _of_programs(
    recording: Recording, segments: Segments, calls: ReplayedCalls, layout: ReplayLayout, carrier: NetworkCarrier
) -> ReplayedMessages:
    """Return the messages that programs send; the tag stands for the chunk, and the step is 0."""
    send, recv, made = calls.send, calls.recv, recording.calls
    there = np.where(send >= 0, send, recv)
    sends = send >= 0
    src = np.where(sends, made.rank[there], made.peer[there])
    dst = np.where(sends, made.peer[there], made.rank[there])
    stages = []
    for half in (send, recv):
        is_posted = (half >= 0) & (calls.posted[half] >= 0)
        stages.append(np.where(is_posted, layout.half[half], layout.never))
    nbytes = made.nbytes[there].astype(np.float64)
    exchanges, computed = _circumstances(recording, segments, calls)
    seconds = carrier.message_seconds(np.stack([src, dst], axis=1), nbytes, exchanges, computed)
    zeros = np.zeros(len(there), np.int64)
    return ReplayedMessages(
        source=stages[0],
        sink=stages[1],
        src=src,
        dst=dst,
        nbytes=nbytes,
        seconds=seconds,
        crosses=np.full(len(there), carrier.messages_cross),
        collective=made.key[there],
        channel=zeros,
        step=zeros,
        dst_step=zeros,
        chunk=zeros,
        count=zeros + 1,
        into=zeros,
        reduces=zeros.astype(np.bool_),
    )


def _circumstances(recording: Recording, segments: Segments, calls: ReplayedCalls) -> tuple[Bools, Floats]:
    """Return of messages whether one of their ranks sends and receives at once, and how long one had computed."""
    both = np.zeros((2, len(segments) + 1), np.bool_)
    for row, half in zip(both, (calls.send, calls.recv), strict=True):
        row[calls.posted[half[half >= 0]]] = True
    both[:, NEVER] = False
    exchanges, computed = both[0] & both[1], np.append(recording.entries.seconds[segments.first], 0.0)
    where = [np.where(half >= 0, calls.posted[half], NEVER) for half in (calls.send, calls.recv)]
    return exchanges[where[0]] | exchanges[where[1]], np.maximum(computed[where[0]], computed[where[1]])
