"""Simulate training steps on the compiled engine: in each step, every rank computes, and then all ranks synchronize.

Each gradient sync is simulated alone, starting when its ranks have computed. This is exact as long as no message of a
sync can begin while a message of an earlier sync is in flight. A rank that hangs or has failed starts no further sync:
its times are infinite.
"""

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from collectives.budget import Gigabyte
from collectives.records.messages import Messages
from collectives.records.spans import Spans
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases
from simcomm.compiled.engine import Timing, by_shortcut, one_by_one, with_messages
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.shortcuts.standstill import Standstill
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
    """The gradient sync of one training step. Times in ``timing`` start at ``base`` seconds of the training run."""

    inputs: EngineInput
    base: float  # start of the timing, in seconds
    timing: Timing

    def messages(self) -> Messages:
        """Return the messages of this sync, with times in seconds since the training run began."""
        return trace_messages(self.inputs, self.timing, self.base)

    def reductions(self) -> Spans:
        """Return the reductions and copies of this sync, with times in seconds since the training run began."""
        spans = trace_reductions(self.inputs, self.timing)
        return Spans(spans.names, **{**spans.kept, "begin": self.base + spans.begin, "end": self.base + spans.end})

    def standstill(self) -> Standstill:
        """Return the time at which the sync stopped, and the operations that are then unfinished."""
        last, unfinished = stopped(self.inputs, self.timing)
        later = (operation._replace(since=self.base + operation.since) for operation in unfinished)
        return Standstill(self.base + last, tuple(later))


class _Ranks:
    """The ranks of a training run, and which of them have failed."""

    def __init__(self, inputs: EngineInput) -> None:
        self.faults, self.ranks = inputs.faults, np.arange(inputs.schedule.world_size)
        self.fails_at = np.array([inputs.faults.fails_at(rank) for rank in self.ranks.tolist()])
        self.failed: set[int] = set()

    def compute(self, since: Floats, seconds: float, step: int, kind: int) -> Floats:
        fails = (since >= self.fails_at) & (since < inf)
        self.failed.update(self.ranks[fails].tolist())
        return np.where(fails, inf, since + seconds * self.faults.slowdown(step, self.ranks, kind, step))


