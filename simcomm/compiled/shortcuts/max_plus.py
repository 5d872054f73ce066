"""Cyclic programs whose messages never share a link: every step follows from the one before by maxima and sums.

A message over private links begins when both ends have come to it and takes a time that is known beforehand, so

    x'[r] = max over the messages of the step to and from r of (max(x[r], x[peer]) + delay + bytes / rate) + computing

for the times x at which ranks come to a step. That is homogeneous: where all ranks come later by the same d, they are
through later by d. So once a step takes the same d for all ranks, those that follow and are like it do too, and are
skipped: with one slow link that is so when its slowness has gone around. Where all ranks have the same delays, rates
and sizes they are always at the same time, and one number stands for all.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from collectives.schedule.cyclic import CyclicSchedule
from collectives.step import Kind
from simcomm.compiled.cyclic_demand import distances
from simcomm.compiled.demand import Sizes
from simcomm.compiled.routes import Floats, Ints, Routes, alone_rates
from simcomm.model.trouble import NO_TROUBLE, Trouble

LOOKS = 16  # steps, after which it is seen whether they take all ranks the same
ROUNDING = 4e-16  # of the time, by which they may differ; over a hundred thousand steps it comes to less than 1e-10


class Rows(NamedTuple):
    """The operations that take time, in order; a step's messages stand before its computing."""

    first: Ints  # [steps + 1]
    sends: Any  # bool [rows]: whether it is a message
    away: Ints  # [rows]: how far up the ring a message goes
    route: Ints  # [rows]: which of the distances that is
    step: Ints  # [rows]: of the program
    turn: Ints  # [rows]: the chunk that rank r sends is plus + (turn + r) % ranks, or only plus
    plus: Ints  # [rows]
    last: Ints  # [steps]: of the steps that follow a step and are like it for every rank, itself among them
    at: Ints  # [rows]: where the bytes of the chunk on rank 0 stand; on rank r it is r further on, if it turns
    turns: Any  # bool [rows]


class Ring(NamedTuple):
    """Delays and rates of the pairs by distance and rank, and how many bytes there are in each chunk."""

    delay: Floats  # [distances, ranks]
    rate: Floats  # [distances, ranks]
    nbytes: Floats  # by Rows.at
    gamma: float


def is_synchronous(cyclic: CyclicSchedule) -> bool:
    """Whether the two halves of every message are posted in the same step."""
    away = np.flatnonzero(cyclic.match >= 0)
    return bool((cyclic.step[away] == cyclic.step[cyclic.match[away]]).all())


def max_plus(
    cyclic: CyclicSchedule,
    routes: Routes,
    sizes: Sizes,
    starts: Floats | None = None,
    trouble: Trouble = NO_TROUBLE,
    turn: int = 0,
) -> Floats:
    """When each rank is through. All links of the routes must be private and the program synchronous.

    ``trouble`` may make messages late and ranks slow; ``turn`` is the number of this collective in it.
    """
    p = cyclic.world_size
    rows, nbytes = _rows(cyclic, sizes)
    ring = Ring(routes.delay.reshape(-1, p), alone_rates(routes).reshape(-1, p), nbytes, sizes.gamma)
    if not trouble.touches_ranks and starts is None and _is_uniform(rows, ring, p):
        return np.full(p, _one_for_all(rows, ring))
    times = np.zeros(p) if starts is None else starts.copy()
    if trouble.is_random:
        noise = Noise(trouble, turn, p, distances(cyclic))
        for step in range(len(rows.first) - 1):
            here = range(rows.first[step], rows.first[step + 1])
            late = np.array([noise.late(rows, row) for row in here if rows.sends[row]]).reshape(-1, p)
            _advancing()(times, rows, ring, step, step + 1, late, noise.slower(int(rows.step[here.start])))
    else:
        slower = trouble.slowdown(turn, np.arange(p), 0, 0)
        _advancing()(times, rows, ring, 0, len(rows.first) - 1, np.zeros((0, p)), slower)
    return times


