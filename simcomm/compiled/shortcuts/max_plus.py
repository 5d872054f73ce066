"""Cyclic programs whose messages never share a link: every step follows from the one before by maxima and sums.

A message over private links begins when both ends have come to it and takes a time that is known beforehand, so

    x'[r] = max over the messages of the step to and from r of (max(x[r], x[peer]) + delay + bytes / rate) + computing

for the times x at which ranks come to a step. That is homogeneous: where all ranks come later by the same d, they are
through later by d. So once a step takes the same d for all ranks, those that follow and are like it do too, and are
skipped: with one slow link that is so when its slowness has gone around. Where all ranks have the same delays, rates
and sizes they are always at the same time, and one number stands for all.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints
from simcomm.compiled.planning.cyclic_plan import distances
from simcomm.compiled.planning.routes import Routes, alone_rates
from simcomm.compiled.planning.schedule_plan import ChunkSizes
from simcomm.model.same_time import SAME_STEP
from simcomm.model.trouble import NO_TROUBLE, Trouble

PLAIN_UP_TO = 1_000  # messages of all ranks, for which plain Python takes far less time than importing numba
DRAWN_AT_ONCE = 1024  # random numbers
STEPS_PER_LOOK = 16  # after which it is seen whether a step takes all ranks the same


class Rows(NamedTuple):
    """The operations that take time, in order; a step's messages stand before its computing.

    Rank r sends chunk ``base + (shift + r) % world_size * stride`` where ``is_shifted``, and ``base`` elsewhere.
    """

    first: Ints  # [steps + 1]: the first row of each step
    sends: Bools  # [rows]: whether it is a message
    away: Ints  # [rows]: how far up the ring a message goes
    route: Ints  # [rows]: which of the distances that is
    step: Ints  # [rows]: of the program
    shift: Ints  # [rows]
    base: Ints  # [rows]
    last: Ints  # [steps]: of the steps that follow a step and are like it for every rank, itself among them
    at: Ints  # [rows]: which of RingCosts.nbytes is rank 0's; rank r's is r further on where is_shifted
    is_shifted: Bools  # [rows]
    is_local: Bools  # [rows]: whether it is a copy or a reduction of what the rank has


class RingCosts(NamedTuple):
    """Delays and rates of the pairs by distance and rank, and how many bytes there are in each chunk."""

    delay: Floats  # [distances, ranks]: seconds
    rate: Floats  # [distances, ranks]: bytes/s
    nbytes: Floats  # by Rows.at
    gamma: float  # seconds a byte


def is_synchronous(cyclic: SymmetricSchedule) -> bool:
    """Return whether the two halves of every message are posted in the same step."""
    away = np.flatnonzero(cyclic.match >= 0)
    return bool((cyclic.step[away] == cyclic.step[cyclic.match[away]]).all())


def max_plus(
    cyclic: SymmetricSchedule,
    routes: Routes,
    sizes: ChunkSizes,
    starts: Floats | None = None,
    trouble: Trouble = NO_TROUBLE,
    index: int = 0,
) -> Floats:
    """Return the seconds at which each rank ends. All links of the routes must be private, the schedule synchronous.

    ``trouble`` may make messages late and ranks slow; ``index`` says which collective of its run this is.
    """
    of_channels = [
        _channel_ends(cyclic, channel, routes, sizes, starts, trouble, index) for channel in range(cyclic.channels)
    ]
    return np.max(of_channels, axis=0)


def _channel_ends(
    cyclic: SymmetricSchedule,
    channel: int,
    routes: Routes,
    sizes: ChunkSizes,
    starts: Floats | None,
    trouble: Trouble,
    index: int,
) -> Floats:
    """Return the seconds at which a channel of each rank ends: on private links channels do not meet."""
    p = cyclic.world_size
    rows, costs = channel_costs(cyclic, channel, routes, sizes)
    if not trouble.touches_ranks and starts is None and _is_uniform(rows, costs, p):
        return np.full(p, _advance_one_for_all(rows, costs))
    costs, times = written_out(costs), np.zeros(p) if starts is None else starts.copy()
    if trouble.is_random:
        for _ in advance_by_steps(times, rows, costs, StepJitter(cyclic, channel, trouble, index)):
            pass
    else:
        slower = trouble.slowdown(index, np.arange(p), channel, 0)
        is_little = len(rows.step) * p <= PLAIN_UP_TO
        advance = _advance if is_little else _compiled_advance()
        advance(times, rows, costs, 0, len(rows.first) - 1, np.zeros((0, p)), slower, np.empty(4 * p))
    return times


def channel_costs(cyclic: SymmetricSchedule, channel: int, routes: Routes, sizes: ChunkSizes) -> tuple[Rows, RingCosts]:
    """Return the rows of a channel, and what they cost."""
    rows, nbytes = _rows(cyclic, channel, sizes)
    delay, rate = (figures.reshape(cyclic.world_size, -1).T for figures in (routes.delay, alone_rates(routes)))
    return rows, RingCosts(delay, rate, nbytes, sizes.gamma)


def written_out(costs: RingCosts) -> RingCosts:
    """Return costs in arrays whose entries follow each other in memory, as machine code takes them."""
    return costs._replace(delay=np.ascontiguousarray(costs.delay), rate=np.ascontiguousarray(costs.rate))


class StepJitter:
    """The seconds by which a row's messages are late, and how many times as long the ranks compute in a step."""

    def __init__(self, cyclic: SymmetricSchedule, channel: int, trouble: Trouble, index: int) -> None:
        p, away = cyclic.world_size, distances(cyclic)
        self.trouble, self.index, self.channel, self.ranks = trouble, index, channel, np.arange(p)
        self.stride = np.uint64(cyclic.stride)
        self.always = trouble.slowdown(index, self.ranks, channel, 0)
        self.names = [trouble.pair_bits(index, self.ranks, (self.ranks + distance) % p, channel) for distance in away]
        self.steps = range(0)  # whose slowdowns are ``drawn``: many at once, which for few ranks takes as long as one
        self.drawn = np.zeros((0, p))

    def late(self, rows: Rows, row: int) -> Floats:
        """Return the seconds by which the message that each rank sends is late; [ranks]."""
        jitter, shares = self.trouble.messages, np.zeros(len(self.ranks))
        if jitter is None:
            return shares
        from simcomm.compiled.kernel.jitter import draw_shares  # numba is slow to import, and often not needed

        at = [np.uint64(number[row]) for number in (rows.step, rows.shift, rows.base)]
        draw_shares(self.names[rows.route[row]], *at, self.stride, rows.is_shifted[row], shares)
        return jitter.quantile(shares)

    def late_of_step(self, rows: Rows, step: range) -> Floats:
        """Return the seconds by which the messages of a step's rows are late; [messages, ranks]."""
        return np.array([self.late(rows, row) for row in step if rows.sends[row]]).reshape(-1, len(self.ranks))

    def slowdowns(self, step: int) -> Floats:
        """Return how many times as long each rank computes in a step; [ranks]."""
        if self.trouble.compute is None:
            return self.always
        if step not in self.steps:
            number = max(1, DRAWN_AT_ONCE // len(self.ranks))
            self.steps = range(step - step % number, step - step % number + number)
            self.drawn = self.trouble.slowdown(self.index, self.ranks, self.channel, np.array(self.steps)[:, None])
        return self.drawn[step - self.steps.start]


def advance_by_steps(times: Floats, rows: Rows, costs: RingCosts, jitter: StepJitter) -> Iterator[tuple[int, Floats]]:
    """Go from step to step; ``times`` [ranks], when each rank begins, becomes when it ends.

    Yield each step once it has been taken, with the seconds by which its messages were late [messages, ranks].
    """
    work, advance = np.empty(4 * len(times)), _compiled_advance()
    for step in range(len(rows.first) - 1):
        here = range(rows.first[step], rows.first[step + 1])
        late = np.zeros((0, len(times)))
        if len(here):
            late, slower = jitter.late_of_step(rows, here), jitter.slowdowns(int(rows.step[here.start]))
            advance(times, rows, costs, step, step + 1, late, slower, work)
        yield step, late


def _rows(cyclic: SymmetricSchedule, channel: int, sizes: ChunkSizes) -> tuple[Rows, Floats]:
    """Return the rows of a channel, and the bytes that ``Rows.at`` points to.

    Of shifted chunks the bytes of each cycle of world_size chunks stand twice, so that no rank's lies beyond the end.
    """
    p, total = cyclic.world_size, cyclic.chunks + cyclic.scratch
    takes_time = (cyclic.kind == Kind.SEND) | (cyclic.kind > Kind.RECV)
    takes_time = np.flatnonzero(takes_time & (cyclic.channel == channel))
    step = np.unique(cyclic.step, return_inverse=True)[1][takes_time]
    sends = cyclic.kind[takes_time] == Kind.SEND
    order = np.lexsort((np.arange(len(step)), cyclic.kind[takes_time] >= Kind.COPY, ~sends, step))
    chosen, sends, step = takes_time[order], sends[order], step[order]
    steps = int(step.max(initial=-1)) + 1
    away, route = cyclic.peer[chosen], np.searchsorted(distances(cyclic), cyclic.peer[chosen])
    is_shifted, shift, base = cyclic.read.is_shifted[chosen], cyclic.read.shifts[0][chosen], cyclic.read.base[chosen]
    table = sizes.offsets(total)
    twice = np.repeat(cyclic.by_cycle(np.diff(table)), 2, axis=0).reshape(-1) if is_shifted.any() else table[:0]
    plain, where = np.unique(np.stack([base, cyclic.count[chosen]])[:, ~is_shifted], axis=1, return_inverse=True)
    at = cyclic.cycle()[chosen] * 2 * p + shift % p
    at[~is_shifted] = len(twice) + where.reshape(-1)
    nbytes = np.concatenate([twice, table[plain[0] + plain[1]] - table[plain[0]]]) * float(sizes.itemsize)
    first = np.searchsorted(step, np.arange(steps + 1))
    last = _last_alike(first, np.stack([sends, away, route, _bytes_of_all(nbytes, at, is_shifted, p)]))
    is_local = cyclic.kind[chosen] >= Kind.COPY
    return Rows(first, sends, away, route, cyclic.step[chosen], shift % p, base, last, at, is_shifted, is_local), nbytes


def _bytes_of_all(nbytes: Floats, at: Ints, is_shifted: Bools, p: int) -> Floats:
    """Return the bytes that a row has on every rank; not a number where ranks differ."""
    blocks = nbytes[: len(nbytes) // (2 * p) * 2 * p * int(is_shifted.any())].reshape(-1, 2 * p)
    alike = np.where((blocks == blocks[:, :1]).all(axis=1), blocks[:, 0], np.nan)
    found = nbytes[at].copy()
    found[is_shifted] = alike[at[is_shifted] // (2 * p)]
    return found


def _last_alike(first: Ints, rows: Floats) -> Ints:
    """Return of each step the last of those that follow it and have the same numbers; ``rows`` is [numbers, rows]."""
    steps = len(first) - 1
    number = np.diff(first)
    like_next = np.append(number[1:] == number[:-1], False)[:steps]
    for row in range(int(number.max(initial=0))):
        here = np.flatnonzero(like_next & (number > row))
        like_next[here] &= (rows[:, first[here] + row] == rows[:, first[here + 1] + row]).all(axis=0)
    ends = np.flatnonzero(~like_next)
    return ends[np.searchsorted(ends, np.arange(steps))]


def _is_uniform(rows: Rows, costs: RingCosts, p: int) -> bool:
    """Return whether all ranks have the same delays, rates and sizes."""
    for matrix in (costs.delay, costs.rate):
        if (matrix != matrix[:, :1]).any():
            return False
    blocks = costs.nbytes[: 2 * p * int(rows.is_shifted.any() and len(costs.nbytes) // (2 * p))].reshape(-1, 2 * p)
    return bool((blocks == blocks[:, :1]).all())


def _advance_one_for_all(rows: Rows, costs: RingCosts) -> float:
    """Return the seconds at which every rank ends, where all are always at the same time."""
    nbytes, route = costs.nbytes[rows.at], rows.route * rows.sends
    if len(costs.delay):
        seconds = np.where(rows.sends, nbytes / costs.rate[route, 0], costs.gamma * nbytes).tolist()
        delays = np.where(nbytes > 0, costs.delay[route, 0], 0.0).tolist()
    else:
        seconds, delays = (costs.gamma * nbytes).tolist(), [0.0] * len(nbytes)
    time, sends = 0.0, rows.sends.tolist()
    for begin, end in zip(rows.first[:-1].tolist(), rows.first[1:].tolist(), strict=True):
        start = time
        for row in range(begin, end):
            time = max(time, start + delays[row] + seconds[row]) if sends[row] else time + seconds[row]
    return time


def _advance(times: Any, rows: Rows, costs: RingCosts, begin: int, end: int, late: Any, slower: Any, work: Any) -> int:
    """Go from step ``begin`` to ``end``; ``times`` [ranks], when each rank begins, becomes when it ends.

    ``late`` [messages, ranks] are seconds of the step's messages, where it is only one step, and [0, ranks] where no
    message is late; ``slower`` [ranks] are factors of computing; ``work`` [4 * ranks] is for its own use: twice the
    times before a step, when its messages arrive, and their bytes. Returns how many steps were not skipped. Plain
    loops, which take numba a fourth of the time of arrays' arithmetic.
    """
    p, step, done = len(times), begin, 0
    arrived, size = 2 * p, 3 * p
    while step < end:
        done += 1
        for rank in range(p):
            work[rank] = work[p + rank] = times[rank]
        message = 0
        for row in range(rows.first[step], rows.first[step + 1]):
            at, further = rows.at[row], 1 if rows.is_shifted[row] else 0
            for rank in range(p):
                work[size + rank] = costs.nbytes[at + rank * further]
            if not rows.sends[row]:
                for rank in range(p):
                    times[rank] += costs.gamma * work[size + rank] * slower[rank]
                continue
            away, route = rows.away[row], rows.route[row]
            for rank in range(p):
                nbytes = work[size + rank]
                start = max(work[rank], work[rank + away])
                through = start + costs.delay[route, rank] + nbytes / costs.rate[route, rank]
                work[arrived + rank] = through if nbytes > 0 else -np.inf
            if len(late) > 0:
                for rank in range(p):
                    work[arrived + rank] += late[message, rank]
                message += 1
            for rank in range(p):
                times[rank] = max(times[rank], work[arrived + rank])
            for rank in range(p - away):
                times[rank + away] = max(times[rank + away], work[arrived + rank])
            for rank in range(p - away, p):
                times[rank + away - p] = max(times[rank + away - p], work[arrived + rank])
        if len(late) == 0 and rows.last[step] > step and done % STEPS_PER_LOOK == 0:
            least, most = np.inf, 0.0
            for rank in range(p):
                took = times[rank] - work[rank]
                least = min(least, took)
                most = max(most, took)
            if most - least <= SAME_STEP * times[0]:
                for rank in range(p):
                    times[rank] += most * (rows.last[step] - step)
                step = rows.last[step]
        step += 1
    return done


@cache
def _compiled_advance() -> Callable[..., int]:
    """Return ``_advance`` in machine code, which other threads do not wait for."""
    from simcomm.jit import compile_and_cache  # numba is slow to import; uniform ranks do without

    return compile_and_cache(_advance, _nrt=False)
