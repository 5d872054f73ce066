"""Convert each rank's times to the shared clock, which is rank 0's ``time.perf_counter``."""

from dataclasses import dataclass
from math import inf
from time import perf_counter

import torch
import torch.distributed as dist

from realcomm.execution.group_memory import host_group, keep_for
from realcomm.launching.group import group_or_default, own_device

ROUND_TRIPS = 8  # round trips to rank 0; the shortest one is used
RENEWED_S = 5.0  # host clocks drift apart by up to some microseconds per second
TAG = (1 << 24) - 1  # just below the executor's tags


@dataclass
class ClockOffset:
    """The offset in seconds from this rank's clock to rank 0's clock."""

    seconds: float = 0.0
    measured: float = -inf  # when it was measured, on this rank's clock

    def is_stale(self) -> bool:
        """Return whether to measure the offset again. An offset of zero, as on rank 0's host, is kept forever."""
        return self.measured == -inf or (self.seconds != 0.0 and perf_counter() - self.measured > RENEWED_S)

    def measure(self) -> None:
        """Measure the offset by round trips to rank 0. All ranks must call this together."""
        group, rank = host_group(), dist.get_rank()
        time = torch.zeros(1, dtype=torch.float64)
        if rank == 0:
            for peer in range(1, dist.get_world_size()):
                for _ in range(ROUND_TRIPS):
                    dist.recv(time, peer, group, TAG)
                    dist.send(torch.tensor([perf_counter()], dtype=torch.float64), peer, group, TAG)
        else:
            trips = list[tuple[float, float]]()
            for _ in range(ROUND_TRIPS):
                begin = perf_counter()
                dist.send(time, 0, group, TAG)
                dist.recv(time, 0, group, TAG)
                end = perf_counter()
                trips.append((end - begin, time.item() - (begin + end) / 2))
            self.seconds = offset_of(*min(trips))
        self.measured = perf_counter()


def offset_of(round_trip: float, offset: float) -> float:
    """Return ``offset``, or 0 if its absolute value is not larger than its measurement error, ``round_trip / 2``.

    Both are in seconds. Rank 0 read its clock at an unknown time during the round trip.

    >>> offset_of(0.002, 3.5), offset_of(0.002, 0.0009)
    (3.5, 0.0)
    """
    return offset if abs(offset) > round_trip / 2 else 0.0


def clock_offset() -> ClockOffset:
    """Return the cached offset of this rank's clock in the default group."""
    return keep_for(group_or_default(), "clock offset", ClockOffset)


def shared_clock_offset() -> float:
    """Return the seconds to add to this rank's clock to get the shared clock. All ranks must call this together."""
    offset = clock_offset()
    if max_over_ranks(float(offset.is_stale())):
        offset.measure()
    return offset.seconds


def shared_instant() -> float:
    """Return one instant that is the same on all ranks, in seconds of this rank's ``perf_counter``.

    All ranks must call this together.
    """
    offset = shared_clock_offset()
    return max_over_ranks(perf_counter() + offset) - offset


def max_over_ranks(seconds: float) -> float:
    most = torch.tensor([seconds], dtype=torch.float64, device=own_device())
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def gather_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the tensors of all ranks, stacked by rank, on the CPU of every rank."""
    own = values.to(own_device())
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    return torch.stack(gathered).cpu()
