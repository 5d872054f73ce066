"""Save measurements of a system, and adapt predictions for the system to them.

A calibration contains the system description and the measured rows, so it stays valid if the model changes. Every
prediction for the same hardware uses the calibration, for any NCCL version, environment variables and number of
processes. Calibrations do not expire. Delete the file to stop using one.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
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
from simcomm.nccl.measured.tables import MeasuredRow, find_series
from simcomm.nccl.parameters import EachMoved, Floats, Parameters, read_definitions, read_parameters
from simcomm.nccl.predict import (
    COLLECTIVES,
    DEFAULTS,
    NcclPrediction,
    interval_log_limits,
    predict_collective,
    predict_seconds,
)
from simcomm.nccl.settings import NcclSettings

LOOSE = 3.0  # scatter of one system's parameters, as a multiple of the priors' of all systems
SMOOTH = 0.3  # scatter in log time that no parameter explains
OCTAVES = 15.0  # its correlation length, in octaves of size
SHARED = 0.5  # share of its variance that all collectives share
NOISE = 0.03  # scatter of a measured row in log time
NEAR = 0.065  # half-width of the 80 % interval at a measured row, in log time
PER_DEVIATION = 0.75  # added half-width per standard deviation of the process
STEP = 1e-3  # relative step of finite differences


@dataclass(frozen=True)
class PredictedPoints:
    """Predicted times of a system, one point (a collective at a size in bytes) per row of the arrays.

    ``slopes`` are the derivatives of ``log_seconds`` with respect to the logarithm of each parameter, multiplied by the
    standard deviation of that parameter's prior.
    """

    collectives: NDArray[np.str_]
    nbytes: Floats
    log_seconds: Floats
    slopes: Floats

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> "PredictedPoints":
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
    """Predict a collective at sizes in bytes, with slopes (finite differences) for each parameter.

    Raise InputError for an unknown collective, a size below 1 byte, or a system with a single GPU or no network.
    """
    nbytes = np.atleast_1d(np.asarray(sizes, np.float64))
    values = parameters or read_parameters()
    names, spreads = _names_and_spreads()
    moved = EachMoved(values, names, STEP)
    plain, *others = np.log(predict_seconds(system, collective, nbytes, settings=settings, parameters=moved))
    slopes = (np.array(others) - plain).T / STEP * spreads
    return PredictedPoints(np.full(len(nbytes), collective), nbytes, plain, slopes)


def _covariance(points: PredictedPoints, other: PredictedPoints) -> Floats:
    """Return the prior covariance of the log errors of two sets of points, from parameters and a Matern 3/2 kernel."""
    distance = np.sqrt(3) * np.abs(np.log2(points.nbytes)[:, None] - np.log2(other.nbytes)[None, :]) / OCTAVES
    common = np.where(points.collectives[:, None] == other.collectives[None, :], 1.0, SHARED)
    smooth = SMOOTH**2 * common * (1 + distance) * np.exp(-distance)
    total: Floats = LOOSE**2 * (points.slopes @ other.slopes.T) + smooth
    return total


@dataclass(frozen=True)
class Adapted:
    """The model of a system after adaptation to measured points."""

    system: System
    parameters: Parameters | None  # None: Ringlab's own
    known: PredictedPoints
    weights: Floats  # the inverse covariance of the known points times their residuals
    precision: Floats  # that inverse

    @property
    def collectives(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.known.collectives.tolist()))

    def points(
        self, collective: str, sizes: ArrayLike, system: System | None = None, settings: NcclSettings = DEFAULTS
    ) -> PredictedPoints:
        """Predict a collective at sizes in bytes without the adaptation. ``seconds_at`` then adapts the result.

        ``system`` and ``settings`` may differ from the measured run in version, processes and variables. Raise
        InputError as ``find_points`` does.
        """
        return find_points(system or self.system, collective, sizes, settings=settings, parameters=self.parameters)

    def seconds_at(self, points: PredictedPoints) -> Floats:
        """Return the adapted times in seconds of predicted points."""
        seconds: Floats = np.exp(points.log_seconds + _covariance(points, self.known) @ self.weights)
        return seconds

    def seconds(
        self, collective: str, sizes: ArrayLike, system: System | None = None, settings: NcclSettings = DEFAULTS
    ) -> Floats:
        """Return a collective's times in seconds at sizes in bytes. Raise InputError as ``find_points`` does."""
        return self.seconds_at(self.points(collective, sizes, system, settings))

    def log_limits_at(self, points: PredictedPoints) -> Floats:
        """Return the distances in log time from the prediction to the ends of its 80 % interval, as [2, points].

        Row 0 is below the prediction, row 1 above. The interval is narrow near measured sizes, and never wider than
        without measurements.
        """
        shared = _covariance(points, self.known)
        alone = LOOSE**2 * np.sum(points.slopes**2, axis=1) + SMOOTH**2
        variance = alone - np.sum(shared @ self.precision * shared, axis=1)
        width = NEAR + PER_DEVIATION * np.sqrt(np.maximum(variance, 0.0))
        limits: Floats = np.minimum(interval_log_limits(self.system, points.nbytes), width)
        return limits


def adapt_to_points(
    system: System, known: PredictedPoints, seconds: Floats, parameters: Parameters | None = None
) -> Adapted:
    """Return a system's model, adapted to measured ``seconds`` at the predicted points ``known``."""
    measured = _covariance(known, known) + NOISE**2 * np.eye(len(seconds))
    precision = np.asarray(np.linalg.inv(measured), np.float64)
    return Adapted(system, parameters, known, precision @ (np.log(seconds) - known.log_seconds), precision)


