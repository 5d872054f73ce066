"""The compiled engine: the simpy engine's answer, at scale.

``run`` takes the quickest exact way there is: where messages never share a link, a recursion from step to step; where
many ranks and links are alike, one of each class; and otherwise every message, event by event.
"""

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from collectives.completion import completion_order
from collectives.cyclic import Cyclic
from collectives.errors import ProgramError
from collectives.schedule import setting, trace
from collectives.step import Kind
from collectives.tracing import as_table
from collectives.transport import Transport
from simcomm.compiled.jitter import Jitter, check_jitter
from simcomm.compiled.max_plus import is_synchronous, max_plus
from simcomm.compiled.partition import fold
from simcomm.compiled.plan import Plan, begun_at
from simcomm.compiled.plans import NONE, most_in_flight
from simcomm.compiled.question import Program, Question
from simcomm.compiled.quotient import quotient
from simcomm.compiled.scaling import scaled_elements
from simcomm.compiled.timing import MessageTimes, Timing
from simcomm.compiled.traffic import cyclic_traffic, traffic
from simcomm.compiled.wires import Floats, Wires, wired
from simcomm.topology import Cluster

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
    jitter: Jitter | None = None,
    starts: Floats | None = None,
    messages: bool = False,
) -> Timing:
    """Simulate a traced program on buffers of ``n`` elements of ``itemsize`` bytes, without data.

    ``starts`` are the seconds at which each rank begins; ``messages`` asks for the times of each. Raises ProgramError
    for a program that deadlocks, InputError for a jitter that is none and for more messages than can be simulated.
    """
    if jitter is not None:
        check_jitter(jitter)
    if starts is not None and not starts.any():
        starts = None
    return answered(Question(program, cluster, transport, n, itemsize, jitter, starts), op, messages)


def answered(question: Question, op: str = "sum", messages: bool = False) -> Timing:
    """The same of a question."""
    found = None if messages else by_max_plus(question) or _by_quotient_if_worth_it(question)
    return _scaled(question, found or by_events(question, messages), op)


def by_max_plus(question: Question) -> Timing | None:
    """From step to step, if the program is cyclic and its messages never share a link; None if not."""
    program = question.program
    if not isinstance(program, Cyclic) or not is_synchronous(program):
        return None
    if not question.private[question.routes.hop_link].all():
        return None
    finished = max_plus(program, question.routes, question.sizes, question.jitter, question.starts)
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
    """Every message on its own."""
    if messages or (isinstance(question.program, Cyclic) and question.travelling < question.posted):
        question = question.in_full()
    plan = question.demand.plan._replace(extra=_extra(question))
    if question.starts is not None:
        plan = begun_at(plan, np.repeat(question.starts, question.demand.channels))
    world = simulate(plan, wired(question.routes, question.private), messages)
    timing = _timing(question, world.agents["finished"], "events")
    return timing._replace(times=_message_times(question, world)) if messages else timing


def simulate(plan: Plan, wires: Wires, messages: bool = False) -> "World":
    """The world after a run, event by event; agents that could not finish have done so at infinity."""
    from simcomm.compiled.events import advance  # numba is slow to import, and often not needed
    from simcomm.compiled.world import new_world

    world = new_world(plan, wires, most_in_flight(plan), messages)
    advance(world, ALL, PATIENCE)
    return world


def _extra(question: Question) -> Floats:
    """Seconds by which each message is late; those of a pair are numbered as they are posted, empty ones included."""
    if question.jitter is None:
        return NONE
    demand, program = question.demand, question.program
    if demand.sends is None:
        way, chosen = demand.plan.messages["route"].astype(np.int64), np.arange(len(demand.plan.messages))
    else:
        columns = as_table(program).columns
        sends = np.flatnonzero(columns.kind == Kind.SEND)
        way = columns.rank[sends].astype(np.int64) * program.world_size + columns.peer[sends]
        chosen = np.searchsorted(sends, demand.sends)
    order = np.argsort(way, kind="stable")
    number = np.empty(len(way), np.int64)
    number[order] = np.arange(len(way)) - np.searchsorted(way[order], way[order])
    route = demand.plan.messages["route"]
    return question.jitter.of(question.pairs.src[route], question.pairs.dst[route], number[chosen])


def _message_times(question: Question, world: "World") -> MessageTimes:
    demand, columns = question.demand, as_table(question.program).columns
    assert demand.sends is not None
    said = [getattr(columns, name)[demand.sends] for name in ("rank", "peer", "channel", "step", "chunk")]
    return MessageTimes._make([*said, demand.plan.messages["nbytes"].copy(), world.begin, world.end])


def _timing(question: Question, agents: Floats, way: str) -> Timing:
    """``agents`` are the seconds of each channel of each rank. Raises ProgramError where some never finished."""
    finished = agents.reshape(question.program.world_size, -1).max(axis=1)
    if np.isinf(finished).any():
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
    """With the mean's division at the end."""
    if op != "mean" or question.transport.gamma == 0:
        return timing
    program = question.program
    elements = scaled_elements(program.algorithm.spec, program.world_size, program.root, question.n)
    finished = timing.finished + question.transport.gamma * question.itemsize * elements
    return timing._replace(elapsed=float(finished.max()), finished=finished)
