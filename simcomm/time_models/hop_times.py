"""A collective on the processes of this machine, from the measured times of its hops.

A message begins when both of its ranks have come to its steps, and takes what its hop took in the calibration; a step
ends with its messages and its local work. This is exact arithmetic (max-plus) and needs no engine: what processes of
one machine do to each other is in the measured times, not in shares of a link.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from collectives.costs.hops import HopKind, Site, find_hops
from collectives.proof.completion import completion_order
from collectives.records.calibration import Calibration, read_curve
from collectives.records.messages import Message, Messages
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.request import Request, reduced_slice
from collectives.schedule.schedule import Schedule
from collectives.step import extent
from simcomm.cluster.cluster import Cluster
from simcomm.model.traced_links import trace_links
from simcomm.schedules import verified_schedule

METHOD = "hops"


class HopTiming(NamedTuple):
    """When each rank has finished, and what it did meanwhile; seconds from the beginning of the run."""

    finished: list[float]  # by rank, the division of a mean included
    messages: list[Message]
    spans: list[Span]

    @property
    def elapsed(self) -> float:
        """When the last rank has finished."""
        return max(self.finished, default=0.0)


def run_by_hops(request: Request, cluster: Cluster, calibration: Calibration) -> Trace:
    """Return the trace of one collective on this machine. Raise InputError for a calibration without hops."""
    timing = time_hops(request, calibration, [0.0] * cluster.world_size)
    facts = {"nbytes": float(request.nbytes), "time_min_s": timing.elapsed, "time_max_s": timing.elapsed}
    return make_trace(request, cluster, calibration, timing.messages, timing.spans, timing.elapsed, facts)


def time_hops(
    request: Request,
    calibration: Calibration,
    starts: Sequence[float],
    *,
    division_s: float | None = None,
    in_training: bool = False,
    collective: int = 0,
) -> HopTiming:
    """Return the timing of a collective whose ranks begin at ``starts``.

    ``division_s`` is what dividing a mean takes, the calibration's reduction unless given; ``in_training`` asks for
    hops as they are in a training step, and ``collective`` is which of the run it is.
    """
    world_size = len(starts)
    schedule = verified_schedule(request.algorithm, world_size, request.root)
    clock = _Clock(request, schedule, calibration, starts, in_training, collective)
    for done in completion_order(schedule):
        clock.complete((done.rank, done.channel, done.step))
    finished = [clock.finished(rank) for rank in range(world_size)]
    spans = clock.spans
    if request.op == "mean":
        seconds = [_division(request, calibration, rank, world_size, division_s) for rank in range(world_size)]
        spans += [
            Span(rank, "reduce", schedule.steps, end, end + own, 0, collective)
            for rank, (end, own) in enumerate(zip(finished, seconds, strict=True))
            if own > 0
        ]
        finished = [end + own for end, own in zip(finished, seconds, strict=True)]
    return HopTiming(finished, list(clock.messages.values()), spans)


def _division(request: Request, calibration: Calibration, rank: int, world_size: int, given: float | None) -> float:
    reduced = reduced_slice(request.algorithm.spec, rank, world_size, request.root, request.elements)
    share = float(reduced.stop - reduced.start) / max(1, request.elements)
    whole = _local_seconds(calibration, request.nbytes) if given is None else given
    return share * whole


def _local_seconds(calibration: Calibration, nbytes: int) -> float:
    """Return the seconds in which a rank reduces so many bytes while all others do."""
    points = calibration.reduction.points
    return read_curve(points, nbytes) if points and nbytes else calibration.reduction.per_byte * nbytes


class _Clock:
    """When the steps of all ranks end, asked in an order in which they can."""

    def __init__(
        self,
        request: Request,
        schedule: Schedule,
        calibration: Calibration,
        starts: Sequence[float],
        in_training: bool,
        collective: int,
    ) -> None:
        self.request, self.schedule, self.calibration = request, schedule, calibration
        self.starts, self.in_training, self.collective = starts, in_training, collective
        self.ended: dict[Site, float] = {}
        self.messages: dict[int, Message] = {}
        self.spans: list[Span] = []
        self.of_step: defaultdict[Site, list[int]] = defaultdict(list)  # the messages of a step, by their receive
        self.hops = find_hops(request.algorithm, schedule.world_size, request.root)
        for index, kind in self.hops.items():
            self.of_step[kind.src].append(index)
            self.of_step[kind.dst].append(index)

    def finished(self, rank: int) -> float:
        """Return when a rank's last channel ends."""
        last = [self.ended.get((rank, channel, len(steps) - 1), self.starts[rank])
                for channel, steps in enumerate(self.schedule.programs[rank])]  # fmt: skip
        return max(last, default=self.starts[rank])

    def complete(self, site: Site) -> None:
        """Find when a step ends; the steps before it, and before its peers', have been completed."""
        end = self._ready(site)
        for index in self.of_step.get(site, ()):
            end = max(end, self._message(index).end)
        rank, channel, step = site
        for op in self.schedule.programs[rank][channel][step]:
            if op.kind.is_local:
                chunks = self.schedule.chunks
                nbytes = extent(op.chunk, op.count, self.request.elements, chunks) * self.request.itemsize
                begin, end = end, end + _local_seconds(self.calibration, nbytes)
                self.spans.append(Span(rank, "reduce", step, begin, end, channel, self.collective))
        self.ended[site] = end

    def _ready(self, site: Site) -> float:
        rank, channel, step = site
        return self.ended[rank, channel, step - 1] if step else self.starts[rank]

    def _message(self, index: int) -> Message:
        if index not in self.messages:
            self.messages[index] = self._send(self.hops[index])
        return self.messages[index]

    def _send(self, kind: HopKind) -> Message:
        """Return a message from when both ranks had come to its steps; an empty one takes no time."""
        posted, awaited = self._ready(kind.src), self._ready(kind.dst)
        request, chunks = self.request, self.schedule.chunks
        nbytes = extent(kind.chunk, kind.count, request.elements, chunks) * request.itemsize
        hop = kind.hop(request, self.schedule.world_size)
        seconds = self.calibration.hop_seconds(hop, self.in_training) * kind.together if nbytes else 0.0
        begin = max(posted, awaited)
        return Message(
            *(kind.src[0], kind.dst[0], kind.src[2], kind.chunk, nbytes, begin, begin + seconds),
            channel=kind.src[1],
            dst_step=kind.dst[2],
            count=kind.count,
            into=kind.into,
            reduces=kind.reduces,
            src_posted=posted,
            dst_posted=awaited,
            collective=self.collective,
        )


def make_trace(
    request: Request,
    cluster: Cluster,
    calibration: Calibration,
    messages: Sequence[Message],
    spans: Sequence[Span],
    elapsed: float,
    facts: dict[str, float],
) -> Trace:
    """Return a trace of such messages and spans; all messages cross the edge that stands for the machine's memory."""
    memory = ("s0", "s1")
    routed = [each._replace(route=(cluster.hosts[each.src], *memory, cluster.hosts[each.dst])) for each in messages]
    carried = dict.fromkeys(cluster.graph.edges, 0.0)
    for each in routed:
        for edge in zip(each.route, each.route[1:], strict=False):
            carried[edge] += each.nbytes
    return Trace(
        title=request.algorithm.full_name,
        kind="predicted",
        world_size=cluster.world_size,
        elapsed=elapsed,
        messages=Messages.of(routed).sorted(),
        spans=Spans.of(spans).sorted(),
        links=trace_links(cluster, calibration.transport(goodput=1.0), list(carried.values()), elapsed),
        nodes=list(cluster.graph),
        hosts=list(cluster.hosts),
        facts=facts,
        engine="measured",
        method=METHOD,
        root=request.root,
        chunks=request.algorithm.chunks(cluster.world_size),
    ).of_program(request.algorithm)
