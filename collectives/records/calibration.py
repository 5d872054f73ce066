"""What was measured of a machine to predict runs on it: realcomm writes it, simcomm reads it."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from collectives.errors import InputError
from collectives.records.environment import describe_environment
from collectives.records.files import read_record, write_record
from collectives.transport import Transport
from collectives.workload import ComputePhases, Training

FRESH_FOR = timedelta(hours=24)


@dataclass(frozen=True)
class Line:
    """A fitted line, ``seconds = fixed + per_byte * nbytes``, with the points that it was fitted to."""

    fixed: float
    per_byte: float
    worst_residual: float  # largest |fitted - measured| / measured
    points: list[tuple[int, float]] = field(default_factory=list)  # (nbytes, seconds), each a median


@dataclass(frozen=True)
class ComputePoint:
    """The phases of a model's training step, measured in ``processes`` processes at once that do not communicate."""

    model: str
    dataset: str
    batch_size: int
    processes: int
    threads: int  # of each process
    phases: ComputePhases
    spread: float  # interquartile range of the step time over its median


@dataclass(frozen=True)
class Calibration:
    """The costs of this machine as ``ranks`` processes see them: messages, reductions and training steps.

    >>> line = Line(fixed=2e-5, per_byte=1e-9, worst_residual=0.0)
    >>> measured = Calibration(ranks=2, threads=1, one_way=line, both_ways=line, reduction=line)
    >>> measured.transport(goodput=0.9).overhead
    2e-05
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    ranks: int
    threads: int  # per rank, while measuring
    one_way: Line  # one message at a time, from rank 0 to rank 1
    both_ways: Line  # every rank sends to its right neighbour and receives from its left at once
    reduction: Line  # every rank reduces a buffer into another at once
    backend: str = "gloo"
    compute: list[ComputePoint] = field(default_factory=list)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    environment: dict[str, str | int] = field(default_factory=describe_environment)

    def transport(self, goodput: float) -> Transport:
        """Return what this machine's software adds to a network whose payload gets ``goodput`` of the line rate."""
        return Transport(
            f"{self.backend}-tcp", self.one_way.fixed, goodput, self.reduction.per_byte, f"calibrated {self.created}"
        )

    def phases(self, training: Training, processes: int, threads: int) -> ComputePhases | None:
        """Return the measured phases of such a training step; None where they were not measured."""
        for point in self.compute:
            of_point = (point.model, point.dataset, point.batch_size, point.processes, point.threads)
            if of_point == (training.model, training.dataset, training.batch_size, processes, threads):
                return point.phases
        return None

    def is_fresh(self) -> bool:
        """Return whether it was made within a day, on this machine with this software."""
        age = datetime.now(UTC) - datetime.fromisoformat(self.created)
        return age < FRESH_FOR and self.environment == describe_environment()

    def write(self, path: Path | str) -> None:
        """Write the calibration to ``path`` as JSON, whole or not at all."""
        write_record(path, self, indent=1)


def cache_file(ranks: int, backend: str = "gloo") -> Path:
    """Return the file that keeps the calibration of this machine with so many ranks. Raise InputError without a home.

    >>> cache_file(2).name
    'calibration-gloo-2.json'
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise InputError("there is no home folder to keep calibrations in; set XDG_CACHE_HOME to a folder") from error
    return cache / "ringlab" / f"calibration-{backend}-{ranks}.json"


def is_cached(ranks: int, backend: str = "gloo") -> bool:
    """Return whether there is a calibration of this machine with so many ranks, whatever it is worth.

    >>> is_cached(10**100)
    False
    """
    try:
        return cache_file(ranks, backend).is_file()
    except (OSError, ValueError):  # a name that is too long, a folder that may not be read, or no home
        return False


def read_calibration(path: Path | str) -> Calibration:
    """Return the calibration in a file. Raise InputError that names the file and what is wrong with it.

    >>> from tempfile import TemporaryDirectory
    >>> line = Line(fixed=2e-5, per_byte=1e-9, worst_residual=0.0)
    >>> with TemporaryDirectory() as folder:
    ...     Calibration(2, 1, one_way=line, both_ways=line, reduction=line).write(Path(folder, "two.json"))
    ...     read_calibration(Path(folder, "two.json")).ranks
    2
    """
    return read_record(path, Calibration)


def cached_calibration(ranks: int, backend: str = "gloo") -> Calibration:
    """Return the fresh calibration of this machine with so many ranks.

    Raises InputError that says how to make one where it is missing, too old or of another environment.
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
