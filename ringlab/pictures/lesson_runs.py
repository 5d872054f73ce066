"""Prepares a lesson's run for the player: adds the steps and chunks of messages, buffer contents, and stage times."""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collectives.records.messages import Message, Messages
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from course.checks.exercise import Shown, counts_in, value_at
from course.files import CONTENTS, SPANS
from virtual.ranks.finding import format_ranks
from viz.player.buffers import COMPLETE, Buffers
from viz.player.runs import PlayedRun


class SeenMessage(NamedTuple):
    """A message between a lesson's ranks: its chunks, its first element, and the lines that send and receive it.

    ``chunk`` is the index of its first chunk, or -1 if the message is not part of a rank's tensor.
    """

    chunk: int
    chunks: int
    value: float
    src_line: int
    dst_line: int


def play_contents(name: str, trace: Trace, folder: Path, shown: Shown) -> PlayedRun:
    """Return a lesson's run for the player, with the buffer contents that its ranks wrote into ``folder``.

    If the file of a rank is missing, the run has no buffer contents. If the files contain all messages, the messages of
    the run also have steps and chunks.
    """
    files = {rank: folder / CONTENTS.format(rank) for rank in range(trace.world_size)}
    contents = {rank: json.loads(file.read_text()) for rank, file in files.items() if file.exists()}
    if len(contents) < trace.world_size:
        return PlayedRun(trace, name)
    pairs: dict[tuple[int, int], list[SeenMessage]] = defaultdict(list)
    for rank, (_, _, met) in contents.items():
        place: dict[tuple[int, int], int] = defaultdict(int)
        for src, dst, *carried in met:
            pair, number = pairs[src, dst], place[src, dst]
            place[src, dst] += 1
            if number == len(pair):
                pair.append(SeenMessage(*carried))
            elif carried[0] >= 0 and (rank == src or pair[number].chunk < 0):
                pair[number] = SeenMessage(*carried)
    carries = list[SeenMessage]()
    if sum(map(len, pairs.values())) == len(trace.messages):
        trace, carries = _number(trace, pairs)
    trace = replace(trace, facts={**trace.facts, "nbytes": shown.nbytes})
    buffers = _find_buffers(trace, contents, carries, shown)
    if carries:  # a receiver that then holds more than the message carries has added the message
        first = np.cumsum([0, *trace.messages.count.tolist()])[:-1]
        more = buffers.value % COMPLETE & ~buffers.carried[first[buffers.message]] % COMPLETE
        adds = set(buffers.message[more > 0].tolist())
        rows = (row._replace(reduces=number in adds) for number, row in enumerate(trace.messages))
        trace = replace(trace, messages=Messages.of(rows))
    return PlayedRun(trace, name, buffers=buffers, lines=tuple((each.src_line, each.dst_line) for each in carries))


def find_wrong_end(buffers: Buffers | None) -> str:
    """Describe the first chunk with wrong final contents, and what it must contain. Return "" if no chunk is wrong."""
    if buffers is None:
        return ""
    last = dict(enumerate(buffers.start.tolist())) | dict(
        zip(buffers.cell.tolist(), buffers.value.tolist(), strict=True)
    )
    wrong = [cell for cell, value in sorted(last.items()) if buffers.wanted[cell] and value < COMPLETE]
    if not wrong:
        return ""
    rank, chunk = divmod(wrong[0], buffers.chunks)
    wanted, contents = _whose(int(buffers.wanted[wrong[0]])), _whose(last[wrong[0]])
    holds = "some of it more than once" if contents == wanted else contents
    return (
        f"WRONG: at the end, chunk {chunk} of rank {rank} must hold {wanted}, but holds {holds} "
        f"({len(wrong)} of {len(last)} chunks are wrong)"
    )


def _whose(bits: int) -> str:
    """Describe the ranks whose data a chunk contains.

    >>> _whose(0b1111), _whose(0b100), _whose(COMPLETE)
    ('data of ranks 0-3', 'data of rank 2', 'data of no rank')
    """
    ranks = [rank for rank in range(COMPLETE.bit_length() - 1) if bits >> rank & 1]
    return f"data of {format_ranks(ranks) if ranks else 'no rank'}"


