"""The part of a wrong program that can be carried out: all ranks, each up to its first step that cannot be."""

from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np

from collectives.declaration import Algorithm
from collectives.schedule.build import Programs, columns_of
from collectives.schedule.call import ProgramCall, make_call
from collectives.schedule.matching import match_halves, pair_keys
from collectives.schedule.rules import first_offence
from collectives.schedule.schedule import Schedule


def sound_schedule(algorithm: Algorithm, world_size: int, root: int, rank: int, steps: int | None) -> Schedule:
    """Return what ranks say up to where they break a rule or fail, of ``rank`` ``steps`` steps of a channel at most.

    Halves of messages that meet nothing, or another number of chunks, are unmatched: their steps never complete.
    """
    call = make_call(algorithm, world_size, root)
    programs = _cut_offences(call, _run_tolerantly(call))
    for program in programs[rank] if steps is not None else []:
        del program[steps:]
    columns, _ = columns_of(call, programs)
    found = Schedule(
        algorithm, world_size, root, call.chunks, call.scratch,
        tuple(tuple(tuple(program) for program in channels) for channels in programs), *columns,
    )  # fmt: skip
    match = match_halves(columns.kind, pair_keys(columns, world_size, found.channels))
    return replace(found, match=np.where((match >= 0) & (columns.count[match] != columns.count), -1, match))


def _run_tolerantly(call: ProgramCall) -> Programs:
    """Return the steps of all ranks, each as far as it comes."""
    found: Programs = []
    for rank in range(call.world_size):
        found.append([])
        with suppress(Exception, SystemExit):  # what it is has been told already
            for program in call.run(rank):
                found[-1].append([])
                # a program that never ends has gone wrong long before
                for step in islice(program, 10_000):
                    found[-1][-1].append(step)
    return found


def _cut_offences(call: ProgramCall, programs: Programs) -> Programs:
    """Return the programs, each channel up to its first step that breaks a rule."""
    sound = [[list(program) for program in channels] for channels in programs]
    while True:
        columns, odd = columns_of(call, sound)
        offence = first_offence(columns, call)
        if offence is not None:
            rank, channel, step = (int(column[offence.at]) for column in columns[:3])
        elif odd is not None and odd.rank is not None and odd.step is not None:
            rank, channel, step = odd.rank, -1, odd.step
        else:
            return sound
        for program in sound[rank] if channel < 0 else [sound[rank][channel]]:
            del program[step:]
