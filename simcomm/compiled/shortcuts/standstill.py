"""Max-plus under trouble: links whose bandwidth changes, and ranks that fail.

A message over private links still has its links to itself, so that it is through when what they leave it over time
amounts to its bytes. A rank that fails comes to its next step never, and so do all that wait for it.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from collectives.records.trace import Unfinished
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints, LongInts
from simcomm.compiled.kernel.links import UNLIMITED
from simcomm.compiled.planning.cyclic_plan import distances
from simcomm.compiled.planning.routes import Routes
from simcomm.compiled.planning.schedule_plan import ChunkSizes
from simcomm.compiled.shortcuts.max_plus import RingCosts, Rows, StepJitter, channel_costs, written_out
from simcomm.model.trouble import Trouble

MOST_CHANGES = 20_000  # of links that are looked at; a run that goes on after them is left to events


class Standstill(NamedTuple):
    """How a run that never ends came to stand still."""

    last: float  # seconds until the last message or computing ended
    unfinished: tuple[Unfinished, ...]


class Halted(NamedTuple):
    """What became of a run in which links change or ranks fail."""

    finished: Floats  # [ranks]: seconds; infinite for a rank that never ends
    standstill: Standstill | None  # of a run that never ends
    failed: frozenset[int]


class RatesOverTime(NamedTuple):
    """What routes over links that change leave to a message, each from some seconds on."""

    of_route: Ints  # [routes]: which of those below is a route's, or -1 if its links do not change
    first: LongInts  # [routes that change + 1]
    since: Floats  # seconds; the first of each route's is 0
    rate: Floats  # bytes/s
    until: float  # seconds up to which all changes are known


class Halt(NamedTuple):
    """Where ranks come to a halt; an entry for each rank."""

    fails_at: Floats  # seconds; infinite for a rank that does not fail
    step: LongInts  # the step of its channel that the rank never ends; ``NEVER`` of one that ends all, ``NOT_BEGUN``
    since: Floats  # seconds at which it posted that step; infinite where it failed before
    failed: Bools
    last: Any  # float64 [2]: seconds until the last message or computing ended, and whether changes were missed


NEVER, NOT_BEGUN = 1 << 62, -1


def _new_halt(trouble: Trouble, times: Floats) -> Halt:
    """Return the state of ranks that begin at ``times``; those at infinity never do."""
    world_size = len(times)
    fails_at = np.array([trouble.fails_at(rank) for rank in range(world_size)])
    step = np.where(np.isinf(times), NOT_BEGUN, NEVER)
    return Halt(fails_at, step, np.full(world_size, inf), np.zeros(world_size, np.bool_), np.zeros(2))


def rates_over_time(graph: "nx.DiGraph[str]", trouble: Trouble, routes: Routes) -> RatesOverTime:
    """Return what each route leaves to a message that has it for itself; links are in the graph's order of edges.

    Where links have the same share of their bandwidth all the time, the routes know that already.
    """
    number = {link: index for index, link in enumerate(graph.edges)} if trouble.links_change else {}
    shares: defaultdict[int, dict[float, float]] = defaultdict(lambda: {0.0: 1.0})
    until, changes = inf, trouble.changes() if trouble.links_change else iter(())
    for count, change in enumerate(islice(changes, MOST_CHANGES + 1)):
        if count == MOST_CHANGES:
            until = change.time
            break
        shares[number[change.link]][max(0.0, change.time)] = change.share
    counts = np.diff(routes.first_hop)
    changing = np.flatnonzero(np.isin(routes.hop_link, np.fromiter(shares, np.int64, len(shares))))
    of_route = np.full(len(counts), -1, np.int32)
    first, since, rates = [0], list[float](), list[float]()
    for route in np.unique(np.repeat(np.arange(len(counts)), counts)[changing]).tolist():
        links = routes.hop_link[routes.first_hop[route] : routes.first_hop[route + 1]].tolist()
        of_route[route] = len(first) - 1
        for time, rate in _route_rates([(float(routes.alone[link]), shares.get(link)) for link in links]):
            since.append(time)
            rates.append(rate)
        first.append(len(since))
    return RatesOverTime(of_route, np.array(first), np.array(since), np.array(rates), until)


def _route_rates(links: list[tuple[float, dict[float, float] | None]]) -> Iterator[tuple[float, float]]:
    """Yield from when on a route of such links has how many bytes/s."""
    times = sorted({0.0}.union(*(shares for _, shares in links if shares)))
    now = [1.0] * len(links)
    for time in times:
        now = [share if not shares else shares.get(time, share) for (_, shares), share in zip(links, now, strict=True)]
        yield time, min(_rate_left(alone, share) for (alone, _), share in zip(links, now, strict=True))


def _rate_left(rate: float, share: float) -> float:
    """Return a share of a link's bytes/s; of an unlimited link any share but 0 is unlimited."""
    if share == 0:
        return 0.0
    return rate if rate >= UNLIMITED else rate * share


class ChannelRun(NamedTuple):
    """A channel of all ranks in a run: its operations, their costs, and what goes wrong."""

    cyclic: SymmetricSchedule
    channel: int
    rows: Rows
    costs: RingCosts
    changing: RatesOverTime
    trouble: Trouble
    index: int  # which collective of the trouble's run it is


