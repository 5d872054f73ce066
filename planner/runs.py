"""Read published runs and a user's own runs from tables.

A user's runs adapt the shipped parameters. They are saved by GPU and framework.
"""

import csv
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from math import inf, prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.input_files import read_text
from collectives.output_files import cache_folder
from collectives.quoting import close_names, quote, suggest
from collectives.records.files import read_record, write_record
from collectives.training.parallelism import FRAMEWORKS, RECOMPUTED
from collectives.units import count
from planner.beliefs import Belief, believe
from planner.columns import Columns, make_columns
from planner.gpus import PRECISIONS, RUN_NAMES, find_gpu
from planner.hosts import CORES, Host, host_of_preset
from planner.jobs import BITS, DIMENSIONS, OFFLOADED, OPTIMIZERS, SCHEDULES, ZERO
from planner.step import step_seconds

SHIPPED = Path(__file__).parent / "data" / "meshes.csv"
NEEDED = ("layers", "hidden", "heads", "vocab", "seq", "gpu", "gpus")
WHOLE = (
    *DIMENSIONS, "micro_batch", "gpus", "dp", "tp", "cp", "pp", "vp", "ep", "sequence_parallel", "async_tp",
    "node_gpus", "lora",
)  # fmt: skip
COLUMNS = (
    *WHOLE, "gpu", "sharding", "schedule", "grad_accum", "precision", "attention", "recompute", "framework", "compile",
    "note", "nic_gbps", "gpu_memory_gb", "optimizer", "frozen_bits", "offload",
)  # fmt: skip
USUAL = {  # defaults of optional columns
    "mlp_matrices": 3, "tied": 0, "experts": 0, "top_k": 0, "expert_ffn": 0, "shared_ffn": 0, "dense_layers": 0,
    "window": 0, "tp": 1, "cp": 1, "pp": 1, "vp": 1, "ep": 1, "sequence_parallel": 0, "async_tp": 0, "compile": 0,
    "micro_batch": 1, "node_gpus": 8, "nic_gbps": 50, "sharding": "ddp", "precision": "bf16", "attention": "flash",
    "recompute": "none", "framework": "other", "status": "ok", "note": "", "source": "yours", "step_s": "",
    "memory_gb": "", "model": "", "tokens_per_s_per_gpu": "", "group": "", "lora": 0, "frozen_bits": "16",
    "optimizer": "adamw", "offload": "none",
}  # fmt: skip
COMMENTS = (  # columns that are ignored
    "row", "version", "mla", "mfu_percent", "tflops", "memory_kind",
)  # fmt: skip
KNOWN = {*COLUMNS, *USUAL, *COMMENTS, "global_batch", "kv_heads", "head_dim", "ffn", "gpu_memory_gb", "step_s"}
MOST_WHOLE, MOST_NUMBER = 2**31, 1e12
MAY_BE_ZERO = {
    "tied", "experts", "top_k", "expert_ffn", "shared_ffn", "dense_layers", "window", "sequence_parallel", "async_tp",
    "compile", "lora",
}  # fmt: skip
NAMED: dict[str, Collection[str]] = {
    "sharding": ZERO, "precision": PRECISIONS, "recompute": RECOMPUTED, "attention": ("flash", "unfused"),
    "schedule": SCHEDULES, "optimizer": OPTIMIZERS, "offload": OFFLOADED, "frozen_bits": BITS,
}  # fmt: skip


SAME = (
    "dp", "tp", "cp", "pp", "vp", "ep", "sharding", "sequence_parallel", "async_tp", "recompute", "micro_batch",
    "precision", "framework", "optimizer", "attention", "lora", "frozen_bits", "offload", "schedule",
)  # fmt: skip
PRESETS = {
    "A100 80GB SXM": "dgx-a100", "H100 SXM": "dgx-h100", "H200 SXM": "dgx-h200", "B200": "dgx-b200",
    "B300": "p6-b300.48xlarge",
}  # fmt: skip
CLUSTERS = {"ultrascale": "p5.48xlarge"}  # the preset of a source's cluster: H100 over EFA
RUN_BUCKETS_MB = 40.0  # usual bucket size of frameworks for language models
NVLINK_SHARE = 0.76  # share of the data sheet's NVLink rate, if the NCCL model lacks the machine


