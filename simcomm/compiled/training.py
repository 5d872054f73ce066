"""Training steps on the compiled engine: every rank computes, then all sync by one collective, and so on.

Each sync is simulated by itself, its ranks beginning when they have computed. That is exact while no two ranks that
send to each other have both begun a sync before the last message of the one before has arrived; then no message of two
of them is under way at the same time. A rank that waits for ever, or has failed, begins no other sync: its times are
infinite from then on.
"""

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from collectives.budget import Gigabyte, allowed
from collectives.records.messages import Messages, join_messages
from collectives.records.spans import Spans, join_spans
from collectives.records.trace import Trace
from collectives.records.waits import BriefTrace, Record
from collectives.training.workload import ComputePhases
from simcomm.compiled.engine import Timing, by_shortcut, one_by_one, with_messages
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.shortcuts.waits import Standstill, path_by_steps, waited_by_steps
from simcomm.compiled.tcp.plan import Phases
from simcomm.compiled.tcp.run import TcpRun
from simcomm.compiled.traces import (
    failures,
    link_records,
    stopped,
    trace_messages,
    trace_nothing,
    trace_reductions,
)
from simcomm.model.faults import BACKWARD, DIVISION, FORWARD, OPTIMIZER
from simcomm.model.sharing import SAME_ARRIVAL


@dataclass(frozen=True)
class SimulatedSync:
    """The gradient sync of one training step, and its timing."""

    inputs: EngineInput
    base: float  # the timing counts from here, seconds
    timing: Timing

    def with_messages(self) -> "SimulatedSync":
        """Return the sync with the times of its messages, simulated again where it is known by its steps."""
        if self.timing.times is not None:
            return self
        written = self.inputs.with_table()
        return replace(self, inputs=written, timing=one_by_one(written, messages=True))

    def messages(self) -> Messages:
        """Return its messages, in seconds from the beginning of the training."""
        return trace_messages(self.inputs, self.timing, self.base)

    def reductions(self) -> Spans:
        """Return its reductions and copies, in seconds from the beginning of the training."""
        found = trace_reductions(self.inputs, self.timing)
        return Spans(found.names, **{**found.kept, "begin": self.base + found.begin, "end": self.base + found.end})

    def standstill(self) -> Standstill:
        """Return when its last message or computing ended, and what ranks then wait for; seconds from the beginning."""
        found = stopped(self.inputs, self.timing)
        later = tuple(one._replace(since=self.base + one.since) for one in found.unfinished)
        return Standstill(self.base + found.last, later)


class _Ranks:
    """Where all ranks of a training are; one that has failed, or waits for ever, is at infinity."""

    def __init__(self, inputs: EngineInput) -> None:
        self.faults, self.ranks = inputs.faults, np.arange(inputs.schedule.world_size)
        self.fails_at = np.array([inputs.faults.fails_at(rank) for rank in self.ranks.tolist()])
        self.failed: set[int] = set()

    def compute(self, since: Floats, seconds: float, step: int, kind: int) -> Floats:
        """Return when the ranks have computed something from ``since`` on; one that has failed never does."""
        fails = (since >= self.fails_at) & (since < inf)
        self.failed.update(self.ranks[fails].tolist())
        return np.where(fails, inf, since + seconds * self.faults.slowdown(step, self.ranks, kind, step))


