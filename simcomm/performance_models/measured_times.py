"""Predict collectives and training steps on this machine from calibrated message and compute times.

A message starts when both ranks have reached the step, and takes its calibrated time. A step ends when its messages and
its local work are done. This is a max-plus recurrence and needs no engine. Interference between processes is part of
the calibrated times, so shared links are not modeled separately.

On GPUs, a message has two calibrated times, as in the LogGP model: its latency, and the shorter interval after which
the next message can follow in the same direction. The host posts one step after another without waiting. So a step
takes as long as the host's posting or the work on the device, whichever is longer.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from collectives.call import CollectiveCall, reduced_slice
from collectives.costs.message_classes import Location, MessageKind, find_message_kinds
from collectives.errors import InputError
from collectives.proof.completion import completion_order
from collectives.records.calibration import Calibration, OverlapPoint, read_curve
from collectives.records.environment import threads_per_rank
from collectives.records.messages import Message, Messages
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.schedule.schedule import Schedule
from collectives.step import extent
from collectives.training.gradients import Bucket, Gradient
from collectives.training.workload import ComputePhases, Training
from simcomm.cluster.cluster import Cluster
from simcomm.model.traced_links import trace_links
from simcomm.schedules import verified_schedule

METHOD = "message classes"


class CollectiveTiming(NamedTuple):
    """The timing of a collective: completion times, messages and spans, in seconds from the start of the run."""

    finished: list[float]  # per rank, including the division of a mean
    messages: list[Message]
    spans: list[Span]

    @property
    def elapsed(self) -> float:
        """The time at which the last rank completes the collective, in seconds."""
        return max(self.finished, default=0.0)


def collective_from_calibration(call: CollectiveCall, cluster: Cluster, calibration: Calibration) -> Trace:
    """Return the trace of a collective on this machine. Raise InputError if the calibration has no message times."""
    timing = time_collective(call, calibration, [0.0] * cluster.world_size)
    facts = {"nbytes": float(call.nbytes), "time_min_s": timing.elapsed, "time_max_s": timing.elapsed}
    return make_trace(call, cluster, calibration, timing.messages, timing.spans, timing.elapsed, facts)


def time_collective(
    call: CollectiveCall,
    calibration: Calibration,
    starts: Sequence[float],
    *,
    division_s: float | None = None,
    in_training: bool = False,
    collective: int = 0,
) -> CollectiveTiming:
    """Return the timing of a collective in which rank r starts at ``starts[r]`` seconds.

    ``division_s`` is the time in seconds to divide a sum for a mean. Default: the calibrated reduction time.
    ``in_training`` selects message times that were measured inside training steps. ``collective`` is the number of the
    collective within the run.
    """
    world_size = len(starts)
    schedule = verified_schedule(call.algorithm, world_size, call.root)
    clock = _MaxPlusClock(call, schedule, calibration, starts, in_training, collective)
    for done in completion_order(schedule):
        clock.complete(done)
    finished = [clock.finished(rank) for rank in range(world_size)]
    spans = clock.spans
    if call.op == "mean":
        seconds = [_division(call, calibration, rank, world_size, division_s) for rank in range(world_size)]
        spans += [
            Span(rank, "reduce", schedule.steps, end, end + division, 0, collective)
            for rank, (end, division) in enumerate(zip(finished, seconds, strict=True))
            if division > 0
        ]
        finished = [end + division for end, division in zip(finished, seconds, strict=True)]
    return CollectiveTiming(finished, list(clock.messages.values()), spans)


def _division(
    call: CollectiveCall, calibration: Calibration, rank: int, world_size: int, measured_s: float | None
) -> float:
    reduced = reduced_slice(call.algorithm.spec, rank, world_size, call.root, call.elements)
    share = float(reduced.stop - reduced.start) / max(1, call.elements)
    whole_s = _local_seconds(calibration, call.nbytes) if measured_s is None else measured_s
    return share * whole_s


def _local_seconds(calibration: Calibration, nbytes: int) -> float:
    points = calibration.reduction.points
    return read_curve(points, nbytes) if points and nbytes else calibration.reduction.per_byte * nbytes


class _MaxPlusClock:
    """A clock that computes when the ranks complete their steps, which must be processed in dependency order."""

    def __init__(
        self,
        call: CollectiveCall,
        schedule: Schedule,
        calibration: Calibration,
        starts: Sequence[float],
        in_training: bool,
        collective: int,
    ) -> None:
        self.call, self.schedule, self.calibration = call, schedule, calibration
        self.starts, self.in_training, self.collective = starts, in_training, collective
        self.ended: dict[Location, float] = {}
        self.messages: dict[int, Message] = {}
        self.left: dict[int, float] = {}  # when the sender of each message goes on
        self.spans: list[Span] = []
        self.of_step = defaultdict[Location, list[int]](list)  # messages of each step, by index of the receive
        self.message_classes = find_message_kinds(call.algorithm, schedule.world_size, call.root)
        for index, kind in self.message_classes.items():
            self.of_step[kind.src].append(index)
            self.of_step[kind.dst].append(index)

    def finished(self, rank: int) -> float:
        last = [self.ended.get((rank, channel, len(steps) - 1), self.starts[rank])
                for channel, steps in enumerate(self.schedule.programs[rank])]  # fmt: skip
        return max(last, default=self.starts[rank])

    def complete(self, location: Location) -> None:
        end = self._ready(location)
        for index in self.of_step.get(location, ()):
            message = self._message(index)
            end = max(end, self.left[index] if location == self.message_classes[index].src else message.end)
        rank, channel, step = location
        for op in self.schedule.programs[rank][channel][step]:
            if op.kind.is_local:
                chunks = self.schedule.chunks
                nbytes = extent(op.chunk, op.count, self.call.elements, chunks) * self.call.itemsize
                begin, end = end, end + _local_seconds(self.calibration, nbytes)
                self.spans.append(Span(rank, "reduce", step, begin, end, channel, self.collective))
        self.ended[location] = end

    def _ready(self, location: Location) -> float:
        """Return the time at which a rank reaches a step. On a GPU, the host must also have posted the step."""
        rank, channel, step = location
        before = self.ended[rank, channel, step - 1] if step else self.starts[rank]
        if self.calibration.queued is None:
            return before
        posted_before = step * len(self.schedule.programs[rank]) + channel  # the host posts the channels in turn
        return max(before, self.starts[rank] + posted_before * self.calibration.queued.posting_s)

    def _message(self, index: int) -> Message:
        if index not in self.messages:
            self._send(index, self.message_classes[index])
        return self.messages[index]

    def _send(self, index: int, kind: MessageKind) -> None:
        posted, awaited = self._ready(kind.src), self._ready(kind.dst)
        call, chunks = self.call, self.schedule.chunks
        nbytes = extent(kind.chunk, kind.count, call.elements, chunks) * call.itemsize
        latency, interval = self._latency_and_interval(kind, nbytes) if nbytes else (0.0, 0.0)
        end = max(posted + latency, awaited + interval)
        self.left[index] = end - (latency - interval)
        self.messages[index] = Message(
            *(kind.src[0], kind.dst[0], kind.src[2], kind.chunk, nbytes, max(posted, awaited), end),
            channel=kind.src[1],
            dst_step=kind.dst[2],
            count=kind.count,
            into=kind.into,
            reduces=kind.reduces,
            src_posted=posted,
            dst_posted=awaited,
            collective=self.collective,
        )

    def _latency_and_interval(self, kind: MessageKind, nbytes: int) -> tuple[float, float]:
        message_class, queued = kind.message_class(self.call, self.schedule.world_size), self.calibration.queued
        latency = self.calibration.message_seconds(message_class, self.in_training) * kind.together
        if queued is None:
            return latency, latency
        reducing = _local_seconds(self.calibration, nbytes) if kind.reduces else 0.0
        return latency, min(latency, (queued.seconds(nbytes) + reducing) * kind.together)


def make_trace(
    call: CollectiveCall,
    cluster: Cluster,
    calibration: Calibration,
    messages: Sequence[Message],
    spans: Sequence[Span],
    elapsed: float,
    facts: dict[str, float],
) -> Trace:
    """Return a trace of these messages and spans. All messages cross the edge that represents the machine's memory."""
    memory = ("s0", "s1")
    routed = [each._replace(route=(cluster.hosts[each.src], *memory, cluster.hosts[each.dst])) for each in messages]
    carried = dict.fromkeys(cluster.graph.edges, 0.0)
    for each in routed:
        for edge in zip(each.route, each.route[1:], strict=False):
            carried[edge] += each.nbytes
    return Trace(
        title=call.algorithm.full_name,
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
        root=call.root,
        chunks=call.algorithm.chunks(cluster.world_size),
    ).of_program(call.algorithm)


