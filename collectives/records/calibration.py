"""Store measurements of a machine, from which runs on it are predicted. ``realcomm`` measures, ``simcomm`` predicts.

``PairProbes`` are measurements between two hosts with known links, for the transport ``gloo-tcp``.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, TypeVar

from collectives.checks import MOST_SECONDS, check_number, check_whole_number
from collectives.costs.message_classes import EXCHANGE, FAN_IN, FAN_OUT, MessageClass
from collectives.errors import InputError
from collectives.output_files import cache_folder
from collectives.quoting import quote
from collectives.records.environment import describe_environment
from collectives.records.files import read_record, write_record
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport

SizeTimes = list[tuple[int, float]]  # (nbytes, seconds): medians of several repetitions


PARTS = 4  # number of folds; the spread of their predictions is the uncertainty


@dataclass(frozen=True)
class CrowdRound:
    """One round of measurements on two hosts that run more ranks than they have cores (a *crowd*).

    In each step, each rank exchanges small messages with one or more ranks on the other host.
    """

    ranks: int
    step: float  # seconds of a later step in which each rank sends and receives one message
    further: float  # additional seconds for each further message that every rank sends in a step
    waking: float  # additional seconds of the first steps, whose ranks were asleep before
    # (messages of all ranks, seconds) of gloo's own barrier and all_gather
    own: SizeTimes = field(default_factory=list)


@dataclass(frozen=True)
class PairProbes:
    """Message times between two hosts that are connected to one switch. Each host runs one rank, except in ``crowds``.

    ``send_done`` and ``arrived`` are times of the same messages, which were sent one at a time, long after the receive
    was posted. Both times start when the sender posts the message. ``send_done`` ends when the sender's wait returns,
    and ``arrived`` ends when the receiver's wait returns.
    """

    bandwidth: float  # bytes/s of every link in each direction, as the shaper counts
    mtu: int
    burst: int  # bytes that a link's token bucket saves
    one_way: SizeTimes  # half of a round trip in which the second message returns the data of the first
    chains: list[tuple[int, int, float]]  # (nbytes, messages, total seconds) of dependent messages
    exchange: SizeTimes  # one of several dependent steps in which both ranks send and receive
    send_done: SizeTimes
    arrived: SizeTimes
    window: int  # bytes that the connection may have in flight: the congestion window, capped by the receiver's window
    in_flight: int  # unacknowledged bytes in the middle of the largest message: median of samples
    rtt: float  # minimum round trip of the connection in seconds
    send_buffer: int  # bytes: maximum of nbytes - goodput * send_done
    reduction: SizeTimes  # one addition by both ranks at the same time
    # (messages of the smallest size in one step, CPU seconds of the sender)
    at_once: SizeTimes = field(default_factory=list)
    crowds: list[CrowdRound] = field(default_factory=list)  # rounds of all crowds
    cores: int = 0  # cores of the machine, shared by all ranks; 0 if not measured
    software: float = 1.0  # factor on the measured software times, to compute their effect on a prediction

    @property
    def parts(self) -> list["PairProbes"]:
        """The measurements, split into folds with different crowd rounds. Empty if there are too few rounds."""
        if len(self.crowds) < 2 * PARTS:
            return []
        return [replace(self, crowds=self.crowds[part::PARTS]) for part in range(PARTS)]

    @property
    def goodput(self) -> float:
        """The bandwidth in bytes/s that a link has for the payload of TCP, after packet headers.

        For a full packet, a traffic shaper counts the MTU and 14 bytes of Ethernet header. The MTU includes 20 bytes of
        IPv4 header (RFC 791) and 32 bytes of TCP header with time stamps (RFC 9293, RFC 7323).
        """
        return self.bandwidth * (self.mtu - 52) / (self.mtu + 14)


FRESH_FOR = timedelta(hours=24)
BUSY_OTHERS = 0.10  # a machine is busy if other processes use a larger share of its cores
BUSY_STEAL = 0.02  # a machine is busy if its hypervisor takes a larger share
SLOWER = 1.1  # factor on software times, to compute the effect of slower cores on a prediction


@dataclass(frozen=True)
class FittedLine:
    """A line ``seconds = fixed + per_byte * nbytes``, and the measured points to which it was fitted."""

    fixed: float
    per_byte: float
    worst_residual: float  # largest |fitted - measured| / measured
    points: list[tuple[int, float]] = field(default_factory=list)  # (nbytes, seconds): medians


Points = Sequence[tuple[float, float]]


def read_curve(points: Points, x: float) -> float:
    """Return the value at ``x`` of a curve, which is linear between ``points`` and constant before the first one.

    After the last point, the curve continues with its last slope, or stays constant if that slope is negative. A curve
    with a single point is proportional to ``x`` after it.

    >>> [read_curve([(10.0, 1.0), (20.0, 3.0)], x) for x in (5, 15, 30)]
    [1.0, 2.0, 5.0]
    """
    if x <= points[0][0] or len(points) == 1:
        return points[0][1] if x <= points[0][0] else points[0][1] * x / points[0][0]
    at = min(max(1, bisect_left(points, (x,))), len(points) - 1)
    (left, low), (right, high) = points[at - 1], points[at]
    slope = (high - low) / (right - left)
    return high + (x - right) * max(0.0, slope) if x > right else low + (x - left) * slope


@dataclass(frozen=True)
class MessageCurve:
    """The median time in seconds of messages of one class, at several message sizes."""

    pattern: str
    width: int
    reduces: bool
    is_first: bool
    points: list[tuple[int, float]]  # (nbytes, seconds), in ascending order
    in_training: bool = False  # measured during a training step, in place of the sync

    def __post_init__(self) -> None:
        sizes = [nbytes for nbytes, _ in self.points]
        check_whole_number("the width of a message class", self.width, at_least=1)
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
            raise InputError(f"the sizes of a message class must be positive and increasing, not {sizes[:5]}")
        for _, seconds in self.points:
            if check_number("a message", seconds, "seconds", at_least=0) > MOST_SECONDS:
                raise InputError(f"the time of a message must be at most {MOST_SECONDS:g} s, not {seconds}")


@dataclass(frozen=True)
class QueuedMessages:
    """The costs of GPU messages that all go in one direction, so that no rank waits for a reply.

    The host posts the messages one after another without waiting for them. The GPU executes them in this order.
    """

    posting_s: float  # host time to post the messages of one step
    points: list[tuple[int, float]]  # (nbytes, GPU seconds of one message), in ascending order

    def __post_init__(self) -> None:
        seconds = [self.posting_s, *(each for _, each in self.points)]
        if not self.points or not all(0 <= second <= MOST_SECONDS for second in seconds):
            raise InputError(f"queued messages must have times from 0 to {MOST_SECONDS:g} s, not {self.points[:5]}")

    def seconds(self, nbytes: int) -> float:
        """Return the time in seconds that the GPU takes for a message of ``nbytes`` bytes."""
        return read_curve(self.points, nbytes)


@dataclass(frozen=True)
class ComputePoint:
    """The time of each phase of a model's training step, with ``processes`` processes running at the same time.

    If there are several processes, they exchange messages between backward and optimizer, as in training. Times are
    means over ranks.
    """

    model: str
    dataset: str
    batch_size: int
    processes: int
    threads: int  # of each process
    phases: ComputePhases
    spread: float  # interquartile range of the step time, divided by its median
    wait_s: float = 0.0  # wait for the slowest rank before a sync: mean over ranks, median over steps
    division_s: float = 0.0  # time to divide the sum of the gradients by the number of ranks


@dataclass(frozen=True)
class OverlapPoint:
    """The costs of synchronizing gradient buckets during backward, as DistributedDataParallel does."""

    model: str
    dataset: str
    batch_size: int
    processes: int
    threads: int  # of each process
    gradients: list[tuple[int, float]]  # (bytes, share of backward after which it is ready), in order
    all_reduce: list[tuple[int, float]]  # (nbytes, seconds) of the backend's own all_reduce alone
    overlap_slowdown: float  # additional seconds of backward per second of overlapped all_reduce
    copies_s: float  # time to copy all gradients into the buckets and back
    broadcast_s: float  # time to broadcast the model's buffers before forward

    def __post_init__(self) -> None:
        if not self.gradients or not self.all_reduce:
            raise InputError("the gradient or all_reduce times of an overlap measurement are missing; calibrate again")


Point = TypeVar("Point", ComputePoint, OverlapPoint)


@dataclass(frozen=True)
class MachineLoad:
    """The shares of CPU time that other processes and other virtual machines took during a measurement."""

    others: float  # share used by other processes
    steal: float  # share that a hypervisor gave to other machines
    names: list[str] = field(default_factory=list)  # names of the busiest other processes, in descending order

    @property
    def is_busy(self) -> bool:
        return self.others > BUSY_OTHERS or self.steal > BUSY_STEAL

    def describe(self) -> str:
        """Describe the load if it is too high for a measurement. Otherwise, return an empty string.

        >>> MachineLoad(others=0.31, steal=0.0, names=["cc1plus"]).describe()
        "other processes took 31% of this machine's cores (cc1plus)"
        """
        named = f" ({', '.join(self.names)})" if self.names else ""
        clauses = [f"other processes took {self.others:.0%} of this machine's cores{named}"] * (
            self.others > BUSY_OTHERS
        )
        clauses += [f"its hypervisor gave {self.steal:.0%} of them to other machines"] * (self.steal > BUSY_STEAL)
        return " and ".join(clauses)


@dataclass(frozen=True)
class Calibration:
    """The measured costs of messages, reductions and training steps on this machine, with ``ranks`` processes.

    >>> line = FittedLine(fixed=2e-5, per_byte=1e-9, worst_residual=0.0)
    >>> measured = Calibration(ranks=2, threads=1, one_way=line, both_ways=line, reduction=line)
    >>> measured.transport(goodput=0.9).overhead
    2e-05
    """

    SCHEMA_VERSION: ClassVar[int] = 5

    ranks: int
    threads: int  # per rank, while measuring
    one_way: FittedLine  # one message at a time, from rank 0 to rank 1
    both_ways: FittedLine  # every rank sends to its right neighbor and receives from its left neighbor at once
    reduction: FittedLine  # every rank reduces one buffer into another at once
    backend: str = "gloo"
    compute: list[ComputePoint] = field(default_factory=list)
    message_classes: list[MessageCurve] = field(default_factory=list)
    overlap: list[OverlapPoint] = field(default_factory=list)
    parts: list["Calibration"] = field(default_factory=list)  # folds, whose spread is the uncertainty
    load: MachineLoad | None = None  # the machine's other load during the measurement
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    environment: dict[str, str | int] = field(default_factory=describe_environment)
    pair: PairProbes | None = None  # measured on two emulated hosts, for emulated clusters
    queued: QueuedMessages | None = None  # measured on GPUs

    def __post_init__(self) -> None:
        try:
            aware = datetime.fromisoformat(self.created).tzinfo is not None
        except ValueError:
            aware = False
        if not aware:
            raise InputError(
                f"created must be a time with a time zone, such as 2026-01-31T12:00:00+00:00, not {quote(self.created)}"
            )
        if any(part.parts for part in self.parts):
            raise InputError("parts of a calibration must not contain parts themselves; calibrate again")

    def with_slower_cores(self, times: float) -> "Calibration":
        """Return a copy for an emulated cluster on which software and compute take ``times`` times as long.

        Raise InputError if the calibration contains no measurements between two hosts.
        """
        if self.pair is None:
            raise InputError("the calibration has no measurements between two hosts; run `ringlab calibrate`")
        slower = [replace(entry, phases=entry.phases.times(times)) for entry in self.compute]
        return replace(self, pair=replace(self.pair, software=times), compute=slower, parts=[])

    def transport(self, goodput: float) -> Transport:
        """Return the software costs of this machine. ``goodput`` is the payload's share of the line rate."""
        return Transport(
            f"{self.backend}-tcp", self.one_way.fixed, goodput, self.reduction.per_byte, f"calibrated {self.created}"
        )

    def compute_point(self, training: Training, processes: int, threads: int) -> ComputePoint | None:
        return _find_point(self.compute, training, processes, threads)

    def overlap_point(self, training: Training, processes: int, threads: int) -> OverlapPoint | None:
        return _find_point(self.overlap, training, processes, threads)

    def phases(self, training: Training, processes: int, threads: int) -> ComputePhases | None:
        point = self.compute_point(training, processes, threads)
        return point.phases if point else None

    def message_seconds(self, message_class: MessageClass, in_training: bool = False) -> float:
        """Return the time of a message in seconds, from the curve that was measured under the most similar conditions.

        The time of an exchange is scaled to its width. Raise InputError if no message class was measured.
        """
        if not self.message_classes:
            raise InputError("the calibration has no message times; run `ringlab calibrate`")
        curve = min(self.message_classes, key=lambda curve: _unlikeness(curve, message_class, in_training))
        seconds = read_curve(curve.points, message_class.nbytes)
        messages = message_class.width / curve.width if message_class.pattern == EXCHANGE else 1.0
        return seconds * messages

    @property
    def age_s(self) -> float:
        """The age of the calibration in seconds."""
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.created)).total_seconds())

    def is_fresh(self) -> bool:
        """Return whether the calibration is less than a day old and was made on this machine with the same software."""
        return timedelta(seconds=self.age_s) < FRESH_FOR and self.environment == describe_environment()

    def write(self, path: Path | str) -> None:
        """Write the calibration to ``path`` as JSON. An existing file is replaced atomically."""
        write_record(path, self, indent=1)


