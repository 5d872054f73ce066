"""A user's own measurements of a system, kept so that predictions for it are adapted to them.

The record holds the description and the measured rows, not what was made of them, so a better model makes more of an
old calibration. It belongs to hardware: a prediction for the same hosts finds it, whatever version, variables or
processes it asks about. It does not age; delete the file to be rid of it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from math import exp
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectives.errors import InputError
from collectives.output_files import cache_folder
from collectives.records.files import read_record, write_record
from collectives.units import count
from simcomm.nccl.descriptions import System, describe_system
from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.measured.tables import MeasuredRow, MeasuredTable
from simcomm.nccl.parameters import EachMoved, Parameters, read_definitions, read_parameters
from simcomm.nccl.predict import (
    COLLECTIVES,
    DEFAULTS,
    NcclPrediction,
    interval_log_limits,
    predict_collective,
    predict_seconds,
)
from simcomm.nccl.settings import NcclSettings

Floats = NDArray[np.float64]
LOOSE = 3.0  # a system's own parameters scatter so many times as much as the priors of those of all systems
SMOOTH = 0.3  # in log time: scatter of what no parameter explains
OCTAVES = 15.0  # of size over which that stays alike
SHARED = 0.5  # of its variance that all collectives have in common
NOISE = 0.03  # in log time: scatter of a measured row
NEAR, PER_DEVIATION = (
    0.065,
    0.75,
)  # half-width of 80 %: at a measured row, and for each standard deviation of the process
STEP = 1e-3  # of the differences, a share of each parameter


@dataclass(frozen=True)
class PredictedPoints:
    """Sizes of collectives on a system, with the logarithms of predicted seconds; one a row.

    ``slopes``: their derivatives by the logarithm of each parameter, times the spread of its prior.
    """

    collectives: NDArray[np.str_]
    nbytes: Floats
    log_seconds: Floats
    slopes: Floats

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> "PredictedPoints":
        """Return some of the rows."""
        return PredictedPoints(self.collectives[rows], self.nbytes[rows], self.log_seconds[rows], self.slopes[rows])


@cache
def _names_and_spreads() -> tuple[tuple[str, ...], Floats]:
    definitions = read_definitions()
    return tuple(definitions), np.array([definition.spread for definition in definitions.values()])


def find_points(
    system: System,
    collective: str,
    sizes: ArrayLike,
    *,
    settings: NcclSettings = DEFAULTS,
    parameters: Parameters | None = None,
) -> PredictedPoints:
    """Return predicted times at sizes in bytes with their derivatives by differences. Raise InputError."""
    nbytes = np.atleast_1d(np.asarray(sizes, np.float64))
    values = parameters or read_parameters()
    names, spreads = _names_and_spreads()
    moved = EachMoved(values, names, STEP)
    plain, *others = np.log(predict_seconds(system, collective, nbytes, settings=settings, parameters=moved))
    slopes = (np.array(others) - plain).T / STEP * spreads
    return PredictedPoints(np.full(len(nbytes), collective), nbytes, plain, slopes)


def _covariance(one: PredictedPoints, other: PredictedPoints) -> Floats:
    """Return the covariance of the residuals of two lists of points (smooth part: Matern, 3/2)."""
    distance = np.sqrt(3) * np.abs(np.log2(one.nbytes)[:, None] - np.log2(other.nbytes)[None, :]) / OCTAVES
    common = np.where(one.collectives[:, None] == other.collectives[None, :], 1.0, SHARED)
    smooth = SMOOTH**2 * common * (1 + distance) * np.exp(-distance)
    total: Floats = LOOSE**2 * (one.slopes @ other.slopes.T) + smooth
    return total


@dataclass(frozen=True)
class Adapted:
    """A system's model, its measured points, and what they say of any other."""

    system: System
    parameters: Parameters | None  # None: those that are shipped
    known: PredictedPoints
    weights: Floats  # the inverse covariance of the known points times their residuals
    precision: Floats  # that inverse

    @property
    def collectives(self) -> tuple[str, ...]:
        """The collectives that have rows."""
        return tuple(dict.fromkeys(self.known.collectives.tolist()))

    def points(
        self, collective: str, sizes: ArrayLike, system: System | None = None, settings: NcclSettings = DEFAULTS
    ) -> PredictedPoints:
        """Return points to be predicted. Raise InputError.

        ``system`` and ``settings`` may have another version, process or variable than when the rows were measured.
        """
        return find_points(system or self.system, collective, sizes, settings=settings, parameters=self.parameters)

    def seconds_at(self, points: PredictedPoints) -> Floats:
        """Return the adapted seconds at points."""
        seconds: Floats = np.exp(points.log_seconds + _covariance(points, self.known) @ self.weights)
        return seconds

    def seconds(
        self, collective: str, sizes: ArrayLike, system: System | None = None, settings: NcclSettings = DEFAULTS
    ) -> Floats:
        """Return the seconds of a collective at sizes in bytes. Raise InputError."""
        return self.seconds_at(self.points(collective, sizes, system, settings))

    def log_limits_at(self, points: PredictedPoints) -> Floats:
        """Return how far the 80 % interval's ends are below and above in log time, [2, points].

        It is narrow near a row, and nowhere wider than that of the bare model.
        """
        shared = _covariance(points, self.known)
        alone = LOOSE**2 * np.sum(points.slopes**2, axis=1) + SMOOTH**2
        variance = alone - np.sum(shared @ self.precision * shared, axis=1)
        width = NEAR + PER_DEVIATION * np.sqrt(np.maximum(variance, 0.0))
        least: Floats = np.minimum(interval_log_limits(self.system, points.nbytes), width)
        return least


