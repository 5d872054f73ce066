"""A user's own runs: what they make of the shipped parameters, and where they are kept by GPU and framework."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.output_files import cache_folder
from collectives.records.files import read_record, write_record
from collectives.units import count
from simcomm.mesh_search.columns import COLUMNS, to_columns
from simcomm.mesh_search.devices import NAMES
from simcomm.mesh_search.runs import complete, has_time, read_table, why_untimed
from simcomm.mesh_search.step import step_seconds
from simcomm.mesh_search.uncertainty import Belief, believe


@dataclass(frozen=True, kw_only=True)
class OwnRuns:
    """Runs on one kind of GPU by one framework, as rows of a table, and the file that they are from."""

    SCHEMA_VERSION: ClassVar[int] = 1

    gpu: str
    framework: str
    rows: list[dict[str, str | int | float | None]]
    source: str
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def title(self) -> str:
        """Which runs these are."""
        return (
            f"{count(len(self.rows), 'run')} on {self.gpu} by {self.framework}, kept from {self.source} ({self.made})"
        )

    @property
    def belief(self) -> Belief:
        """What is believed of the cluster after them."""
        return belief_of([self])

    def write(self) -> Path:
        """Keep them, in place of those before. Return the file."""
        path = runs_file(self.gpu, self.framework)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, self, indent=1)
        return path


class ReadRuns(NamedTuple):
    """Runs of a table by GPU and framework, and why other rows were left out."""

    groups: list[OwnRuns]
    refused: Mapping[str, int]


def read_own_runs(path: Path) -> ReadRuns:
    """Return the runs of a user's table that have a time.

    Raises InputError for a column that is not known, as it may be one with a slip in it, and where there is no such
    run.
    """
    table, refused = read_table(path, only_known=True)
    refused.update(filter(None, map(why_untimed, table)))
    timed = [run for run in table if has_time(run)]
    if not timed:
        raise InputError(f"{path}: no run can be used: {'; '.join(refused) or 'there are no rows below the columns'}")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in timed:
        groups.setdefault((gpu_name(run["gpu"]), run["framework"]), []).append(run)
    found = [
        OwnRuns(gpu=gpu, framework=framework, rows=[_plain(run) for run in runs], source=str(path))
        for (gpu, framework), runs in groups.items()
    ]
    return ReadRuns(found, refused)


def _plain(run: Mapping[str, Any]) -> dict[str, str | int | float | None]:
    return {name: run[name] for name in (*COLUMNS, "global_batch", "step_s", "memory_gb") if run.get(name) is not None}


def gpu_name(name: str) -> str:
    """Return a GPU's name in the catalogue.

    >>> gpu_name("H100")
    'H100 SXM'
    """
    return NAMES.get(name, name)


def runs_file(gpu: str, framework: str) -> Path:
    """Return the file that keeps the runs of a GPU and framework.

    >>> runs_file("H100", "torchtitan").name
    'meshes-h100-sxm-torchtitan.json'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", f"{gpu_name(gpu)} {framework}".lower())
    return cache_folder() / f"meshes-{slug}.json"


def find_own_runs(gpu: str, framework: str) -> OwnRuns | None:
    """Return the runs that are kept of a GPU and framework, None where there are none. Raise InputError.

    ``framework`` "other" is one that is not named: where runs of only one are kept, it is that.
    """
    path = runs_file(gpu, framework)
    if framework == "other" and not path.is_file():
        files = sorted(path.parent.glob(path.name.replace("-other.", "-*.")))
        known = [one for one in (read_record(file, OwnRuns) for file in files) if one.gpu == gpu_name(gpu)]
        return known[0] if len(known) == 1 else None
    return read_record(path, OwnRuns) if path.is_file() else None


def compare_runs(own: OwnRuns) -> list[tuple[float, float, float]]:
    """Return of each run the measured seconds, those predicted without any, and those after adapting."""
    runs = [complete(row) for row in own.rows]
    meshes, belief = to_columns(runs), own.belief
    before, after = (step_seconds(meshes, one.parameters).total for one in (believe(), belief))
    return [(float(run["step_s"]), float(a), float(b)) for run, a, b in zip(runs, before, after, strict=True)]


def belief_of(groups: Sequence[OwnRuns]) -> Belief:
    """Return what is believed after the runs of several groups."""
    runs = [complete(row) for group in groups for row in group.rows]
    return believe().adapted(to_columns(runs), np.array([run["step_s"] for run in runs], dtype=float))