class Noise:
    """The seconds by which a row's messages are late, and how many times as long the ranks compute in a step."""

    def __init__(self, trouble: Trouble, turn: int, world_size: int, away: Ints) -> None:
        self.trouble, self.turn, self.ranks = trouble, turn, np.arange(world_size)
        self.always = trouble.slowdown(turn, self.ranks, 0, 0)
        self.ways = [trouble.pair_bits(turn, self.ranks, (self.ranks + distance) % world_size, 0) for distance in away]

    def late(self, rows: Rows, row: int) -> Floats:
        """Of the message that each rank sends; [ranks]."""
        jitter, drawn = self.trouble.messages, np.zeros(len(self.ranks))
        if jitter is None:
            return drawn
        from simcomm.compiled.kernel.jitter import draw  # numba is slow to import, and often not needed

        at = [np.uint64(number[row]) for number in (rows.step, rows.turn, rows.plus)]
        draw(self.ways[rows.route[row]], *at, rows.turns[row], drawn)
        return jitter.quantile(drawn)

    def slower(self, step: int) -> Floats:
        """Of each rank; [ranks]."""
        if self.trouble.compute is None:
            return self.always
        return self.trouble.slowdown(self.turn, self.ranks, 0, step)


def _rows(cyclic: CyclicSchedule, sizes: Sizes) -> tuple[Rows, Floats]:
    """Rows, and the bytes of chunks: those of each block of world_size twice, so that no chunk turns beyond its end."""
    p, total = cyclic.world_size, cyclic.chunks + cyclic.scratch
    takes_time = np.flatnonzero((cyclic.kind == Kind.SEND) | (cyclic.kind > Kind.RECV))
    step = np.unique(cyclic.step, return_inverse=True)[1][takes_time]
    sends = cyclic.kind[takes_time] == Kind.SEND
    order = np.lexsort((np.arange(len(step)), ~sends, step))
    chosen, sends, step = takes_time[order], sends[order], step[order]
    steps = int(step.max(initial=-1)) + 1
    away, route = cyclic.peer[chosen], np.searchsorted(distances(cyclic), cyclic.peer[chosen])
    said = cyclic.step[chosen]
    turns, turn, plus = cyclic.is_shifted[0][chosen], cyclic.shift[0][chosen], cyclic.base[0][chosen]
    table = sizes.offsets(total)
    turned = np.repeat(np.diff(table).reshape(-1, p), 2, axis=0).reshape(-1) if turns.any() else table[:0]
    plain, where = np.unique(np.stack([plus, cyclic.count[chosen]])[:, ~turns], axis=1, return_inverse=True)
    at = plus * 2 + turn % p
    at[~turns] = len(turned) + where.reshape(-1)
    nbytes = np.concatenate([turned, table[plain[0] + plain[1]] - table[plain[0]]]) * float(sizes.itemsize)
    first = np.searchsorted(step, np.arange(steps + 1))
    last = _last_alike(first, np.stack([sends, away, route, _bytes_of_all(nbytes, at, turns, p)]))
    return Rows(first, sends, away, route, said, turn % p, plus, last, at, turns), nbytes


