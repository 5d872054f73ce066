"""Cyclic programs whose messages never share a link: every step follows from the one before by maxima and sums.

A message over private links begins when both ends have come to it and takes a time that is known beforehand, so

    x'[r] = max over the messages of the step to and from r of (max(x[r], x[peer]) + delay + bytes / rate) + computing

for the times x at which ranks come to a step. Where all ranks have the same delays, rates and sizes they are always at
the same time, and one number stands for all.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from collectives.cyclic import Cyclic
from collectives.step import Kind
from simcomm.compiled.cyclic_plans import distances
from simcomm.compiled.jitter import DST, FIRST, NUMBER, SECOND, SRC, UNIT, Jitter
from simcomm.compiled.plans import Sizes
from simcomm.compiled.wires import Floats, Ints, Routes, alone_rates


class Rows(NamedTuple):
    """The operations that take time, in order; a step's messages stand before its computing."""

    first: Ints  # [steps + 1]
    sends: Any  # bool [rows]: whether it is a message
    away: Ints  # [rows]: how far up the ring a message goes
    route: Ints  # [rows]: which of the distances that is
    number: Ints  # [rows]: how many messages went that way before
    at: Ints  # [rows]: where the bytes of the chunk on rank 0 stand; on rank r it is r further on, if it turns
    turns: Any  # bool [rows]


class Ring(NamedTuple):
    """Delays and rates of the pairs by distance and rank, and how many bytes there are in each chunk."""

    delay: Floats  # [distances, ranks]
    rate: Floats  # [distances, ranks]
    nbytes: Floats  # by Rows.at
    gamma: float


def is_synchronous(cyclic: Cyclic) -> bool:
    """Whether the two halves of every message are posted in the same step."""
    away = np.flatnonzero(cyclic.match >= 0)
    return bool((cyclic.step[away] == cyclic.step[cyclic.match[away]]).all())


def max_plus(cyclic: Cyclic, routes: Routes, sizes: Sizes, jitter: Jitter | None, starts: Floats | None) -> Floats:
    """When each rank is through. All links of the routes must be private and the program synchronous."""
    p = cyclic.world_size
    rows, nbytes = _rows(cyclic, sizes)
    rates = alone_rates(routes).reshape(-1, p)
    ring = Ring(routes.delay.reshape(-1, p), rates, nbytes, sizes.gamma)
    if jitter is None and starts is None and _is_uniform(rows, ring, p):
        return np.full(p, _one_for_all(rows, ring))
    seconds, seed = (0.0, 0) if jitter is None else jitter
    times = np.zeros(p) if starts is None else starts.copy()
    _compiled()(times, rows, ring, seconds, np.uint64(seed), jitter is not None)
    return times


def _rows(cyclic: Cyclic, sizes: Sizes) -> tuple[Rows, Floats]:
    """Rows, and the bytes of chunks: those of each block of world_size twice, so that no chunk turns beyond its end."""
    p, total = cyclic.world_size, cyclic.chunks + cyclic.scratch
    takes_time = np.flatnonzero((cyclic.kind == Kind.SEND) | (cyclic.kind > Kind.RECV))
    step = np.unique(cyclic.step, return_inverse=True)[1][takes_time]
    sends = cyclic.kind[takes_time] == Kind.SEND
    order = np.lexsort((np.arange(len(step)), ~sends, step))
    chosen, sends, step = takes_time[order], sends[order], step[order]
    steps = int(step.max(initial=-1)) + 1
    away, route = cyclic.peer[chosen], np.searchsorted(distances(cyclic), cyclic.peer[chosen])
    turns, turn, plus = cyclic.turns[0][chosen], cyclic.turn[0][chosen], cyclic.plus[0][chosen]
    table = sizes.offsets(total)
    turned = np.repeat(np.diff(table).reshape(-1, p), 2, axis=0).reshape(-1) if turns.any() else table[:0]
    plain, where = np.unique(np.stack([plus, cyclic.count[chosen]])[:, ~turns], axis=1, return_inverse=True)
    at = plus * 2 + turn % p
    at[~turns] = len(turned) + where.reshape(-1)
    nbytes = np.concatenate([turned, table[plain[0] + plain[1]] - table[plain[0]]]) * float(sizes.itemsize)
    first = np.searchsorted(step, np.arange(steps + 1))
    return Rows(first, sends, away, route, _numbers(route, sends), at, turns), nbytes


def _numbers(route: Ints, sends: Any) -> Ints:
    """For each message how many went its way before."""
    number, which = np.zeros(len(route), np.int64), np.flatnonzero(sends)
    order = which[np.argsort(route[which], kind="stable")]
    number[order] = np.arange(len(order)) - np.searchsorted(route[order], route[order])
    return number


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


def _advance(times: Any, rows: Rows, ring: Ring, most: float, seed: Any, jitters: bool) -> None:
    """``times`` holds when each rank is through; it held when each began."""
    p = len(times)
    before, through, same = np.empty(2 * p), np.empty(p), np.empty(p)
    for step in range(len(rows.first) - 1):
        before[:p] = times
        before[p:] = times
        for row in range(rows.first[step], rows.first[step + 1]):
            nbytes = ring.nbytes[rows.at[row] : rows.at[row] + p]
            if not rows.turns[row]:
                same[:] = ring.nbytes[rows.at[row]]
                nbytes = same
            if not rows.sends[row]:
                times += ring.gamma * nbytes
                continue
            away = rows.away[row]
            delay, rate = ring.delay[rows.route[row]], ring.rate[rows.route[row]]
            for rank in range(p):
                begin = max(before[rank], before[rank + away])
                through[rank] = begin + delay[rank] + nbytes[rank] / rate[rank] if nbytes[rank] > 0 else -np.inf
            if jitters:
                key = np.uint64(seed) + np.uint64(rows.number[row]) * np.uint64(NUMBER)
                for rank in range(p):
                    peer = rank + away if rank + away < p else rank + away - p
                    mixed = key + np.uint64(rank) * np.uint64(SRC) + np.uint64(peer) * np.uint64(DST)
                    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(FIRST)
                    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(SECOND)
                    mixed = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)
                    through[rank] += np.float64(mixed) * (UNIT * most)
            for rank in range(p):
                times[rank] = max(times[rank], through[rank])
            for rank in range(p - away):
                times[rank + away] = max(times[rank + away], through[rank])
            for rank in range(p - away, p):
                times[rank + away - p] = max(times[rank + away - p], through[rank])


@cache
def _compiled() -> Callable[..., None]:
    """``_advance`` in machine code."""
    from simcomm.compiled.jit import kept  # numba is slow to import, and not needed where one number stands for all

    return kept(_advance)
