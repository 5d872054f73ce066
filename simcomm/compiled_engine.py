"""The compiled engine: the simpy engine's answer, at scale.

``run`` takes the quickest exact way there is: where messages never share a link, a recursion from step to step; where
many ranks and links are alike, one of each class; and otherwise every message, event by event.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from collectives.completion import completion_order
from collectives.cyclic import Cyclic
from collectives.errors import ProgramError
from collectives.schedule import setting, trace
from collectives.transport import Transport
from simcomm.compiled.disturbed import LinkChange, disturbed, fail_late, link_changes, wires_of
from simcomm.compiled.max_plus import is_synchronous, max_plus
from simcomm.compiled.partition import fold
from simcomm.compiled.plan import Plan
from simcomm.compiled.plans import most_in_flight
from simcomm.compiled.question import Program, Question
from simcomm.compiled.quotient import quotient
from simcomm.compiled.scaling import scaling_seconds
from simcomm.compiled.timing import MessageTimes, Posted, Timing
from simcomm.compiled.traffic import cyclic_traffic, traffic
from simcomm.compiled.wires import Floats, Wires, wired
from simcomm.topology import Cluster
from simcomm.trouble import IDLE_CHANGES, NONE, Trouble

if TYPE_CHECKING:
    from simcomm.compiled.world import World

MANY = 1_000_000  # messages, from which on it is worth looking for ranks that are alike
REPEATED = 8  # messages of a pair, likewise
ALL = 1 << 62  # instants
PATIENCE = 1_000_000  # looks at links in an instant; far more than any takes, but no proof says so


def run(
    program: Program,
    cluster: Cluster,
    transport: Transport,
    n: int,
    itemsize: int,
    op: str = "sum",
    *,
    trouble: Trouble = NONE,
    messages: bool = False,
) -> Timing:
    """Simulate a traced program on buffers of ``n`` elements of ``itemsize`` bytes, without data.

    ``messages`` asks for the times of each. Raises ProgramError for a program that deadlocks, InputError for more
    messages than can be simulated.
    """
    return answered(Question(program, cluster, transport, n, itemsize, trouble=trouble), op, messages)


def answered(question: Question, op: str = "sum", messages: bool = False) -> Timing:
    """The same of a question."""
    found = None if messages else by_max_plus(question) or _by_quotient_if_worth_it(question)
    return _scaled(question, found or by_events(question, messages), op)


def by_max_plus(question: Question) -> Timing | None:
    """From step to step, if the program is cyclic and its messages never share a link; None if not."""
    program = question.program
    if question.trouble.fails or question.trouble.links_change:
        return None
    if not isinstance(program, Cyclic) or not is_synchronous(program):
        return None
    if not question.private[question.routes.hop_link].all():
        return None
    noise = question.starts, question.trouble, question.turn
    finished = max_plus(program, question.routes, question.sizes, *noise)
    return Timing(float(finished.max()), finished, question.travelling, "max-plus")


def _by_quotient_if_worth_it(question: Question) -> Timing | None:
    if question.posted < MANY or question.posted < REPEATED * len(question.pairs.src):
        return None
    return by_quotient(question)


def by_quotient(question: Question) -> Timing | None:
    """With one rank, link and pair of each class, if many are alike; None if not."""
    if not question.alike:
        return None
    cyclic = isinstance(question.program, Cyclic)
    load = cyclic_traffic(question.program, question.sizes) if cyclic else traffic(question.demand)  # type: ignore[arg-type]
    partition = fold(load, question.routes) if load is not None else None
    if load is None or partition is None:
        return None
    folded = quotient(load, question.routes, partition)
    nowhere = np.zeros(len(folded.routes.alone), np.bool_)
    world = simulate(folded.plan, wired(folded.routes, nowhere))
    agents = world.agents["finished"][folded.agents]
    return _timing(question, agents, "quotient")


def by_events(question: Question, messages: bool = False) -> Timing:
    """Every message on its own. What may keep ranks waiting for ever is told message by message in any case."""
    messages = messages or question.trouble.stops
    named = messages or question.in_turn or question.trouble.touches_ranks
    if named or (isinstance(question.program, Cyclic) and question.travelling < question.posted):
        question = question.in_full()
    wires = wires_of(question)
    changes = link_changes(question, wires) if question.trouble.links_change else ()
    world = simulate(disturbed(question), wires, messages, changes)
    fail_late(question, world.agents)
    timing = _timing(question, world.agents["finished"], "events")
    if not messages:
        return timing
    ranks = np.flatnonzero(world.agents["failed"]) // question.demand.channels
    times = MessageTimes(*question.names, world.messages["nbytes"].copy(), world.begin, world.end)
    posted = Posted(*(world.started[world.messages[end]] for end in ("source", "sink")))
    return timing._replace(times=times, posted=posted, failed=frozenset(ranks.tolist()))


def simulate(plan: Plan, wires: Wires, messages: bool = False, changes: Iterable[LinkChange] = ()) -> "World":
    """The world after a run, event by event; agents that could not finish have done so at infinity."""
    from simcomm.compiled.events import advance  # numba is slow to import, and often not needed
    from simcomm.compiled.world import new_world

    world = new_world(plan, wires, most_in_flight(plan), messages)
    if changes:
        _change(world, changes)
    advance(world, ALL, PATIENCE, np.inf)
    return world


def _change(world: "World", changes: Iterable[LinkChange]) -> None:
    """All changes of links have happened, or so many that nothing else will."""
    from simcomm.compiled.changes import alter
    from simcomm.compiled.events import advance

    now, idle = 0.0, 0
    for change in changes:
        if change.time > now:
            nothing_else = advance(world, ALL, PATIENCE, change.time)
            idle = idle + 1 if nothing_else else 0
            if idle > IDLE_CHANGES or (nothing_else and np.isfinite(world.agents["finished"]).all()):
                return
            now = world.clock[0] = change.time
        alter(world, *change[1:], PATIENCE)


def _timing(question: Question, agents: Floats, way: str) -> Timing:
    """``agents`` are the seconds of each channel of each rank. Raises ProgramError where some deadlock."""
    finished = agents.reshape(question.program.world_size, -1).max(axis=1)
    if np.isinf(finished).any() and not question.trouble.stops:
        raise _deadlock(question, np.flatnonzero(np.isinf(finished)).tolist())
    return Timing(float(finished.max()), finished, question.travelling, way)


def _deadlock(question: Question, stuck: list[int]) -> ProgramError:
    """Who waits for whom, if asking every rank for its program is quick; else only that they do."""
    program = question.program
    name = setting(program.algorithm, program.world_size, program.root)
    try:
        if question.posted <= MANY:
            deque(completion_order(trace(program.algorithm, program.world_size, program.root)), maxlen=0)
    except ProgramError as error:
        return error
    who = ", ".join(map(str, stuck[:8])) + (f" and {len(stuck) - 8} more" if len(stuck) > 8 else "")
    return ProgramError(f"{name}: deadlock: ranks {who} wait for each other for ever", program.world_size, stuck[0])


def _scaled(question: Question, timing: Timing, op: str) -> Timing:
    """With the mean's division at the end, which a rank that has failed does not begin."""
    if op != "mean":
        return timing
    late = [one.rank for one in question.trouble.ranks if one.fails_at <= timing.finished[one.rank] < np.inf]
    finished = timing.finished + scaling_seconds(question)
    finished[late] = np.inf
    return timing._replace(elapsed=float(finished.max()), finished=finished, failed=timing.failed.union(late))
