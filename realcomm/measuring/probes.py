"""What a calibration measures in its workers: messages one way, messages both ways, and reductions.

Each is a small rank program that the executor runs like any other, so that its time includes all costs of a step.
"""

from collections.abc import Callable
from functools import partial
from statistics import median_low

from collectives.declaration import Algorithm
from collectives.request import Request
from collectives.spec import Spec
from collectives.step import Program, recv, reduce, send
from collectives.units import format_size
from realcomm.execution.executor import Executor
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.exact_inputs import neutral_buffer
from realcomm.measuring.timing import (
    Interval,
    first_to_last,
    gather_intervals,
    max_over_ranks,
    repetitions_within,
    time_together,
    without_garbage_collection,
)

RankProgram = Callable[[int, int], Program]
Points = list[tuple[int, float]]  # (nbytes, seconds)

IN_A_ROW = 4  # operations a program, as in a collective one message follows another; a time is that of one
CHUNKS = 2  # one to send or read, the other to receive or reduce into
MESSAGE_SIZES = tuple(1024 * 4**k for k in range(9))  # 1 KiB to 64 MiB
REDUCTION_SIZES = tuple(65536 * 4**k for k in range(6))  # 64 KiB to 64 MiB
MEMORY = 2 << 30  # bytes of all ranks' buffers together, at most
TOTAL_S = 0.15  # of all repetitions at each size ...
LEAST, MOST = 5, 25  # ... whose number is within these
WARM_UP = 2


def one_way(rank: int, world_size: int) -> Program:
    """Let ranks 0 and 1 send to each other alternately, and the others do nothing."""
    for number in range(IN_A_ROW):
        if rank == number % 2:
            yield send(1 - rank, 0)
        elif rank == 1 - number % 2:
            yield recv(1 - rank, 1)


def both_ways(rank: int, world_size: int) -> Program:
    """Let every rank send to its right and receive from its left neighbour at once."""
    for _ in range(IN_A_ROW):
        yield send((rank + 1) % world_size, 0), recv((rank - 1) % world_size, 1)


def reduction(rank: int, world_size: int) -> Program:
    """Let every rank reduce one half of its buffer into the other."""
    for _ in range(IN_A_ROW):
        yield reduce(0, into=1)


def run_probes(rank: int, world_size: int) -> dict[str, Points]:
    """Return the median seconds of each program at each size, the same on all ranks; all ranks call this."""
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
    """Return when each rank began and ended the program, repetition by repetition."""
    algorithm = Algorithm(_NO_COLLECTIVE, program.__name__, program, chunks_rule=CHUNKS)
    request = Request(algorithm, CHUNKS * size // 4)
    executor = Executor(request, rank, world_size, device=own_device())
    call = partial(executor.run, neutral_buffer(request, own_device()))
    with without_garbage_collection():
        warm = [time_together(call) for _ in range(WARM_UP)]
        repetitions = repetitions_within(TOTAL_S, max_over_ranks(warm[-1][1] - warm[-1][0]), LEAST, MOST)
        return gather_intervals([time_together(call) for _ in range(repetitions)])


def seconds_of(program: RankProgram, intervals: list[list[Interval]]) -> list[float]:
    """Return the seconds of one of the program's ``IN_A_ROW`` operations, in each repetition.

    Messages count from first start to last end of the ranks that take part. Reductions do not communicate, so there the
    slowest rank's own time counts, without the differences between the starts.
    """
    if program is reduction:
        return [max(end - begin for begin, end in same) / IN_A_ROW for same in zip(*intervals, strict=True)]
    active = [own for rank, own in enumerate(intervals) if any(True for _ in program(rank, len(intervals)))]
    return [(end - begin) / IN_A_ROW for begin, end in first_to_last(active)]


def _undefined(rank: int, part: int, world_size: int, root: int) -> None:
    return None


# Data goes from one half of a buffer to the other, so it "moves".
_NO_COLLECTIVE = Spec("calibration", rooted=False, reduces=False, start=_undefined, end=_undefined, moves=True)
