"""Measure messages between the ranks of two hosts, with one rank on each host or with more ranks than cores."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

import torch
import torch.distributed as dist

from collectives.call import CollectiveCall
from collectives.declaration import Algorithm
from collectives.records.calibration import CrowdRound, PairProbes, SizeTimes
from collectives.records.environment import cores
from collectives.step import Program, recv, reduce, send
from collectives.units import format_size
from realcomm.emulation.goodput import expected_goodput
from realcomm.emulation.plan import BURST, MTU
from realcomm.execution.executor import Executor
from realcomm.execution.shared_clock import gather_over_ranks, max_over_ranks
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.probes import NO_COLLECTIVE
from realcomm.measuring.rank_measurement import (
    Interval,
    first_to_last,
    gather_intervals,
    neutral_buffer,
    repetitions_within,
    time_together,
    without_garbage_collection,
)

_LENGTH = 256  # requested bytes; older kernels fill fewer
_ESTABLISHED = 1
_MSS, _UNACKED, _CWND, _MIN_RTT, _SEND_WINDOW = 16, 24, 80, 148, 228  # offsets in struct tcp_info, <linux/tcp.h>
KIB = 1024
TINY = 64  # bytes; a link's token bucket passes them without delay
CHAIN_SIZES = (TINY, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)
HOPS = (1, 2, 3, 5)
TINY_HOPS = (1, 5, 13)
LONG_SIZE = 1024 * KIB  # only for one and two hops
EXCHANGES = (1, 4)  # dependent steps of an exchange
TINY_EXCHANGES = (4, 16)  # dependent steps with the smallest messages
TINY_REPETITIONS = 63  # repetitions of programs with the smallest messages
CROWD_ROUNDS = 8  # rounds of a crowd; their spread is part of the stated uncertainty
IN_ROUND = 9  # repetitions in a round
AT_ONCE = (1, 4, 12)  # messages posted in one step
LONGEST_S = 4.0  # the longest time of one message
REDUCTION_SIZES = (64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB)
TOTAL_S, LEAST, MOST = 0.3, 3, 61  # time of all repetitions of a program, and their least and largest number
SMALL, LEAST_SMALL = 64 * KIB, 15  # least number for messages up to this size, which vary most
SLOWER, ATTEMPTS = 5e-3, 4  # a long message is repeated if it is this much slower; and most tries
POSTED_BEFORE_S = 0.02  # from posting a receive to posting its send
TAG = 77
SAMPLE_S = 5e-3  # between samples of the bytes in flight


class TcpInfo(NamedTuple):
    """The state of one TCP connection."""

    window: int  # bytes allowed in flight: congestion window, limited by the receiver's
    in_flight: int  # bytes sent and not acknowledged
    min_rtt: float  # seconds


def read_connections() -> list[TcpInfo]:
    """Return the state of this process's TCP connections, except connections to its own address."""
    connections: list[TcpInfo] = []
    for name in [file.name for file in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError, ValueError):
            if str(Path("/proc/self/fd", name).readlink()).startswith("socket:"):
                connections += _read(int(name))
    return connections


def _read(file: int) -> Iterator[TcpInfo]:
    with socket.socket(fileno=os.dup(file)) as connection:
        if connection.family == socket.AF_INET and connection.type == socket.SOCK_STREAM:
            if connection.getsockname()[0] == connection.getpeername()[0]:
                return
            raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH).ljust(_LENGTH, b"\0")
            mss, unacked, cwnd, min_rtt, wnd = (
                struct.unpack_from("=I", raw, offset)[0] for offset in (_MSS, _UNACKED, _CWND, _MIN_RTT, _SEND_WINDOW)
            )
            if raw[0] == _ESTABLISHED:
                yield TcpInfo(min(cwnd * mss, wnd or cwnd * mss), unacked * mss, min_rtt / 1e6)


@contextmanager
def sampling_in_flight() -> Iterator[list[int]]:
    """Yield a list to which a thread appends samples of the bytes in flight on the busiest connection."""
    samples, is_over = list[int](), threading.Event()

    def sample() -> None:
        while not is_over.wait(SAMPLE_S):
            samples.append(max((each.in_flight for each in read_connections()), default=0))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


SENT_SIZES = tuple(KIB * 4**k for k in range(3, 8))  # 64 KiB to 16 MiB


def chain(hops: int, rank: int, world_size: int) -> Program:
    """Pass one chunk back and forth between two ranks ``hops`` times."""
    for hop in range(hops):
        yield (send(1 - rank, 0),) if rank == hop % 2 else (recv(1 - rank, 0),)


def exchange(steps: int, rank: int, world_size: int) -> Program:
    """Let both ranks send and receive in each step. A rank sends the chunk that it received in the previous step."""
    for step in range(steps):
        yield send(1 - rank, step % 2), recv(1 - rank, 1 - step % 2)


