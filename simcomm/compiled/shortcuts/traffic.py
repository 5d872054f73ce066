"""Who sends what to whom, each pair's messages as one *label*: what a partition into like ones is made from."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.cyclic import CyclicSchedule
from collectives.step import Kind
from simcomm.compiled.cyclic_demand import distances, pairs_at
from simcomm.compiled.demand import Demand, Sizes
from simcomm.compiled.routes import Ints
from simcomm.hashing import mix

Hashes = npt.NDArray[np.uint64]


class Sequences(NamedTuple):
    """Lists of rows, one after the other: list k is ``rows[first[k]:first[k + 1]]``."""

    first: npt.NDArray[np.int64]
    rows: npt.NDArray[np.float64]  # [rows, numbers]


class Traffic(NamedTuple):
    """Agents with what they compute, and the pairs of agents with their messages, each list once."""

    agent: Ints  # [agents]: which of the computings
    computings: Sequences  # a row a stage: seconds
    src: Ints  # [pairs]: agent
    dst: Ints
    route: Ints  # [pairs]: of the ranks
    label: Ints  # [pairs]: which of the messages
    messages: Sequences  # a row a message: the sender's stage, the receiver's stage (of those of each), bytes


def distinct(lists: Sequences) -> tuple[Ints, Sequences] | None:
    """For each list which of the distinct ones it is, and those; None in the unlikely case that hashes mislead."""
    counts = np.diff(lists.first)
    place = np.arange(len(lists.rows), dtype=np.uint64) - np.repeat(lists.first[:-1], counts).astype(np.uint64)
    hashes = mix(place + np.uint64(1))
    for column in lists.rows.T:
        hashes = mix(hashes + np.ascontiguousarray(column + 0.0).view(np.uint64))
    total = np.append(np.uint64(0), np.cumsum(hashes, dtype=np.uint64))
    keys = total[lists.first[1:]] - total[lists.first[:-1]] + mix(counts.astype(np.uint64))
    _, chosen, which = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(counts, counts[chosen][which]):
        return None
    twin = np.repeat(lists.first[:-1][chosen][which], counts) + place.astype(np.int64)
    if not np.array_equal(lists.rows, lists.rows[twin]):
        return None
    return which.astype(np.int32), taken(lists, chosen)


def taken(lists: Sequences, chosen: npt.NDArray[np.integer]) -> Sequences:
    """Some of the lists."""
    counts = np.diff(lists.first)[chosen]
    first = np.concatenate([[0], np.cumsum(counts)])
    at = np.repeat(lists.first[:-1][chosen] - first[:-1], counts) + np.arange(first[-1])
    return Sequences(first, lists.rows[at])


def traffic(demand: Demand) -> Traffic | None:
    """The traffic of a plan; None if hashes mislead."""
    plan = demand.plan
    agent = plan.stages["agent"][:-1]
    order = np.argsort(agent, kind="stable")
    bounds = np.searchsorted(agent[order], np.arange(len(plan.first_stage) + 1))
    place = np.empty(len(agent), np.int64)  # of a stage among its agent's
    place[order] = np.arange(len(agent)) - bounds[agent[order]]
    cost = plan.cost if len(plan.cost) else np.zeros(len(agent))
    computings = distinct(Sequences(bounds, cost[order][:, None]))
    source, sink = plan.messages["source"], plan.messages["sink"]
    ways = plan.messages["route"].astype(np.int64) * demand.channels + agent[source] % demand.channels
    by_pair = np.argsort(ways, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(ways[by_pair]) != 0)) if len(ways) else np.zeros(0, np.int64)
    rows = np.stack([place[source], place[sink], plan.messages["nbytes"]], axis=1)[by_pair]
    messages = distinct(Sequences(np.append(starts, len(ways)), rows))
    if computings is None or messages is None:
        return None
    firsts = by_pair[starts]
    ends = (agent[source[firsts]], agent[sink[firsts]], plan.messages["route"][firsts])
    return Traffic(*computings, *ends, *messages)


def cyclic_traffic(cyclic: CyclicSchedule, sizes: Sizes) -> Traffic | None:
    """The same of a cyclic program, pairs as in ``pairs_at``; None where ranks' sizes differ or a message is empty."""
    p, sends = cyclic.world_size, np.flatnonzero(cyclic.kind == Kind.SEND)
    shifted = cyclic.is_shifted[0] | cyclic.is_shifted[1]
    if sizes.n < sizes.chunks or (shifted.any() and sizes.n % sizes.chunks):
        return None
    step = np.unique(cyclic.step, return_inverse=True)[1]
    table, start = sizes.offsets(cyclic.chunks + cyclic.scratch), cyclic.base[0]
    nbytes = (table[start + cyclic.count] - table[start]) * float(sizes.itemsize)  # a shifted chunk is like the next
    reduced = np.where(cyclic.kind > Kind.RECV, sizes.gamma * nbytes, 0.0)
    seconds = np.bincount(step, weights=reduced)
    away = distances(cyclic)
    by_distance = sends[np.argsort(cyclic.peer[sends], kind="stable")]
    rows = np.stack([step[by_distance], step[cyclic.match[by_distance]], nbytes[by_distance]], axis=1)
    first = np.searchsorted(cyclic.peer[by_distance], np.append(away, p))
    messages, pairs = distinct(Sequences(first, rows)), pairs_at(cyclic, away)
    if messages is None:
        return None
    return Traffic(
        np.zeros(p, np.int32), Sequences(np.array([0, len(seconds)]), seconds[:, None]),
        pairs.src, pairs.dst, np.arange(len(pairs.src), dtype=np.int32), np.repeat(messages[0], p), messages[1],
    )  # fmt: skip