def _find_point(points: Sequence[Point], training: Training, processes: int, threads: int) -> Point | None:
    key = (training.model_kind, training.data_kind, training.batch_size, processes, threads)
    return next((p for p in points if (p.model, p.dataset, p.batch_size, p.processes, p.threads) == key), None)


def _unlikeness(curve: MessageCurve, message_class: MessageClass, in_training: bool) -> tuple[object, ...]:
    """Return a sort key that is smallest for the curve whose conditions are most similar to the message class."""
    fans = (FAN_IN, FAN_OUT)
    sizes = [nbytes for nbytes, _ in curve.points]
    elsewhere = curve.in_training != in_training
    return (
        (curve.pattern == EXCHANGE) != (message_class.pattern == EXCHANGE),
        curve.pattern != message_class.pattern and (curve.pattern in fans) != (message_class.pattern in fans),
        curve.reduces != message_class.reduces,
        elsewhere and message_class.nbytes not in sizes,
        abs(curve.width - message_class.width),
        curve.is_first != message_class.is_first,
        message_class.nbytes not in sizes,
        elsewhere,
        curve.pattern != message_class.pattern,
        -len(sizes),
    )


def cache_file(ranks: int, backend: str = "gloo") -> Path:
    """Return the path of the cached calibration for ``ranks``. Raise InputError if there is no home directory."""
    return cache_folder() / f"calibration-{backend}-{ranks}.json"


