"""Write the table of errors to expect, one row for each kind of prediction."""

from statistics import median

from page_writer import Parts, read_results, table
from parallelism_table import median_error

from benchmarks.studies.nccl_unseen import scores as score_unseen


def trust() -> str:
    """Return the median errors of predictions for systems and runs that were held out of the fit."""
    scaling, meshes = read_results("scaling")["held_out"], read_results("meshes")
    _, later, _, held_out = score_unseen().values()
    low, high = (
        ", ".join(_percent(score.median or 0.0) for score in scores.values())
        for scores in sorted(
            (later, held_out), key=lambda scores: sum(score.median or 0.0 for score in scores.values())
        )
    )
    points, one_gpu = scaling["points"], scaling["one_gpu"]
    emulated = [abs(row["error"]) for row in read_results("accuracy_here")["rows"] if row["bytes"] is not None]
    compared = [abs(row["error"]) for row in read_results("compare")["rows"]]
    launched = [1 - row["launched_s"] / row["measured_s"] for row in read_results("virtual_launches")["rows"]]
    rows = [
        ["NCCL times up to 64 KiB, up to 16 MiB, larger", f"{low} to {high}", "[later authors](../reports/nccl.md)"],
        [
            "data-parallel scaling to N GPUs, from one GPU's rate",
            f"{_percent(points['all']['median'], 1)}; below 90 % efficiency {_percent(points['hard']['median'], 1)}",
            f"[{scaling['series']} series](../reports/scaling.md)",
        ],
        [
            "rate of one GPU",
            f"{_percent(one_gpu['same_job']['median'], 1)} from the same job on other GPUs; "
            f"{_percent(one_gpu['data_sheet']['median'], 1)} from its data sheet",
            "[GPU types left out](../reports/scaling.md)",
        ],
        [
            "step of a language model on a device mesh",
            f"{_percent(meshes['left_out']['mean_of_medians'], 1)}; "
            f"with three rows of your own {_percent(meshes['adapted_3']['mean_of_medians'], 1)}",
            "[sources left out](../reports/layouts.md)",
        ],
        [
            "memory of a language model", _percent(meshes["shipped"]["memory"]["median"], 1),
            f"[{meshes['shipped']['memory']['n']} runs, in the fit](../reports/layouts.md)",
        ],
        [
            "this machine, `compare --thorough`", _percent(median(compared), 1),
            f"[{len(compared)} rows](../reports/compare.md)",
        ],
        ["TCP clusters, from two hosts", _percent(median(emulated), 1), "[emulated clusters](../reports/tcp.md)"],
        ["FSDP, tensor and pipeline on gloo ranks", _percent(median_error()), "[strategies](../reports/strategies.md)"],
        [
            "step of a script on virtual GPUs",
            f"too fast by {_percent(min(launched))} to {_percent(max(launched))}",
            "[an H200](../reports/virtual-ranks.md)",
        ],
    ]  # fmt: skip
    return table("prediction | median error | evaluated on", rows)


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


PARTS: Parts = {"docs/how-it-works/predictions.md": {"trust": trust}}
