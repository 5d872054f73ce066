"""The compiled engine: the reference engine's answer, at scale.

Two methods find the same times: *max-plus* goes from step to step where messages never share a link, in far less time
than *events*, which simulates every message. ``docs/how-it-works/engines.md`` says why both are exact.
"""

from collections import deque
from collections.abc import Iterable
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectives.budget import Gigabyte, allowed
from collectives.errors import ProgramError
from collectives.proof.completion import completion_order
from collectives.quoting import name_ranks
from collectives.records.spans import Spans
from collectives.records.waits import Record
from collectives.schedule.build import build_schedule
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Floats, Ints, LinkChange, LinkRecords, Plan
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.faults import (
    division_seconds,
    link_changes,
    link_records_of,
    mark_late_failures,
    plan_with_faults,
)
from simcomm.compiled.shortcuts.max_plus import MaxPlusRun, is_synchronous
from simcomm.compiled.shortcuts.waits import Standstill, standstill
from simcomm.compiled.tcp.run import TcpRun
from simcomm.model.faults import IDLE_CHANGES
from simcomm.model.sharing import SAME_ARRIVAL

if TYPE_CHECKING:
    from simcomm.compiled.kernel.world import World


class MessageTimes(NamedTuple):
    """When each message sent began and ended; seconds and bytes, one entry of each array for each message."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks
    nbytes: Floats
    begin: Floats  # both halves posted; nan where they never were
    end: Floats  # all bytes arrived; nan where they never did
    src_posted: Floats  # nan where it never was
    dst_posted: Floats


class Timing(NamedTuple):
    """When the ranks end, and how that was found."""

    elapsed: float  # seconds until the last rank ends
    finished: Floats  # [ranks]: seconds; infinite for a rank that never ends
    messages: int  # how many were sent
    method: str  # "max-plus" or "events"
    times: MessageTimes | None = None
    reductions: Spans | None = None  # where they do not follow from the times of messages
    failed: frozenset[int] = frozenset()  # ranks that came to the time at which they fail
    standstill: Standstill | None = None  # of a run that never ends, where there are no times of its messages
    by_steps: MaxPlusRun | None = None  # when ranks came to steps, where that was asked for


EXPLAINED_UP_TO = 1_000_000  # messages; of more it would take long to find out who waits for whom in a deadlock
INSTANTS_A_LOOK = 10_000  # the most instants that machine code simulates before an interrupt can end it
FIRST_LOOK = 100  # instants before the first such moment, as nobody knows yet how long they take
LOOK_S = 0.1  # seconds that machine code is to take at most before an interrupt can end it
MOST_CORRECTIONS = 1_000_000  # of links in an instant; far more than any takes, but no proof says so


def one_by_one(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Return the timing by events; with ``messages`` the times of each.

    Raises ProgramError for a program that deadlocks, InputError for more messages than can be simulated.
    """
    return _with_mean_division(inputs, by_events(inputs, messages=messages))


