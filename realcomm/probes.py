"""What a calibration measures inside its workers: messages one way, messages both ways, and reductions.

Each is a little rank program, run by the executor like any other, so that its time holds all that a step costs.
"""

from collections.abc import Callable
from functools import partial
from statistics import median_low

import torch

from collectives.catalogue import Algorithm
from collectives.spec import Spec
from collectives.step import Program, recv, reduce, send
from collectives.units import format_size
from realcomm.exact import neutral
from realcomm.execute import Executor
from realcomm.timing import all_intervals, enough, first_to_last, slowest, together, undisturbed
from realcomm.worker import doing, own_device, report

Points = list[tuple[int, float]]  # (nbytes, seconds)

CHUNKS = 2  # one to send or read, the other to receive or reduce into
MESSAGE_SIZES = tuple(1024 * 4**k for k in range(9))  # 1 KiB to 64 MiB
REDUCTION_SIZES = tuple(65536 * 4**k for k in range(6))  # 64 KiB to 64 MiB
MEMORY = 2 << 30  # bytes that the buffers of all ranks may take together
TOTAL = 0.25  # seconds at each size ...
LEAST, MOST = 5, 49  # ... and repetitions within these
WARM_UP = 2


def one_way(rank: int, world_size: int) -> Program:
    """Rank 0 sends to rank 1, and nobody else does anything."""
    if rank == 0:
        yield send(1, 0)
    elif rank == 1:
        yield recv(0, 1)


def both_ways(rank: int, world_size: int) -> Program:
    """Everyone sends to the right and receives from the left."""
    yield send((rank + 1) % world_size, 0), recv((rank - 1) % world_size, 1)


def reduction(rank: int, world_size: int) -> Program:
    """Everyone reduces one half of its buffer into the other."""
    yield reduce(0, into=1)


def probe(rank: int, world_size: int) -> dict[str, Points]:
    """For each program and size, the median seconds from first start to last end; the same on all ranks."""
    programs = {reduction: REDUCTION_SIZES}
    if world_size > 1:
        programs |= {one_way: MESSAGE_SIZES, both_ways: MESSAGE_SIZES}
    fitting = MEMORY // (CHUNKS * world_size)
    work = [(program, size) for program, sizes in programs.items() for size in sizes if size <= fitting]
    points: dict[str, Points] = {program.__name__: [] for program in programs}
    for done, (program, size) in enumerate(work):
        text = f"{program.__name__}, {format_size(size)}"
        doing(f"calibrating {text}")
        if rank == 0:
            report(done, len(work), text)
        points[program.__name__].append((size, _median_seconds(program, rank, world_size, size)))
    return points


def _median_seconds(program: Callable[[int, int], Program], rank: int, world_size: int, size: int) -> float:
    algorithm = Algorithm(_NO_COLLECTIVE, program.__name__, program, chunks_rule=CHUNKS)
    buffer = neutral(CHUNKS * size // 4, torch.float32, "sum", own_device())
    executor = Executor(algorithm, rank, world_size, buffer.numel(), device=own_device())
    call = partial(executor.run, buffer)
    with undisturbed():
        warm = [together(call) for _ in range(WARM_UP)]
        repetitions = enough(slowest(warm[-1][1] - warm[-1][0]), TOTAL, LEAST, MOST)
        whole = first_to_last(all_intervals([together(call) for _ in range(repetitions)]))
    return median_low(end - begin for begin, end in whole)


def _anything(rank: int, world_size: int, root: int) -> None:
    return None


_NO_COLLECTIVE = Spec("calibration", rooted=False, reduces=False, start=_anything, end=_anything)