def read_table(path: Path = SHIPPED, *, only_known: bool = False) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the runs of a table, and the number of rejected rows by reason.

    Raise InputError for a file that is not a table, and for missing or repeated columns. With ``only_known``, unknown
    columns raise InputError too, because they may be misspelled.
    """
    head, *rows = _read_rows(path) or [[]]
    for name in NEEDED:
        if name not in head:
            has = f"; this one begins with {quote(','.join(head))}" if head else ""
            raise InputError(
                f"{path}: column {name} is missing; a table of runs has at least {', '.join(NEEDED)}, with commas{has}"
            )
    for name in filter(None, head):
        if head.count(name) > 1:
            raise InputError(f"{path}: column {quote(name)} is repeated; remove one")
        if only_known and name not in KNOWN:
            close = close_names(name, sorted(KNOWN))
            meant = f"did you mean {' or '.join(close)}" if close else f"known columns are in the head of {SHIPPED}"
            raise InputError(f"{path}: unknown column {quote(name)}; {meant}")
    runs, refused = list[dict[str, Any]](), Counter[str]()
    for row in rows:
        try:
            if any(row[len(head) :]):
                raise InputError("the row has more cells than columns")
            runs.append(complete(dict(zip(head, row, strict=False))))
        except InputError as error:
            refused[str(error)] += 1
    return runs, refused


def _read_rows(path: Path) -> list[list[str]]:
    """Return the rows of cells in a table, first the column names. Comments and empty rows are omitted."""
    lines = [line for line in read_text(path).splitlines() if not line.startswith("#")]
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    except csv.Error as error:
        raise InputError(f"{path}: not a table of comma-separated values: {error}") from error
    return [row for row in rows if any(row)]


def complete(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with all columns filled in. Raise InputError for an invalid run."""
    run: dict[str, Any] = {**USUAL, **{key: value for key, value in row.items() if key and value not in (None, "")}}
    for name in NEEDED:
        if name not in run:
            raise InputError(f"{name} is missing")
    for name in (*WHOLE, "grad_accum", "global_batch", "compile"):
        if name in run:
            run[name] = _whole(run, name)
    for name in ("tokens_per_s_per_gpu", "step_s", "memory_gb", "nic_gbps"):
        run[name] = _number(run, name)
    run["recompute"] = "none" if run["recompute"] == "unknown" else run["recompute"]
    for name, known in NAMED.items():
        if name in run and run[name] not in known:
            raise InputError(f"unknown {name} {quote(str(run[name]))}; {suggest(str(run[name]), known)}")
    run["framework"] = run["framework"] if run["framework"] in FRAMEWORKS else "other"
    memory_bytes = find_gpu(str(run["gpu"])).memory_bytes
    run.setdefault("gpu_memory_gb", memory_bytes / 2**30)
    run["gpu_memory_gb"] = _number(run, "gpu_memory_gb")
    _add_model(run)
    _add_mesh(run)
    return run


