"""Simulate with compiled code, which returns the reference engine's results at scale.

There are two methods. *Max-plus* goes from step to step and requires that messages never share a link. *Events*
simulates every message, and takes far longer. ``docs/how-it-works/engines.md`` explains why both are exact.
"""

from collections import deque
from collections.abc import Iterable
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectives.budget import Gigabyte
from collectives.errors import ProgramError
from collectives.proof.completion import completion_order
from collectives.quoting import name_ranks
from collectives.records.spans import Spans
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
from simcomm.compiled.shortcuts.standstill import Standstill, standstill
from simcomm.compiled.tcp.run import TcpRun
from simcomm.model.sharing import SAME_ARRIVAL

if TYPE_CHECKING:
    from simcomm.compiled.kernel.world import World


class MessageTimes(NamedTuple):
    """The begin and end times, in seconds, and the sizes of all sent messages. Each array has one entry per message."""

    src: Ints
    dst: Ints
    channel: Ints
    step: Ints  # of the sender's program
    chunk: Ints  # first of its chunks
    nbytes: Floats
    begin: Floats  # send and receive posted; NaN if they never were
    end: Floats  # all bytes arrived; NaN if they never did
    src_posted: Floats  # NaN if it never was
    dst_posted: Floats


class Timing(NamedTuple):
    """The result of a simulation: the time at which each rank finishes, and the method that computed it."""

    elapsed: float  # seconds until the last rank ends
    finished: Floats  # [ranks]: seconds; infinite for a rank that never ends
    messages: int  # number of sent messages
    method: str  # "max-plus" or "events"
    times: MessageTimes | None = None
    reductions: Spans | None = None  # unless they follow from the times of messages
    failed: frozenset[int] = frozenset()  # ranks that have failed
    standstill: Standstill | None = None  # of a run that hangs, if its message times are unknown


EXPLAINED_UP_TO = 1_000_000  # messages up to which the search for a wait-for cycle is fast enough
FIRST_INSTANTS = 100  # simulated by the first call of machine code, which an interrupt cannot end
CALL_S = 0.1  # target duration of each later call, in seconds


