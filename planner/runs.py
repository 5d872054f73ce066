"""Read tables of published training runs and of a user's own runs, which adapt the fitted parameters."""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any, ClassVar

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
from planner.gpus import PRECISIONS, find_gpu
from planner.hosts import CORES, Host, host_of_preset
from planner.jobs import BITS, CHOICES, DEFAULTS, OPTIMIZERS, SCHEDULES, ZERO

SHIPPED = Path(__file__).parent / "data" / "meshes.csv"
NEEDED = ("layers", "hidden", "heads", "vocab", "seq", "gpu", "gpus")
INTEGERS: dict[str, tuple[int, int]] = {  # the least value and the default of columns with integers
    **dict.fromkeys(("tp", "cp", "pp", "vp", "ep", "micro_batch"), (1, 1)), "node_gpus": (1, 8), "mlp_matrices": (1, 3),
    **dict.fromkeys(("tied", "experts", "top_k", "expert_ffn", "shared_ffn", "dense_layers", "window"), (0, 0)),
    **dict.fromkeys(("sequence_parallel", "async_tp", "compile", "lora"), (0, 0)),
}  # fmt: skip
COUNTS = ("kv_heads", "head_dim", "ffn", "dp", "grad_accum", "global_batch")  # their defaults follow from other columns
NUMBERS = {"nic_gbps": 50.0, "tokens_per_s_per_gpu": "", "step_s": "", "memory_gb": "", "gpu_memory_gb": ""}
NAMED: dict[str, tuple[Collection[str], str]] = {  # accepted values and defaults; a default of "" follows from others
    "sharding": (ZERO, "ddp"), "precision": (PRECISIONS, "bf16"), "recompute": (RECOMPUTED, "none"),
    "attention": (CHOICES["attention"], "flash"), "optimizer": (OPTIMIZERS, "adamw"),
    "frozen_bits": (BITS, "16"), "schedule": (SCHEDULES, ""),
}  # fmt: skip
TEXTS = {"framework": "other", "status": "ok", "note": "", "source": "yours", "model": "", "group": ""}
USUAL = {
    **{name: default for name, (_, default) in (INTEGERS | NAMED).items() if default != ""}, **NUMBERS, **TEXTS,
}  # fmt: skip
IGNORED = ("row", "version", "mla", "mfu_percent", "tflops", "memory_kind")
KNOWN = {*NEEDED, *COUNTS, *NAMED, *USUAL, *IGNORED}
MOST_WHOLE, MOST_NUMBER = 2**31, 1e12
PRESETS = {
    "A100 80GB SXM": "dgx-a100", "H100 SXM": "dgx-h100", "H200 SXM": "dgx-h200", "B200": "dgx-b200",
    "B300": "p6-b300.48xlarge",
}  # fmt: skip
CLUSTERS = {"ultrascale": "p5.48xlarge"}  # the preset of a source's cluster: H100 over EFA
RUN_BUCKETS_MB = 40.0  # usual bucket size of frameworks for language models
NVLINK_SHARE = 0.76  # share of the data sheet's NVLink rate, if the NCCL model lacks the machine