def training_from_calibration(
    training: Training, cluster: Cluster, calibration: Calibration, phases: ComputePhases, steps: int
) -> Trace:
    """Return the trace of ``steps`` training steps: forward, backward, sync and optimizer, without overlap.

    In each step, a different rank is the slowest. Its backward exceeds the mean by up to the calibrated wait.
    """
    assert training.gradient_sync is not None
    call = CollectiveCall(training.gradient_sync, training.gradient_bytes // 4, op="mean")
    ranks, point = cluster.world_size, None
    if training.compute is None:
        point = calibration.compute_point(training, ranks, threads_per_rank(ranks))
    begin, spans, messages = 0.0, list[Span](), []
    for step in range(steps):
        backward = _backward_of_ranks(phases.backward, point.wait_s if point else 0.0, ranks, slowest=step % ranks)
        computed = [begin + phases.forward + backward_s for backward_s in backward]
        division = point.division_s if point else None
        sync = time_collective(call, calibration, computed, division_s=division, in_training=True, collective=step)
        messages += sync.messages
        spans += sync.spans
        for rank in range(ranks):
            times = [begin, begin + phases.forward, computed[rank], sync.finished[rank]]
            times.append(times[-1] + phases.optimizer)
            names = ("forward", "backward", "sync", "optimizer")
            spans += [
                Span(rank, name, step, since, until, collective=step)
                for name, since, until in zip(names, times, times[1:], strict=False)
            ]
        begin = max(sync.finished) + phases.optimizer
    trace = make_trace(call, cluster, calibration, messages, spans, begin, {})
    return replace(trace, title=f"training/{training.sync_name}")


class Overlap(NamedTuple):
    """The timeline of a backward pass that starts at 0. All times are in seconds."""

    computed: float  # end of backward's compute
    buckets: list[tuple[float, float]]  # start and end of each gradient bucket

    @property
    def finished(self) -> float:
        """The time at which compute and all buckets have ended, in seconds."""
        return max([self.computed, *(end for _, end in self.buckets)])


def overlap(backward_s: float, ready: Sequence[float], seconds: Sequence[float], slowdown: float) -> Overlap:
    """Return the timeline of a backward pass, and of the gradient buckets that are sent while it runs.

    Without buckets, backward takes ``backward_s`` seconds. Buckets are sent one after the other. Bucket i is ready once
    the fraction ``ready[i]`` of backward is done, and takes ``seconds[i]`` if nothing else runs. Each second of
    communication delays backward by ``slowdown`` seconds. If this is less than 1, backward continues at reduced speed.
    Otherwise backward stops while a bucket is sent, and the bucket takes ``slowdown`` times as long.

    >>> overlap(10.0, ready=[0.5, 1.0], seconds=[2.0, 1.0], slowdown=0.5)
    Overlap(computed=11.0, buckets=[(5.0, 7.0), (11.0, 12.0)])
    """
    speed, stretch = max(0.0, 1.0 - slowdown), max(1.0, slowdown)
    now, done, intervals = 0.0, 0.0, list[tuple[float, float]]()
    computed: float | None = None
    for share, alone in zip(ready, seconds, strict=True):
        wait = max(0.0, share * backward_s - done)
        now, done = now + wait, done + wait
        remaining = backward_s - done
        if remaining <= 0 and computed is None:
            computed = now
        overlapped = min(alone, remaining / speed) if speed > 0 else alone * (remaining > 0)
        if computed is None and overlapped < alone:
            computed = now + overlapped * stretch
        intervals.append((now, now + overlapped * stretch + alone - overlapped))
        now, done = intervals[-1][1], done + overlapped * speed
    return Overlap(now + backward_s - done if computed is None else computed, intervals)


class OverlapCalibration(NamedTuple):
    """A calibration of training steps that communicate gradients during backward."""

    calibration: Calibration | None
    ranks: int  # concurrent processes in which compute was measured
    is_needed: bool  # whether missing data is an error


def train_overlapped(
    training: Training,
    cluster: Cluster,
    measured: OverlapCalibration,
    phases: ComputePhases,
    steps: int,
    carry: Callable[[int], float] | None,
) -> Trace:
    """Return the trace of ``steps`` training steps that communicate gradient buckets during backward.

    The sync is the exposed communication: buckets still in flight when backward ends, and the wait for the slowest
    rank. The trace's fact ``exposed_s`` is its time. In torch's DDP, the sync is a part of backward, as in a measured
    run. Backward then includes torch's copies into and out of the buckets, and forward includes its broadcast of the
    model's buffers.

    ``carry`` returns the seconds of a bucket, given its bytes; None represents gloo on this machine. The overlap
    slowdown is calibrated with gloo on this machine and spread over the bucket times. Without an overlap calibration,
    gradients become ready in proportion to their FLOPs, and communication does not slow backward down.

    Raise InputError if the overlap calibration is required and missing.
    """
    begin, phases_of_all = 0.0, list[tuple[str, int, float, float]]()
    timeline = _time_overlapped(training, cluster.world_size, measured, phases, carry)
    for step in range(steps):
        step_phases = timeline.phases_from(begin)
        _, end = step_phases["sync"]
        begin = end + phases.optimizer
        step_phases["optimizer"] = end, begin
        phases_of_all += [(name, step, *of_name) for name, of_name in step_phases.items()]
    hosts = list(cluster.hosts)
    return Trace(
        f"training/{training.sync_name}",
        "predicted",
        cluster.world_size,
        begin,
        spans=Spans.of_all_ranks(cluster.world_size, phases_of_all).sorted(),
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
        facts={"exposed_s": timeline.exposed},
        engine="measured",
        method=METHOD,
    )


class _OverlappedStep(NamedTuple):
    overlap: Overlap
    forward: float  # including torch's broadcast of the model's buffers
    exposed: float  # communication after backward's compute has ended
    is_torchs: bool  # torch starts the buckets, so the sync is part of backward

    def phases_from(self, begin: float) -> dict[str, tuple[float, float]]:
        forward = begin + self.forward
        computed, end = forward + self.overlap.computed, forward + self.overlap.computed + self.exposed
        backward = end if self.is_torchs else computed
        phases = {"forward": (begin, forward), "backward": (forward, backward), "sync": (backward, end)}
        for number, (since, until) in enumerate(self.overlap.buckets):
            phases[f"bucket {number}"] = (forward + since, forward + until)
        return phases


def _time_overlapped(
    training: Training,
    ranks: int,
    measured: OverlapCalibration,
    phases: ComputePhases,
    carry: Callable[[int], float] | None,
) -> _OverlappedStep:
    turns, point, together = 1.0, None, None
    if measured.calibration is not None:
        threads, turns = threads_per_rank(ranks), ranks / measured.ranks
        point = measured.calibration.overlap_point(training, measured.ranks, threads)
        together = measured.calibration.compute_point(training, measured.ranks, threads)
    if point is None and measured.is_needed:
        raise InputError(
            f"overlap was not measured for {training.model_kind} on {training.data_kind} with batch size "
            f"{training.batch_size} and {ranks} ranks; run `ringlab calibrate SCENARIO`"
        )
    gradients = [Gradient(*each) for each in point.gradients] if point else training.gradients
    buckets = training.fill_buckets(gradients)
    seconds, slowdown = _bucket_times(buckets, point, carry, turns)
    timeline = overlap(phases.backward, [bucket.ready for bucket in buckets], seconds, slowdown)
    is_torchs = training.buckets is None or training.buckets.hook == "ddp"
    broadcast_s, copies_s = (turns * point.broadcast_s, turns * point.copies_s) if point and is_torchs else (0.0, 0.0)
    exposed = timeline.finished - timeline.computed + copies_s + (together.wait_s if together else 0.0)
    return _OverlappedStep(timeline, phases.forward + broadcast_s, exposed, is_torchs)


def _bucket_times(
    buckets: Sequence[Bucket], point: OverlapPoint | None, carry: Callable[[int], float] | None, turns: float
) -> tuple[list[float], float]:
    if carry is None:
        assert point is not None
        return [read_curve(point.all_reduce, bucket.nbytes) for bucket in buckets], point.overlap_slowdown
    seconds = [carry(bucket.nbytes) for bucket in buckets]
    if point is None or sum(seconds) <= 0:
        return seconds, 0.0
    lost = turns * point.overlap_slowdown * sum(read_curve(point.all_reduce, bucket.nbytes) for bucket in buckets)
    return seconds, lost / sum(seconds)


def _backward_of_ranks(mean: float, wait: float, ranks: int, *, slowest: int) -> list[float]:
    """Return each rank's backward in seconds. The slowest exceeds the mean by up to ``wait``; the others are equal."""
    if ranks == 1:
        return [mean]
    extra = min(wait, mean * (ranks - 1))
    return [mean + extra if rank == slowest else mean - extra / (ranks - 1) for rank in range(ranks)]