def adapt(system: System, rows: Sequence[MeasuredRow]) -> Adapted:
    """Return a system's model, adapted to measured rows. Raise InputError if no row of a known collective has a time.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> eight = describe_preset("dgx-h100", 1, 8)
    >>> adapted = adapt(eight, [MeasuredRow("all_reduce", 2**30, 0.01, None, None)])
    >>> adapted.seconds("all_reduce", [2**30]).round(3)
    array([0.01])
    """
    series = [curve for curve in find_series(rows, system.ranks).values() if curve.collective in COLLECTIVES]
    if not series:
        raise InputError(f"no row has a time; measure one of {', '.join(COLLECTIVES)}")
    points = [find_points(system, curve.collective, curve.nbytes) for curve in series]
    known = PredictedPoints(
        *(np.concatenate([getattr(point, field.name) for point in points]) for field in fields(PredictedPoints))
    )
    return adapt_to_points(system, known, np.concatenate([curve.seconds for curve in series]))


HARDWARE = (
    "nodes", "gpus", "link", "nvlink", "pcie", "lanes", "layout", "p2p", "p2p_refused", "host", "domain", "net", "nic",
    "gdr", "sharp",
)  # fmt: skip
NETWORK = ("domain", "net", "nic", "gdr", "sharp")  # unused by a single host
NOT_ALWAYS_KNOWN = ("cpu",)  # hardware that is saved, but need not match
SOFTWARE = ("procs", "harness", "p2p_level", "algo", "proto")


@dataclass(frozen=True)
class NcclCalibration:
    """A saved calibration: the keys of a system description, and measured rows of (collective, bytes, seconds)."""

    SCHEMA_VERSION: ClassVar[int] = 1

    system: dict[str, str | float | int | bool]
    rows: list[tuple[str, int, float]]
    source: str  # the file of nccl-tests
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def adapted(self) -> Adapted:
        """Return the model, adapted to the measured rows. Raise InputError if the system description is invalid."""
        rows = [MeasuredRow(collective, nbytes, seconds, None, None) for collective, nbytes, seconds in self.rows]
        return adapt(describe_system("calibrated", self.system), rows)

    def write(self, path: Path) -> None:
        """Write the calibration to a JSON file, atomically."""
        write_record(path, self, indent=1)


def system_line(system: System) -> dict[str, Any]:
    """Return the stated keys of a system, without defaults, in the form that ``describe_system`` reads."""
    gpu, version = system.gpu, f"{system.version[0]}.{system.version[1]}"
    always = {"gpu": gpu.name, "generation": gpu.generation, "nvlink": gpu.nvlink, "pcie": gpu.pcie, "nccl": version}
    stated = [key for key in (*HARDWARE, *NOT_ALWAYS_KNOWN, *SOFTWARE) if key not in system.defaulted]
    return {**always, **{key: value for key in stated if (value := getattr(system, key)) is not None}}


def make_calibration(system: System, run: NcclTestsRun, source: str) -> NcclCalibration:
    """Return the calibration of a system from a run of nccl-tests. ``source`` names the file of the run.

    Raise InputError if the run has other hosts or ranks than the system, or if every row has 0 bytes or no time.
    """
    described = f"{system.slug} has {count(system.nodes, 'host')} with {count(system.gpus, 'rank')} each"
    if run.hosts and (run.hosts, run.gpus) != (system.nodes, system.gpus):
        measured = f"{count(run.hosts, 'host')} with {count(run.gpus, 'rank')} each"
        raise InputError(f"{source}: measured on {measured}, but {described}")
    if run.ranks not in (0, system.ranks):
        raise InputError(f"{source}: measured on {count(run.ranks, 'rank')}, but {described}")
    procs = run.procs if run.hosts else system.procs
    version = run.version or system.version
    rows = [(row.collective, row.nbytes, row.seconds) for row in run.rows if row.nbytes > 0 and row.seconds]
    if not rows:
        raise InputError(f"{source}: every row has 0 bytes; use rows with at least 1 byte")
    line = {**system_line(system), "procs": procs, "nccl": f"{version[0]}.{version[1]}"}
    return NcclCalibration(line, rows, source)


def calibration_file(system: System) -> Path:
    """Return the path of the calibration for this hardware."""
    hardware = [key for key in HARDWARE if system.nodes > 1 or key not in NETWORK]
    key = {"gpu": system.gpu.name, **{key: getattr(system, key) for key in hardware}}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / f"nccl-{digest}.json"


def find_calibration(system: System) -> Adapted | None:
    """Return the model adapted to saved measurements of this hardware, or None if there are none.

    Raise InputError if the saved file is invalid.
    """
    path = calibration_file(system)
    return _read_adapted(path, path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _read_adapted(path: Path, changed: int) -> Adapted:
    return read_record(path, NcclCalibration).adapted()  # ``changed`` makes the cache read a new file


def predict_calibrated(
    system: System, collective: str, size_bytes: int, *, settings: NcclSettings = DEFAULTS
) -> NcclPrediction:
    """Return the prediction for a collective of ``size_bytes``, adapted to saved measurements of the hardware.

    Without saved measurements, the prediction is not adapted. Raise InputError as ``predict_collective`` does, and if
    the saved file is invalid.
    """
    adapted = find_calibration(system)
    prediction = predict_collective(system, collective, size_bytes, settings=settings)
    if adapted is None:
        return prediction
    point = adapted.points(collective, [size_bytes], system, settings)
    seconds = float(adapted.seconds_at(point)[0])
    below, above = map(exp, adapted.log_limits_at(point)[:, 0].tolist())
    note = f"adapted to measured rows of {', '.join(adapted.collectives)}: {calibration_file(system)}"
    return replace(
        prediction, seconds=seconds, low=seconds / below, high=seconds * above, notes=(*prediction.notes, note)
    )