def _add_model(run: dict[str, Any]) -> None:
    if "head_dim" not in run and run["hidden"] % run["heads"]:
        raise InputError(f"hidden must be a multiple of the {run['heads']} heads, not {run['hidden']}; or set head_dim")
    gated = -(-8 * run["hidden"] // 3 // 256) * 256
    usual = {
        "kv_heads": run["heads"], "head_dim": run["hidden"] // run["heads"],
        "ffn": gated if run["mlp_matrices"] > 2 else 4 * run["hidden"],
    }  # fmt: skip
    for name, value in usual.items():
        run.setdefault(name, value)


def _add_mesh(run: dict[str, Any]) -> None:
    split = run["tp"] * run["cp"] * run["pp"]
    run.setdefault("dp", max(1, run["gpus"] // split))
    if run["dp"] * split != run["gpus"]:
        mesh = " x ".join(f"{name} {run[name]}" for name in ("dp", "tp", "cp", "pp"))
        raise InputError(f"gpus must be the product of the mesh, {mesh}, not {run['gpus']}")
    _check_divided(run)
    samples = run["dp"] * run["micro_batch"]
    run.setdefault("grad_accum", max(1, run.get("global_batch", samples) // samples))
    run.setdefault("global_batch", samples * run["grad_accum"])
    run.setdefault("schedule", "interleaved" if run["vp"] > 1 else "1f1b" if run["pp"] > 1 else "none")
    if run["step_s"] is None and run["tokens_per_s_per_gpu"] is not None:
        run["step_s"] = run["global_batch"] * run["seq"] / run["tokens_per_s_per_gpu"] / run["gpus"]


def _check_divided(run: Mapping[str, Any]) -> None:
    if run["heads"] % run["tp"]:
        raise InputError(f"tp must divide the {run['heads']} heads, not {run['tp']}")
    if run["experts"] % run["ep"]:
        raise InputError(f"ep must divide the {run['experts']} experts, not {run['ep']}")
    if run["top_k"] > run["experts"]:
        raise InputError(f"top_k must be at most the number of experts, {run['experts']}, not {run['top_k']}")


def _whole(run: Mapping[str, Any], name: str) -> int:
    text = str(run[name])
    least = 0 if name in MAY_BE_ZERO else 1
    if not (text.isascii() and text.isdecimal() and least <= int(text[:12]) < MOST_WHOLE):
        raise InputError(f"{name} must be an integer from {least} to {MOST_WHOLE - 1}, not {quote(text)}")
    return int(text)


def _number(run: Mapping[str, Any], name: str) -> float | None:
    text = run[name]
    if text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < MOST_NUMBER:
        raise InputError(f"{name} must be a positive number, not {quote(str(text))}")
    return value


def has_time(run: Mapping[str, Any]) -> bool:
    """Return whether a run has a usable time."""
    return why_untimed(run) is None


def why_untimed(run: Mapping[str, Any]) -> str | None:
    """Return the reason why a run's time cannot be used; None if it can."""
    if run["status"] != "ok":
        return f"status is {quote(str(run['status']))}, which has no time"
    if run["step_s"] is None:
        return "neither step_s nor tokens_per_s_per_gpu is set"
    names = ("dp", "micro_batch", "grad_accum")
    if prod(run[name] for name in names) != run["global_batch"]:
        parts = " x ".join(f"{name} {run[name]}" for name in names)
        return f"{parts} is not global_batch {run['global_batch']}"
    return None


@dataclass(frozen=True, kw_only=True)
class OwnRuns:
    """A user's runs on one GPU type with one framework, stored in a file."""

    SCHEMA_VERSION: ClassVar[int] = 1

    gpu: str
    framework: str
    rows: list[dict[str, str | int | float | None]]
    source: str
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def title(self) -> str:
        """A description: the number of runs, their GPU and framework, the source file and the date."""
        runs = count(len(self.rows), "run")
        return f"{runs} on {self.gpu} with {self.framework}, saved from {self.source} ({self.made})"

    @property
    def belief(self) -> Belief:
        """The belief about the cluster, updated with the user's runs."""
        return belief_of([self])

    def write(self) -> Path:
        """Save the runs and overwrite earlier ones. Return the file."""
        path = runs_file(self.gpu, self.framework)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, self, indent=1)
        return path


class ReadRuns(NamedTuple):
    """The content of a table: usable runs by GPU and framework, and the number of rejected rows by reason."""

    groups: list[OwnRuns]
    refused: Mapping[str, int]


def read_own_runs(path: Path) -> ReadRuns:
    """Return the runs of a user's table that have a time.

    Raise InputError for an unknown column, and if no run has a time.
    """
    table, refused = read_table(path, only_known=True)
    refused.update(filter(None, map(why_untimed, table)))
    timed = [run for run in table if has_time(run)]
    if not timed:
        raise InputError(f"{path}: no run can be used: {'; '.join(refused) or 'the table has no rows'}")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in timed:
        groups.setdefault((gpu_name(run["gpu"]), run["framework"]), []).append(run)
    runs = [
        OwnRuns(gpu=gpu, framework=framework, rows=[_plain(run) for run in runs], source=str(path))
        for (gpu, framework), runs in groups.items()
    ]
    return ReadRuns(runs, refused)


def _plain(run: Mapping[str, Any]) -> dict[str, str | int | float | None]:
    return {name: run[name] for name in (*COLUMNS, "global_batch", "step_s", "memory_gb") if run.get(name) is not None}


def gpu_name(name: str) -> str:
    """Return a GPU's name in the catalog.

    >>> gpu_name("H100")
    'H100 SXM'
    """
    return RUN_NAMES.get(name, name)


def runs_file(gpu: str, framework: str) -> Path:
    """Return the path of the file with the runs on a GPU with a framework.

    >>> runs_file("H100", "torchtitan").name
    'meshes-h100-sxm-torchtitan.json'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", f"{gpu_name(gpu)} {framework}".lower())
    return cache_folder() / f"meshes-{slug}.json"


def find_own_runs(gpu: str, framework: str) -> OwnRuns | None:
    """Return the saved runs of a GPU and framework; None if there are none.

    Framework "other" matches if runs of exactly one framework are saved. Raise InputError if the saved file is invalid.
    """
    path = runs_file(gpu, framework)
    if framework == "other" and not path.is_file():
        files = sorted(path.parent.glob(path.name.replace("-other.", "-*.")))
        known = [record for record in (read_record(file, OwnRuns) for file in files) if record.gpu == gpu_name(gpu)]
        return known[0] if len(known) == 1 else None
    return read_record(path, OwnRuns) if path.is_file() else None


def compare_runs(record: OwnRuns) -> list[tuple[float, float, float]]:
    """Return the measured seconds of each run, and the predicted seconds before and after adaptation."""
    runs = [complete(row) for row in record.rows]
    columns, belief = columns_of_runs(runs), record.belief
    before, after = (step_seconds(columns, estimate.parameters) for estimate in (believe(), belief))
    return [(float(run["step_s"]), float(a), float(b)) for run, a, b in zip(runs, before, after, strict=True)]


def belief_of(groups: Sequence[OwnRuns]) -> Belief:
    """Return the belief updated with the runs of several groups."""
    runs = [complete(row) for group in groups for row in group.rows]
    return believe().adapted(columns_of_runs(runs), np.array([run["step_s"] for run in runs], dtype=float))


@lru_cache(maxsize=256)
def host_of_run(source: str, gpu: str, node_gpus: int, nic_gbps: float) -> Host:
    """Return the host of a run. ``nic_gbps`` is in GB/s per GPU.

    >>> host_of_run("", "H100", 8, 50.0).nic, host_of_run("", "L40S", 8, 5.0).system
    (400000000000.0, None)
    """
    if source in CLUSTERS:
        return host_of_preset(CLUSTERS[source], gpu)
    board, nic = find_gpu(gpu), nic_gbps * 1e9 * node_gpus
    if board.name in PRESETS and node_gpus == 8:
        return host_of_preset(PRESETS[board.name], gpu, nic)
    peer = NVLINK_SHARE * board.peer_rate
    return Host(f"{gpu} x {node_gpus}", gpu, node_gpus, "nvlink", CORES * node_gpus, nic, peer=peer)


def columns_of_runs(runs: Sequence[Mapping[str, Any]]) -> Columns:
    """Return runs with the keys of ``meshes.csv`` as ``Columns``."""
    table: dict[str, Any] = {name: [run[name] for run in runs] for name in (*DIMENSIONS, *SAME)}
    return make_columns(
        {
            **table,
            "host": [host_of_run(run["source"], run["gpu"], run["node_gpus"], run["nic_gbps"]) for run in runs],
            "count": [run["grad_accum"] for run in runs],
            "compiled": [run["compile"] for run in runs],
            "frozen_bits": [str(run["frozen_bits"]) for run in runs],
            "gpu_memory": [(run["gpu_memory_gb"] or inf) * 2**30 for run in runs],
            "bucket_mb": RUN_BUCKETS_MB,
            "gradient_bytes": [2.0 if "PURE" in run["note"] else 4.0 for run in runs],
        },
        len(runs),
    )
