"""Training steps on the compiled engine: every rank computes, then all sync by one collective, and so on.

Each sync is simulated by itself, its ranks beginning when they have computed. That is exact while no rank begins a sync
before every rank has ended the one before; then no message of two of them is under way at the same time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from collectives.records.messages import Messages, join_messages
from collectives.records.spans import Span, Spans, join_spans
from collectives.records.trace import Trace
from collectives.workload import ComputePhases
from simcomm.compiled.engine import simulate
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import MOST_RECORDED, EngineInput
from simcomm.compiled.timing import Timing
from simcomm.compiled.traces import link_records, trace_messages, trace_nothing, trace_reductions
from simcomm.model.trouble import BACKWARD, DIVISION, FORWARD, OPTIMIZER


@dataclass(frozen=True)
class SimulatedSync:
    """The gradient sync of one training step, and its timing."""

    inputs: EngineInput
    base: float  # the timing counts from here, seconds
    timing: Timing

    def messages(self) -> Messages:
        """Return its messages, in seconds from the beginning of the training."""
        return trace_messages(self.inputs, self.timing, self.base)

    def reductions(self) -> Spans:
        """Return its reductions and copies, in seconds from the beginning of the training."""
        found = trace_reductions(self.inputs, self.timing)
        return Spans(found.names, **{**found.kept, "begin": self.base + found.begin, "end": self.base + found.end})


def simulate_training(inputs: EngineInput, compute: ComputePhases, steps: int, *, record: bool) -> Trace | None:
    """Return the Trace of so many training steps; with ``record`` every message of them.

    Return None where syncs cannot be simulated each by itself: a rank begins one before another rank has ended the one
    before, something fails or changes meanwhile, or connections keep what one sync left on them. ``inputs`` is the
    gradient sync, a sum; every rank divides all of it at the end, at the transport's gamma.
    """
    if inputs.trouble.fails_ranks or inputs.trouble.links_change or inputs.transport.tcp is not None:
        return None
    inputs = inputs.with_table(MOST_RECORDED // steps) if record and steps else inputs
    division = inputs.transport.gamma * inputs.request.nbytes
    ready = np.zeros(inputs.schedule.world_size)
    ended, spans, syncs = 0.0, list[Span](), list[SimulatedSync]()
    for step in range(steps):
        slower = _rank_slowdowns(inputs, step)
        forward = ready + compute.forward * slower(FORWARD)
        begin = forward + compute.backward * slower(BACKWARD)
        base = float(begin.min())
        if step and base < ended:
            return None
        sync = replace(inputs, starts=begin - base if (begin > base).any() else None, index=step)
        syncs.append(SimulatedSync(sync, base, simulate(sync, messages=record)))
        synced = base + syncs[-1].timing.finished
        ended = float(synced.max())
        divided = synced + division * slower(DIVISION)
        after = divided + compute.optimizer * slower(OPTIMIZER)
        phases = (("forward", ready, forward), ("backward", forward, begin), ("reduce", synced, divided))
        spans += _spans(step, *phases, ("sync", begin, divided), ("optimizer", divided, after))
        ready = after
    return _trace(inputs, float(ready.max()), spans, syncs, record)


def _rank_slowdowns(inputs: EngineInput, step: int) -> Callable[[int], Floats]:
    """Return the function that says how many times as long each rank takes for a kind of computing in a step."""
    ranks = np.arange(inputs.schedule.world_size)
    return lambda kind: inputs.trouble.slowdown(step, ranks, kind, step)


def _spans(step: int, *phases: tuple[str, Floats, Floats]) -> list[Span]:
    """Return the phases of every rank without those that take no time; a sync is one in any case."""
    return [
        Span(rank, name, step, begin, end, collective=step)
        for name, begins, ends in phases
        for rank, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True))
        if end > begin or name == "sync"
    ]


def _trace(inputs: EngineInput, elapsed: float, spans: list[Span], syncs: list[SimulatedSync], record: bool) -> Trace:
    """Return the Trace of all steps; with ``record`` also messages, reductions and links."""
    only = trace_nothing(inputs, elapsed, syncs[-1].timing.method if syncs else "")
    if not record:
        return replace(only, spans=Spans.of(spans).sorted())
    return replace(
        only,
        messages=join_messages([sync.messages() for sync in syncs]).sorted(),
        spans=join_spans([Spans.of(spans), *(sync.reductions() for sync in syncs)]).sorted(),
        links=link_records(inputs, [sync.timing for sync in syncs], elapsed),
    )
