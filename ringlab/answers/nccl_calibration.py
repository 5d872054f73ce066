"""``NcclCalibrationAnswer``: a user's own nccl-tests output, kept so that predictions for that hardware are adapted."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.quoting import close_names
from ringlab.shared.answer import Record
from scenarios import Scenario, shipped
from simcomm.cluster.presets import machine_entries
from simcomm.nccl.catalogue import match_gpu
from simcomm.nccl.descriptions import System, describe_system, own_machines, read_systems
from simcomm.nccl.measured.calibration import calibration_file, make_calibration
from simcomm.nccl.measured.nccl_tests import read_nccl_tests
from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.predict import predict_seconds


@dataclass(frozen=True)
class MeasuredRow(Record):
    """A measured row, and what was predicted before; seconds."""

    collective: str
    nbytes: int
    measured: float
    predicted: float


@dataclass(frozen=True)
class NcclCalibrationAnswer(Record):
    """The rows that were read, beside what the model says without them, and the file that keeps them."""

    system: str
    hosts: int
    ranks: int
    rows: tuple[MeasuredRow, ...]
    file: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON."""
        return {"kind": "nccl calibration", **super().to_dict()}


def calibrate_nccl(
    file: Path | str,
    scenario: Scenario | None = None,
    system: str | None = None,
    keys: Sequence[str] = (),
    collective: str | None = None,
) -> NcclCalibrationAnswer:
    """Read what nccl-tests wrote, and keep it for predictions of the system that it was measured on.

    The system is that of a scenario with ``transport = "nccl"``, or ``system``: a described one, a described machine or
    a machine of the hardware catalogue; without either the GPU that the output names, with ``keys`` like ``nic=25`` of
    a description's line. Hosts and ranks are those of the output. Raises InputError.
    """
    run = read_nccl_tests(file, collective)
    found = _of_scenario(scenario) if scenario is not None else _of_words(file, run, system, keys)
    _check_gpu(file, run, found)
    calibration = make_calibration(found, run, str(file))
    measured = describe_system(found.slug, calibration.system)
    rows = tuple(
        MeasuredRow(name, nbytes, seconds, float(predict_seconds(measured, name, nbytes)[0]))
        for name, nbytes, seconds in calibration.rows
    )
    calibration.adapted()
    path = calibration_file(measured)
    calibration.write(path)
    return NcclCalibrationAnswer(found.slug, run.hosts, run.ranks, rows, str(path))


def _check_gpu(file: Path | str, run: NcclTestsRun, system: System) -> None:
    """Raise InputError where the output names another GPU than the system's; boards of one chip are alike."""
    gpu = match_gpu(run.gpu_name) if run.gpu_name else None
    if gpu is not None and (gpu.generation, gpu.model) != (system.gpu.generation, system.gpu.model):
        raise InputError(
            f"{file}: measured on {run.gpu_name!r}, and {system.slug} has {system.gpu.name}; name the machine that it "
            "was measured on"
        )


def _of_scenario(scenario: Scenario) -> System:
    system = getattr(scenario.cluster, "system", None)
    if not isinstance(system, System):
        raise InputError(f'{scenario.path}: nccl-tests measure NCCL; give a scenario with transport = "nccl"')
    return replace(system, slug=scenario.path.name) if isinstance(scenario.path, Path) else system


def _of_words(file: Path | str, run: NcclTestsRun, name: str | None, keys: Sequence[str]) -> System:
    """Return the system by its name and keys, with the hosts and ranks of the run."""
    where = {"nodes": run.hosts, "gpus": run.gpus, **_parse_keys(keys)}
    systems = read_systems()
    if name in systems and not keys:
        return systems[name]
    if name is not None:
        return describe_system(name, {**_machine_line(name), **where})
    if "gpu" not in where:
        gpu = match_gpu(run.gpu_name)
        if gpu is None:
            raise InputError(f"{file}: {run.gpu_name!r} is no GPU of the catalogue; name the machine with --system")
        where["gpu"] = gpu.name
    if run.hosts > 1 and not {"net", "nic"} <= where.keys():
        raise InputError(
            f"{file}: what joins the {run.hosts} hosts? name the machine with --system, or give for example "
            "--set net=ib --set nic=25 (GB/s of all NICs of a host)"
        )
    return describe_system(str(where["gpu"]), where)


def _machine_line(name: str) -> dict[str, Any]:
    """Return the beginning of a line: a described machine, or one of the hardware catalogue. Raise InputError."""
    machines = own_machines()
    if name in machines:
        return {"machine": name}
    described = [machine for machine, line in machines.items() if line.get("preset") == name]
    if described:
        return {"machine": described[0]}
    if name in shipped():
        raise InputError(f"--system {name}: that is a scenario; give it before the options, without --system")
    close = close_names(name, [*machines, *machine_entries()])
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(f"--system {name}: {meant}`ringlab hardware` lists the machines that there are")


def _parse_keys(keys: Sequence[str]) -> Mapping[str, Any]:
    """Return ``key=value`` texts as a line's keys; a value that TOML does not know is a text."""
    found: dict[str, Any] = {}
    for text in keys:
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"--set {text}: give KEY=VALUE, for example nic=25")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value.strip()
    return found
