"""Training steps on the compiled engine: every rank computes, then all sync by one collective, and so on.

Each sync is simulated by itself, its ranks beginning when they have computed. That is exact while no rank begins a sync
before every rank has ended the one before; then no message of two of them is under way at the same time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from collectives.trace import Message, Span, Trace
from collectives.workload import ComputePhases
from simcomm.compiled.question import MOST_RECORDED, Question
from simcomm.compiled.timing import Timing
from simcomm.compiled.traces import links_of, messages_of, reductions_of
from simcomm.compiled.wires import Floats
from simcomm.compiled_engine import answered
from simcomm.trouble import BACKWARD, FORWARD, OPTIMIZER, OUTSIDE


@dataclass(frozen=True)
class Sync:
    """The collective of one training step."""

    question: Question
    base: float  # the timing counts from here, seconds
    timing: Timing

    def messages(self) -> list[Message]:
        found = messages_of(self.question, self.timing)
        return [m._replace(begin=self.base + m.begin, end=self.base + m.end) for m in found]

    def reductions(self) -> list[Span]:
        found = reductions_of(self.question, self.timing)
        return [span._replace(begin=self.base + span.begin, end=self.base + span.end) for span in found]


def trained(question: Question, compute: ComputePhases, steps: int, record: bool) -> Trace | None:
    """So many steps; with ``record`` every message of them.

    None where syncs cannot be simulated each by itself: a rank begins one before another rank has ended the one before,
    or something fails or changes on the way.
    ``question`` is the gradient sync; its sum is divided by every rank at the end, at the transport's gamma.
    """
    if question.trouble.fails or question.trouble.links_change:
        return None
    question = question.in_full(MOST_RECORDED // steps) if record and steps else question
    scaling = question.transport.gamma * question.n * question.itemsize
    ready = np.zeros(question.program.world_size)
    ended, spans, syncs = 0.0, list[Span](), list[Sync]()
    for step in range(steps):
        slower = _slowdowns(question, step)
        forward = ready + compute.forward * slower(FORWARD)
        begin = forward + compute.backward * slower(BACKWARD)
        base = float(begin.min())
        if step and base < ended:
            return None
        asked = replace(question, starts=begin - base if (begin > base).any() else None, turn=step)
        syncs.append(Sync(asked, base, answered(asked, messages=record)))
        synced = base + syncs[-1].timing.finished
        ended = float(synced.max())
        scaled = synced + scaling * slower(OUTSIDE)
        after = scaled + compute.optimizer * slower(OPTIMIZER)
        phases = (("forward", ready, forward), ("backward", forward, begin), ("reduce", synced, scaled))
        spans += _spans(step, *phases, ("sync", begin, scaled), ("optimizer", scaled, after))
        ready = after
    return _trace(question, float(ready.max()), spans, syncs, record)


def _slowdowns(question: Question, step: int) -> Callable[[int], Floats]:
    """How many times as long each rank takes for a kind of computing in a step."""
    ranks = np.arange(question.program.world_size)
    return lambda kind: question.trouble.slowdown(step, ranks, kind, step)


def _spans(step: int, *phases: tuple[str, Floats, Floats]) -> list[Span]:
    """Phases of every rank, those that take no time left out."""
    return [
        Span(rank, name, step, begin, end)
        for name, begins, ends in phases
        for rank, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True))
        if end > begin or name == "sync"
    ]


def _trace(question: Question, elapsed: float, spans: list[Span], syncs: list[Sync], record: bool) -> Trace:
    messages = [message for sync in syncs for message in sync.messages()] if record else []
    if record:
        spans = spans + [span for sync in syncs for span in sync.reductions()]
    way = syncs[-1].timing.way if syncs else ""
    return Trace(
        question.program.algorithm.full_name,
        "predicted",
        question.program.world_size,
        elapsed,
        sorted(messages, key=lambda m: (m.begin, m.src)),
        sorted(spans, key=lambda s: (s.begin, s.rank)),
        links_of(question, [sync.timing for sync in syncs]) if record else [],
        list(question.cluster.graph),
        list(question.cluster.hosts),
        engine="compiled",
        way=way,
    )
