"""Compute the times of symmetric schedules without shared links, by a max-plus recurrence over their steps.

A message over private links begins when sender and receiver have reached its step, and takes a known time. So

    x'[r] = max over the messages of the step to and from r of (max(x[r], x[peer]) + delay + bytes / rate) + computing

where rank r reaches the step at x[r] and the next step at x'[r], and computes for ``computing`` seconds in between.
Message jitter and slow ranks are terms of this sum. If links change, a message arrives when their bandwidth, summed
over time, equals its bytes. A failed rank reaches its next step at infinity, and so do all ranks that wait for it.

The recurrence is homogeneous: if all ranks start later by d, they end later by d. So once a step takes the same time on
all ranks, the identical steps that follow take this time too, and are skipped. With one slow link, this happens after
its delay has gone around the ring. If all links are identical but chunk sizes differ, a step equals the previous one
with the ranks shifted, because chunk k moves from rank to rank. If all ranks have the same delays, rates and sizes,
they reach each step at the same time, so one rank is computed for all.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints, LongInts
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import alone_rates
from simcomm.compiled.planning.schedule_plan import ChunkSizes, distances
from simcomm.compiled.shortcuts.link_rates import LinkRates
from simcomm.hashing import hash_next, to_fraction
from simcomm.model.faults import Faults, pack_step_and_chunk
from simcomm.model.sharing import SAME_STEP

DRAWN_AT_ONCE = 1 << 14  # random numbers drawn at a time
STEPS_PER_LOOK = 16  # steps between checks whether a step takes the same time on all ranks
NEVER, NOT_BEGUN = 1 << 62, -1  # in place of the step at which a rank halted


class Rows(NamedTuple):
    """The sends, reductions and copies of a channel, one per row. In each step, messages come before computations.

    If ``is_shifted``, rank r sends chunk ``base + (shift + r) % world_size * stride``, where ``stride`` is the
    schedule's. Otherwise, every rank sends chunk ``base``.
    """

    first: Ints  # [steps + 1]: the first row of each step
    sends: Bools  # [rows]: whether the row is a message
    away: Ints  # [rows]: distance of a message around the ring of ranks
    route: Ints  # [rows]: index of that distance
    step: Ints  # [rows]: of the program
    shift: Ints  # [rows]
    base: Ints  # [rows]
    last: Ints  # [steps]: last of the consecutive steps, from this one on, that are equal for every rank
    turn: Ints  # [steps]: shift in ranks that chunks make from this step to the next
    last_turned: Ints  # [steps]: last of the consecutive steps that are equal after this shift
    at: Ints  # [rows]: index of rank 0's bytes; plus r for rank r if is_shifted
    is_shifted: Bools  # [rows]
    is_local: Bools  # [rows]: whether it is a local copy or reduction


def is_synchronous(cyclic: SymmetricSchedule) -> bool:
    """Return whether each message is sent and received in the same step of its two ranks' programs."""
    away = np.flatnonzero(cyclic.match >= 0)
    return bool((cyclic.step[away] == cyclic.step[cyclic.match[away]]).all())


class MaxPlusRun:
    """A max-plus run, which computes the time at which each channel of each rank ends.

    The schedule must be symmetric and synchronous. All links of its routes must be private, so channels are
    independent.
    """

    def __init__(self, inputs: EngineInput) -> None:
        schedule, rates = inputs.schedule, None
        assert isinstance(schedule, SymmetricSchedule)
        if inputs.faults.changes_links:
            rates = LinkRates(inputs.cluster.graph, inputs.faults, inputs.routes, len(distances(schedule)))
        channels = range(schedule.channels)
        self.channels = [ChannelRun(inputs, channel, rates) for channel in channels]
        self.finished: Floats = np.max([channel.finished for channel in self.channels], axis=0)  # [ranks]: seconds
        self.failed = frozenset(np.flatnonzero(np.any([channel.failed for channel in self.channels], axis=0)).tolist())
        self.last = max(channel.last for channel in self.channels)


