"""Build a collective's template, whose stages and messages a replay copies for each call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from collectives.call import CollectiveCall, reduced_counts
from collectives.costs.message_classes import find_message_kinds
from collectives.declaration import Algorithm
from collectives.records.calibration import Calibration, read_curve
from collectives.records.columns import Floats, Ints
from collectives.step import Kind
from simcomm.compiled.planning.schedule_plan import ChunkSizes, plan_table, stages_of
from simcomm.schedules import compact_schedule


class TemplateMessages(NamedTuple):
    """The messages of a template as arrays, one entry per message."""

    source: Ints  # the sending stage
    sink: Ints
    src: Ints  # group rank
    dst: Ints
    nbytes: Floats
    seconds: Floats  # without links
    channel: Ints
    step: Ints
    dst_step: Ints
    chunk: Ints
    count: Ints  # type: ignore[assignment]
    into: Ints
    reduces: Ints


@dataclass(frozen=True, eq=False)
class Template:
    """A collective to copy for each call: the stages of each rank in each channel, and the messages between stages."""

    algorithm: str
    ranks: int
    channels: int
    agent: Ints  # [stages]: rank * channels + channel
    place: Ints  # [stages]: index among the stages of the agent
    step: Ints  # [stages]: step of the program
    cost: Floats  # [stages]: seconds of reducing after the messages
    lengths: Ints  # [ranks * channels]: number of stages
    division: Floats  # [ranks]: seconds of a mean's division at the end
    messages: TemplateMessages


class Shape(NamedTuple):
    """The properties that determine a collective's template. They do not include which ranks take part."""

    verb: str
    ranks: int
    root: int
    elements: int
    itemsize: int
    op: str


@lru_cache(maxsize=4096)
def network_template(algorithm: Algorithm, shape: Shape, gamma: float) -> Template:
    """Return the template of a collective whose messages cross a network.

    ``gamma`` is the time to reduce a byte, in seconds. Raises InputError if the algorithm is undefined for this number
    of ranks.
    """
    schedule = compact_schedule(algorithm, shape.ranks, shape.root).table()
    sizes = ChunkSizes(schedule.chunks, shape.elements, shape.itemsize, gamma)
    planned = plan_table(schedule, sizes)
    cost = planned.plan.cost if len(planned.plan.cost) else np.zeros(len(planned.plan.stages) - 1)
    assert planned.sends is not None
    sends, columns = planned.sends, schedule.columns
    receives = columns.match[sends]
    stage, starts = stages_of(columns)
    channels = int(columns.channel.max(initial=0)) + 1
    agent = columns.rank[starts].astype(np.int64) * channels + columns.channel[starts]
    lengths = np.bincount(agent, minlength=shape.ranks * channels)
    order = np.argsort(agent, kind="stable")
    place = np.empty(len(agent), np.int64)
    place[order] = np.arange(len(agent)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    named = {name: getattr(columns, name)[sends].astype(np.int64) for name in ("channel", "step", "chunk", "count")}
    messages = TemplateMessages(
        source=stage[sends].astype(np.int64),
        sink=stage[receives].astype(np.int64),
        src=columns.rank[sends].astype(np.int64),
        dst=columns.rank[receives].astype(np.int64),
        nbytes=sizes.nbytes(columns.chunk[sends], columns.count[sends]),
        seconds=np.zeros(len(sends)),
        dst_step=columns.step[receives].astype(np.int64),
        into=columns.into[receives].astype(np.int64),
        reduces=columns.kind[receives] == Kind.RECV_REDUCE,
        **named,
    )
    return Template(
        algorithm=algorithm.full_name,
        ranks=shape.ranks,
        channels=channels,
        agent=agent,
        place=place,
        step=columns.step[starts].astype(np.int64),
        cost=cost,
        lengths=lengths,
        division=_division_elements(algorithm, shape) * shape.itemsize * gamma,
        messages=messages,
    )


def measured_template(algorithm: Algorithm, shape: Shape, calibration: Calibration) -> Template:
    """Return the template of a collective on this machine's processes, with calibrated message times.

    Raises InputError if the algorithm is undefined for this number of ranks.
    """
    template = network_template(algorithm, shape, 0.0)
    call = CollectiveCall(algorithm, shape.elements, op=shape.op, root=shape.root)
    schedule = compact_schedule(algorithm, shape.ranks, shape.root).table()
    columns, sizes = schedule.columns, ChunkSizes(schedule.chunks, shape.elements, shape.itemsize, 0.0)
    kinds = find_message_kinds(algorithm, shape.ranks, shape.root)
    by_send = {(kind.src, kind.dst, kind.chunk): kind for kind in kinds.values()}
    seconds = []
    ends = zip(*(getattr(template.messages, name).tolist() for name in _ENDS), strict=True)
    for src, dst, channel, step, dst_step, chunk in ends:
        kind = by_send[(src, channel, step), (dst, channel, dst_step), chunk]
        message_class = kind.message_class(call, shape.ranks)._replace(
            nbytes=_message_bytes(kind.count, schedule.chunks, shape)
        )
        seconds.append(calibration.message_seconds(message_class) * kind.together)
    stage, starts = stages_of(columns)
    nbytes = np.where(columns.kind >= Kind.COPY, sizes.nbytes(columns.chunk, columns.count), 0.0)
    cost = np.bincount(stage, [local_seconds(calibration, int(size)) for size in nbytes.tolist()], len(starts))
    whole_s = local_seconds(calibration, shape.elements * shape.itemsize)
    division = _division_elements(algorithm, shape) / max(1, shape.elements) * whole_s
    messages = template.messages._replace(seconds=np.array(seconds, np.float64))
    return replace(template, cost=cost.astype(np.float64), division=division, messages=messages)


_ENDS: Sequence[str] = ("src", "dst", "channel", "step", "dst_step", "chunk")


def _message_bytes(count: int, chunks: int, shape: Shape) -> int:
    """Return the bytes of a message of ``count`` chunks, each as long as the longest chunk."""
    return count * -(-shape.elements // chunks) * shape.itemsize


def local_seconds(calibration: Calibration, nbytes: int) -> float:
    """Return the seconds that a rank takes to reduce ``nbytes`` while all other ranks reduce too."""
    points = calibration.reduction.points
    return read_curve(points, nbytes) if points and nbytes else calibration.reduction.per_byte * nbytes


def _division_elements(algorithm: Algorithm, shape: Shape) -> Floats:
    if shape.op != "mean":
        return np.zeros(shape.ranks)
    return reduced_counts(algorithm.spec, shape.ranks, shape.root, shape.elements).astype(np.float64)
