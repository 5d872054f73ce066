"""A user's own measurements of a system, kept so that predictions for it are adapted to them.

The record holds the description and the measured rows, not what was made of them, so a better model makes more of an
old calibration. It belongs to hardware: a prediction for the same hosts finds it, whatever version, variables or
processes it asks about. It does not age; delete the file to be rid of it.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from math import exp
from pathlib import Path
from typing import Any, ClassVar

from collectives.errors import InputError
from collectives.records.files import read_record, write_record
from collectives.units import count
from simcomm.nccl.adapt import Adapted, adapt
from simcomm.nccl.descriptions import System, describe_system
from simcomm.nccl.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.predict import DEFAULTS, NcclPrediction, predict_collective
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.tables import Row

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
        rows = [Row(collective, nbytes, seconds, None, None) for collective, nbytes, seconds in self.rows]
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
    if (run.hosts, run.gpus) != (system.nodes, system.gpus):
        raise InputError(
            f"{source}: measured on {count(run.hosts, 'host')} with {count(run.gpus, 'rank')} each; {system.slug} is "
            f"described with {system.nodes} and {system.gpus}"
        )
    procs = "per_gpu" if run.processes > run.hosts or run.gpus == 1 else "single"
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
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_folder / "ringlab" / f"nccl-{digest}.json"


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


def described_run(run: NcclTestsRun, line: Mapping[str, Any], name: str) -> System:
    """Return the system of a run on a machine or by other keys of a line: hosts and ranks are those of the run."""
    return describe_system(name, {**line, "nodes": run.hosts, "gpus": run.gpus})
