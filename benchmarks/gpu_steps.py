"""Measure training steps of language models and of ResNet-50 on one GPU, and the operations in them.

    python benchmarks/gpu_steps.py [-o benchmarks/results/gpu_steps.json] [--within 150]
    python benchmarks/gpu_steps.py --beside [--preset p5en.48xlarge]    # compare with predictions

A step is forward, loss, backward and AdamW in torch's eager mode under autocast. Predictions come from ``ringlab
predict --devices 1``, which does not use these measurements.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "gpu_steps.json"
BESIDE = RESULT.with_name("gpu_steps_beside.json")
LLAMA_1B = "llama:layers=16,width=2048,heads=32,kv_heads=8,context=2048,vocabulary=128256,hidden=8192"
LLAMA_4_OF_7B = "llama:layers=4,width=4096,heads=32,context=4096,vocabulary=32000,hidden=11008"
WARM_UP, STEPS = 3, 8
Row = dict[str, Any]


class Case(NamedTuple):
    """A training step: model, batch size and precision."""

    model: str
    batch_size: int
    precision: str = "bf16"
    compiled: bool = False


CASES = (
    Case("gpt2", 1), Case("gpt2", 8), Case("gpt2", 32), Case("gpt2", 8, "float32"),
    Case("gpt2-medium", 1), Case("gpt2-medium", 16), Case("gpt2-large", 8), Case("gpt2-xl", 1), Case("gpt2-xl", 8),
    Case(LLAMA_1B, 1), Case(LLAMA_1B, 4), Case(LLAMA_4_OF_7B, 1), Case(LLAMA_4_OF_7B, 4),
    Case("bert-large-128", 32), Case("bert-large-512", 16),
    Case("resnet50", 32), Case("resnet50", 256), Case("resnet50", 128, "float32"),
    Case("gpt2", 8, compiled=True), Case(LLAMA_1B, 4, compiled=True),
)  # fmt: skip
PRODUCTS = (  # columns and inner dimension: of GPT-2, of Llama with 1, 8 and 70 billion, and an eighth of them
    (2304, 768), (3072, 768), (768, 3072), (3072, 2048), (16384, 2048), (2048, 8192), (6144, 4096), (28672, 4096),
    (4096, 14336), (10240, 8192), (57344, 8192), (8192, 28672), (1280, 8192), (7168, 8192), (8192, 3584), (768, 4096),
    (128256, 2048), (50257, 768), (50257, 1600),
)  # fmt: skip
TOKENS = (1024, 2048, 4096, 8192, 16384)
# batch, tokens, heads and their width
SEQUENCES = ((16, 1024, 12, 64), (8, 2048, 32, 64), (4, 4096, 32, 128), (1, 16384, 32, 128))


def timed(work: Callable[[], object], repetitions: int = 10) -> float:
    """Return the median seconds of GPU work, measured by events in its stream."""
    import torch

    for _ in range(3):
        work()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    marks[-1].synchronize()
    return median(a.elapsed_time(b) for a, b in pairwise(marks)) / 1e3


def measure_step(case: Case) -> Row:
    """Measure one training step: seconds by phase, and the peak memory."""
    import torch
    from torch.nn import functional

    from realcomm.profiling.model_sources import find_model

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    source = find_model(case.model)
    with torch.device("cuda"):
        model = source.build().train()
        batch = source.batch(case.batch_size, "cuda")
    target = batch if source.vocabulary else torch.zeros(case.batch_size, dtype=torch.long, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    called = torch.compile(model) if case.compiled else model
    cast: Any = torch.autocast("cuda", torch.bfloat16) if case.precision == "bf16" else contextlib.nullcontext()
    rows: list[list[float]] = []
    for _ in range(WARM_UP + STEPS):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        marks[0].record()
        with cast:
            scores = called(batch)
            loss = functional.cross_entropy(scores.flatten(0, -2), target.flatten())
        marks[1].record()
        loss.backward()
        marks[2].record()
        optimizer.step()
        optimizer.zero_grad()
        marks[3].record()
        marks[3].synchronize()
        rows.append([a.elapsed_time(b) / 1e3 for a, b in pairwise(marks)])
    timed = rows[WARM_UP:]
    forward, backward, update = (median(column) for column in zip(*timed, strict=True))
    steps = sorted(map(sum, timed))
    return {
        **case._asdict(), "step_s": median(steps), "step_low_s": steps[0], "step_high_s": steps[-1],
        "forward_s": forward, "backward_s": backward, "optimizer_s": update,
        "allocated_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved(),
        "samples_per_s": case.batch_size / median(steps),
    }  # fmt: skip


def measure_products() -> Iterator[Row]:
    """Measure 16-bit matrix products of many shapes, and some in 32 bits with and without tensor cores."""
    import torch

    for columns, inner in PRODUCTS:
        for rows in TOKENS:
            if rows * columns > 2**30:
                continue
            a = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
            b = torch.randn(inner, columns, device="cuda", dtype=torch.bfloat16)
            yield {"m": rows, "n": columns, "k": inner, "precision": "bf16", "seconds": timed(lambda a=a, b=b: a @ b)}
    for precision, allowed in (("float32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
        yield {"m": 4096, "n": 4096, "k": 4096, "precision": precision, "seconds": timed(lambda a=a, b=b: a @ b)}
    torch.backends.cuda.matmul.allow_tf32 = False


def measure_attention() -> Iterator[Row]:
    """Measure torch's causal attention in 16 bits, forward, and forward with backward."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attention

    for batch, tokens, heads, width in SEQUENCES:
        size = (batch, heads, tokens, width)
        q, k, v = (torch.randn(size, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        with torch.no_grad():
            forward = timed(lambda q=q, k=k, v=v: attention(q, k, v, is_causal=True))
        upstream = torch.randn(size, device="cuda", dtype=torch.bfloat16)
        both = timed(lambda q=q, k=k, v=v, u=upstream: attention(q, k, v, is_causal=True).backward(u))
        yield {
            "batch": batch, "tokens": tokens, "heads": heads, "width": width,
            "forward_s": forward, "forward_and_backward_s": both,
        }  # fmt: skip


def measure_bytes() -> Iterator[Row]:
    """Measure the memory bandwidth of elementwise operations, and the shortest kernel."""
    import torch

    for nbytes in (1 << 20, 1 << 26, 1 << 30):
        a = torch.ones(nbytes // 2, device="cuda", dtype=torch.bfloat16)
        b = torch.empty_like(a)
        yield {"operation": "copy", "bytes": 2 * nbytes, "seconds": timed(lambda a=a, b=b: b.copy_(a))}
    tiny = torch.ones(1, device="cuda")
    yield {"operation": "add to one element", "bytes": 8, "seconds": timed(lambda: tiny.add_(1), 200)}


def measure(path: Path, within_s: float) -> None:
    """Measure as much as the time allows; write the results after each part."""
    import torch

    from benchmarks.gpu import describe_gpus
    from collectives.output_files import write_text

    end = time.monotonic() + within_s
    results: Row = {"schema_version": 1, "kind": "benchmark", "environment": describe_gpus(), "failed": []}
    parts = {"products": measure_products, "attention": measure_attention, "bytes": measure_bytes}
    for name, part in parts.items():
        results[name] = list(part())
        write_text(path, json.dumps(results, indent=1) + "\n")
        print(name, len(results[name]), flush=True)
    results["steps"] = []
    for case in CASES:
        if time.monotonic() > end:
            results["failed"].append({**case._asdict(), "reason": "no time was left"})
            continue
        try:
            results["steps"].append(measure_step(case))
            print(case, f"{results['steps'][-1]['step_s'] * 1e3:.1f} ms", flush=True)
        except Exception as error:
            results["failed"].append({**case._asdict(), "reason": f"{type(error).__name__}: {str(error)[:300]}"})
            print(case, results["failed"][-1]["reason"][:120], flush=True)
        torch.cuda.empty_cache()
        write_text(path, json.dumps(results, indent=1) + "\n")


def predict_devices(case: Row, preset: str, folder: Path) -> tuple[float, float, float, float]:
    """Return the seconds, their interval, and the bytes of `ringlab predict --devices 1` on one GPU of a machine."""
    scenario, answer = folder / "step.toml", folder / "step.json"
    lines = ["[cluster]", f'preset = "{preset}"', 'transport = "nccl"', "[training]", f'model = "{case["model"]}"']
    lines += [f"batch_size = {case['batch_size']}", f'precision = "{case["precision"]}"', 'optimizer = "adamw"']
    scenario.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "ringlab", "predict", str(scenario), "--devices", "1", "--json", str(answer)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    row: Row = json.loads(answer.read_text(encoding="utf-8"))["rows"][0]
    return row["step_s"], *row["step_interval"], row["memory"]["total"]


def predict_mesh(case: Row, gpu: str) -> tuple[float, float, float, float] | None:
    """Return the same values from the formulas of `ringlab search`; None if the model is not a transformer."""
    from collectives.records.model_profile import is_transformer
    from planner.hosts import Host
    from planner.jobs import Job, transformer_model
    from planner.prediction import Training
    from planner.search import predict_meshes

    if not is_transformer(case["model"]):
        return None
    job = Job(
        transformer_model(case["model"]), case["batch_size"], precision=case["precision"], optimizer="adamw",
        compiled=case["compiled"],
    )  # fmt: skip
    meshes = predict_meshes(Training(job, Host(gpu, gpu, 1, "nvlink", 1, 0.0)), [job.mesh])
    seconds, factor = float(meshes.step_s[0]), float(meshes.factors([0])[0])
    return seconds, seconds / factor, seconds * factor, float(meshes.memory["total"][0])


def predict_beside(path: Path, preset: str, gpu: str) -> None:
    """Predict the eager steps by both methods, and write the predictions with the measurements."""
    from collectives.output_files import write_text

    measured = json.loads(path.read_text(encoding="utf-8"))
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as name:
        for step in (step for step in measured["steps"] if not step["compiled"]):
            about = {key: step[key] for key in ("model", "batch_size", "precision", "step_s", "reserved_bytes")}
            predicted = {"predict": predict_devices(step, preset, Path(name)), "search": predict_mesh(step, gpu)}
            rows.append({**about, **predicted})
            print(rows[-1], flush=True)
    results = {"schema_version": 1, "kind": "benchmark", "gpu": gpu, "rows": rows}
    write_text(BESIDE, json.dumps(results, indent=1) + "\n")


def main() -> None:
    """Read the options, and measure or compare."""
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULT, metavar="FILE")
    parser.add_argument("--within", type=float, default=150.0, metavar="SECONDS", help="begin no step after so long")
    parser.add_argument("--beside", action="store_true", help="measure nothing: predict what is in FILE")
    parser.add_argument("--preset", default="p5en.48xlarge", help="the machine whose GPU was measured")
    parser.add_argument("--gpu", default="H200 SXM", help="its name in the catalogue")
    options = parser.parse_args()
    if options.beside:
        predict_beside(options.output, options.preset, options.gpu)
        return
    measure(options.output, options.within)


if __name__ == "__main__":
    main()
