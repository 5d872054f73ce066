"""The exchange of the ``data`` axis in a step, by strategy, as a timeline with the backward that hides it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from collectives.training.gradients import BUCKET_BYTES, FIRST_BYTES, Bucket, Gradient, fill_buckets
from collectives.training.parallelism import SHARDED, Parallelism
from planner.hosts import Group
from planner.mesh.calls import Call, join_calls
from planner.mesh.interconnect import Interconnect
from planner.mesh.layers import Counts
from simcomm.timeline import Program, overlap

MIB = 1 << 20
COMPUTE, COMMUNICATION = (0, "compute"), (0, "communication")
SAME = 1e-9  # of backward: shares of it that differ by less are one


@dataclass(frozen=True)
class Unit:
    """Layers that are gathered together: seconds for a microbatch, and bytes of their parameters as they travel.

    Of the seconds those of collectives within the layers are ``forward_calls`` and ``backward_calls``. The bytes of
    experts are apart: fewer devices have the same.
    """

    forward: float
    backward: float
    parameter_bytes: float
    gradient_bytes: float
    forward_calls: float = 0.0
    backward_calls: float = 0.0
    expert_bytes: float = 0.0
    expert_gradient_bytes: float = 0.0

    @classmethod
    def of(cls, counts: Counts, weight: float, gradient: float) -> "Unit":
        """Return a unit of so many parameters, of ``weight`` bytes each and ``gradient`` bytes of its gradient."""
        return cls(
            forward=0.0,
            backward=0.0,
            parameter_bytes=counts.shared * weight,
            gradient_bytes=counts.shared * gradient,
            expert_bytes=counts.expert * weight,
            expert_gradient_bytes=counts.expert * gradient,
        )

    def joined(self, other: "Unit") -> "Unit":
        """Return the unit with the seconds of layers behind it that have no parameters."""
        seconds = ("forward", "backward", "forward_calls", "backward_calls")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in seconds})


NO_ROOT = Unit(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class DeviceWork:
    """What a device computes and has to exchange: units in the order of forward, gradients in that of backward.

    The parameters of the ``root`` are those of no unit: they are gathered once, and kept until backward is through.
    The gradients ``of_experts`` are averaged among the devices that have the same experts; ``largest`` are the bytes of
    the parameters of the layer with most.
    """

    units: Sequence[Unit]
    gradients: Sequence[Gradient]
    root: Unit = NO_ROOT
    of_experts: Sequence[Gradient] = ()
    largest: float = 0.0


@dataclass(frozen=True)
class SyncTimes:
    """A step's computing and communication: ``seconds`` in all, of which ``compute`` on the device.

    ``exposed`` is what no computing hides; ``calls`` are what a device takes part in.
    """

    seconds: float
    compute: float
    exposed: float
    calls: tuple[Call, ...] = ()
    spans: tuple[tuple[str, str, float, float], ...] = ()  # name, stream, begin, end

    @property
    def sent(self) -> float:
        """Bytes that a device sends."""
        return sum(call.sent for call in self.calls)


@dataclass(frozen=True)
class DataGroups:
    """The groups of the data axis: all of it, for hsdp those that share and those that average, and of one expert."""

    fabric: Interconnect
    whole: Group
    shard: Group
    replicas: Group
    experts: Group


def data_groups(fabric: Interconnect, parallelism: Parallelism) -> DataGroups:
    """Return the groups of a mesh: neighbours on the data axis are ``tensor`` devices apart."""
    stride, shard = parallelism.tensor, parallelism.shard or parallelism.data
    return DataGroups(
        fabric, Group(parallelism.data, stride), Group(shard, stride), Group(parallelism.data // shard, stride * shard),
        Group(parallelism.data // parallelism.expert, stride * parallelism.expert),
    )  # fmt: skip


def sync_step(work: DeviceWork, parallelism: Parallelism, groups: DataGroups, slowdown: float) -> SyncTimes:
    """Return the times of a step without pipeline, its optimizer apart."""
    if parallelism.data == 1:
        compute = parallelism.pieces * sum(unit.forward + unit.backward for unit in work.units)
        return SyncTimes(compute, compute, 0.0)
    if parallelism.strategy in ("data_parallel", "parameter_server"):
        return _there_and_back(work, parallelism, groups)
    if parallelism.strategy in SHARDED:
        return _gathered(work, parallelism, groups, slowdown)
    return _in_buckets(work, parallelism, groups, slowdown)


def _in_buckets(work: DeviceWork, parallelism: Parallelism, groups: DataGroups, slowdown: float) -> SyncTimes:
    """DDP and ZeRO 1 and 2: gradients travel in DDP's buckets while the last backward goes on.

    ZeRO sends each device the sum of its part only, and afterwards everyone's parameters to all.
    """
    collective = "all_reduce" if parallelism.strategy in ("ddp", "zero_redundancy") else "reduce_scatter"
    found, calls = _fill_buckets(work, parallelism, groups, collective)
    seconds = [groups.fabric.seconds(*call[:3]) for call in calls]
    forward, backward = (sum(getattr(unit, name) for unit in work.units) for name in ("forward", "backward"))
    before = parallelism.pieces * forward + (parallelism.pieces - 1) * backward
    times = overlap(backward, [bucket.ready for bucket in found], seconds, slowdown)
    afterwards = _afterwards(work, parallelism, groups)
    gathered = sum(call.times * groups.fabric.seconds(*call[:3]) for call in afterwards)
    ideal = overlap(backward, [bucket.ready for bucket in found], seconds, 0.0)
    exposed = ideal.finished - backward + gathered
    spans = [("forward", "compute", 0.0, before), ("backward", "compute", before, before + times.computed)]
    spans += [("sync", "communication", before + begin, before + end) for begin, end in times.buckets]
    end = before + times.finished
    spans += [(afterwards[0].collective, "communication", end, end + gathered)] if gathered else []
    return SyncTimes(end + gathered, before + backward, exposed, join_calls([*calls, *afterwards]), tuple(spans))


def _fill_buckets(
    work: DeviceWork, parallelism: Parallelism, groups: DataGroups, collective: str
) -> tuple[list[Bucket], list[Call]]:
    """Return the buckets in the order in which they are full, those of experts apart, and the call of each."""
    size = round(parallelism.bucket_mb * MIB)  # torch begins with less only where it is told nothing
    pairs = list[tuple[Bucket, Call]]()
    for gradients, group in ((work.gradients, groups.whole), (work.of_experts, groups.experts)):
        found = fill_buckets(gradients, size, FIRST_BYTES if size == BUCKET_BYTES else size)
        if found and not parallelism.overlap:
            found = [Bucket(sum(bucket.nbytes for bucket in found), 1.0)]
        pairs += [(bucket, Call(collective, bucket.nbytes, group)) for bucket in found if group.size > 1]
    pairs.sort(key=lambda pair: pair[0].ready)
    return [bucket for bucket, _ in pairs], [call for _, call in pairs]


def _compute(program: Program, unit: Unit, *after: int, is_backward: bool) -> int:
    """Add a unit's computing with the collectives within it; return the number of its task."""
    name = "backward" if is_backward else "forward"
    return program.add(name, COMPUTE, unit.backward if is_backward else unit.forward, *after)