def _bytes_of_all(nbytes: Floats, at: Ints, turns: Any, p: int) -> Floats:
    """The bytes that a row has on every rank; not a number where ranks differ."""
    blocks = nbytes[: len(nbytes) // (2 * p) * 2 * p * int(turns.any())].reshape(-1, 2 * p)
    alike = np.where((blocks == blocks[:, :1]).all(axis=1), blocks[:, 0], np.nan)
    found = nbytes[at].copy()
    found[turns] = alike[at[turns] // (2 * p)]
    return found


def _last_alike(first: Ints, rows: Floats) -> Ints:
    """Of each step the last of those that follow it and have rows of the same numbers; ``rows`` is [numbers, rows]."""
    steps = len(first) - 1
    number = np.diff(first)
    like_next = np.append(number[1:] == number[:-1], False)[:steps]
    for row in range(int(number.max(initial=0))):
        here = np.flatnonzero(like_next & (number > row))
        like_next[here] &= (rows[:, first[here] + row] == rows[:, first[here + 1] + row]).all(axis=0)
    ends = np.flatnonzero(~like_next)
    return ends[np.searchsorted(ends, np.arange(steps))]


def _is_uniform(rows: Rows, ring: Ring, p: int) -> bool:
    """Whether all ranks have the same delays, rates and sizes."""
    for matrix in (ring.delay, ring.rate):
        if (matrix != matrix[:, :1]).any():
            return False
    blocks = ring.nbytes[: 2 * p * int(rows.turns.any() and len(ring.nbytes) // (2 * p))].reshape(-1, 2 * p)
    return bool((blocks == blocks[:, :1]).all())


def _one_for_all(rows: Rows, ring: Ring) -> float:
    """When every rank is through."""
    nbytes, route = ring.nbytes[rows.at], rows.route * rows.sends
    if len(ring.delay):
        seconds = np.where(rows.sends, nbytes / ring.rate[route, 0], ring.gamma * nbytes).tolist()
        delays = np.where(nbytes > 0, ring.delay[route, 0], 0.0).tolist()
    else:
        seconds, delays = (ring.gamma * nbytes).tolist(), [0.0] * len(nbytes)
    time, sends = 0.0, rows.sends.tolist()
    for begin, end in zip(rows.first[:-1].tolist(), rows.first[1:].tolist(), strict=True):
        start = time
        for row in range(begin, end):
            time = max(time, start + delays[row] + seconds[row]) if sends[row] else time + seconds[row]
    return time


def _advance(times: Any, rows: Rows, ring: Ring, begin: int, end: int, late: Any, slower: Any) -> int:
    """From step ``begin`` to ``end``: ``times`` holds when each rank is through; it held when each began.

    ``late`` [messages, ranks] are seconds of the step's messages, where it is only one; ``slower`` [ranks] factors.
    Returns how many steps were not skipped.
    """
    p, step, done = len(times), begin, 0
    before, through, same = np.empty(2 * p), np.empty(p), np.empty(p)
    while step < end:
        done += 1
        before[:p] = times
        before[p:] = times
        message = 0
        for row in range(rows.first[step], rows.first[step + 1]):
            nbytes = ring.nbytes[rows.at[row] : rows.at[row] + p]
            if not rows.turns[row]:
                same[:] = ring.nbytes[rows.at[row]]
                nbytes = same
            if not rows.sends[row]:
                times += ring.gamma * nbytes * slower
                continue
            away = rows.away[row]
            delay, rate = ring.delay[rows.route[row]], ring.rate[rows.route[row]]
            for rank in range(p):
                start = max(before[rank], before[rank + away])
                through[rank] = start + delay[rank] + nbytes[rank] / rate[rank] if nbytes[rank] > 0 else -np.inf
            if len(late) > 0:
                through += late[message]
                message += 1
            for rank in range(p):
                times[rank] = max(times[rank], through[rank])
            for rank in range(p - away):
                times[rank + away] = max(times[rank + away], through[rank])
            for rank in range(p - away, p):
                times[rank + away - p] = max(times[rank + away - p], through[rank])
        if len(late) == 0 and rows.last[step] > step and done % LOOKS == 0:
            least, most = np.inf, 0.0
            for rank in range(p):
                took = times[rank] - before[rank]
                least = min(least, took)
                most = max(most, took)
            if most - least <= ROUNDING * times[0]:
                times += most * (rows.last[step] - step)
                step = rows.last[step]
        step += 1
    return done


@cache
def _advancing() -> Callable[..., int]:
    """``_advance`` in machine code."""
    from simcomm.compiled.kernel.jit import (
        kept,  # numba is slow to import, and not needed where one number stands for all
    )

    return kept(_advance)
