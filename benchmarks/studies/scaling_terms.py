"""What each term of the model of a training step is worth, and each of what guesses one GPU: errors without it.

``python -m benchmarks.studies.scaling_terms`` leaves out each published source in turn and fits the other terms
again, without the systems that are held out; it writes ``benchmarks/results/scaling_terms.json``, of which
``make tables`` makes the tables of docs/reports/scaling.md. One GPU is judged with its whole type left out, the other
values as shipped.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.accuracy.training import score_points, seen_series
from benchmarks.studies.one_gpu_left_out import judge_one_gpu
from benchmarks.studies.scaling_left_out import judge_held_out
from collectives.output_files import write_text
from planner.scaling.descriptions import read_series
from planner.scaling.one_gpu import SHARED

RESULTS = Path(__file__).parent.parent / "results" / "scaling_terms.json"
NONE, ANY = 1e-9, 1e9
KINDS = ("nvlink", "pcie", "host", "network")
STEP = {
    "all terms": {},
    "stragglers": {"jitter": NONE, "jitter_variable": NONE, "jitter_nodes": NONE},
    "stragglers among nodes": {"jitter_nodes": NONE},
    "copies": {"copy_passes": NONE},
    "processes that share a node's cores": {"process_ms": NONE},
    "what hidden communication takes back": {f"overlap_slowdown_{kind}": NONE for kind in KINDS},
    "bandwidth of links": {**{f"eff_{kind}": ANY for kind in KINDS}, "ps_eff": ANY, "ps_GBps": ANY, "ps_one_GBps": ANY},
    "latency": {"latency_us": NONE},
    "limits of loaders": {"dali_per_core": ANY, "decode_per_core": ANY},
    "the largest layer's server": {"ps_one_GBps": ANY},
}
ONE_GPU = {
    "all terms": {},
    "watts": {"watts": 0.0, "near_watts": ANY},
    "bytes and FLOPs by the roofline": {"moved_memory": 0.0, "moved_peak": 0.0},
    "frameworks": {name: 0.0 for name in SHARED if name.startswith("framework")},
    "what types of GPU have of their own": {"gpu": 0.0, "gpu_precision": 0.0},
    "what near GPUs share": {"near": 0.0, "near_arithmetic": 0.0, "near_job": 0.0},
}  # fmt: skip


def measure() -> dict[str, Any]:
    """Return the errors without each term."""
    found: dict[str, Any] = {"step": {}, "one_gpu": {}}
    for name, pinned in STEP.items():
        scores = score_points(judge_held_out(seen_series(), lambda *_: None, pinned=pinned))
        found["step"][name] = {what: {"median": one.median, "p90": one.p90} for what, one in scores.items()}
    for name, changed in ONE_GPU.items():
        alone = judge_one_gpu(read_series(), refit=True, pinned=changed)
        found["one_gpu"][name] = {what: {"median": one.median, "p90": one.p90} for what, one in alone.items()}
    return found


if __name__ == "__main__":
    write_text(RESULTS, json.dumps(measure(), indent=1) + "\n")
