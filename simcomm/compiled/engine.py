"""The compiled engine: the simpy engine's answer, at scale.

``run`` takes the quickest exact way there is: where messages never share a link, a recursion from step to step; where
many ranks and links are alike, one of each class; and otherwise every message, event by event.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from collectives.errors import ProgramError
from collectives.proof.completion import completion_order
from collectives.schedule.cyclic import CyclicSchedule
from collectives.schedule.schedule import build_schedule
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.demand import most_in_flight
from simcomm.compiled.engine_input import AnySchedule, EngineInput
from simcomm.compiled.mean_division import scaling_seconds
from simcomm.compiled.plan import Plan
from simcomm.compiled.routes import Floats, Wires, wired
from simcomm.compiled.shortcuts.max_plus import is_synchronous, max_plus
from simcomm.compiled.shortcuts.partition import fold
from simcomm.compiled.shortcuts.quotient import quotient
from simcomm.compiled.shortcuts.traffic import cyclic_traffic, traffic
from simcomm.compiled.timing import MessageTimes, Posted, Timing
from simcomm.compiled.trouble import LinkChange, disturbed, fail_late, link_changes, wires_of
from simcomm.model.trouble import IDLE_CHANGES, NO_TROUBLE, Trouble

if TYPE_CHECKING:
    from simcomm.compiled.kernel.world import World

MANY = 1_000_000  # messages, from which on it is worth looking for ranks that are alike
REPEATED = 8  # messages of a pair, likewise
ALL = 1 << 62  # instants
PATIENCE = 1_000_000  # looks at links in an instant; far more than any takes, but no proof says so


def run(
    program: AnySchedule,
    cluster: Cluster,
    transport: Transport,
    n: int,
    itemsize: int,
    op: str = "sum",
    *,
    trouble: Trouble = NO_TROUBLE,
    messages: bool = False,
) -> Timing:
    """Simulate a traced program on buffers of ``n`` elements of ``itemsize`` bytes, without data.

    ``messages`` asks for the times of each. Raises ProgramError for a program that deadlocks, InputError for more
    messages than can be simulated.
    """
    return answered(EngineInput(program, cluster, transport, n, itemsize, trouble=trouble), op, messages)


def answered(inputs: EngineInput, op: str = "sum", messages: bool = False) -> Timing:
    """The same of a inputs."""
    found = None if messages else by_max_plus(inputs) or _by_quotient_if_worth_it(inputs)
    return _scaled(inputs, found or by_events(inputs, messages), op)


def by_max_plus(inputs: EngineInput) -> Timing | None:
    """From step to step, if the program is cyclic and its messages never share a link; None if not."""
    program = inputs.schedule
    if inputs.trouble.fails_ranks or inputs.trouble.links_change:
        return None
    if not isinstance(program, CyclicSchedule) or not is_synchronous(program):
        return None
    if not inputs.private[inputs.routes.hop_link].all():
        return None
    noise = inputs.starts, inputs.trouble, inputs.turn
    finished = max_plus(program, inputs.routes, inputs.sizes, *noise)
    return Timing(float(finished.max()), finished, inputs.travelling, "max-plus")


def _by_quotient_if_worth_it(inputs: EngineInput) -> Timing | None:
    if inputs.posted < MANY or inputs.posted < REPEATED * len(inputs.pairs.src):
        return None
    return by_quotient(inputs)


def by_quotient(inputs: EngineInput) -> Timing | None:
    """With one rank, link and pair of each class, if many are alike; None if not."""
    if not inputs.alike:
        return None
    cyclic = isinstance(inputs.schedule, CyclicSchedule)
    load = cyclic_traffic(inputs.schedule, inputs.sizes) if cyclic else traffic(inputs.demand)
    partition = fold(load, inputs.routes) if load is not None else None
    if load is None or partition is None:
        return None
    folded = quotient(load, inputs.routes, partition)
    nowhere = np.zeros(len(folded.routes.alone), np.bool_)
    world = simulate(folded.plan, wired(folded.routes, nowhere))
    agents = world.agents["finished"][folded.agents]
    return _timing(inputs, agents, "quotient")


def by_events(inputs: EngineInput, messages: bool = False) -> Timing:
    """Every message on its own. What may keep ranks waiting for ever is told message by message in any case."""
    messages = messages or inputs.trouble.may_stop
    named = messages or inputs.in_turn or inputs.trouble.touches_ranks
    if named or (isinstance(inputs.schedule, CyclicSchedule) and inputs.travelling < inputs.posted):
        inputs = inputs.in_full()
    wires = wires_of(inputs)
    changes = link_changes(inputs, wires) if inputs.trouble.links_change else ()
    world = simulate(disturbed(inputs), wires, messages, changes)
    fail_late(inputs, world.agents)
    timing = _timing(inputs, world.agents["finished"], "events")
    if not messages:
        return timing
    ranks = np.flatnonzero(world.agents["failed"]) // inputs.demand.channels
    times = MessageTimes(*inputs.names, world.messages["nbytes"].copy(), world.begin, world.end)
    posted = Posted(*(world.started[world.messages[end]] for end in ("source", "sink")))
    return timing._replace(times=times, posted=posted, failed=frozenset(ranks.tolist()))


def simulate(plan: Plan, wires: Wires, messages: bool = False, changes: Iterable[LinkChange] = ()) -> "World":
    """The world after a run, event by event; agents that could not finish have done so at infinity."""
    from simcomm.compiled.kernel.events import advance  # numba is slow to import, and often not needed
    from simcomm.compiled.kernel.world import new_world

    world = new_world(plan, wires, most_in_flight(plan), messages)
    if changes:
        _change(world, changes)
    advance(world, ALL, PATIENCE, np.inf)
    return world


def _change(world: "World", changes: Iterable[LinkChange]) -> None:
    """All changes of links have happened, or so many that nothing else will."""
    from simcomm.compiled.kernel.bandwidth_changes import alter
    from simcomm.compiled.kernel.events import advance

    now, idle = 0.0, 0
    for change in changes:
        if change.time > now:
            nothing_else = advance(world, ALL, PATIENCE, change.time)
            idle = idle + 1 if nothing_else else 0
            if idle > IDLE_CHANGES or (nothing_else and np.isfinite(world.agents["finished"]).all()):
                return
            now = world.clock[0] = change.time
        alter(world, *change[1:], PATIENCE)


def _timing(inputs: EngineInput, agents: Floats, method: str) -> Timing:
    """``agents`` are the seconds of each channel of each rank. Raises ProgramError where some deadlock."""
    finished = agents.reshape(inputs.schedule.world_size, -1).max(axis=1)
    if np.isinf(finished).any() and not inputs.trouble.may_stop:
        raise _deadlock(inputs, np.flatnonzero(np.isinf(finished)).tolist())
    return Timing(float(finished.max()), finished, inputs.travelling, method)


def _deadlock(inputs: EngineInput, stuck: list[int]) -> ProgramError:
    """Who waits for whom, if asking every rank for its program is quick; else only that they do."""
    program = inputs.schedule
    try:
        if inputs.posted <= MANY:
            deque(completion_order(build_schedule(program.algorithm, program.world_size, program.root)), maxlen=0)
    except ProgramError as error:
        return error
    who = ", ".join(map(str, stuck[:8])) + (f" and {len(stuck) - 8} more" if len(stuck) > 8 else "")
    return ProgramError(
        f"{program.describe()}: deadlock: ranks {who} wait for each other for ever", program.world_size, stuck[0]
    )


def _scaled(inputs: EngineInput, timing: Timing, op: str) -> Timing:
    """With the mean's division at the end, which a rank that has failed does not begin."""
    if op != "mean":
        return timing
    late = [one.rank for one in inputs.trouble.ranks if one.fails_at <= timing.finished[one.rank] < np.inf]
    finished = timing.finished + scaling_seconds(inputs)
    finished[late] = np.inf
    return timing._replace(elapsed=float(finished.max()), finished=finished, failed=timing.failed.union(late))
