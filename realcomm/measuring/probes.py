"""Define the programs that a calibration times: sequences of dependent messages, and reductions.

The executor runs these programs like any other program. So their times include all costs of a step.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import NamedTuple

import torch

from collectives.call import CollectiveCall
from collectives.costs.message_classes import EXCHANGE, FAN_IN, FAN_OUT, RELAY, Probe
from collectives.declaration import Algorithm
from collectives.spec import Spec
from collectives.step import Operation, Program, recv, recv_reduce, send
from realcomm.execution.device_clock import device_clock, seconds_of
from realcomm.execution.events import Event
from realcomm.execution.executor import Executor
from realcomm.execution.shared_clock import max_over_ranks
from realcomm.launching.group import own_device
from realcomm.measuring.rank_measurement import (
    Interval,
    neutral_buffer,
    repetitions_within,
    time_together,
)

ITEM_BYTES = 4  # probes send float32
QUEUED = 20  # additions or messages on a GPU that are timed together


def relay(probe: Probe, rank: int, world_size: int) -> Program:
    """Pass chunk 0 from rank to rank, starting with rank 0."""
    for hop in range(probe.length):
        if rank == hop % world_size:
            yield send((rank + 1) % world_size, 0)
        elif rank == (hop + 1) % world_size:
            yield _receive(probe, (rank - 1) % world_size, 0)


def exchange(probe: Probe, rank: int, world_size: int) -> Program:
    """Let each rank send to the next ``width`` ranks and receive from the previous ``width`` ranks in each step.

    In the next step, each rank sends the chunk that came from its direct predecessor.
    """
    for hop in range(probe.length):
        apart = range(1, probe.width + 1)
        sends = [send((rank + d) % world_size, (rank - hop) % world_size) for d in apart]
        yield (*sends, *(_receive(probe, (rank - d) % world_size, (rank - d - hop) % world_size) for d in apart))


def fan(probe: Probe, rank: int, world_size: int) -> Program:
    """Let rank 0 receive from ranks 1 to ``width`` one after another, then send to them one after another.

    Receiving and sending are one phase each, and alternate for ``length`` phases. With the pattern FAN_OUT, rank 0
    sends first.
    """
    for hop in range(probe.length):
        is_in = (hop % 2 == 0) == (probe.pattern == FAN_IN)
        for peer in range(1, probe.width + 1):
            if rank == 0:
                yield _receive(probe, peer, 0 if probe.reduces else peer) if is_in else send(peer, 0)
            elif rank == peer:
                yield send(0, 0) if is_in else _receive(probe, 0, 0)


def _receive(probe: Probe, peer: int, chunk: int) -> Operation:
    return (recv_reduce if probe.reduces else recv)(peer, chunk)


PROGRAMS = {RELAY: relay, EXCHANGE: exchange, FAN_IN: fan, FAN_OUT: fan}


def probe_call(probe: Probe, world_size: int) -> CollectiveCall:
    """Return the collective call that runs a probe's program, with chunks of the probe's size.

    >>> probe_call(Probe("exchange", 1, True, 4096, 3), world_size=2).nbytes
    8192
    """
    chunks = {RELAY: 1, EXCHANGE: world_size}.get(probe.pattern, probe.width + 1)
    program = partial(PROGRAMS[probe.pattern], probe)
    algorithm = Algorithm(NO_COLLECTIVE, probe.pattern, program, chunks_rule=chunks)
    return CollectiveCall(algorithm, max(1, probe.nbytes // ITEM_BYTES) * chunks)


class ProbeBench:
    """Times probes on one rank. The executor of a probe is created once and then reused."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self._calls: dict[Probe, Callable[[], object]] = {}
        self._repetitions: dict[Probe, int] = {}

    def time(self, probe: Probe, seconds: float, repetitions: tuple[int, int]) -> list[Interval]:
        """Time repetitions of a probe; return the start and end of each one on this rank. All ranks must call this.

        The repetitions take about ``seconds`` in total. ``repetitions`` is their minimum and maximum number.
        """
        call = self._calls.get(probe) or self._prepare(probe)
        if probe not in self._repetitions:
            time_together(call)
            begin, end = time_together(call)
            self._repetitions[probe] = repetitions_within(seconds, max_over_ranks(end - begin), *repetitions)
        return [time_together(call) for _ in range(self._repetitions[probe])]

    def takes_part(self, probe: Probe) -> bool:
        """Return whether the probe's program has a step for this rank."""
        return any(True for _ in PROGRAMS[probe.pattern](probe, self.rank, self.world_size))

    def _prepare(self, probe: Probe) -> Callable[[], object]:
        collective_call = probe_call(probe, self.world_size)
        executor = Executor(collective_call, self.rank, self.world_size, device=own_device())
        buffer = neutral_buffer(collective_call, own_device())

        def call() -> None:
            record: list[Event] = []  # a measurement records too
            executor.run(buffer, None if buffer.is_cuda else record)

        self._calls[probe] = call
        return call


def time_reduction(nbytes: int, repetitions: int) -> list[float]:
    """Return the seconds that this rank needs to add one buffer to another, for each repetition.

    On a GPU, a repetition is the mean of several queued additions, without the launch and the final synchronization.
    """
    target = torch.zeros(max(1, nbytes // ITEM_BYTES), device=own_device())
    source, count = torch.zeros_like(target), QUEUED if target.is_cuda else 1

    def add() -> None:
        for _ in range(count):
            target.add_(source)

    return [seconds_of(add, target.device) / count for _ in range(repetitions + 1)][1:]


class QueuedTimes(NamedTuple):
    """The host's and the device's time per message in seconds, if many messages are sent without waiting."""

    posting: float  # on the host
    device: float


def one_way(rank: int, world_size: int) -> Program:
    """Send chunk 0 from rank 0 to rank 1, ``QUEUED`` times."""
    for _ in range(QUEUED):
        if rank < 2:
            yield ((recv if rank else send)(1 - rank, 0),)


class QueueBench:
    """Times messages that are sent from one GPU to another without waiting, so that latencies do not add up."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self._runs: dict[int, Callable[[], None]] = {}

    def time(self, nbytes: int) -> QueuedTimes:
        """Return the times of one message of ``nbytes`` bytes; all ranks must call this.

        The first run includes the latency of the first message, so only the second run is measured.
        """
        run = self._runs.get(nbytes) or self._prepare(nbytes)
        clock = device_clock(own_device())
        run()
        posted, begin = perf_counter(), clock.now()
        run()
        end, posting = clock.now(), perf_counter() - posted
        return QueuedTimes(posting / QUEUED, (clock.seconds(end) - clock.seconds(begin)) / QUEUED)

    def _prepare(self, nbytes: int) -> Callable[[], None]:
        algorithm = Algorithm(NO_COLLECTIVE, "one_way", one_way, chunks_rule=1)
        call = CollectiveCall(algorithm, max(1, nbytes // ITEM_BYTES))
        executor = Executor(call, self.rank, self.world_size, device=own_device())
        self._runs[nbytes] = partial(executor.run, neutral_buffer(call, own_device()))
        return self._runs[nbytes]


def _undefined(rank: int, part: int, world_size: int, root: int) -> None:
    return None


# The result of a probe is not checked; data stays in its chunks or "moves".
NO_COLLECTIVE = Spec("calibration", rooted=False, reduces=False, start=_undefined, end=_undefined, moves=True)