class ChannelRun:
    """A max-plus run of one channel on all ranks. Times are arrays by rank, and infinite if a rank never ends."""

    def __init__(self, inputs: EngineInput, channel: int, rates: LinkRates | None) -> None:
        schedule, p = inputs.schedule, inputs.schedule.world_size
        assert isinstance(schedule, SymmetricSchedule)
        self.schedule, self.channel, self.index, self.gamma = schedule, channel, inputs.index, inputs.sizes.gamma
        key = "rows", channel  # shared by repetitions and by the steps of a training
        if key not in inputs.derived:
            inputs.derived[key] = _rows(schedule, channel, inputs.sizes)
        self.rows, self._nbytes = inputs.derived[key]
        self.delay, self.rate = (
            figures.reshape(p, -1).T for figures in (inputs.routes.delay, alone_rates(inputs.routes))
        )
        self.faults, self.rates = inputs.faults, rates
        self._jitter = _StepJitter(self.rows, schedule, channel, inputs.faults, inputs.index)
        alike = not inputs.faults.affects_ranks and rates is None and inputs.starts is None
        self.links_alike = not any((matrix != matrix[:, :1]).any() for matrix in (self.delay, self.rate))
        self.ranks = 1 if alike and self._is_uniform(p) else p  # one rank represents all
        self.failed = np.zeros(p, np.bool_)
        self.fails_at: Floats | None = None
        if inputs.faults.fails_ranks or rates is not None:
            self.fails_at = np.array([inputs.faults.fails_at(rank) for rank in range(p)])
        times = np.zeros(self.ranks) if inputs.starts is None else inputs.starts.copy()
        self.halted_step: LongInts = np.where(np.isinf(times), NOT_BEGUN, NEVER)  # step at which a rank halted
        self.halted_since = np.full(self.ranks, np.inf)  # when it posted that step; infinity if it failed before
        self.last = 0.0  # end of the last message or computation, if the run may halt
        steps = len(self.rows.first) - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            self.finished = np.broadcast_to(self._advance(times, steps), p)

    def _is_uniform(self, p: int) -> bool:
        if not self.links_alike:
            return False
        blocks = self._nbytes[: 2 * p * int(self.rows.is_shifted.any() and len(self._nbytes) // (2 * p))]
        blocks = blocks.reshape(-1, 2 * p)
        return bool((blocks == blocks[:, :1]).all())

    def _advance(self, times: Floats, steps: int) -> Floats:
        may_skip = not (self.faults.is_random or self.fails_at is not None)
        step = done = 0
        while step < steps:
            before, times = times, self._take_step(step, times)
            done += 1
            if may_skip and done % STEPS_PER_LOOK == 0:
                last, turn = self._steps_alike(step)
                took = np.roll(times, -turn) - before
                if last > step and took.max() - took.min() <= SAME_STEP * times[0]:
                    times = np.roll(times, turn * (last - step)) + took.max() * (last - step)
                    step = last
            step += 1
        return times

    def _steps_alike(self, step: int) -> tuple[int, int]:
        """Return the last of the equal steps that begin with ``step``, and the shift in ranks from one to the next.

        Steps that are equal only after a shift are included only if all links are equal and no fault affects ranks.
        """
        rows = self.rows
        if rows.last[step] > step or not self.links_alike or self.faults.affects_ranks:
            return int(rows.last[step]), 0
        return int(rows.last_turned[step]), int(rows.turn[step])

    def _take_step(self, step: int, before: Floats) -> Floats:
        rows, rows_here = self.rows, range(self.rows.first[step], self.rows.first[step + 1])
        if not rows_here:
            return before
        if self.fails_at is not None:
            before = self._stop_failed(before, np.ones(len(before), np.bool_))
            self.halted_step[np.isinf(before) & (self.halted_step == NEVER)] = step
        now, twice = before.copy(), np.concatenate([before, before])
        for row in rows_here:
            if rows.sends[row]:
                arrived = self._arrivals(row, twice)
                away = rows.away[row] % self.ranks
                np.maximum(now, arrived, out=now)
                np.maximum(now, np.concatenate([arrived, arrived])[self.ranks - away : 2 * self.ranks - away], out=now)
                if self.fails_at is not None:
                    self._note(arrived)
            elif self.fails_at is not None:
                now = self._compute_unless_failed(row, now)
            elif self.gamma > 0:
                now += self.gamma * self.nbytes(row) * self.slower(step)
        if self.fails_at is not None:
            halted = np.isinf(now) & np.isfinite(before)
            self.halted_step[halted], self.halted_since[halted] = step, before[halted]
        return now

    def _arrivals(self, row: int, twice: Floats) -> Floats:
        """Return when each rank's message in schedule row ``row`` arrives, in seconds; minus infinity if it is empty.

        ``twice`` contains the times at which the ranks reach the step, concatenated with a copy of itself.
        """
        p, away, route = self.ranks, self.rows.away[row] % self.ranks, self.rows.route[row]
        nbytes = self.nbytes(row)
        at_links = np.maximum(twice[:p], twice[away : away + p]) + self.delay[route, :p]
        if self.faults.messages is not None:
            at_links += self._jitter.late(row)
        through = at_links + nbytes / self.rate[route, :p]
        if self.rates is not None:
            self.rates.correct(through, at_links, np.broadcast_to(nbytes, p), route)
        return through if nbytes.all() else np.where(nbytes > 0, through, -np.inf)

    def _stop_failed(self, times: Floats, begins: Bools) -> Floats:
        """Return ``times``, with infinity for each rank that would begin an operation after its failure."""
        assert self.fails_at is not None
        fails = begins & (times >= self.fails_at) & (times < np.inf)
        self.failed |= fails
        return np.where(fails, np.inf, times)

    def _compute_unless_failed(self, row: int, times: Floats) -> Floats:
        """Return the time at which each rank ends the computation in ``row``; infinity for failed ranks."""
        nbytes = np.broadcast_to(self.nbytes(row), len(times))
        begins = np.full(len(times), self.rows.is_local[row]) | (nbytes > 0)
        times = self._stop_failed(times, begins)
        seconds = self.gamma * nbytes * self.slower(self._step_of(row))
        if seconds.any():
            times = times + seconds
            self._note(times[seconds > 0])
        return times

    def _note(self, ends: Floats) -> None:
        self.last = max(self.last, float(ends[ends < np.inf].max(initial=0.0)))

    def _step_of(self, row: int) -> int:
        return int(np.searchsorted(self.rows.first, row, side="right")) - 1

    def nbytes(self, row: int) -> Floats:
        """Return the bytes of a row on each rank, or a single number if all ranks have the same."""
        at = self.rows.at[row]
        return self._nbytes[at : at + (self.ranks if self.rows.is_shifted[row] else 1)]

    def slower(self, step: int) -> Floats:
        """Return the factor by which each rank's compute is slowed down in a step."""
        return self._jitter.slowdowns(int(self.rows.step[self.rows.first[step]]))[: self.ranks]


class _StepJitter:
    """Random message delays in seconds and compute slowdowns, drawn for many rows or steps at once."""

    def __init__(self, rows: Rows, schedule: SymmetricSchedule, channel: int, faults: Faults, index: int) -> None:
        p = schedule.world_size
        self.rows, self.faults, self.index, self.channel, self.ranks = rows, faults, index, channel, np.arange(p)
        self._at_once = max(1, DRAWN_AT_ONCE // p)
        self._places = np.arange(2 * p).astype(np.uint64) % np.uint64(p) * np.uint64(schedule.stride)
        self._away = distances(schedule)
        self._rows, self._late = range(0), np.zeros((0, p))
        self._steps, self._slower = range(0), np.zeros((0, p))

    @cached_property
    def _constant(self) -> Floats:
        return self.faults.slowdown(self.index, self.ranks, self.channel, 0)

    @cached_property
    def _names(self) -> Any:
        """The hash that identifies each pair of ranks, without a message's step and chunk; shape [distances, ranks]."""
        peers = (self.ranks + self._away[:, None]) % len(self.ranks)
        return self.faults.message_hash(self.index, np.broadcast_to(self.ranks, peers.shape), peers, self.channel)

    def late(self, row: int) -> Floats:
        if row not in self._rows:
            begin = row - row % self._at_once
            self._rows = range(begin, min(begin + self._at_once, len(self.rows.step)))
            self._late = self._draw(slice(begin, self._rows.stop))
        return self._late[row - self._rows.start]

    def _draw(self, which: slice) -> Floats:
        """Return the delays of messages in seconds for a slice of rows. Rows without messages have arbitrary values."""
        assert self.faults.messages is not None
        rows = self.rows
        shifted = self._places[rows.shift[which, None] + self.ranks] * rows.is_shifted[which, None].astype(np.uint64)
        chunk = shifted + rows.base[which, None].astype(np.uint64)
        name = pack_step_and_chunk(rows.step[which, None].astype(np.uint64), chunk)
        with np.errstate(over="ignore"):
            shares = to_fraction(hash_next(self._names[rows.route[which] % len(self._away)], name))
        return self.faults.messages.quantile(shares)

    def slowdowns(self, step: int) -> Floats:
        if self.faults.compute is None:
            return self._constant
        if step not in self._steps:
            begin = step - step % self._at_once
            self._steps = range(begin, begin + self._at_once)
            self._slower = self.faults.slowdown(self.index, self.ranks, self.channel, np.array(self._steps)[:, None])
        return self._slower[step - self._steps.start]


def _rows(cyclic: SymmetricSchedule, channel: int, sizes: ChunkSizes) -> tuple[Rows, Floats]:
    """Return the rows of a channel, and the array of bytes to which the indices in ``Rows.at`` refer.

    The bytes of shifted chunks are stored twice in a row, so that an index plus a rank stays within the array.
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
    is_shifted, shift, base = cyclic.read.is_shifted[chosen], cyclic.read.shift[chosen], cyclic.read.base[chosen]
    table = sizes.offsets(total)
    twice = np.repeat(cyclic.by_cycle(np.diff(table)), 2, axis=0).reshape(-1) if is_shifted.any() else table[:0]
    plain, where = np.unique(np.stack([base, cyclic.count[chosen]])[:, ~is_shifted], axis=1, return_inverse=True)
    at = cyclic.cycle()[chosen] * 2 * p + shift % p
    at[~is_shifted] = len(twice) + where.reshape(-1)
    nbytes = np.concatenate([twice, table[plain[0] + plain[1]] - table[plain[0]]]) * float(sizes.itemsize)
    first = np.searchsorted(step, np.arange(steps + 1))
    last = _last_alike(first, np.stack([sends, away, route, _bytes_of_all(nbytes, at, is_shifted, p)]))
    relative_shift = (shift - shift[np.repeat(first[:-1], np.diff(first))]) % p  # relative to the step's first row
    block = np.where(is_shifted, at // (2 * p), at)
    turned = np.stack([sends, away, route, is_shifted, block, np.where(is_shifted, relative_shift, 0)])
    turn = -np.diff(shift[first[:-1]], append=0) % p
    result = Rows(
        first=first,
        sends=sends,
        away=away,
        route=route,
        step=cyclic.step[chosen],
        shift=shift % p,
        base=base,
        last=last,
        turn=turn,
        last_turned=_last_alike(first, turned, turn),
        at=at,
        is_shifted=is_shifted,
        is_local=cyclic.kind[chosen] >= Kind.COPY,
    )
    return result, nbytes


def _bytes_of_all(nbytes: Floats, at: Ints, is_shifted: Bools, p: int) -> Floats:
    """Return the bytes of each row, or NaN for rows whose size differs between ranks."""
    blocks = nbytes[: len(nbytes) // (2 * p) * 2 * p * int(is_shifted.any())].reshape(-1, 2 * p)
    alike = np.where((blocks == blocks[:, :1]).all(axis=1), blocks[:, 0], np.nan)
    of_rows = nbytes[at].copy()
    of_rows[is_shifted] = alike[at[is_shifted] // (2 * p)]
    return of_rows


def _last_alike(first: Ints, rows: Floats, to_next: Ints | None = None) -> Ints:
    """Return, for each step, the last of the consecutive steps with identical ``rows``, which has shape [values, rows].

    If ``to_next`` is given, the shifts from each step to the next must be identical too.
    """
    steps = len(first) - 1
    number = np.diff(first)
    like_next = np.append(number[1:] == number[:-1], False)[:steps]
    for row in range(int(number.max(initial=0))):
        here = np.flatnonzero(like_next & (number > row))
        like_next[here] &= (rows[:, first[here] + row] == rows[:, first[here + 1] + row]).all(axis=0)
    ends = ~like_next
    if to_next is not None:
        ends[1:] |= to_next[1:] != to_next[:-1]  # a step before another shift is the last of its kind
    ends = np.flatnonzero(ends)
    return ends[np.searchsorted(ends, np.arange(steps))]