def passing(steps: int, messages: int, rank: int, world_size: int) -> Program:
    """In each step, let each rank pass ``messages`` chunks on to changing ranks of the other host."""
    for step in range(steps):
        ours, theirs = (step % 2) * messages, (1 - step % 2) * messages
        apart = [1 + 2 * ((step * messages + each) % (world_size // 2)) for each in range(messages)]
        sends = [send((rank + far) % world_size, ours + each) for each, far in enumerate(apart)]
        yield *sends, *(recv((rank - far) % world_size, theirs + each) for each, far in enumerate(apart))


def at_once(messages: int, rank: int, world_size: int) -> Program:
    """Let rank 0 send ``messages`` chunks to rank 1 in one step."""
    yield tuple((recv if rank else send)(1 - rank, chunk) for chunk in range(messages))


def reduction(rank: int, world_size: int) -> Program:
    """Let each rank add one of its chunks to another."""
    yield (reduce(0, into=1),)


def probe_pair(rank: int, world_size: int, bandwidth: float) -> PairProbes:
    """Measure messages between two hosts whose links have ``bandwidth`` bytes/s. Both ranks must call this."""
    tiny, exchanged = _tiny(rank, world_size)
    chains = tiny + [
        (size, hops, _seconds(partial(chain, hops), size, 1))
        for size in (*CHAIN_SIZES[1:], LONG_SIZE)
        for hops in (HOPS if size in CHAIN_SIZES else HOPS[:2])
    ]
    sizes = [size for size in SENT_SIZES if size < LONGEST_S * bandwidth]
    goodput = expected_goodput(bandwidth)
    sent = [(size, *_send_undisturbed(rank, size, goodput)) for size in sizes]
    done = [(size, seconds) for size, seconds, _ in sent]
    window, in_flight, rtt, send_buffer = _connection(rank, goodput, done)
    return PairProbes(
        *(bandwidth, MTU, BURST),
        one_way=[(size, seconds / 2) for size, hops, seconds in chains if hops == 2],
        chains=chains,
        exchange=[(TINY, exchanged), *((size, _exchange(size)) for size in CHAIN_SIZES[1:])],
        send_done=done,
        arrived=[(size, seconds) for size, _, seconds in sent],
        window=window,
        in_flight=in_flight,
        rtt=rtt,
        send_buffer=send_buffer,
        reduction=[(size, _seconds(reduction, size, 2)) for size in REDUCTION_SIZES],
        at_once=[(count, _posting(count)) for count in AT_ONCE],
        cores=cores(),
    )


def time_crowd(rank: int, world_size: int) -> list[CrowdRound]:
    """Time messages among an even number of ranks, in several rounds. All ranks must call this.

    There should be more ranks than cores. The measured programs alternate, so that a disturbance affects all of them.
    """
    programs = [(steps, messages) for messages in (1, world_size // 2) for steps in TINY_EXCHANGES]
    calls = [
        *(_call(partial(passing, *each), rank, world_size, TINY, 2 * each[1]) for each in programs),
        *_gloo_collectives(world_size).values(),
    ]
    set_status("probing with all ranks at once")
    rounds = []
    with without_garbage_collection():
        for done in range(-1, CROWD_ROUNDS):  # the first round is the warm-up
            if rank == 0:
                report_progress(max(0, done), CROWD_ROUNDS, f"{world_size} ranks at once")
            rounds.append([[time_together(call) for call in calls] for _ in range(IN_ROUND)])
        return [_crowd_round(world_size, repetitions) for repetitions in rounds[1:]]


def _crowd_round(world_size: int, repetitions: list[list[Interval]]) -> CrowdRound:
    seconds, messages, steps = _medians(repetitions), world_size // 2, TINY_EXCHANGES
    few, many, few_wide, many_wide = seconds[:4]
    step, wide = ((more - less) / (steps[1] - steps[0]) for less, more in ((few, many), (few_wide, many_wide)))
    times = [*zip(_gloo_collectives(world_size), seconds[4:], strict=True)]
    return CrowdRound(world_size, step, (wide - step) / (messages - 1), few - steps[0] * step, times)


def _medians(repetitions: list[list[Interval]]) -> list[float]:
    rounds = [first_to_last(gather_intervals([*intervals])) for intervals in zip(*repetitions, strict=True)]
    return [median_low([end - begin for begin, end in intervals]) for intervals in rounds]


def _gloo_collectives(world_size: int) -> dict[int, Callable[[], object]]:
    """Return functions that run gloo's barrier and all_gather, by the number of messages that all ranks send in total.

    In a barrier, each rank sends ceil(log2(world_size)) messages (gloo/barrier.cc). In an all_gather, each rank sends
    two messages to each other rank (gloo/allgather.cc).
    """
    piece = torch.zeros(TINY // 4)
    pieces = [torch.zeros_like(piece) for _ in range(world_size)]
    doublings = (world_size - 1).bit_length()
    gather = partial(dist.all_gather, pieces, piece)
    return {world_size * doublings: dist.barrier, world_size * 2 * (world_size - 1): gather}


def _seconds(program: Callable[[int, int], Program], size: int, chunks: int) -> float:
    """Return the median duration of a program, from the first rank's start to the last rank's end."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    set_status(f"probing with {format_size(size)}")
    if rank == 0:
        report_progress(0, 0, f"messages of {format_size(size)}")
    call = _call(program, rank, world_size, size, chunks)
    least = LEAST_SMALL if size <= SMALL else LEAST
    with without_garbage_collection():
        warm = [time_together(call) for _ in range(2)]
        repetitions = repetitions_within(TOTAL_S, max_over_ranks(warm[-1][1] - warm[-1][0]), least, MOST)
        intervals = gather_intervals([time_together(call) for _ in range(repetitions)])
    return median_low([end - begin for begin, end in first_to_last(intervals)])


def _call(
    program: Callable[[int, int], Program], rank: int, world_size: int, size: int, chunks: int
) -> Callable[[], object]:
    call = CollectiveCall(Algorithm(NO_COLLECTIVE, "probe", program, chunks_rule=chunks), chunks * size // 4)
    executor, buffer = Executor(call, rank, world_size), neutral_buffer(call, torch.device("cpu"))
    return lambda: executor.run(buffer, [])


def _exchange(size: int) -> float:
    """Return the time of one exchange step in seconds: the difference between a long and a short exchange, per step."""
    few, many = (_seconds(partial(exchange, steps), size, 2) for steps in EXCHANGES)
    return (many - few) / (EXCHANGES[1] - EXCHANGES[0])


def _tiny(rank: int, world_size: int) -> tuple[list[tuple[int, int, float]], float]:
    """Time the smallest messages. Return (bytes, hops, seconds) of each relay, and the seconds of one exchange step."""
    calls = [
        *(_call(partial(chain, hops), rank, world_size, TINY, 1) for hops in TINY_HOPS),
        *(_call(partial(exchange, steps), rank, world_size, TINY, 2) for steps in TINY_EXCHANGES),
    ]
    with without_garbage_collection():
        repetitions = [[time_together(call) for call in calls] for _ in range(TINY_REPETITIONS)]
        *chains, few, many = _medians(repetitions[2:])
    relays = [(TINY, hops, seconds) for hops, seconds in zip(TINY_HOPS, chains, strict=True)]
    return relays, (many - few) / (TINY_EXCHANGES[1] - TINY_EXCHANGES[0])


def _posting(messages: int) -> float:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    call, seconds = _call(partial(at_once, messages), rank, world_size, TINY, messages), list[float]()

    def timed() -> None:
        begin = time.thread_time()
        call()
        seconds.append(time.thread_time() - begin)

    for _ in range(MOST):
        time_together(timed)
    median = torch.tensor([median_low(seconds)], dtype=torch.float64)
    dist.broadcast(median, 0)
    return median.item()


def _send_undisturbed(rank: int, size: int, goodput: float) -> tuple[float, float]:
    """Return the times of the fastest ``_send``. A long message that is slower than its link is sent up to 4 times."""
    tries = [_send(rank, size)]
    while size > LONG_SIZE and len(tries) < ATTEMPTS and tries[-1][1] > (1 + SLOWER) * size / goodput:
        tries.append(_send(rank, size))
    return min(tries, key=lambda timing: timing[1])


def _send(rank: int, size: int) -> tuple[float, float]:
    """Return the median seconds from posting the send until ``wait`` returns, on the sender and on the receiver."""
    set_status(f"sending {format_size(size)}")
    tensor, times_of_sends = torch.zeros(size // 4), []
    for _ in range(LEAST if size <= LONG_SIZE else 1):
        dist.barrier()
        if rank == 0:
            time.sleep(POSTED_BEFORE_S)
            begin = time.perf_counter()
            dist.isend(tensor, 1, tag=TAG).wait()  # type: ignore[union-attr]
        else:
            begin = 0.0
            dist.irecv(tensor, 0, tag=TAG).wait()  # type: ignore[union-attr]
        times = torch.tensor([begin, time.perf_counter()], dtype=torch.float64)
        (posted, done), (_, arrived) = gather_over_ranks(times).tolist()
        times_of_sends.append((done - posted, arrived - posted))
    done_s, arrived_s = map(median_low, zip(*times_of_sends, strict=True))
    return done_s, arrived_s


def _connection(rank: int, goodput: float, done: SizeTimes) -> tuple[int, int, float, int]:
    """Send a long message. Return the sender's window, bytes in flight, round-trip time (s) and send buffer (bytes)."""
    with sampling_in_flight() as samples:
        _send(rank, done[-1][0])
    in_flight_samples = [each for each in samples if each] or [0]
    middle = in_flight_samples[len(in_flight_samples) // 5 : len(in_flight_samples) * 4 // 5 + 1]
    widest = max(read_connections(), key=lambda each: each.window, default=TcpInfo(0, 0, 0.0))
    values = torch.tensor([widest.window, median_low(middle), widest.min_rtt], dtype=torch.float64)
    dist.broadcast(values, 0)
    window, in_flight, rtt = values.tolist()
    buffered = max(size - goodput * seconds for size, seconds in done[-2:])
    return int(window), int(in_flight), rtt, max(0, int(buffered))
