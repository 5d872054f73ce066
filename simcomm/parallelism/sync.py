"""What the devices of the ``data`` axis exchange in a step, by form, as a timeline with the backward that hides it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from collectives.buckets import Bucket, Gradient, fill_buckets
from collectives.parallelism import SHARDED, Parallelism
from simcomm.overlap import overlap
from simcomm.parallelism.fabric import Fabric, Group, sent_bytes
from simcomm.parallelism.timeline import Program

MIB = 1 << 20


@dataclass(frozen=True)
class Unit:
    """Layers that travel together: seconds for a microbatch, and bytes of their parameters as they travel."""

    forward: float
    backward: float
    parameter_bytes: float
    gradient_bytes: float


@dataclass(frozen=True)
class SyncTimes:
    """A step's computing and communication: ``seconds`` in all, of which ``compute`` on the device.

    ``exposed`` is what no computing hides, ``hidden`` the rest; ``sent`` are bytes a device sends.
    """

    seconds: float
    compute: float
    exposed: float
    hidden: float
    sent: float
    spans: tuple[tuple[str, str, float, float], ...] = ()  # name, stream, begin, end


@dataclass(frozen=True)
class DataGroups:
    """The groups of the data axis: all of it, and for hsdp those that share and those that average."""

    fabric: Fabric
    whole: Group
    shard: Group
    replicas: Group


def data_groups(fabric: Fabric, form: Parallelism) -> DataGroups:
    """Return the groups of a mesh: neighbours on the data axis are ``tensor`` devices apart."""
    stride, shard = form.tensor, form.shard or form.data
    return DataGroups(
        fabric, Group(form.data, stride), Group(shard, stride), Group(form.data // shard, stride * shard)
    )  # fmt: skip


def sync_step(units: Sequence[Unit], form: Parallelism, groups: DataGroups, steal: float) -> SyncTimes:
    """Return the times of a step without pipeline, its optimizer apart; units are in the order of forward."""
    if form.data == 1:
        compute = form.pieces * sum(unit.forward + unit.backward for unit in units)
        return SyncTimes(compute, compute, 0.0, 0.0, 0.0)
    if form.form == "data_parallel":
        return _by_one_process(units, form, groups)
    if form.form in SHARDED:
        return _gathered(units, form, groups, steal)
    return _in_buckets(units, form, groups, steal)


def buckets_of(units: Sequence[Unit], bucket_mb: float) -> list[Bucket]:
    """Return DDP's buckets of the units' gradients, with the share of backward after which each is full."""
    whole = sum(unit.backward for unit in units) or 1.0
    done = accumulate(unit.backward / whole for unit in reversed(units))
    gradients = [
        Gradient(round(unit.gradient_bytes), min(1.0, share)) for unit, share in zip(reversed(units), done, strict=True)
    ]
    return fill_buckets([each for each in gradients if each.nbytes], round(bucket_mb * MIB))


def _in_buckets(units: Sequence[Unit], form: Parallelism, groups: DataGroups, steal: float) -> SyncTimes:
    """DDP and ZeRO 1 and 2: gradients travel in buckets while the last backward goes on.

    ZeRO sends each device the sum of its part only, and afterwards everyone's parameters to all.
    """
    collective = "all_reduce" if form.form == "ddp" else "reduce_scatter"
    found, group = buckets_of(units, form.bucket_mb), groups.whole
    if not form.overlap:
        found = [Bucket(sum(bucket.nbytes for bucket in found), 1.0)]
    seconds = [groups.fabric.seconds(collective, bucket.nbytes, group) for bucket in found]
    forward, backward = sum(unit.forward for unit in units), sum(unit.backward for unit in units)
    before = form.pieces * forward + (form.pieces - 1) * backward
    times = overlap(backward, [bucket.ready for bucket in found], seconds, steal)
    sent = sum(sent_bytes(collective, bucket.nbytes, group) for bucket in found)
    gathered, compute = 0.0, before + backward
    if form.form != "ddp":
        nbytes = sum(unit.parameter_bytes for unit in units)
        gathered = groups.fabric.seconds("all_gather", nbytes, group)
        sent += sent_bytes("all_gather", nbytes, group)
    ideal = overlap(backward, [bucket.ready for bucket in found], seconds, 0.0)
    exposed = ideal.finished - backward + gathered
    spans = [("forward", "compute", 0.0, before), ("backward", "compute", before, before + times.computed)]
    spans += [("sync", "communication", before + begin, before + end) for begin, end in times.buckets]
    end = before + times.finished
    spans += [("all_gather", "communication", end, end + gathered)] if gathered else []
    hidden = max(0.0, sum(seconds) + gathered - exposed)
    return SyncTimes(end + gathered, compute, exposed, hidden, sent, tuple(spans))


def _gathered(units: Sequence[Unit], form: Parallelism, groups: DataGroups, steal: float) -> SyncTimes:
    """ZeRO 3 and FSDP: a unit's parameters are gathered before each use, ``prefetch`` units ahead.

    Its gradients are scattered after its backward; HSDP then averages them between its groups. All collectives of a
    device take turns, as on one communicator.
    """
    issued = _Issued(Program(), groups.fabric)
    computed: list[int] = []
    order = [(number, False) for number in range(len(units))] + [(n, True) for n in reversed(range(len(units)))]
    compute = form.pieces * sum(unit.forward + unit.backward for unit in units)
    for _ in range(form.pieces):
        waiting: int | None = None  # a unit whose gradients are scattered once the next gather is on its way
        for number, is_backward in order:
            unit, needs = units[number], list[int]()
            if not is_backward or number < len(units) - 1:  # the last one is there still
                held = computed[-1 - form.prefetch :][:1] if len(computed) > form.prefetch else []
                needs = [issued.collective("all_gather", unit.parameter_bytes, groups.shard, *held)]
            if waiting is not None:
                _scatter(issued, units[waiting], groups, computed[-1])
            name, seconds = ("backward", unit.backward) if is_backward else ("forward", unit.forward)
            computed.append(issued.program.add(name, (0, "compute"), seconds, *needs))
            waiting = number if is_backward else None
        _scatter(issued, units[0], groups, computed[-1])
    intervals = issued.program.intervals()
    finished = max(interval.end for interval in intervals)
    exposed = finished - compute
    hidden = max(0.0, issued.seconds - exposed)
    spans = tuple(
        (task.name, task.stream[1], *interval) for task, interval in zip(issued.program.tasks, intervals, strict=True)
    )
    return SyncTimes(finished + steal * hidden, compute, exposed, hidden, issued.sent, spans)


@dataclass
class _Issued:
    """A program with the collectives that a device has issued, one after the other."""

    program: Program
    fabric: Fabric
    seconds: float = 0.0
    sent: float = 0.0

    def collective(self, kind: str, nbytes: float, group: Group, *after: int) -> int:
        """Issue a collective; return the number of its task."""
        seconds = self.fabric.seconds(kind, nbytes, group)
        self.seconds += seconds
        self.sent += sent_bytes(kind, nbytes, group)
        return self.program.add(kind, (0, "communication"), seconds, *after)


def _scatter(issued: _Issued, unit: Unit, groups: DataGroups, after: int) -> None:
    """Issue what a unit's gradients need once its backward, task ``after``, is done."""
    number = issued.collective("reduce_scatter", unit.gradient_bytes, groups.shard, after)
    if groups.replicas.size > 1:
        issued.collective("all_reduce", unit.gradient_bytes / groups.shard.size, groups.replicas, number)


def _by_one_process(units: Sequence[Unit], form: Parallelism, groups: DataGroups) -> SyncTimes:
    """``nn.DataParallel``: parameters to all devices, all compute, gradients back to the first; nothing overlaps."""
    parameters, gradients = sum(unit.parameter_bytes for unit in units), sum(unit.gradient_bytes for unit in units)
    there = groups.fabric.seconds("broadcast", parameters, groups.whole)
    back = groups.fabric.seconds("reduce", gradients, groups.whole)
    compute = form.pieces * sum(unit.forward + unit.backward for unit in units)
    exposed = there + back
    forward = form.pieces * sum(unit.forward for unit in units)
    spans = (
        ("broadcast", "communication", 0.0, there),
        ("forward", "compute", there, there + forward),
        ("backward", "compute", there + forward, there + compute),
        ("reduce", "communication", there + compute, there + compute + back),
    )
    return SyncTimes(compute + exposed, compute, exposed, 0.0, parameters + gradients, spans)