def adapt_to_points(
    system: System, known: PredictedPoints, seconds: Floats, parameters: Parameters | None = None
) -> Adapted:
    """Return the model adapted to the seconds that were measured at points of a system."""
    measured = _covariance(known, known) + NOISE**2 * np.eye(len(seconds))
    precision = np.asarray(np.linalg.inv(measured), np.float64)
    return Adapted(system, parameters, known, precision @ (np.log(seconds) - known.log_seconds), precision)


def adapt(system: System, rows: Sequence[MeasuredRow]) -> Adapted:
    """Return the model adapted to measured rows of a system. Raise InputError where none of them says anything.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> eight = describe_preset("dgx-h100", 1, 8)
    >>> adapted = adapt(eight, [MeasuredRow("all_reduce", 2**30, 0.01, None, None)])
    >>> adapted.seconds("all_reduce", [2**30]).round(3)
    array([0.01])
    """
    series = [
        one
        for one in MeasuredTable(system.slug, tuple(rows)).series(system.ranks).values()
        if one.collective in COLLECTIVES
    ]
    if not series:
        raise InputError(f"no row of {', '.join(COLLECTIVES)} with a time to adapt to")
    points = [find_points(system, one.collective, one.nbytes) for one in series]
    known = PredictedPoints(
        np.concatenate([one.collectives for one in points]),
        np.concatenate([one.nbytes for one in points]),
        np.concatenate([one.log_seconds for one in points]),
        np.concatenate([one.slopes for one in points]),
    )
    return adapt_to_points(system, known, np.concatenate([one.seconds for one in series]))


HARDWARE = (
    "nodes", "gpus", "link", "nvlink", "pcie", "lanes", "layout", "p2p", "p2p_refused", "host", "domain", "net", "nic",
    "gdr", "sharp",
)  # fmt: skip
NETWORK = ("domain", "net", "nic", "gdr", "sharp")  # of which one host by itself uses nothing
NOT_ALWAYS_KNOWN = ("cpu",)  # of hardware: kept, but a prediction that does not say it finds the record too
SOFTWARE = ("procs", "harness", "p2p_level", "algo", "proto")


