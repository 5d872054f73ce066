"""Apply faults to plans and links."""

from collections.abc import Iterator

import networkx as nx
import numpy as np

from collectives.call import reduced_counts
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import STAGE, UNLIMITED, Floats, Ints, LinkChange, LinkRecords, Plan, Records
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import make_link_records
from simcomm.compiled.planning.schedule_plan import stages_of
from simcomm.model.faults import DIVISION, Faults


def plan_with_faults(inputs: EngineInput) -> Plan:
    """Return the plan with delayed messages, slow and failing ranks, and late starts.

    If faults affect ranks, the schedule must be a table (see ``EngineInput.with_table``).
    """
    plan, faults, channels = inputs.schedule_plan.plan, inputs.faults, inputs.schedule_plan.channels
    if faults.messages is not None:
        plan = plan._replace(extra=faults.delay(inputs.index, *inputs.names))
    if len(plan.cost):
        plan = plan._replace(cost=plan.cost * _stage_slowdowns(inputs))
    if faults.fails_ranks:
        fails_at = [faults.fails_at(rank) for rank in range(inputs.schedule.world_size)]
        plan = plan._replace(fails_at=np.repeat(fails_at, channels))
    if inputs.starts is not None:
        plan = _with_starts(plan, np.repeat(inputs.starts, channels))
    return plan


def _stage_slowdowns(inputs: EngineInput) -> Floats:
    """Return the factor by which each stage is slowed down; shape [stages], or [1] without compute faults."""
    faults, channels = inputs.faults, inputs.schedule_plan.channels
    if not faults.ranks and faults.compute is None:
        return np.ones(1)
    columns = inputs.schedule.table().columns
    rank, channel = np.divmod(inputs.schedule_plan.plan.stages["agent"][:-1], channels)
    return faults.slowdown(inputs.index, rank, channel, columns.step[stages_of(columns)[1]])


def _with_starts(plan: Plan, starts: Floats) -> Plan:
    """Return the plan with an additional first stage, so that agent a starts its work at ``starts[a]`` seconds."""
    stages, agents = len(plan.stages) - 1, len(plan.first_stage)
    later = np.zeros(stages + agents + 1, STAGE)
    later[:stages] = plan.stages[:-1]
    later["first_op"][stages:] = len(plan.ops)
    later["agent"][stages:-1], later["following"][stages:-1] = np.arange(agents), plan.first_stage
    cost = plan.cost if len(plan.cost) else np.zeros(stages)
    first_stage = np.arange(stages, stages + agents, dtype=np.int32)
    return plan._replace(stages=later, cost=np.concatenate([cost, starts]), first_stage=first_stage)


def mark_late_failures(inputs: EngineInput, agents: Records) -> None:
    """Mark the agents of ranks that failed during their last stage, before its last computation began.

    The kernel simulates a stage's computations as one interval, so it notices a failure only at the next stage.
    """
    channels = inputs.schedule_plan.channels
    for fault in (fault for fault in inputs.faults.ranks if fault.fails_at < np.inf):
        for agent in range(fault.rank * channels, (fault.rank + 1) * channels):
            finished = float(agents["finished"][agent])
            if np.isfinite(finished) and finished - _last_computing(inputs, agent) >= fault.fails_at:
                agents["finished"][agent], agents["failed"][agent] = np.inf, 1


def _last_computing(inputs: EngineInput, agent: int) -> float:
    """Return the seconds of the last reduction or copy in an agent's last step, or infinity if the step has none."""
    columns = inputs.schedule.table().columns
    stage, _ = stages_of(columns)
    rank, channel = divmod(agent, inputs.schedule_plan.channels)
    rows = np.flatnonzero((columns.rank == rank) & (columns.channel == channel))
    if len(rows) == 0:
        return np.inf
    last = rows[stage[rows] == stage[rows[-1]]]
    nbytes = inputs.sizes.nbytes(columns.into[last], columns.count[last])
    kind = columns.kind[last]
    computing = np.flatnonzero((kind >= Kind.COPY) | ((kind == Kind.RECV_REDUCE) & (nbytes > 0)))
    if len(computing) == 0:
        return np.inf
    local = computing[kind[computing] >= Kind.COPY]  # after all messages
    row = (local if len(local) else computing)[-1]
    slower = inputs.faults.slowdown(inputs.index, rank, channel, columns.step[last[0]])
    return float(inputs.transport.gamma * nbytes[row] * slower)


def link_records_of(inputs: EngineInput) -> LinkRecords:
    """Return the network for the kernel, without the links that can never limit a message under these faults."""
    if not inputs.faults.changes_links:
        return inputs.link_records
    routes = inputs.routes
    finite = [np.minimum(rate, UNLIMITED) for rate in (routes.alone, routes.shared)]
    routes = routes._replace(alone=finite[0], shared=finite[1])
    return make_link_records(routes, np.zeros_like(inputs.private), inputs.posted)


def link_changes(faults: Faults, graph: "nx.DiGraph[str]", records: LinkRecords) -> Iterator[LinkChange]:
    """Yield all bandwidth changes of links in chronological order."""
    number = {link: index for index, link in enumerate(graph.edges)}
    route = np.repeat(np.arange(len(records.routes), dtype=np.int32), records.routes["hops"])
    crossing: dict[int, Ints] = {}
    for change in faults.changes():
        link = number[change.link]
        if link not in crossing:
            crossing[link] = np.unique(route[records.hop_link == link])
        alone, shared = (rate_left(float(rate[link]), change.share) for rate in (records.alone, records.shared))
        yield LinkChange(float(change.time), link, alone, shared, crossing[link])


def rate_left(rate: float, share: float) -> float:
    """Return a link's bytes/s at a share of its bandwidth. Unlimited links remain unlimited unless the share is 0."""
    if share == 0:
        return 0.0
    return rate if rate >= UNLIMITED else rate * share


def division_seconds(inputs: EngineInput) -> Floats:
    """Return the seconds that each rank needs to divide its elements of the result, for a mean."""
    schedule, call = inputs.schedule, inputs.call
    elements = reduced_counts(call.spec, schedule.world_size, schedule.root, call.elements)
    seconds = inputs.transport.gamma * call.itemsize * elements
    if not inputs.faults.ranks and inputs.faults.compute is None:
        return seconds
    ranks = np.arange(schedule.world_size)
    return seconds * inputs.faults.slowdown(inputs.index, ranks, DIVISION, schedule.steps)