def _number(trace: Trace, pairs: Mapping[tuple[int, int], Sequence[SeenMessage]]) -> tuple[Trace, list[SeenMessage]]:
    """Return a trace whose messages have steps and chunks, and the messages as the ranks observed them.

    Operations that a rank posts at the same time belong to one step.
    """
    rows = sorted(trace.messages, key=lambda message: message.collective)
    times: dict[int, set[float]] = defaultdict(set)
    for row in rows:
        times[row.src].add(row.src_posted)
        times[row.dst].add(row.dst_posted)
    step = {rank: {time: number for number, time in enumerate(sorted(posted))} for rank, posted in times.items()}
    count: dict[tuple[int, int], int] = defaultdict(int)
    numbered = list[tuple[Message, SeenMessage]]()
    for row in rows:
        seen = pairs[row.src, row.dst][count[row.src, row.dst]]
        count[row.src, row.dst] += 1
        ours, theirs = step[row.src][row.src_posted], step[row.dst][row.dst_posted]
        row = row._replace(collective=0, chunk=max(seen.chunk, 0), count=seen.chunks, step=ours, dst_step=theirs)
        numbered.append((row, seen))
    numbered.sort(key=lambda message: (message[0].begin, message[0].src))
    return replace(trace, messages=Messages.of([row for row, _ in numbered])), [seen for _, seen in numbered]


def _find_buffers(
    trace: Trace, contents: Mapping[int, tuple[list[int], list[tuple[float, list[float]]], object]],
    carried: Sequence[SeenMessage], shown: Shown,
) -> Buffers:  # fmt: skip
    """Return the contents of all ranks' chunks over time.

    If a chunk changed between two observations, the last message that the rank received is assumed to be the cause.
    """
    messages, ranks = trace.messages, trace.world_size
    places = contents[0][0]
    wanted = tuple(range(ranks)) if shown.root is None else (shown.root,)
    totals = [sum(value_at(rank, place) for rank in wanted) for place in places]
    every, start, changes = sum(1 << rank for rank in wanted), list[int](), list[tuple[float, int, int, int]]()

    def encode(value: float, at: int) -> int:
        bits = sum(1 << rank for rank in counts_in(value) if rank < ranks)
        return bits | COMPLETE * (value == totals[at])

    for rank in range(ranks):
        got = sorted((float(messages.end[each]), int(each)) for each in np.flatnonzero(messages.dst == rank))
        seen = contents[rank][1]
        start += [encode(value, at) for at, value in enumerate(seen[0][1])]
        for (_, before), (time, after) in pairwise(seen):
            last = bisect_right(got, (time * (1 + 1e-9), len(messages))) - 1
            for at in [at for at in range(len(places)) if after[at] != before[at]] if last >= 0 else ():
                changes.append((*got[last], rank * len(places) + at, encode(after[at], at)))
    rows = [change[1:] for change in sorted(changes)]
    bits = [sum(1 << rank for rank in counts_in(each.value) if rank < ranks) for each in carried]
    message, cell, value = np.array(rows, np.int64).reshape(-1, 3).T
    return Buffers(
        chunks=len(places),
        is_exact=True,
        start=np.array(start),
        wanted=np.full(ranks * len(places), every),
        message=message,
        cell=cell,
        value=value,
        carried=np.repeat(
            [each | COMPLETE * (each == every) for each in bits] or np.zeros(len(messages)),
            messages.count,
        ),
    )


def read_spans(folder: Path, ranks: int) -> Spans:
    """Return the spans of pipeline stages that the ranks of a lesson wrote into a folder."""
    files = {rank: folder / SPANS.format(rank) for rank in range(ranks)}
    return Spans.of(
        Span(rank, *row) for rank, file in files.items() if file.exists() for row in json.loads(file.read_text())
    )
