"""The plan of a cyclic program, written down at once: every rank's stages and messages are the next one's, moved on."""

import numpy as np

from collectives.schedule.cyclic import CyclicSchedule
from collectives.schedule.table import order_by_step, runs_of_steps
from collectives.step import Kind
from simcomm.compiled.demand import Demand, Sizes
from simcomm.compiled.pairs import Pairs
from simcomm.compiled.plan import MESSAGE, NONE, STAGE, Plan
from simcomm.compiled.routes import Floats, Ints


def distances(cyclic: CyclicSchedule) -> Ints:
    """How far up the ring messages go, each distance once."""
    return np.unique(cyclic.peer[cyclic.kind == Kind.SEND])


def pairs_at(cyclic: CyclicSchedule, away: Ints) -> Pairs:
    """All pairs at these distances: number ``p * k + r`` is from rank r to the one ``away[k]`` up."""
    ranks = np.arange(cyclic.world_size, dtype=np.int32)
    return Pairs(np.tile(ranks, len(away)), cyclic.ranks_at(away, ranks).reshape(-1))


def row_bytes(cyclic: CyclicSchedule, rows: Ints, sizes: Sizes) -> Floats:
    """Bytes that each of these entries reads or writes on each rank; [rows, ranks]."""
    p = cyclic.world_size
    table = sizes.offsets(cyclic.chunks + cyclic.scratch)
    shifted, shift, base = cyclic.is_shifted[0][rows], cyclic.shift[0][rows], cyclic.base[0][rows]
    count = np.where(shifted, 1, cyclic.count[rows])
    each = np.diff(table).astype(np.float64) * sizes.itemsize
    found = np.empty((len(rows), p))
    found[:] = ((table[base + count] - table[base]) * float(sizes.itemsize))[:, None]
    if shifted.any():
        blocks = np.lib.stride_tricks.sliding_window_view(np.tile(each.reshape(-1, p), 2), p, axis=1)
        found[shifted] = blocks[base[shifted] // p, shift[shifted] % p]
    return found


def cyclic_demand(cyclic: CyclicSchedule, sizes: Sizes) -> Demand:
    """The same as of its table, messages in the order of rows. None of them may be empty."""
    p, sends = cyclic.world_size, np.flatnonzero(cyclic.kind == Kind.SEND)
    nbytes = row_bytes(cyclic, sends, sizes)
    assert (nbytes > 0).all(), "empty messages are in the way; make a table of the program"
    ranks, away = np.arange(p, dtype=np.int32), distances(cyclic)
    step = np.unique(cyclic.step, return_inverse=True)[1].astype(np.int32)
    messages = np.zeros((len(sends), p), MESSAGE)
    messages["nbytes"] = nbytes
    messages["source"] = step[sends, None] * p + ranks
    messages["sink"] = cyclic.ranks_at(cyclic.peer[sends], ranks) + step[cyclic.match[sends], None] * p
    messages["route"] = np.searchsorted(away, cyclic.peer[sends])[:, None] * p + ranks
    ops, per_stage = _ops(cyclic, sends, step)
    steps = int(step.max(initial=-1)) + 1
    stages = _stages(p, steps, per_stage)
    first_stage = ranks if steps else np.full(p, -1, np.int32)
    plan = Plan(stages, messages.reshape(-1), ops, _cost(cyclic, step, steps, sizes), NONE, first_stage)
    return Demand(plan, pairs_at(cyclic, away), 1, None)


def _ops(cyclic: CyclicSchedule, sends: Ints, step: Ints) -> tuple[Ints, Ints]:
    """The messages of each stage, and how many a stage of each step has."""
    p, ranks = cyclic.world_size, np.arange(cyclic.world_size, dtype=np.int32)
    number = np.full(len(cyclic.kind), -1, np.int32)
    number[sends] = np.arange(len(sends), dtype=np.int32)
    rows = np.flatnonzero(cyclic.match >= 0)
    here = cyclic.kind[rows] == Kind.SEND  # a message is numbered by its sender
    message = cyclic.ranks_at(np.where(here, 0, cyclic.peer[rows]), ranks)
    message += (np.where(here, number[rows], number[cyclic.match[rows]]) * np.int32(p))[:, None]
    per_stage = np.bincount(step[rows], minlength=int(step.max(initial=-1)) + 1)
    return order_by_step(message, runs_of_steps(step[rows])), per_stage.astype(np.int32)


def _stages(p: int, steps: int, per_stage: Ints) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    stages = np.zeros(steps * p + 1, STAGE)
    stages["first_op"][1:] = np.cumsum(np.repeat(per_stage, p))
    stages["agent"][:-1] = np.tile(np.arange(p, dtype=np.int32), steps)
    stages["following"] = np.arange(p, (steps + 1) * p + 1, dtype=np.int32)
    stages["following"][max(0, (steps - 1) * p) :] = -1
    return stages


def _cost(cyclic: CyclicSchedule, step: Ints, steps: int, sizes: Sizes) -> Floats:
    """Seconds that each stage computes, one operation after the other; empty where reducing costs nothing."""
    if sizes.gamma == 0:
        return NONE
    return cost_matrix(cyclic, step, steps, sizes).reshape(-1)


def cost_matrix(cyclic: CyclicSchedule, step: Ints, steps: int, sizes: Sizes) -> Floats:
    """The same by step and rank; [steps, ranks]."""
    rows = np.flatnonzero(cyclic.kind > Kind.RECV)
    seconds = sizes.gamma * row_bytes(cyclic, rows, sizes)
    cost = np.zeros((steps, cyclic.world_size))
    nth = np.arange(len(rows)) - np.searchsorted(step[rows], step[rows])  # of its step
    for k in range(int(nth.max(initial=-1)) + 1):
        cost[step[rows[nth == k]]] += seconds[nth == k]
    return cost


def travelling(cyclic: CyclicSchedule, sizes: Sizes) -> int:
    """How many messages are sent: empty ones are not."""
    sends = np.flatnonzero(cyclic.kind == Kind.SEND)
    if sizes.n >= sizes.chunks:
        return len(sends) * cyclic.world_size
    table = sizes.offsets(cyclic.chunks + cyclic.scratch)
    base, count, shifted = cyclic.base[0][sends], cyclic.count[sends], cyclic.is_shifted[0][sends]
    until = np.where(shifted, base + cyclic.world_size, base + count)
    filled = np.append(0, np.cumsum(np.diff(table) > 0))
    number = np.where(shifted, filled[until] - filled[base], (table[until] > table[base]) * cyclic.world_size)
    return int(number.sum())
