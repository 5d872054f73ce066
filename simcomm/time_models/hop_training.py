"""A training on the processes of this machine, from the measured times of its phases and hops."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from collectives.errors import InputError
from collectives.records.calibration import Calibration, OverlapPoint, read_curve
from collectives.records.environment import threads_per_rank
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.request import Request
from collectives.training.buckets import Bucket, Gradient
from collectives.training.workload import ComputePhases, Training
from simcomm.cluster.cluster import Cluster
from simcomm.time_models.hop_times import METHOD, make_trace, time_hops
from simcomm.timeline import Overlap, overlap


def train_by_hops(
    training: Training, cluster: Cluster, calibration: Calibration, phases: ComputePhases, steps: int
) -> Trace:
    """Return the trace of so many steps: forward, backward, sync and optimizer, one after the other.

    In every step one rank is the slowest, each in its turn, and the others wait for it in the sync for as long as they
    did in the calibration.
    """
    assert training.gradient_sync is not None
    request = Request(training.gradient_sync, training.gradient_bytes // 4, op="mean")
    ranks, point = cluster.world_size, None
    if training.compute is None:
        point = calibration.compute_point(training, ranks, threads_per_rank(ranks))
    begin, spans, messages = 0.0, list[Span](), []
    for step in range(steps):
        backward = _backward_of_ranks(phases.backward, point.wait_s if point else 0.0, ranks, slowest=step % ranks)
        computed = [begin + phases.forward + own for own in backward]
        division = point.division_s if point else None
        sync = time_hops(request, calibration, computed, division_s=division, in_training=True, collective=step)
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
    trace = make_trace(request, cluster, calibration, messages, spans, begin, {})
    return replace(trace, title=f"training/{training.sync_name}")


class OverlapMeasured(NamedTuple):
    """What a calibration knows of gradients that travel while backward goes on."""

    calibration: Calibration | None
    ranks: int  # processes at once in which the computing of the cluster's ranks was measured
    is_needed: bool  # whether it has to be known


def train_overlapped(
    training: Training,
    cluster: Cluster,
    measured: OverlapMeasured,
    phases: ComputePhases,
    steps: int,
    carry: Callable[[int], float] | None,
) -> Trace:
    """Return the trace of steps whose gradients travel in buckets while backward goes on.

    The sync is what backward does not hide: the buckets that are still under way when it is through, and waiting for
    the slowest rank. Where torch starts the buckets it is part of backward, as when that is measured, with torch's
    copies into the buckets and back, and forward includes torch's broadcast of the model's buffers; the fact
    ``exposed_s`` says what of backward it is. ``carry`` says how long a bucket of so many bytes takes by itself, unless
    gloo carries it here; what it takes from backward is what gloo's takes from it here, spread over that time. Without
    a calibration of the overlap gradients are there by their shares of the multiplications, and what travels takes
    nothing from backward. Raises InputError where that is not known and the computing is calibrated.
    """
    begin, phases_of_all = 0.0, list[tuple[str, int, float, float]]()
    timeline = _time_overlapped(training, cluster.world_size, measured, phases, carry)
    for step in range(steps):
        one = timeline.phases_from(begin)
        _, end = one["sync"]
        begin = end + phases.optimizer
        one["optimizer"] = end, begin
        phases_of_all += [(name, step, *of_name) for name, of_name in one.items()]
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
    """One step whose gradients travel while backward goes on, up to the optimizer; seconds."""

    overlap: Overlap
    forward: float  # with torch's broadcast of the model's buffers
    exposed: float  # what is left of the sync behind what backward computed
    is_torchs: bool  # buckets that torch starts are part of backward

    def phases_from(self, begin: float) -> dict[str, tuple[float, float]]:
        """Return begin and end of each phase and bucket of a step that begins then."""
        forward = begin + self.forward
        computed, end = forward + self.overlap.computed, forward + self.overlap.computed + self.exposed
        backward = end if self.is_torchs else computed
        found = {"forward": (begin, forward), "backward": (forward, backward), "sync": (backward, end)}
        for number, (since, until) in enumerate(self.overlap.buckets):
            found[f"bucket {number}"] = (forward + since, forward + until)
        return found


def _time_overlapped(
    training: Training,
    ranks: int,
    measured: OverlapMeasured,
    phases: ComputePhases,
    carry: Callable[[int], float] | None,
) -> _OverlappedStep:
    """Return the timeline of a step. Raise InputError as ``train_overlapped`` does."""
    turns, point, together = 1.0, None, None
    if measured.calibration is not None:
        threads, turns = threads_per_rank(ranks), ranks / measured.ranks
        point = measured.calibration.overlap_point(training, measured.ranks, threads)
        together = measured.calibration.compute_point(training, measured.ranks, threads)
    if point is None and measured.is_needed:
        raise InputError(
            f"the calibration has no overlap of {training.model_kind}, {training.data_kind}, batch size "
            f"{training.batch_size}, with {ranks} ranks; make one with `ringlab calibrate SCENARIO`"
        )
    gradients = [Gradient(*each) for each in point.gradients] if point else training.gradients
    buckets = training.fill_buckets(gradients)
    seconds, steal = _carried(buckets, point, carry, turns)
    found = overlap(phases.backward, [bucket.ready for bucket in buckets], seconds, steal)
    is_torchs = training.buckets is None or training.buckets.hook == "ddp"
    broadcast_s, copies_s = (turns * point.broadcast_s, turns * point.copies_s) if point and is_torchs else (0.0, 0.0)
    exposed = found.finished - found.computed + copies_s + (together.wait_s if together else 0.0)
    return _OverlappedStep(found, phases.forward + broadcast_s, exposed, is_torchs)


def _carried(
    buckets: Sequence[Bucket], point: OverlapPoint | None, carry: Callable[[int], float] | None, turns: float
) -> tuple[list[float], float]:
    """Return how long each bucket takes by itself, and what one second of that takes from backward."""
    if carry is None:
        assert point is not None
        return [read_curve(point.all_reduce, bucket.nbytes) for bucket in buckets], point.steal
    seconds = [carry(bucket.nbytes) for bucket in buckets]
    if point is None or sum(seconds) <= 0:
        return seconds, 0.0
    stolen = turns * point.steal * sum(read_curve(point.all_reduce, bucket.nbytes) for bucket in buckets)
    return seconds, stolen / sum(seconds)


def _backward_of_ranks(mean: float, wait: float, ranks: int, *, slowest: int) -> list[float]:
    """Return the seconds of each rank's backward with this mean: one is ``wait`` above it, the others are alike."""
    if ranks == 1:
        return [mean]
    extra = min(wait, mean * (ranks - 1))
    return [mean + extra if rank == slowest else mean - extra / (ranks - 1) for rank in range(ranks)]