def is_cached(ranks: int, backend: str = "gloo") -> bool:
    """Return whether this machine has a cached calibration for ``ranks``. It may be outdated.

    >>> is_cached(10**100)
    False
    """
    try:
        return cache_file(ranks, backend).is_file()
    except (OSError, ValueError):  # the name is too long, the directory is not readable, or there is no home
        return False


def read_calibration(path: Path | str) -> Calibration:
    """Read a calibration from ``path``. Raise InputError if the file is not a valid calibration.

    >>> from tempfile import TemporaryDirectory
    >>> line = FittedLine(fixed=2e-5, per_byte=1e-9, worst_residual=0.0)
    >>> with TemporaryDirectory() as folder:
    ...     Calibration(2, 1, one_way=line, both_ways=line, reduction=line).write(Path(folder, "two.json"))
    ...     read_calibration(Path(folder, "two.json")).ranks
    2
    """
    return read_record(path, Calibration)


def check_calibration(calibration: object) -> Calibration | None:
    """Return ``calibration``. Raise InputError if it is neither a Calibration nor None."""
    if calibration is not None and not isinstance(calibration, Calibration):
        raise InputError(f"calibration must be a Calibration, for example from read_calibration, not {calibration!r}")
    return calibration


def cached_calibration(ranks: int, backend: str = "gloo") -> Calibration:
    """Return the cached calibration of this machine for ``ranks``.

    Raise InputError if there is none, or if it is too old or was made in another environment. The message contains the
    command that makes a new one.
    """
    path = cache_file(ranks, backend)
    make = f"`ringlab calibrate --ranks {ranks}" + ("`" if backend == "gloo" else f" --backend {backend}`")
    if not is_cached(ranks, backend):
        raise InputError(f"no calibration of this machine for {ranks} ranks; make one with {make}")
    calibration = read_calibration(path)
    if not calibration.is_fresh():
        raise InputError(
            f"{path}: this calibration is older than a day or was made with other software or hardware; "
            f"renew it with {make}"
        )
    return calibration