def read_table(path: Path = SHIPPED) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the runs of a table, and the number of rejected rows by reason.

    Raise InputError if the file is not a table, or if a column is missing, repeated or unknown.
    """
    lines = [line for line in read_text(path).splitlines() if not line.startswith("#")]
    try:
        cells = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    except csv.Error as error:
        raise InputError(f"{path}: not a table of comma-separated values: {error}") from error
    head, *rows = [row for row in cells if any(row)] or [[]]
    for name in NEEDED:
        if name not in head:
            has = f", not {quote(','.join(head))}" if head else ""
            raise InputError(
                f"{path}: column {name} is missing; the first row must name at least {', '.join(NEEDED)}{has}"
            )
    for name in filter(None, head):
        if head.count(name) > 1:
            raise InputError(f"{path}: column {quote(name)} is repeated; remove one")
        if name not in KNOWN:
            close = close_names(name, sorted(KNOWN))
            hint = f"did you mean {' or '.join(close)}" if close else f"the heading of {SHIPPED} has all columns"
            raise InputError(f"{path}: unknown column {quote(name)}; {hint}")
    runs, refused = list[dict[str, Any]](), Counter[str]()
    for row in rows:
        try:
            if any(row[len(head) :]):
                raise InputError("the row has more cells than the table has columns")
            runs.append(complete(dict(zip(head, row, strict=False))))
        except InputError as error:
            refused[str(error)] += 1
    return runs, refused


def complete(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with defaults in empty columns. Raise InputError if a cell is invalid, or empty but required."""
    run: dict[str, Any] = {**USUAL, **{key: value for key, value in row.items() if key and value not in (None, "")}}
    for name in NEEDED:
        if name not in run:
            raise InputError(f"{name} is missing")
    for name in (*NEEDED, *INTEGERS, *COUNTS):
        if name in run and name != "gpu":
            run[name] = _whole(name, str(run[name]), INTEGERS.get(name, (1,))[0])
    for name in NUMBERS:
        run[name] = _number(name, run[name])
    run["recompute"] = "none" if run["recompute"] == "unknown" else run["recompute"]
    for name, (known, _) in NAMED.items():
        if name in run and (value := str(run[name])) not in known:
            raise InputError(f"unknown {name} {quote(value)}; {suggest(value, known)}")
    run["framework"] = run["framework"] if run["framework"] in FRAMEWORKS else "other"
    run["gpu_memory_gb"] = run["gpu_memory_gb"] or find_gpu(str(run["gpu"])).memory_bytes / 2**30
    if "head_dim" not in run and run["hidden"] % run["heads"]:
        raise InputError(f"hidden must be a multiple of the {run['heads']} heads, not {run['hidden']}; or set head_dim")
    gated = -(-8 * run["hidden"] // 3 // 256) * 256
    run.setdefault("kv_heads", run["heads"])
    run.setdefault("head_dim", run["hidden"] // run["heads"])
    run.setdefault("ffn", gated if run["mlp_matrices"] > 2 else 4 * run["hidden"])
    split = run["tp"] * run["cp"] * run["pp"]
    run.setdefault("dp", max(1, run["gpus"] // split))
    if run["dp"] * split != run["gpus"]:
        mesh = " x ".join(f"{name} {run[name]}" for name in ("dp", "tp", "cp", "pp"))
        raise InputError(f"gpus must be the product of the mesh, {mesh}, not {run['gpus']}")
    for name, axis in (("heads", "tp"), ("experts", "ep")):
        if run[name] % run[axis]:
            raise InputError(f"{name} ({run[name]}) must be a multiple of {axis} ({run[axis]})")
    if run["top_k"] > run["experts"]:
        raise InputError(f"top_k must be at most the number of experts, {run['experts']}, not {run['top_k']}")
    samples = run["dp"] * run["micro_batch"]
    run.setdefault("grad_accum", max(1, run.get("global_batch", samples) // samples))
    run.setdefault("global_batch", samples * run["grad_accum"])
    run.setdefault("schedule", "interleaved" if run["vp"] > 1 else "1f1b" if run["pp"] > 1 else "none")
    if run["step_s"] is None and run["tokens_per_s_per_gpu"] is not None:
        run["step_s"] = run["global_batch"] * run["seq"] / run["tokens_per_s_per_gpu"] / run["gpus"]
    return run


def _whole(name: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text[:12]) < MOST_WHOLE):
        raise InputError(f"{name} must be an integer from {least} to {MOST_WHOLE - 1}, not {quote(text)}")
    return int(text)


def _number(name: str, value: object) -> float | None:
    if value == "":
        return None
    with suppress(ValueError):
        if 0 < (number := float(str(value))) < MOST_NUMBER:
            return number
    raise InputError(f"{name} must be a positive number, not {quote(str(value))}")


def why_untimed(run: Mapping[str, Any]) -> str | None:
    """Return the reason why a run has no usable step time, or None if it has one."""
    if run["status"] != "ok":
        return f"status is {quote(str(run['status']))}, so the run has no step time"
    if run["step_s"] is None:
        return "neither step_s nor tokens_per_s_per_gpu is set"
    names = ("dp", "micro_batch", "grad_accum")
    if prod(run[name] for name in names) != run["global_batch"]:
        parts = " x ".join(f"{name} {run[name]}" for name in names)
        return f"global_batch must be {parts}, not {run['global_batch']}"
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
        """The number of runs, their GPU and framework, the source file and the date, as text."""
        runs = count(len(self.rows), "run")
        return f"{runs} on {self.gpu} with {self.framework}, saved from {self.source} ({self.made})"

    @cached_property
    def belief(self) -> Belief:
        """The prior belief, updated with the user's runs."""
        runs = [complete(row) for row in self.rows]
        return believe().adapted(columns_of_runs(runs), np.array([run["step_s"] for run in runs], dtype=float))

    def write(self) -> Path:
        """Save the runs, replacing earlier ones of the same GPU and framework. Return the path of the file."""
        path = runs_file(self.gpu, self.framework)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, self, indent=1)
        return path


def read_own_runs(path: Path) -> tuple[list[OwnRuns], Mapping[str, int]]:
    """Return a user's runs, grouped by GPU and framework, and the number of rejected rows by reason.

    Runs without a usable step time are also rejected. Raise InputError if the table is invalid or no run can be used.
    """
    table, refused = read_table(path)
    refused.update(filter(None, map(why_untimed, table)))
    groups = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for run in (run for run in table if not why_untimed(run)):
        row = {name: value for name, value in run.items() if value not in (None, "")}
        groups[find_gpu(run["gpu"]).name, run["framework"]].append(row)
    if not groups:
        raise InputError(f"{path}: no run can be used: {'; '.join(refused) or 'the table has no rows'}")
    runs = [OwnRuns(gpu=gpu, framework=name, rows=rows, source=str(path)) for (gpu, name), rows in groups.items()]
    return runs, refused


def runs_file(gpu: str, framework: str) -> Path:
    """Return the path of the file that stores the user's runs for this GPU and framework."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{gpu} {framework}".lower())
    return cache_folder() / f"meshes-{slug}.json"


def find_own_runs(gpu: str, framework: str) -> OwnRuns | None:
    """Return the saved runs of a GPU and framework, or None if there are none.

    If ``framework`` is "other" and has no saved runs, return those of the only other framework with runs on this GPU.
    If several frameworks have some, return None. Raise InputError if a saved file is invalid.
    """
    path = runs_file(gpu, framework)
    if framework == "other" and not path.is_file():
        files = sorted(path.parent.glob(path.name.replace("-other.", "-*.")))
        known = [record for record in (read_record(file, OwnRuns) for file in files) if record.gpu == gpu]
        return known[0] if len(known) == 1 else None
    return read_record(path, OwnRuns) if path.is_file() else None


@lru_cache(maxsize=256)
def host_of_run(source: str, gpu: str, node_gpus: int, nic_gbps: float) -> Host:
    """Return a run's host: a catalog machine, or a host with NVLink. ``nic_gbps`` is in GB/s per GPU."""
    if source in CLUSTERS:
        return host_of_preset(CLUSTERS[source], gpu)
    board, nic = find_gpu(gpu), nic_gbps * 1e9 * node_gpus
    if board.name in PRESETS and node_gpus == 8:
        return host_of_preset(PRESETS[board.name], gpu, nic)
    peer = NVLINK_SHARE * board.peer_rate
    return Host(f"{gpu} x {node_gpus}", gpu, node_gpus, "nvlink", CORES * node_gpus, nic, peer=peer)


def columns_of_runs(runs: Sequence[Mapping[str, Any]]) -> Columns:
    """Convert runs with the keys of ``meshes.csv`` to ``Columns``."""
    table: dict[str, Any] = {name: [run[name] for run in runs] for name in DEFAULTS if name in KNOWN}
    return make_columns(
        {
            **table,
            "host": [host_of_run(run["source"], run["gpu"], run["node_gpus"], run["nic_gbps"]) for run in runs],
            "count": [run["grad_accum"] for run in runs],
            "compiled": [run["compile"] for run in runs],
            "gpu_memory": [run["gpu_memory_gb"] * 2**30 for run in runs],
            "bucket_mb": RUN_BUCKETS_MB,
            "gradient_bytes": [2.0 if "PURE" in run["note"] else 4.0 for run in runs],
        },
        len(runs),
    )
