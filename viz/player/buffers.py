"""What is in the buffers while a collective runs: whose data each chunk of each rank holds, after each message."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectives.catalogue import find_algorithm, library
from collectives.declaration import Algorithm
from collectives.errors import InputError, ProgramError
from collectives.proof.contributions import (
    Contributions,
    LandedMessage,
    follow_contributions,
    follow_wrong_contributions,
)
from collectives.records.columns import Ints
from collectives.records.messages import Messages
from collectives.records.trace import Trace
from collectives.schedule.build import build_schedule, sound_schedule

TOLD_APART = 16  # ranks that are told apart; of more, how many have contributed is said
COMPLETE = 1 << 30  # beside the contributors: the chunk is what the collective promises


@dataclass(frozen=True)
class Buffers:
    """Contributors of chunks: the bits of their ranks up to ``TOLD_APART`` ranks, their number for more."""

    chunks: int
    is_exact: bool
    start: Ints  # [world_size * chunks]
    wanted: Ints  # [world_size * chunks], 0 where the collective promises nothing
    message: Ints  # [changes]: which message changes a cell when it ends
    cell: Ints  # [changes]: rank * chunks + chunk
    value: Ints  # [changes]
    carried: Ints  # what each message carries, chunk by chunk, one message after the other


def follow_buffers(trace: Trace) -> Buffers | None:
    """Return what the buffers hold over time; None for a training, an unknown algorithm, and more ranks.

    It comes from the symbolic run that proves the program, not from the times of the messages: matching is static, so
    it holds for every interleaving.
    """
    found, messages = _contributions(trace), trace.messages
    if found is None:
        return None
    encode, chunks = _Encoder(found.wanted, trace.world_size), len(found.wanted[0])
    columns = (messages.src, messages.channel, messages.step, messages.dst, messages.chunk, messages.count)
    landings = [found.landings.get(key) for key in zip(*(column.tolist() for column in columns), strict=True)]
    if None in landings:
        return None  # the messages are not those of this program
    known = [landing for landing in landings if landing is not None]
    carried = [encode(one.rank, one.into + at, bits) for one in known for at, bits in enumerate(one.carried)]
    message, cell, value = _changes(messages, known, encode, chunks)
    start = [encode(rank, chunk, bits) for rank, row in enumerate(found.start) for chunk, bits in enumerate(row)]
    wanted = [encode.shown(bits) for row in found.wanted for bits in row]
    return Buffers(
        chunks=chunks,
        is_exact=encode.is_exact,
        start=np.array(start),
        wanted=np.array(wanted),
        message=message,
        cell=cell,
        value=value,
        carried=np.array(carried, np.int64),
    )


def _changes(messages: Messages, landings: Sequence[LandedMessage], encode: "_Encoder", chunks: int) -> Ints:
    """Return message, cell and new value of each change of a cell, in order of time; shape [3, changes].

    Where several messages of a step are reduced into one cell, the last that arrives makes the change.
    """
    latest: dict[tuple[int, ...], tuple[float, int, int]] = {}
    channels, ends = messages.channel.tolist(), messages.end.tolist()
    for index, landing in enumerate(landings):
        for rank, chunk, bits in landing.after:
            key = (rank, channels[index], landing.step, chunk)
            if key not in latest or latest[key][0] <= ends[index]:
                latest[key] = (ends[index], index, encode(rank, chunk, bits))
    changes = [(end, index, key[0] * chunks + key[3], value) for key, (end, index, value) in latest.items()]
    rows = [change[1:] for change in sorted(changes, key=lambda change: change[:2])]
    return np.array(rows, np.int64).reshape(-1, 3).T


class _Encoder:
    """Contributors as a page shows them: bits or a number, with ``COMPLETE`` where they are what is wanted."""

    def __init__(self, wanted: list[list[int]], world_size: int) -> None:
        self.wanted = wanted
        self.is_exact = world_size <= TOLD_APART

    def __call__(self, rank: int, chunk: int, bits: int) -> int:
        """Return the contributors of a chunk of a rank; scratch is never complete."""
        row = self.wanted[rank]
        is_complete = chunk < len(row) and bits == row[chunk] != 0
        return self.shown(bits) | (COMPLETE if is_complete else 0)

    def shown(self, bits: int) -> int:
        return bits if self.is_exact else bits.bit_count()


def _contributions(trace: Trace) -> Contributions | None:
    """Return who contributes what in the program of a trace, up to where it goes wrong; None where it is not known.

    A trace may come from a file of somebody else, so a program that is not at hand is looked up in the library only.
    """
    # buffers of more ranks are too small to be seen
    if trace.title.startswith("training/") or trace.world_size > 64:
        return None  # each sync of a training begins with other gradients
    try:
        program = trace.program or _find_in_library(trace.algorithm or trace.title)
        if program is None:
            return None
        if trace.failure is None:
            return follow_contributions(build_schedule(program, trace.world_size, trace.root))
        failure = trace.failure
        sound = sound_schedule(program, trace.world_size, trace.root, failure.rank, failure.steps)
        return follow_wrong_contributions(sound)
    except (InputError, ProgramError):
        return None


def _find_in_library(name: str) -> Algorithm | None:
    return find_algorithm(name) if name.partition("[")[0] in library() else None