@dataclass(frozen=True)
class NcclCalibration:
    """A description as the keys of a line, and the rows measured on it: collective, bytes, seconds."""

    SCHEMA_VERSION: ClassVar[int] = 1

    system: dict[str, str | float | int | bool]
    rows: list[tuple[str, int, float]]
    source: str  # the file that nccl-tests wrote
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def adapted(self) -> Adapted:
        """Return the model adapted to the rows. Raise InputError."""
        rows = [MeasuredRow(collective, nbytes, seconds, None, None) for collective, nbytes, seconds in self.rows]
        return adapt(describe_system("calibrated", self.system), rows)

    def write(self, path: Path) -> None:
        """Write the record as JSON, whole or not at all."""
        write_record(path, self, indent=1)


def write_line(system: System) -> dict[str, Any]:
    """Return the keys that describe the same system again.

    >>> line = write_line(describe_system("mine", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090", "layout": "two"}))
    >>> line["layout"], "lanes" in line
    ('two', False)
    """
    gpu, version = system.gpu, f"{system.version[0]}.{system.version[1]}"
    always = {"gpu": gpu.name, "generation": gpu.generation, "nvlink": gpu.nvlink, "pcie": gpu.pcie, "nccl": version}
    said = [key for key in (*HARDWARE, *NOT_ALWAYS_KNOWN, *SOFTWARE) if key not in system.defaulted]
    return {**always, **{key: value for key in said if (value := getattr(system, key)) is not None}}


def make_calibration(system: System, run: NcclTestsRun, source: str) -> NcclCalibration:
    """Return the record of a run on a described system. Raise InputError where they do not go together."""
    said = f"{system.slug} is described with {system.nodes} and {system.gpus}"
    if run.hosts and (run.hosts, run.gpus) != (system.nodes, system.gpus):
        raise InputError(
            f"{source}: measured on {count(run.hosts, 'host')} with {count(run.gpus, 'rank')} each; {said}"
        )
    if run.ranks not in (0, system.ranks):
        raise InputError(f"{source}: measured on {count(run.ranks, 'rank')}; {said}")
    procs = run.procs if run.hosts else system.procs
    version = run.version or system.version
    rows = [(row.collective, row.nbytes, row.seconds) for row in run.rows if row.nbytes > 0 and row.seconds]
    if not rows:
        raise InputError(f"{source}: no row with bytes to send")
    line = {**write_line(system), "procs": procs, "nccl": f"{version[0]}.{version[1]}"}
    return NcclCalibration(line, rows, source)


def calibration_file(system: System) -> Path:
    """Return the file that keeps the calibration of this hardware.

    >>> calibration_file(describe_system("mine", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"})).name[:5]
    'nccl-'
    """
    hardware = [key for key in HARDWARE if system.nodes > 1 or key not in NETWORK]
    key = {"gpu": system.gpu.name, **{key: getattr(system, key) for key in hardware}}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / f"nccl-{digest}.json"


def find_calibration(system: System) -> Adapted | None:
    """Return the model adapted to what was measured of this hardware; None where nothing was. Raise InputError."""
    path = calibration_file(system)
    return _read_adapted(path, path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _read_adapted(path: Path, changed: int) -> Adapted:
    """Return the adapted model of a file, read again when it has changed."""
    return read_record(path, NcclCalibration).adapted()


def predict_calibrated(
    system: System, collective: str, size_bytes: int, *, settings: NcclSettings = DEFAULTS
) -> NcclPrediction:
    """Return what ``predict_collective`` does, adapted where measurements of this hardware are kept. Raise InputError.

    >>> predict_calibrated(describe_system("mine", {"nodes": 1, "gpus": 3, "gpu": "RTX 4090"}), "reduce", 1024).protocol
    'll'
    """
    adapted = find_calibration(system)
    if adapted is None:
        return predict_collective(system, collective, size_bytes, settings=settings)
    found = predict_collective(system, collective, size_bytes, settings=settings)
    point = adapted.points(collective, [size_bytes], system, settings)
    seconds = float(adapted.seconds_at(point)[0])
    below, above = map(exp, adapted.log_limits_at(point)[:, 0].tolist())
    note = f"adapted to measured rows of {', '.join(adapted.collectives)}: {calibration_file(system)}"
    return replace(found, seconds=seconds, low=seconds / below, high=seconds * above, notes=(*found.notes, note))