def max_plus_to_halt(
    cyclic: SymmetricSchedule,
    routes: Routes,
    sizes: ChunkSizes,
    starts: Floats | None,
    trouble: Trouble,
    index: int,
    changing: RatesOverTime,
) -> Halted | None:
    """Return when each rank ends, as ``max_plus`` does, and what the others wait for; None after too many changes.

    All links of the routes must be private, and the schedule synchronous.
    """
    halts, ends, waiting = list[Halt](), list[Floats](), list[Unfinished]()
    for channel in range(cyclic.channels):
        run = ChannelRun(cyclic, channel, *channel_costs(cyclic, channel, routes, sizes), changing, trouble, index)
        times = np.zeros(cyclic.world_size) if starts is None else starts.copy()
        halt = _new_halt(trouble, times)
        _go_on(run, times, halt)
        if halt.last[1]:
            return None
        halts.append(halt)
        ends.append(times)
        waiting += _Waiting(run, halt, sizes).all()
    finished = np.max(ends, axis=0)
    if np.isfinite(finished).all():
        return Halted(finished, None, frozenset())
    failed = np.flatnonzero(np.logical_or.reduce([halt.failed for halt in halts]))
    last = max(float(halt.last[0]) for halt in halts)
    waiting.sort(key=lambda one: (one.since, one))
    return Halted(finished, Standstill(last, tuple(waiting)), frozenset(failed.tolist()))


def _go_on(run: ChannelRun, times: Floats, halt: Halt) -> None:
    """Let a channel of all ranks go on from ``times`` until it ends, or none of them does any more."""
    from simcomm.compiled.kernel.halting import advance_to_halt  # numba is slow to import, and often not needed

    rows, costs, p, before = run.rows, written_out(run.costs), len(times), np.empty(2 * len(times))
    if not run.trouble.is_random:
        slower = run.trouble.slowdown(run.index, np.arange(p), run.channel, 0)
        steps = len(rows.first) - 1
        advance_to_halt(times, before, rows, costs, 0, steps, np.zeros((1, 0)), slower, halt, run.changing)
        return
    jitter = StepJitter(run.cyclic, run.channel, run.trouble, run.index)
    for step in range(len(rows.first) - 1):
        here = range(rows.first[step], rows.first[step + 1])
        if len(here) and np.isfinite(times).any():
            late, slower = jitter.late_of_step(rows, here), jitter.slowdowns(int(rows.step[here.start]))
            late = late if len(late) else np.zeros((1, 0))
            advance_to_halt(times, before, rows, costs, step, step + 1, late, slower, halt, run.changing)


class _Waiting:
    """The halves of messages that ranks wait for at a halt, on one channel."""

    def __init__(self, run: ChannelRun, halt: Halt, sizes: ChunkSizes) -> None:
        self.run, self.halt, self.cyclic, self.itemsize = run, halt, run.cyclic, sizes.itemsize
        self.offsets = sizes.offsets(run.cyclic.chunks + run.cyclic.scratch)
        self.away, self.step = distances(run.cyclic), np.unique(run.cyclic.step)
        self.first_row = np.searchsorted(run.cyclic.step, self.step)
        self.last_row = np.searchsorted(run.cyclic.step, self.step, side="right")

    def all(self) -> Iterator[Unfinished]:
        """Yield them all."""
        for rank in np.flatnonzero(np.isfinite(self.halt.since)).tolist():
            step = int(self.halt.step[rank])
            for row in range(self.first_row[step], self.last_row[step]):
                if self.cyclic.channel[row] == self.run.channel and self.cyclic.kind[row] < Kind.COPY:
                    yield from self._half(rank, step, row)

    def _half(self, rank: int, step: int, row: int) -> Iterator[Unfinished]:
        """Yield the half of a message that a rank posts by a row, unless that message has arrived or is empty."""
        cyclic, sends = self.cyclic, self.cyclic.kind[row] == Kind.SEND
        peer, chunk = (rank + int(cyclic.peer[row])) % cyclic.world_size, self._chunk(rank, row)
        count = int(cyclic.count[row])
        nbytes = float((self.offsets[chunk + count] - self.offsets[chunk]) * self.itemsize)
        if nbytes == 0:
            return
        posted = self._posted(peer, step)
        if posted:
            source = row if sends else int(cyclic.match[row])
            src, dst = (rank, peer) if sends else (peer, rank)
            if not self._is_stuck(src, dst, source, nbytes):
                return
        since, number = float(self.halt.since[rank]), int(self.step[step])
        where = number, self.run.channel, since, posted, chunk, count, self.run.index
        yield Unfinished(rank, peer, bool(sends), *where)

    def _posted(self, rank: int, step: int) -> bool:
        """Return whether a rank posted a step."""
        last = self.halt.step[rank]
        return bool(last > step or (last == step and self.halt.since[rank] < inf))

    def _is_stuck(self, src: int, dst: int, row: int, nbytes: float) -> bool:
        """Return whether a message that both ranks posted never arrives: none does who has passed its step."""
        from simcomm.compiled.kernel.halting import arrival

        halt, run = self.halt, self.run
        if halt.step[src] != halt.step[dst]:
            return False
        route = int(np.searchsorted(self.away, (dst - src) % self.cyclic.world_size))
        named = run.index, src, dst, run.channel, int(self.cyclic.step[row]), self._chunk(src, row)
        late = float(run.trouble.delay(*named)) if run.trouble.messages else 0.0
        start = max(halt.since[src], halt.since[dst]) + run.costs.delay[route, src] + late
        which = run.changing.of_route[src * len(self.away) + route]
        through = arrival.py_func(start, nbytes, which, run.costs.rate[route, src], run.changing, np.zeros(2))  # type: ignore[attr-defined]
        return bool(through == inf)

    def _chunk(self, rank: int, row: int) -> int:
        """Return the first chunk that a row of a rank sends, or writes where it receives."""
        cyclic = self.cyclic
        chunk = cyclic.read if cyclic.kind[row] == Kind.SEND else cyclic.written
        return int(chunk.select(np.array([row])).on(cyclic.places(np.array([rank])), cyclic.radix)[0, 0])