def _afterwards(work: DeviceWork, parallelism: Parallelism, groups: DataGroups) -> tuple[Call, ...]:
    """Return what brings the parameters that the devices have changed to all: at once, or each from its owner."""
    if parallelism.strategy == "ddp":
        return ()
    if parallelism.strategy == "zero_redundancy":
        pairs = ((work.gradients, groups.whole), (work.of_experts, groups.experts))
        return join_calls(Call("broadcast", one.nbytes, group) for gradients, group in pairs for one in gradients)
    shared, own = (sum(getattr(unit, name) for unit in work.units) for name in ("parameter_bytes", "expert_bytes"))
    bytes_of = ((shared, groups.whole), (own, groups.experts))
    return join_calls(Call("all_gather", nbytes, group) for nbytes, group in bytes_of if nbytes)


def _gathered(work: DeviceWork, parallelism: Parallelism, groups: DataGroups, slowdown: float) -> SyncTimes:
    """ZeRO 3 and FSDP: a unit's parameters are gathered before each use, ``prefetch`` units ahead.

    Its gradients are scattered after its backward; HSDP then averages them between its groups. Collectives of a group
    take turns, as on one communicator; those of HSDP's two kinds of group are on two, and go on side by side
    (``all_reduce_stream`` of torch's ``fsdp/_fully_shard/_fsdp_collectives.py``).
    """
    issued, compute = (
        _issue(work, parallelism, groups),
        parallelism.pieces * sum(unit.forward + unit.backward for unit in work.units),
    )
    intervals = issued.program.intervals()
    finished = max(interval.end for interval in intervals)
    exposed = finished - compute
    hidden = max(0.0, issued.seconds - exposed)
    spans = tuple(
        (task.name, task.stream[1], *interval) for task, interval in zip(issued.program.tasks, intervals, strict=True)
    )
    return SyncTimes(finished + slowdown * hidden, compute, exposed, join_calls(issued.calls), spans)