def one_by_one(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Simulate every message and return the timing. If ``messages`` is True, it includes the times of each message.

    Raise ProgramError if the program deadlocks, and TooLarge if there are too many messages.
    """
    return _with_mean_division(inputs, by_events(inputs, messages=messages))


def by_segments(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Simulate every TCP segment of a run and return the timing.

    If ``messages`` is True, the timing includes the times of each message. Raise ProgramError if the program deadlocks,
    and TooLarge if messages or segments exceed the memory limit.
    """
    inputs = inputs.with_table()
    run = TcpRun([inputs])
    timing = _timing(inputs, run.finished, "events")
    if messages:
        timing = with_messages(timing, inputs, run)._replace(reductions=run.plan.spans(run.done))
    return _with_mean_division(inputs, timing)


def by_shortcut(inputs: EngineInput) -> Timing | None:
    """Return the timing by max-plus, or None if max-plus does not apply. Faults after the run's end are ignored."""
    if not isinstance(inputs.schedule, SymmetricSchedule):
        return None
    if inputs.faults.fails_ranks or inputs.faults.changes_links:
        before, until = inputs.faults.split_at_first_change()
        unaffected = inputs.under(before, inputs.starts, inputs.index)
        timing = by_shortcut(unaffected) if until > _least_seconds(unaffected) else None
        if timing is not None and timing.elapsed < until * (1 - SAME_ARRIVAL):
            return timing
    timing = by_max_plus(inputs)
    return None if timing is None else _with_mean_division(inputs, timing)


def _least_seconds(inputs: EngineInput) -> float:
    """Return a lower bound on a run's seconds: the most steps with sends on a channel, times the minimum delay."""
    schedule = inputs.schedule
    if inputs.call.elements < schedule.chunks or not isinstance(schedule, SymmetricSchedule):  # some may be empty
        return 0.0
    sends = schedule.kind == Kind.SEND
    steps = np.unique(schedule.channel[sends].astype(np.int64) * schedule.steps + schedule.step[sends])
    longest = np.bincount(steps // max(1, schedule.steps)).max(initial=0)
    return float(longest * inputs.found_routes.delay.min(initial=np.inf)) if len(steps) else 0.0


def by_max_plus(inputs: EngineInput) -> Timing | None:
    """Return the timing by max-plus, or None if messages share links or the schedule is not symmetric."""
    schedule = inputs.schedule
    if not isinstance(schedule, SymmetricSchedule) or not is_synchronous(schedule):
        return None
    if not inputs.private[inputs.routes.hop_link].all():
        return None
    run = MaxPlusRun(inputs)
    timing = Timing(float(run.finished.max()), run.finished, inputs.sent, "max-plus")
    end = standstill(inputs, run)
    return timing if end is None else timing._replace(failed=run.failed, standstill=end)


def by_events(inputs: EngineInput, *, messages: bool = False) -> Timing:
    """Simulate every message and return the timing.

    If ``messages`` is True, the timing includes the times of each message. It always does if the run may hang, because
    the trace then lists unfinished operations.
    """
    messages = messages or inputs.faults.may_hang
    needs_names = messages or inputs.faults.affects_ranks
    is_symmetric = isinstance(inputs.schedule, SymmetricSchedule)  # without empty messages, it is a plan already
    if needs_names or (is_symmetric and inputs.sent < inputs.posted):
        inputs = inputs.with_table()
    inputs.check_number(Gigabyte.MESSAGES)
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
    """Simulate a plan to its end and return the final state. Channels that cannot finish have infinite end times.

    If ``messages`` is True, the state includes the times of each message. ``changes`` are applied during the run.
    """
    from simcomm.compiled.kernel import event_loop, world  # imports numba, which is slow and often not needed

    run = world.new_world(plan, links, messages)
    now = 0.0
    for change in changes:
        if change.time > now:
            _advance(event_loop, run, change.time)
            now = run.clock[0] = change.time
        event_loop.change_bandwidth(run, change)
    _advance(event_loop, run, np.inf)
    return run


def _advance(kernel: ModuleType, world: "World", until: float) -> None:
    state, instants = kernel.MORE, FIRST_INSTANTS
    while state == kernel.MORE:
        start = monotonic()
        state = kernel.advance(world, instants, until)
        instants = 2 * instants if monotonic() - start < CALL_S else max(1, instants // 2)


def _timing(inputs: EngineInput, finished: Floats, method: str) -> Timing:
    """Return the timing, given the time in seconds at which each channel of each rank ends.

    Raise ProgramError if a channel never ends and no fault explains it.
    """
    by_rank = finished.reshape(inputs.schedule.world_size, -1).max(axis=1)
    if np.isinf(by_rank).any() and not inputs.faults.may_hang:
        raise _deadlock(inputs, np.flatnonzero(np.isinf(by_rank)).tolist())
    return Timing(float(by_rank.max()), by_rank, inputs.sent, method)


def _deadlock(inputs: EngineInput, stuck: list[int]) -> ProgramError:
    """Return an error that names the wait-for cycle or, if there are too many messages for that, the blocked ranks."""
    schedule = inputs.schedule
    try:
        if inputs.posted <= EXPLAINED_UP_TO:
            deque(completion_order(build_schedule(schedule.algorithm, schedule.world_size, schedule.root)), maxlen=0)
    except ProgramError as error:
        return error
    message = f"{schedule.describe()}: deadlock: {name_ranks(stuck)} wait for each other"
    return ProgramError(message, schedule.world_size, stuck[0])


def _with_mean_division(inputs: EngineInput, timing: Timing) -> Timing:
    """Return the timing with the final division of a mean added. Failed ranks do not divide."""
    if inputs.call.op != "mean":
        return timing
    late = [fault.rank for fault in inputs.faults.ranks if fault.fails_at <= timing.finished[fault.rank] < np.inf]
    finished = timing.finished + division_seconds(inputs)
    finished[late] = np.inf
    return timing._replace(elapsed=float(finished.max()), finished=finished, failed=timing.failed.union(late))


def with_messages(timing: Timing, inputs: EngineInput, run: TcpRun) -> Timing:
    """Return the timing of one collective in a TCP run, with the times of its messages added."""
    sent, received, end = run.message_times(inputs)
    nbytes = inputs.schedule_plan.plan.messages["nbytes"].copy()
    return timing._replace(times=MessageTimes(*inputs.names, nbytes, np.maximum(sent, received), end, sent, received))