def simulate_training(inputs: EngineInput, compute: ComputePhases, steps: int, *, record: bool) -> Trace | None:
    """Return the trace of training steps, or None if messages of two syncs may be in flight at the same time.

    ``inputs`` is the gradient sync, a sum, which is simulated separately for each step. After it, every rank divides
    the whole buffer. If ``record`` is True, the trace includes messages and links, as in ``simcomm.run``.
    """
    if record and steps:
        inputs.check_number(Gigabyte.RECORDED // steps)
        inputs = inputs.with_table()
    division = inputs.transport.gamma * inputs.call.nbytes
    ranks, ready = _Ranks(inputs), np.zeros(inputs.schedule.world_size)
    spans, syncs, earlier = list[Spans](), list[SimulatedSync](), Standstill(0.0, ())
    for step in range(steps):
        forward = ranks.compute(ready, compute.forward, step, FORWARD)
        begin = ranks.compute(forward, compute.backward, step, BACKWARD)
        spans += _spans(step, ("forward", ready, forward), ("backward", forward, begin))
        ready = begin
        base = float(begin.min())
        if base == inf:
            break
        if any(op.is_under_way for op in earlier.unfinished) or _first_message(inputs, begin, base) < earlier.last:
            return None
        syncs.append(_sync(inputs, begin, base, step, record, syncs))
        ranks.failed |= syncs[-1].timing.failed
        synced = base + syncs[-1].timing.finished
        latest = syncs[-1].standstill()
        earlier = Standstill(max(earlier.last, latest.last), earlier.unfinished + latest.unfinished)
        divided = ranks.compute(synced, division, step, DIVISION)
        ready = ranks.compute(divided, compute.optimizer, step, OPTIMIZER)
        spans += _spans(step, ("reduce", synced, divided), ("sync", begin, divided), ("optimizer", divided, ready))
    if float(ready.max()) < inf:
        return trace_steps(inputs, float(ready.max()), spans, syncs, record)
    elapsed = max([earlier.last, *(float(each.end.max(initial=0.0)) for each in spans)])
    waiting = sorted(earlier.unfinished, key=lambda operation: (operation.since, operation))
    stopped_ranks = failures(inputs.faults, ranks.failed)
    trace = trace_steps(inputs, elapsed, spans, syncs, record)
    return replace(trace, failed=stopped_ranks, unfinished=waiting)


def simulate_tcp_training(inputs: EngineInput, phases: Phases, steps: int, *, record: bool) -> Trace:
    """Return the trace of training steps over TCP, simulated in one run because the state of connections carries over.

    ``inputs`` is the gradient sync, a sum. After it, every rank divides the whole buffer. If ``record`` is True, the
    trace includes messages and links, as in ``simcomm.run``. Raise InputError if messages or segments exceed the memory
    limit.
    """
    inputs = inputs.with_table()
    syncs = [inputs.under(inputs.faults, None, step) for step in range(steps)]
    run = TcpRun(syncs, phases)
    begin, end = (run.plan.moments(actions, run.done) for actions in (run.plan.begins, run.plan.ends))
    rank, step = np.arange(run.plan.world_size), np.arange(steps)
    where = {"rank": np.tile(rank, steps), "step": np.repeat(step, len(rank)), "collective": np.repeat(step, len(rank))}
    sync_spans = Spans(("sync",), name=0, begin=begin.reshape(-1), end=end.reshape(-1), **where)
    timings = []
    for sync, finished in zip(syncs, end, strict=True):
        timing = Timing(float(finished.max()), finished, sync.sent, "events", reductions=Spans.of(()))
        timings.append(SimulatedSync(sync, 0.0, with_messages(timing, sync, run)))
    return trace_steps(inputs, float(run.finished.max()), [run.plan.spans(run.done), sync_spans], timings, record)


def _first_message(inputs: EngineInput, begin: Floats, base: float) -> float:
    """Return the earliest time at which a message of a sync can begin, if rank r starts at ``begin[r]`` seconds."""
    if (begin == base).all():
        return base
    src, dst = inputs.pairs
    return float(np.maximum(begin[src], begin[dst]).min(initial=inf))


def _sync(
    inputs: EngineInput, begin: Floats, base: float, step: int, record: bool, before: list[SimulatedSync]
) -> SimulatedSync:
    """Simulate the gradient sync of a step, which rank r starts at ``begin[r]`` seconds.

    ``base`` is the earliest of these times. ``before`` lists the syncs of earlier steps.
    """
    starts = begin - base if (begin > base).any() else None
    sync = inputs.under(inputs.faults.shifted(base), starts, step)
    if starts is None and not record and before and not inputs.faults.is_random:
        last = before[-1]  # equal if nothing changes
        now, until = sync.faults.split_at_first_change()
        then, until_then = last.inputs.faults.split_at_first_change()
        longest = last.timing.elapsed / (1 - SAME_ARRIVAL)
        if now == then and last.inputs.starts is None and longest < min(until, until_then):
            return SimulatedSync(sync, base, last.timing)
    timing = None if record else by_shortcut(sync)
    if timing is None and (sync.faults.may_hang or record):
        sync = sync.with_table()
    return SimulatedSync(sync, base, timing or one_by_one(sync, messages=record))


def _spans(step: int, *phases: tuple[str, Floats, Floats]) -> list[Spans]:
    """Return the spans of a step's phases, given as (name, begins, ends). Empty ones are omitted, except for syncs."""
    spans = []
    for name, begin, end in phases:
        rank = np.flatnonzero((end < inf) if name == "sync" else (begin < end) & (end < inf))
        columns = {"rank": rank, "name": 0, "step": step, "begin": begin[rank], "end": end[rank], "collective": step}
        spans.append(Spans((name,), **columns))
    return spans


def trace_steps(
    inputs: EngineInput, elapsed: float, spans: list[Spans], syncs: list[SimulatedSync], record: bool
) -> Trace:
    """Return the trace of all steps. If ``record`` is True, it includes messages, reductions and links."""
    only = trace_nothing(inputs, elapsed, syncs[-1].timing.method if syncs else "")
    if not record:
        return replace(only, spans=Spans.join(spans).sorted())
    return replace(
        only,
        messages=Messages.join([sync.messages() for sync in syncs]).sorted(),
        spans=Spans.join([*spans, *(sync.reductions() for sync in syncs)]).sorted(),
        links=link_records(inputs, [sync.timing for sync in syncs], elapsed),
    )
