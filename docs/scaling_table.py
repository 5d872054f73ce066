"""Write the tables of data-parallel scaling: errors and parameters."""

from statistics import mean
from typing import Any

from page_writer import Parts, read_results, table

from planner.beliefs import PRIORS, read_shipped

MEANINGS = {
    "eff_link": "share of the bus bandwidth inside a host that training runs reach",
    "eff_network": "share of the lower of the NICs' and the network links' rate that training runs reach",
    "scale": "share of the network's rate lost with each doubling of hosts",
    "call_us": "overhead of a collective in microseconds, in addition to its latency",
    "data_hop_us": "microseconds that each doubling of hosts adds to a collective of gradients",
    "overlap_slowdown_nvlink": "backward time lost per second of overlapping communication, over NVLink",
    "overlap_slowdown_pcie": "the same for communication over PCIe between GPUs",
    "overlap_slowdown_host": "the same for communication through host memory",
    "overlap_slowdown_network": "the same for communication over a network with at least 12.5 GB/s per host",
    "copy_passes": "additional passes of the gradients through GPU memory if there are several GPUs",
    "process_ms": "milliseconds of core time by which the process of each other GPU in the host delays a step",
    "jitter": "standard deviation of a GPU's step, as a share of the step",
    "jitter_variable": "the same for batches that need unequal amounts of work",
    "jitter_nodes": "standard deviation of a host's step, in addition to that of its GPUs",
    "dali_per_core": "images/s that a core decodes with DALI",
    "decode_per_core": "images/s that a core decodes without DALI",
    "input_power": "exponent of the power mean of the times of GPUs and loaders; the slower one dominates",
    "ps_eff": "share of the bus bandwidth that a parameter server on the GPUs reaches",
    "ps_GBps": "rate in GB/s of each x16 path through host memory to a parameter server",
    "ps_one_GBps": "rate in GB/s at which the GPU with the largest layer serves the others through host memory",
}
ONE_GPU = {"data_sheet": "from its data sheet", "same_job": "from the same job on other types"}


def errors(results: dict[str, Any]) -> str:
    """Return the tables of errors."""
    held_out, aside = results["held_out"], results["put_aside"]
    rows = [
        [f"**model**, {difficulty} points", *_scores(held_out["points"][difficulty])] for difficulty in ("all", "hard")
    ]
    rows += [["**model**, points predicted to be hard", *_scores(held_out["expected_hard"])]]
    rows += [
        [f"held out, shipped parameters, {difficulty}", *_scores(aside["points"][difficulty])]
        for difficulty in ("all", "hard")
    ]
    simpler = [
        [name, *(_percent(scores[difficulty][key]) for difficulty in ("all", "hard") for key in ("median", "p90"))]
        for name, scores in held_out["baselines"].items()
    ]
    head = "points: | median: | p90: | within 15 %: | bias: | in 50 %: | in 80 %: | in 90 %:"
    series = f"{held_out['series']} series of {held_out['sources']} sources"
    groups = {title: [[name, *_scores(scores)] for name, scores in held_out["by"][key].items()]
              for key, title in (("family", "family"), ("gpus", "GPUs"))}  # fmt: skip
    by_source = mean(scores["coverage80"] for scores in held_out["by"]["source"].values())
    one_gpu = [[title, *_scores(held_out["one_gpu"][key])] for key, title in ONE_GPU.items()]
    return "\n".join([
        f"{results['date']}; {series}.\n",
        table(f" | {head}", rows),
        f"The 80 % intervals contain {100 * by_source:.0f} % of the points of a source, on average over the sources.\n",
        table("baseline | median, all: | p90: | median, hard: | p90:", simpler),
        *(table(f"{title} | {head}", group) for title, group in groups.items()),
        table(f"one GPU, its type left out | {head}", one_gpu),
    ])  # fmt: skip


def parameters() -> str:
    """Return the table of the shipped parameters that move trainings of known speed."""
    shipped = read_shipped().parameters
    rows = [[f"`{name}`", f"{shipped[name]:.3g}", f"{PRIORS[name].value:g}", text] for name, text in MEANINGS.items()]
    return table("parameter | value: | prior: | meaning", rows)


def _scores(score: dict[str, Any]) -> list[str]:
    bias = [] if score.get("bias") is None else [f"{100 * score['bias']:+.1f} %"]
    coverages = [_percent(score[f"coverage{share}"], 0) for share in (50, 80, 90)]
    medians = [_percent(score[key]) for key in ("median", "p90")]
    return [str(score["n"]), *medians, _percent(score["within15"], 0), *bias, *coverages]


def _percent(share: float | None, digits: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{digits}f} %"


PARTS: Parts = {
    "docs/reports/scaling.md": {
        "errors": lambda: errors(read_results("scaling")),
        "parameters": parameters,
    }
}
