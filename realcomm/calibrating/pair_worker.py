"""What two ranks measure between two hosts: messages through the executor, and when a send returns."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median_low
from typing import NamedTuple

import torch
import torch.distributed as dist

from collectives.declaration import Algorithm
from collectives.records.environment import cores
from collectives.records.pair_probes import PairProbes, Points
from collectives.request import Request
from collectives.spec import Spec
from collectives.step import Program, recv, reduce, send
from collectives.units import format_size
from realcomm.calibrating.tcp_info import TcpInfo, read_connections, sampling_in_flight
from realcomm.execution.executor import Executor
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.exact_inputs import neutral_buffer
from realcomm.measuring.timing import (
    first_to_last,
    gather_intervals,
    max_over_ranks,
    repetitions_within,
    time_together,
    without_garbage_collection,
)

KIB = 1024
TINY = 64  # bytes: however many follow each other, a link's burst lets them through at once
CHAIN_SIZES = (TINY, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)
HOPS = (1, 2, 3, 5)
TINY_HOPS = (1, 5, 13)
LONG_SIZE = 1024 * KIB  # of one hop and of two only
EXCHANGES = (1, 4)  # steps that depend on each other ...
TINY_EXCHANGES = (4, 16)  # ... and of the smallest size
ROUNDS = 2  # of what a crowd exchanges: other processes only add time, so that the quickest counts
AT_ONCE = (1, 4, 12)  # messages that are posted in one step
CROWD_MANY = (1, 7)  # messages that each rank of a crowd sends at once
SENT_SIZES = tuple(KIB * 4**k for k in range(3, 8))  # 64 KiB to 16 MiB
LONGEST_S = 4.0  # that a message may take
REDUCTION_SIZES = (64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB)
TOTAL_S, LEAST, MOST = 0.3, 3, 61  # of the repetitions of a program ...
SMALL, LEAST_SMALL = 64 * KIB, 15  # ... which are more where messages are no longer than this: they vary most
SLOWER, ATTEMPTS = 5e-3, 4  # share of a long message's time, and how often it is sent
POSTED_BEFORE_S = 0.02  # a receive before its send
TAG = 77


def chain(hops: int, rank: int, world_size: int) -> Program:
    """Pass one chunk to and fro: each hop sends what the one before brought."""
    for hop in range(hops):
        yield (send(1 - rank, 0),) if rank == hop % 2 else (recv(1 - rank, 0),)


def exchange(steps: int, messages: int, rank: int, world_size: int) -> Program:
    """Let the two ranks of each pair send and receive so many chunks at once, each step what the one before brought."""
    for step in range(steps):
        ours, theirs = (step % 2) * messages, (1 - step % 2) * messages
        sends = (send(rank ^ 1, ours + chunk) for chunk in range(messages))
        yield *sends, *(recv(rank ^ 1, theirs + chunk) for chunk in range(messages))


def at_once(messages: int, rank: int, world_size: int) -> Program:
    """Let rank 0 send so many chunks to rank 1 in one step."""
    yield tuple((recv if rank else send)(1 - rank, chunk) for chunk in range(messages))


def reduction(rank: int, world_size: int) -> Program:
    """Let each rank add one chunk to another."""
    yield (reduce(0, into=1),)


def probe_pair(rank: int, world_size: int, probes: PairProbes) -> PairProbes:
    """Return ``probes``, which says how the network was built, with what is measured on it; both ranks call this."""
    chains = [
        (size, hops, _seconds(partial(chain, hops), size, 1))
        for size in (*CHAIN_SIZES, LONG_SIZE)
        for hops in (TINY_HOPS if size == TINY else HOPS if size in CHAIN_SIZES else HOPS[:2])
    ]
    sent = [_send_undisturbed(rank, size, probes.goodput) for size in SENT_SIZES if size < LONGEST_S * probes.bandwidth]
    done = [(size, seconds) for size, seconds, _ in sent]
    window, in_flight, rtt, send_buffer = _connection(probes, done)
    return PairProbes(
        *(probes.bandwidth, probes.mtu, probes.burst),
        one_way=[(size, seconds / 2) for size, hops, seconds in chains if hops == 2],
        chains=chains,
        exchange=[(size, _exchange(size)) for size in CHAIN_SIZES],
        send_done=done,
        arrived=[(size, seconds) for size, _, seconds in sent],
        window=window,
        in_flight=in_flight,
        rtt=rtt,
        send_buffer=send_buffer,
        reduction=_reductions(),
        at_once=[(count, _seconds(partial(at_once, count), TINY, count)) for count in AT_ONCE],
        cores=cores(),
    )


class Crowd(NamedTuple):
    """What more ranks than cores measure, in seconds."""

    step: float  # one more exchange of the smallest size by all pairs at once
    waking: float  # what the first one takes more, whose ranks slept until then
    many: Points  # (messages at once): one more exchange, by how many messages each rank sends in it
    own: Points  # ``_own``


def probe_crowd(rank: int, world_size: int) -> Crowd:
    """Return what ranks measure that form pairs; all ranks call this."""
    rounds = [[_exchanges(TINY, messages) for messages in CROWD_MANY] for _ in range(ROUNDS)]
    few, further = (min(one[0][which] for one in rounds) for which in (0, 1))
    many = [(messages, min(one[at][1] for one in rounds)) for at, messages in enumerate(CROWD_MANY)]
    return Crowd(further, max(0.0, few - TINY_EXCHANGES[0] * further), many, _own(world_size))


def _own(world_size: int) -> Points:
    """Return the seconds of collectives of gloo's by the messages that all ranks send: a barrier and an all_gather.

    In a barrier a rank sends a message for each doubling, one after the other (gloo/barrier.cc), in an all_gather two
    for each other rank (gloo/allgather.cc).
    """
    piece = torch.zeros(TINY // 4)
    pieces = [torch.zeros_like(piece) for _ in range(world_size)]
    doublings = (world_size - 1).bit_length()
    return [
        (world_size * doublings, _repeated(dist.barrier, SMALL)),
        (world_size * 2 * (world_size - 1), _repeated(partial(dist.all_gather, pieces, piece), SMALL)),
    ]


def _seconds(program: Callable[[int, int], Program], size: int, chunks: int) -> float:
    """Return the seconds of a program on chunks of this size, from first start to last end.

    Of the repetitions the median counts, as in a measurement.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    set_status(f"probing with {format_size(size)}")
    if rank == 0:
        report_progress(0, 0, f"messages of {format_size(size)}")
    request = Request(Algorithm(_NO_COLLECTIVE, "probe", program, chunks_rule=chunks), chunks * size // 4)
    executor, buffer = Executor(request, rank, world_size), neutral_buffer(request, torch.device("cpu"))

    def call() -> None:
        executor.run(buffer, [])  # recording, as in a measurement

    return _repeated(call, size)


def _repeated(call: Callable[[], object], size: int) -> float:
    """Return the median seconds of a call on all ranks, from first start to last end."""
    least = LEAST_SMALL if size <= SMALL else LEAST
    with without_garbage_collection():
        warm = [time_together(call) for _ in range(2)]
        repetitions = repetitions_within(TOTAL_S, max_over_ranks(warm[-1][1] - warm[-1][0]), least, MOST)
        intervals = gather_intervals([time_together(call) for _ in range(repetitions)])
    return median_low([end - begin for begin, end in first_to_last(intervals)])


def _exchange(size: int) -> float:
    """Return the seconds of one more step of exchanges."""
    return _exchanges(size)[1]


def _exchanges(size: int, messages: int = 1) -> tuple[float, float]:
    """Return the seconds of a few steps of exchanges, and of one more."""
    counts = TINY_EXCHANGES if size == TINY else EXCHANGES
    few, many = (_seconds(partial(exchange, steps, messages), size, 2 * messages) for steps in counts)
    return few, (many - few) / (counts[1] - counts[0])


def _send_undisturbed(rank: int, size: int, goodput: float) -> tuple[int, float, float]:
    """Return what ``_send`` does; a long message that is slower than its link is sent again, and the quickest counts.

    Other processes on this machine only add time.
    """
    tries = [_send(rank, size)]
    while size > LONG_SIZE and len(tries) < ATTEMPTS and tries[-1][2] > (1 + SLOWER) * size / goodput:
        tries.append(_send(rank, size))
    return min(tries, key=lambda found: found[2])


def _send(rank: int, size: int) -> tuple[int, float, float]:
    """Return the size, and when the sender's wait returned, and the receiver's: median seconds from posting."""
    set_status(f"sending {format_size(size)}")
    tensor, found = torch.zeros(size // 4), []
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
        both = [torch.empty_like(times) for _ in range(2)]
        dist.all_gather(both, times)
        (posted, done), (_, arrived) = (each.tolist() for each in both)
        found.append((done - posted, arrived - posted))
    return size, median_low([done for done, _ in found]), median_low([arrived for _, arrived in found])


def _connection(probes: PairProbes, done: Points) -> tuple[int, int, float, int]:
    """Return window, bytes in flight, round trip and send buffer of the sender's side, with the largest message."""
    rank, goodput = dist.get_rank(), probes.goodput
    with sampling_in_flight() as samples:
        _send(rank, done[-1][0])
    under_way = [each for each in samples if each] or [0]
    middle = under_way[len(under_way) // 5 : len(under_way) * 4 // 5 + 1]
    least, *_ = sorted(read_connections(), key=lambda each: -each.window) or [TcpInfo(0, 0, 0.0)]
    values = torch.tensor([least.window, median_low(middle), least.min_rtt], dtype=torch.float64)
    dist.broadcast(values, 0)
    window, in_flight, rtt = values.tolist()
    buffered = max(size - goodput * seconds for size, seconds in done[-2:])
    return int(window), int(in_flight), rtt, max(0, int(buffered))


def _reductions() -> Points:
    return [(size, _seconds(reduction, size, 2)) for size in REDUCTION_SIZES]


def _undefined(rank: int, part: int, world_size: int, root: int) -> None:
    return None


_NO_COLLECTIVE = Spec("calibration", rooted=False, reduces=False, start=_undefined, end=_undefined, moves=True)