def _issue(work: DeviceWork, parallelism: Parallelism, groups: DataGroups) -> "_Issued":
    """Return the program of a step whose parameters are gathered, unit by unit."""
    issued, units = _Issued(Program(), groups.fabric), work.units
    computed: list[int] = []
    order = [(number, False) for number in range(len(units))] + [(n, True) for n in reversed(range(len(units)))]
    for _ in range(parallelism.pieces):
        waiting: Unit | None = None  # whose gradients are scattered once the next gather is on its way
        needs = issued.gather(work.root, groups, *computed[-1:])
        for number, is_backward in order:
            unit, ahead = units[number], parallelism.prefetch
            if is_backward:  # none is gathered again before all of forward is through
                ahead = min(ahead, len(units) - 1 - number)
            needs += issued.gather(unit, groups, *(computed[-1 - ahead :][:1] if len(computed) > ahead else []))
            if waiting is not None:
                issued.scatter(waiting, groups, computed[-1])
            computed.append(_compute(issued.program, unit, *needs, is_backward=is_backward))
            waiting, needs = unit if is_backward else None, []
        for unit in (units[0], work.root):
            issued.scatter(unit, groups, computed[-1])
    return issued


@dataclass
class _Issued:
    """A program with the collectives that a device has issued, one after the other."""

    program: Program
    fabric: Interconnect
    seconds: float = 0.0
    calls: list[Call] = field(default_factory=list)

    def gather(self, unit: Unit, groups: DataGroups, *after: int) -> list[int]:
        """Issue the gathering of a unit's parameters, if it has any; return the numbers of the tasks to wait for."""
        parts = ((unit.parameter_bytes, groups.shard), (unit.expert_bytes, groups.experts))
        return [self._collective("all_gather", nbytes, group, *after) for nbytes, group in parts if nbytes]

    def scatter(self, unit: Unit, groups: DataGroups, after: int) -> None:
        """Issue what a unit's gradients need once its backward, task ``after``, is done."""
        if unit.expert_gradient_bytes:
            self._collective("reduce_scatter", unit.expert_gradient_bytes, groups.experts, after)
        if not unit.gradient_bytes:
            return
        number = self._collective("reduce_scatter", unit.gradient_bytes, groups.shard, after)
        if groups.replicas.size > 1:
            nbytes = unit.gradient_bytes / groups.shard.size
            self._collective("all_reduce", nbytes, groups.replicas, number, stream=(0, "replicas"))

    def _collective(
        self, kind: str, nbytes: float, group: Group, *after: int, stream: tuple[int, str] = COMMUNICATION
    ) -> int:
        """Issue a collective; return the number of its task."""
        seconds = self.fabric.seconds(kind, nbytes, group)
        self.seconds += seconds
        self.calls.append(Call(kind, nbytes, group))
        return self.program.add(kind, stream, seconds, *after)


def _there_and_back(work: DeviceWork, parallelism: Parallelism, groups: DataGroups) -> SyncTimes:
    """``nn.DataParallel`` and parameter servers: parameters to all devices, compute, gradients back; nothing overlaps.

    Of the former the first device has both; of the latter those that the fabric says.
    """
    units = work.units
    parameters, gradients = (
        sum(getattr(unit, name) for unit in units) for name in ("parameter_bytes", "gradient_bytes")
    )
    if parallelism.strategy == "parameter_server":
        served = groups.fabric.serve(parameters, work.largest, groups.whole)
        there = back = served.seconds / 2
        kinds = ("all_gather", "reduce_scatter") if served.is_spread else ("broadcast", "reduce")
    else:
        kinds = ("broadcast", "reduce")
        there, back = (
            groups.fabric.seconds(kind, nbytes, groups.whole)
            for kind, nbytes in zip(kinds, (parameters, gradients), strict=True)
        )
    calls = (Call(kinds[0], parameters, groups.whole), Call(kinds[1], gradients, groups.whole))
    compute = parallelism.pieces * sum(unit.forward + unit.backward for unit in units)
    exposed = there + back
    forward = parallelism.pieces * sum(unit.forward for unit in units)
    spans = (
        (kinds[0], "communication", 0.0, there),
        ("forward", "compute", there, there + forward),
        ("backward", "compute", there + forward, there + compute),
        (kinds[1], "communication", there + compute, there + compute + back),
    )
    return SyncTimes(compute + exposed, compute, exposed, calls, spans)
