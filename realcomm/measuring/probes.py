"""What a calibration measures inside its workers: messages one way, messages both ways, and reductions.

Each is a little rank program, run by the executor like any other, so that its time holds all that a step costs.
"""

from collections.abc import Callable
from functools import partial
from statistics import median_low

import torch

from collectives.declaration import Algorithm
from collectives.request import Request
from collectives.spec import Spec
from collectives.step import Program, recv, reduce, send
from collectives.units import format_size
from realcomm.execution.executor import Executor
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.common_start import (
    Interval,
    all_intervals,
    enough,
    first_to_last,
    slowest,
    together,
    undisturbed,
)
from realcomm.measuring.exact_inputs import neutral

RankProgram = Callable[[int, int], Program]
Points = list[tuple[int, float]]  # (nbytes, seconds)

IN_A_ROW = 4  # as in a collective, where one message follows another; a time is the share of one
CHUNKS = 2  # one to send or read, the other to receive or reduce into
MESSAGE_SIZES = tuple(1024 * 4**k for k in range(9))  # 1 KiB to 64 MiB
REDUCTION_SIZES = tuple(65536 * 4**k for k in range(6))  # 64 KiB to 64 MiB
MEMORY = 2 << 30  # bytes that the buffers of all ranks may take together
TOTAL = 0.15  # seconds at each size ...
LEAST, MOST = 5, 25  # ... and repetitions within these
WARM_UP = 2


def one_way(rank: int, world_size: int) -> Program:
    """Ranks 0 and 1 send to each other in turn, and nobody else does anything."""
    for turn in range(IN_A_ROW):
        if rank == turn % 2:
            yield send(1 - rank, 0)
        elif rank == 1 - turn % 2:
            yield recv(1 - rank, 1)


def both_ways(rank: int, world_size: int) -> Program:
    """Everyone sends to the right and receives from the left."""
    for _ in range(IN_A_ROW):
        yield send((rank + 1) % world_size, 0), recv((rank - 1) % world_size, 1)


def reduction(rank: int, world_size: int) -> Program:
    """Everyone reduces one half of its buffer into the other."""
    for _ in range(IN_A_ROW):
        yield reduce(0, into=1)


def probe(rank: int, world_size: int) -> dict[str, Points]:
    """For each program and size, the median seconds; the same on all ranks."""
    programs: dict[RankProgram, tuple[int, ...]] = {reduction: REDUCTION_SIZES}
    if world_size > 1:
        programs |= {one_way: MESSAGE_SIZES, both_ways: MESSAGE_SIZES}
    fitting = MEMORY // (CHUNKS * world_size)
    work = [(program, size) for program, sizes in programs.items() for size in sizes if size <= fitting]
    points: dict[str, Points] = {program.__name__: [] for program in programs}
    for done, (program, size) in enumerate(work):
        text = f"{program.__name__}, {format_size(size)}"
        set_status(f"calibrating {text}")
        if rank == 0:
            report_progress(done, len(work), text)
        intervals = _intervals(program, rank, world_size, size)
        points[program.__name__].append((size, median_low(seconds_of(program, intervals))))
    return points


def _intervals(program: RankProgram, rank: int, world_size: int, size: int) -> list[list[Interval]]:
    """When each rank began and ended the program, time after time."""
    algorithm = Algorithm(_NO_COLLECTIVE, program.__name__, program, chunks_rule=CHUNKS)
    buffer = neutral(CHUNKS * size // 4, torch.float32, "sum", own_device())
    executor = Executor(Request(algorithm, buffer.numel()), rank, world_size, device=own_device())
    call = partial(executor.run, buffer)
    with undisturbed():
        warm = [together(call) for _ in range(WARM_UP)]
        repetitions = enough(slowest(warm[-1][1] - warm[-1][0]), TOTAL, LEAST, MOST)
        return all_intervals([together(call) for _ in range(repetitions)])


def seconds_of(program: RankProgram, intervals: list[list[Interval]]) -> list[float]:
    """How long one of the program's steps took in each repetition, of which ``IN_A_ROW`` follow each other.

    A message counts from first start to last end of the ranks that it concerns.

    A reduction waits for nobody, so there the slowest rank's own time counts, and no difference between their starts.
    """
    if program is reduction:
        return [max(end - begin for begin, end in same) / IN_A_ROW for same in zip(*intervals, strict=True)]
    concerned = [own for rank, own in enumerate(intervals) if any(True for _ in program(rank, len(intervals)))]
    return [(end - begin) / IN_A_ROW for begin, end in first_to_last(concerned)]


def _anything(rank: int, part: int, world_size: int, root: int) -> None:
    return None


# Data goes from one half of a buffer to the other, so it "moves".
_NO_COLLECTIVE = Spec("calibration", rooted=False, reduces=False, start=_anything, end=_anything, moves=True)