def simulate_training(inputs: EngineInput, compute: ComputePhases, steps: int, *, record: Record) -> Trace | None:
    """Return the Trace of so many training steps; with ``record`` every message of them, as in ``simcomm.run``.

    Return None where syncs cannot be simulated each by itself: a message of one may begin while one of the sync before
    is still under way. ``inputs`` is the gradient sync, a sum; every
    rank divides all of it at the end, at the transport's gamma.
    """
    if record is Record.BRIEF_WAITS and steps * inputs.posted > allowed(Gigabyte.MESSAGES):
        record = Record.TIMES
    if record.keeps_messages and steps:
        inputs.check_number(Gigabyte.RECORDED // steps)
        inputs = inputs if record is Record.WAITS else inputs.with_table()
    division = inputs.transport.gamma * inputs.call.nbytes
    ranks, ready = _Ranks(inputs), np.zeros(inputs.schedule.world_size)
    spans, syncs, rest = list[Spans](), list[SimulatedSync](), Standstill(0.0, ())
    for step in range(steps):
        forward = ranks.compute(ready, compute.forward, step, FORWARD)
        begin = ranks.compute(forward, compute.backward, step, BACKWARD)
        spans += _spans(step, ("forward", ready, forward), ("backward", forward, begin))
        ready = begin
        base = float(begin.min())
        if base == inf:
            break
        if any(one.is_under_way for one in rest.unfinished) or _first_message(inputs, begin, base) < rest.last:
            return None
        syncs.append(_sync(inputs, begin, base, step, record, syncs))
        if record is Record.BRIEF_WAITS and syncs[-1].timing.by_steps is None:
            record = Record.TIMES
        ranks.failed |= syncs[-1].timing.failed
        synced = base + syncs[-1].timing.finished
        now = syncs[-1].standstill()
        rest = Standstill(max(rest.last, now.last), rest.unfinished + now.unfinished)
        divided = ranks.compute(synced, division, step, DIVISION)
        ready = ranks.compute(divided, compute.optimizer, step, OPTIMIZER)
        spans += _spans(step, ("reduce", synced, divided), ("sync", begin, divided), ("optimizer", divided, ready))
    if float(ready.max()) < inf:
        return _finished(inputs, ready, spans, syncs, record)
    elapsed = max([rest.last, *(float(each.end.max(initial=0.0)) for each in spans)])
    waiting = sorted(rest.unfinished, key=lambda one: (one.since, one))
    stopped_ranks = failures(inputs.faults, ranks.failed)
    found = trace_steps(inputs, elapsed, spans, syncs, record)
    return replace(found, failed=stopped_ranks, unfinished=waiting)


def simulate_tcp_training(inputs: EngineInput, phases: Phases, steps: int, *, record: Record) -> Trace:
    """Return the Trace of training steps over TCP; with ``record`` every message of them.

    They are simulated in one run, as connections keep what a sync left on them.
    ``inputs`` is the gradient sync, a sum; every rank divides all of it at the end, at the transport's gamma. Raises
    InputError for more messages or segments than fit into memory.
    """
    inputs = inputs.with_table()
    syncs = [inputs.under(inputs.faults, None, step) for step in range(steps)]
    run = TcpRun(syncs, phases)
    begin, end = (run.plan.moments(deeds, run.done) for deeds in (run.plan.begins, run.plan.ends))
    rank, step = np.arange(run.plan.world_size), np.arange(steps)
    where = {"rank": np.tile(rank, steps), "step": np.repeat(step, len(rank)), "collective": np.repeat(step, len(rank))}
    whole = Spans(("sync",), name=0, begin=begin.reshape(-1), end=end.reshape(-1), **where)
    timings = []
    for sync, finished in zip(syncs, end, strict=True):
        timing = Timing(float(finished.max()), finished, sync.sent, "events", reductions=Spans.of(()))
        timings.append(SimulatedSync(sync, 0.0, with_messages(timing, sync, run)))
    return trace_steps(inputs, float(run.finished.max()), [run.plan.spans(run.done), whole], timings, record)


def _finished(
    inputs: EngineInput, ready: Floats, spans: list[Spans], syncs: list[SimulatedSync], record: Record
) -> Trace:
    """Return the Trace of steps after which ranks are ``ready``: brief where steps of all syncs tell who waited."""
    elapsed, runs = float(ready.max()), [(sync.base, sync.timing.by_steps) for sync in syncs]
    told = [(base, run) for base, run in runs if run is not None]
    if record is Record.TIMES or len(told) < len(runs):
        return trace_steps(inputs, elapsed, spans, syncs, record)
    work = (span for each in spans if each.names != ("sync",) for span in each)
    brief = trace_steps(inputs, elapsed, spans, syncs, Record.TIMES)
    return BriefTrace.of(brief, waited_by_steps(run for _, run in told), path_by_steps(told, work, ready))


def _first_message(inputs: EngineInput, begin: Floats, base: float) -> float:
    """Return seconds before which no message of a sync begins that ranks ``begin``, the first at ``base``."""
    if (begin == base).all():
        return base
    src, dst = inputs.pairs
    return float(np.maximum(begin[src], begin[dst]).min(initial=inf))


def _sync(
    inputs: EngineInput, begin: Floats, base: float, step: int, record: Record, before: list[SimulatedSync]
) -> SimulatedSync:
    """Return the sync of a step that ranks ``begin`` at these seconds, the first at ``base``."""
    starts = begin - base if (begin > base).any() else None
    sync = inputs.under(inputs.faults.shifted(base), starts, step)
    if starts is None and record is Record.TIMES and before and not inputs.faults.is_random:
        last = before[-1]  # it is the same again if nothing changes meanwhile
        now, until = sync.faults.split_at_first_change()
        then, until_then = last.inputs.faults.split_at_first_change()
        longest = last.timing.elapsed / (1 - SAME_ARRIVAL)
        if now == then and last.inputs.starts is None and longest < min(until, until_then):
            return SimulatedSync(sync, base, last.timing)
    timing = None if record is Record.MESSAGES else by_shortcut(sync, record)
    if timing is None and (sync.faults.may_hang or record.keeps_messages):
        sync = sync.with_table()
    return SimulatedSync(sync, base, timing or one_by_one(sync, messages=record.keeps_messages))


def _spans(step: int, *phases: tuple[str, Floats, Floats]) -> list[Spans]:
    """Return each phase of all ranks, without those that take no time; a sync is one in any case."""
    found = []
    for name, begin, end in phases:
        rank = np.flatnonzero((end < inf) if name == "sync" else (begin < end) & (end < inf))
        columns = {"rank": rank, "name": 0, "step": step, "begin": begin[rank], "end": end[rank], "collective": step}
        found.append(Spans((name,), **columns))
    return found


def trace_steps(
    inputs: EngineInput, elapsed: float, spans: list[Spans], syncs: list[SimulatedSync], record: Record
) -> Trace:
    """Return the Trace of all steps; with ``record`` also messages and reductions, and links unless it is of waits."""
    only = trace_nothing(inputs, elapsed, syncs[-1].timing.method if syncs else "")
    if not record.keeps_messages:
        return replace(only, spans=join_spans(spans).sorted())
    syncs = [sync.with_messages() for sync in syncs]
    messages = join_messages([sync.messages() for sync in syncs])
    return replace(
        only,
        messages=messages if record is Record.WAITS else messages.sorted(),
        spans=join_spans([*spans, *(sync.reductions() for sync in syncs)]).sorted(),
        links=[] if record is Record.WAITS else link_records(inputs, [sync.timing for sync in syncs], elapsed),
    )