def by_segments(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Return the timing over TCP, by events as no shortcut knows connections; with ``messages`` the times of each.

    Raises ProgramError for a program that deadlocks, InputError for more messages or segments than fit into memory.
    """
    inputs = inputs.with_table()
    run = TcpRun([inputs])
    timing = _timing(inputs, run.finished, "events")
    if messages:
        timing = with_messages(timing, inputs, run)._replace(reductions=run.plan.spans(run.done))
    return _with_mean_division(inputs, timing)


def by_shortcut(inputs: EngineInput, record: Record = Record.TIMES) -> Timing | None:
    """Return the timing by max-plus; None where it does not apply.

    ``record`` may ask for what says who waited for whom, ``Timing.by_steps``, or for that if max-plus applies. What
    happens to links and ranks after the run has ended is of no account.

    >>> import simcomm
    >>> from collectives import CollectiveCall, Transport, find_algorithm
    >>> from collectives.schedule.symbolic_build import build_symmetric
    >>> ring = find_algorithm("all_reduce/ring")
    >>> star = simcomm.star(8, "1 GB/s", "1 us")
    >>> call = CollectiveCall(ring, elements=8000)
    >>> found = by_shortcut(EngineInput(call, build_symmetric(ring, 8), star, Transport()))
    >>> found.method, found.messages, round(found.elapsed * 1e6)
    ('max-plus', 112, 84)
    """
    if not isinstance(inputs.schedule, SymmetricSchedule):
        return None
    if inputs.faults.fails_ranks or inputs.faults.changes_links:
        before, until = inputs.faults.split_at_first_change()
        calm = inputs.under(before, inputs.starts, inputs.index)
        timing = by_shortcut(calm, record) if until > _least_seconds(calm) else None
        if timing is not None and timing.elapsed < until * (1 - SAME_ARRIVAL):
            return timing
    changes = inputs.faults.fails_ranks or inputs.faults.changes_links
    tells_briefly = record is Record.BRIEF_WAITS and not changes and inputs.posted <= allowed(Gigabyte.MESSAGES)
    timing = by_max_plus(inputs, waits=record is Record.WAITS or tells_briefly)
    return None if timing is None else _with_mean_division(inputs, timing)


def _least_seconds(inputs: EngineInput) -> float:
    """Return seconds that no run goes below: each step of a channel takes the delay of its messages."""
    schedule = inputs.schedule
    if inputs.call.elements < schedule.chunks or not isinstance(schedule, SymmetricSchedule):  # some may be empty
        return 0.0
    sends = schedule.kind == Kind.SEND
    steps = np.unique(schedule.channel[sends].astype(np.int64) * schedule.steps + schedule.step[sends])
    longest = np.bincount(steps // max(1, schedule.steps)).max(initial=0)
    return float(longest * inputs.found_routes.delay.min(initial=np.inf)) if len(steps) else 0.0


def by_max_plus(inputs: EngineInput, *, waits: bool = False) -> Timing | None:
    """Return the timing by max-plus; None where messages share links, or the schedule is not cyclic.

    With ``waits`` there is none either where a link changes or a rank fails meanwhile.
    """
    schedule, faults = inputs.schedule, inputs.faults
    if not isinstance(schedule, SymmetricSchedule) or not is_synchronous(schedule):
        return None
    if not inputs.private[inputs.routes.hop_link].all():
        return None
    if waits and (faults.fails_ranks or faults.changes_links):
        return None
    run = MaxPlusRun(inputs, keeps_steps=waits)
    if run.missed_changes:
        return None
    timing = Timing(float(run.finished.max()), run.finished, inputs.sent, "max-plus", by_steps=run if waits else None)
    end = standstill(inputs, run)
    return timing if end is None else timing._replace(failed=run.failed, standstill=end)


def by_events(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Return the timing by simulating every message; with the times of each where ``messages`` asks for them.

    They are given too where ranks may wait for ever, so that the trace can say for what.
    """
    messages = messages or inputs.faults.may_hang
    needs_names = messages or inputs.is_fifo or inputs.faults.affects_ranks
    says_once = isinstance(inputs.schedule, SymmetricSchedule)  # one without empty messages is a plan as it is
    if needs_names or (says_once and inputs.sent < inputs.posted):
        inputs = inputs.with_table()
    inputs.check_some_routes()
    links = link_records_of(inputs)
    faults = inputs.faults
    changes = link_changes(faults, inputs.cluster.graph, links) if faults.changes_links else ()
    world = run_kernel(plan_with_faults(inputs), links, messages=messages, changes=changes)
    mark_late_failures(inputs, world.agents)
    timing = _timing(inputs, world.agents["finished"], "events")
    if not messages:
        return timing
    ranks = np.flatnonzero(world.agents["failed"]) // inputs.schedule_plan.channels
    posted = (world.started[world.messages[end]] for end in ("source", "sink"))
    times = MessageTimes(*inputs.names, world.messages["nbytes"].copy(), world.begin, world.end, *posted)
    return timing._replace(times=times, failed=frozenset(ranks.tolist()))


def run_kernel(
    plan: Plan, links: LinkRecords, *, messages: bool = False, changes: Iterable[LinkChange] = ()
) -> "World":
    """Run a plan to its end and return the world as it is then; agents that cannot finish do so at infinity.

    ``messages`` asks for the times of every message; ``changes`` happen to links meanwhile.
    """
    from simcomm.compiled.kernel import event_loop, world  # numba is slow to import, and often not needed

    run, engine = world.new_world(plan, links, messages), _Interruptible(event_loop)
    if changes:
        _run_through_changes(run, changes, engine)
    engine.advance(run, np.inf)
    return run


class _Interruptible:
    """Machine code that an interrupt can end after so many instants, as many as take a moment."""

    def __init__(self, kernel: ModuleType) -> None:
        self.kernel = kernel
        self.instants = min(FIRST_LOOK, INSTANTS_A_LOOK)

    def advance(self, world: "World", until: float) -> bool:
        """Go on, not beyond ``until`` seconds; return whether nothing more will happen."""
        more, advance = self.kernel.MORE, self.kernel.advance
        found = more
        while found == more:
            begun = monotonic()
            found = advance(world, self.instants, MOST_CORRECTIONS, until)
            took = monotonic() - begun
            if took > LOOK_S:
                self.instants = max(1, self.instants // 2)
            elif found == more:
                self.instants = min(2 * self.instants, INSTANTS_A_LOOK)
        return bool(found == self.kernel.OVER)


def _run_through_changes(world: "World", changes: Iterable[LinkChange], engine: _Interruptible) -> None:
    """Run until all links have changed, or so many have while nothing else happens that nothing else will."""
    now, idle = 0.0, 0
    for change in changes:
        if change.time > now:
            nothing_else = engine.advance(world, change.time)
            idle = idle + 1 if nothing_else else 0
            if idle > IDLE_CHANGES or (nothing_else and np.isfinite(world.agents["finished"]).all()):
                return
            now = world.clock[0] = change.time
        engine.kernel.change_bandwidth(world, change, MOST_CORRECTIONS)


def _timing(inputs: EngineInput, finished: Floats, method: str) -> Timing:
    """Return the timing of ranks whose channels have ``finished`` [ranks * channels] at these seconds.

    Raises ProgramError where some never do, though nothing fails.
    """
    by_rank = finished.reshape(inputs.schedule.world_size, -1).max(axis=1)
    if np.isinf(by_rank).any() and not inputs.faults.may_hang:
        raise _deadlock(inputs, np.flatnonzero(np.isinf(by_rank)).tolist())
    return Timing(float(by_rank.max()), by_rank, inputs.sent, method)


def _deadlock(inputs: EngineInput, stuck: list[int]) -> ProgramError:
    """Return the error that says who waits for whom or, where finding that takes long, only which ranks wait."""
    schedule = inputs.schedule
    try:
        if inputs.posted <= EXPLAINED_UP_TO:
            deque(completion_order(build_schedule(schedule.algorithm, schedule.world_size, schedule.root)), maxlen=0)
    except ProgramError as error:
        return error
    message = f"{schedule.describe()}: deadlock: {name_ranks(stuck)} wait for each other for ever"
    return ProgramError(message, schedule.world_size, stuck[0])


def _with_mean_division(inputs: EngineInput, timing: Timing) -> Timing:
    """Return the timing with the mean's division at the end, which a rank that has failed does not begin."""
    if inputs.call.op != "mean":
        return timing
    late = [one.rank for one in inputs.faults.ranks if one.fails_at <= timing.finished[one.rank] < np.inf]
    finished = timing.finished + division_seconds(inputs)
    finished[late] = np.inf
    return timing._replace(elapsed=float(finished.max()), finished=finished, failed=timing.failed.union(late))


def with_messages(timing: Timing, inputs: EngineInput, run: TcpRun) -> Timing:
    """Return the timing of a collective of a run with the times of its messages."""
    sent, received, end = run.message_times(inputs)
    nbytes = inputs.schedule_plan.plan.messages["nbytes"].copy()
    return timing._replace(times=MessageTimes(*inputs.names, nbytes, np.maximum(sent, received), end, sent, received))
