"""Runs as rows of a table: the shipped one of published runs, and a user's own with the columns that there are."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collectives.errors import InputError
from collectives.input_files import read_text
from collectives.quoting import quote, suggest
from simcomm.mesh_search.columns import FRAMEWORKS, PRECISIONS, RECOMPUTED, WHOLE, ZERO, Array
from simcomm.mesh_search.devices import find_mesh_gpu

SHIPPED = Path(__file__).parent / "data" / "meshes.csv"
SLOW_S, SLOW_RATIO = 0.25, 1.3  # of a micro batch: more than the fastest like it by so much
NEEDED = ("layers", "hidden", "heads", "vocab", "seq", "gpu", "gpus")
USUAL = {  # of columns that a table may leave out
    "mlp_matrices": 3, "tied": 0, "experts": 0, "top_k": 0, "expert_ffn": 0, "shared_ffn": 0, "dense_layers": 0,
    "window": 0, "tp": 1, "cp": 1, "pp": 1, "vp": 1, "ep": 1, "sequence_parallel": 0, "async_tp": 0, "compile": 0,
    "micro_batch": 1, "node_gpus": 8, "nic_gbps": 50, "sharding": "ddp", "precision": "bf16", "attention": "flash",
    "recompute": "none", "framework": "other", "status": "ok", "note": "", "source": "yours", "step_s": "",
    "memory_gb": "", "model": "", "tokens_per_s_per_gpu": "", "group": "",
}  # fmt: skip
MOST_WHOLE = 2**31


def read_table(path: Path = SHIPPED) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the runs of a table, and how many rows cannot be expressed, by reason.

    Raises InputError for a file that is no table or lacks a column that is needed.
    """
    lines = [line for line in read_text(path).splitlines() if not line.startswith("#")]
    reader = csv.DictReader(io.StringIO("\n".join(lines)))
    columns = reader.fieldnames or []
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise InputError(f"{path}: column {missing[0]} is missing; a table of runs has at least {', '.join(NEEDED)}")
    runs, refused = list[dict[str, Any]](), Counter[str]()
    for row in reader:
        try:
            runs.append(complete(row))
        except InputError as error:
            refused[str(error)] += 1
    return runs, refused


def complete(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with all columns, whole numbers as such. Raise InputError for one that cannot be expressed."""
    run: dict[str, Any] = {**USUAL, **{key: value for key, value in row.items() if key and value not in (None, "")}}
    for name in NEEDED:
        if name not in run:
            raise InputError(f"{name} is not said")
    hidden, heads = _whole(run, "hidden"), _whole(run, "heads")
    run.setdefault("kv_heads", heads)
    run.setdefault("head_dim", hidden // max(heads, 1))
    run.setdefault("ffn", 4 * hidden if str(run["mlp_matrices"]) == "2" else -(-8 * hidden // 3 // 256) * 256)
    if run.get("recompute") == "unknown":
        run["recompute"] = "none"
    found = find_mesh_gpu(str(run["gpu"]))
    run.setdefault("gpu_memory_gb", found.memory_bytes / 2**30)
    for name in ("layers", "seq", "gpus", "tp", "cp", "pp"):
        _whole(run, name)
    split = int(run["tp"]) * int(run["cp"]) * int(run["pp"])
    if min(int(run[name]) for name in ("tp", "cp", "pp", "gpus", "layers", "hidden", "heads", "seq")) < 1:
        raise InputError("a size below 1")
    run.setdefault("dp", int(run["gpus"]) // split)
    if int(run["dp"]) * split != int(run["gpus"]):
        raise InputError("the mesh does not multiply to the devices")
    if "grad_accum" not in run:
        batch = _whole(run, "global_batch") if "global_batch" in run else int(run["dp"]) * int(run["micro_batch"])
        run["grad_accum"] = max(1, batch // (int(run["dp"]) * int(run["micro_batch"])))
    run.setdefault("global_batch", int(run["dp"]) * int(run["micro_batch"]) * int(run["grad_accum"]))
    run.setdefault("schedule", "interleaved" if int(run["vp"]) > 1 else "1f1b" if int(run["pp"]) > 1 else "none")
    for name in (*WHOLE, "grad_accum", "global_batch", "compile"):
        run[name] = _whole(run, name)
    for name, known in (("sharding", ZERO), ("precision", PRECISIONS), ("recompute", RECOMPUTED)):
        if run[name] not in known:
            raise InputError(f"{name} {quote(str(run[name]))} is not known; {suggest(str(run[name]), known)}")
    if run["framework"] not in FRAMEWORKS:
        run["framework"] = "other"
    if run["step_s"] == "" and run["tokens_per_s_per_gpu"] != "":
        run["step_s"] = run["global_batch"] * run["seq"] / float(run["tokens_per_s_per_gpu"]) / run["gpus"]
    for name in ("step_s", "memory_gb", "nic_gbps", "gpu_memory_gb"):
        run[name] = _number(run, name)
    return run


def _whole(run: Mapping[str, Any], name: str) -> int:
    text = str(run[name])
    if not (text.isascii() and text.isdecimal() and int(text[:12]) < MOST_WHOLE):
        raise InputError(f"{name} is no whole number")
    return int(text)


def _number(run: Mapping[str, Any], name: str) -> float | None:
    if run[name] == "":
        return None
    try:
        value = float(run[name])
    except ValueError:
        raise InputError(f"{name} is no number") from None
    if not 0 < value < 1e9:
        raise InputError(f"{name} is not above 0")
    return value


def has_time(run: Mapping[str, Any]) -> bool:
    """Return whether a run has a time that its own description does not contradict."""
    whole: int = run["dp"] * run["micro_batch"] * run["grad_accum"]
    return run["status"] == "ok" and run["step_s"] is not None and whole == run["global_batch"]


def has_memory(run: Mapping[str, Any]) -> bool:
    """Return whether a run says how much memory it took."""
    return run["memory_gb"] is not None


def measured_memory(runs: list[dict[str, Any]]) -> Array:
    """Return the bytes that runs took: of GB where the source says GB, else of GiB."""
    return np.array([run["memory_gb"] * (1e9 if run["source"] == "ultrascale" else 2**30) for run in runs])


def mark_slow(runs: list[dict[str, Any]]) -> Array:
    """Return which runs lose a time in every micro batch that others of their cluster do not, by measured figures only.

    A run is slow if its micro batch takes longer, a layer of a stage, than the fastest run of the same model, tensor
    group and micro batch, by ``SLOW_S`` and ``SLOW_RATIO``; without a pipeline by twice as much, as what is exchanged
    at the end of a step counts with it.
    """
    layer_s, keys = [], []
    for run in runs:
        passes = run["grad_accum"] + run["pp"] - 1
        layer_s.append((run["step_s"] or float("nan")) / passes * run["pp"] / run["layers"])
        keys.append((run["source"], run["model"], run["tp"], run["micro_batch"], run["pp"] == 1))
    fastest: dict[Any, float] = defaultdict(lambda: float("inf"))
    for key, seconds in zip(keys, layer_s, strict=True):
        fastest[key] = min(fastest[key], seconds)
    slow = []
    for run, key, seconds in zip(runs, keys, layer_s, strict=True):
        excess = (seconds - fastest[key]) * run["layers"] / run["pp"]
        one = 2.0 if run["pp"] == 1 else 1.0
        is_excess = excess > one * SLOW_S and seconds > (1 + one * (SLOW_RATIO - 1)) * fastest[key]
        slow.append(run["source"] == "ultrascale" and is_excess)
    return np.array(slow)
