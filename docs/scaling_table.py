"""Write the tables of data-parallel scaling: errors, parameters, and errors without each term."""

from typing import Any

from page_writer import Parts, read_results, table

from planner.mesh.terms import FILE
from simcomm.nccl.parameters import read_definitions

SAME_MACHINE = {"others": "median scaling of the other frameworks", "model": "**model**"}
ONE_GPU = {"data_sheet": "from its data sheet", "same_job": "from the same job on other types"}


def errors(found: dict[str, Any]) -> str:
    """Return the tables of errors."""
    held_out, aside = found["held_out"], found["put_aside"]
    rows = [[f"**model**, {what} points", *_scores(held_out["points"][what])] for what in ("all", "hard")]
    rows += [["**model**, points predicted to be hard", *_scores(held_out["expected_hard"])]]
    rows += [[f"held out, shipped parameters, {what}", *_scores(aside["points"][what])] for what in ("all", "hard")]
    exact = [_percent(held_out["hard_if_exact"][f"coverage{share}"], 0) for share in (50, 80, 90)]
    rows += [["hard points if intervals were exact", *[""] * 5, *exact]]
    machine = [[SAME_MACHINE[key], *_scores(one)[:4]] for key, one in held_out["same_machine"].items()]
    simpler = [
        [name, *(_percent(scores[what][key]) for what in ("all", "hard") for key in ("median", "p90"))]
        for name, scores in held_out["baselines"].items()
    ]
    head = "points: | median: | p90: | within 15 %: | bias: | in 50 %: | in 80 %: | in 90 %:"
    series = f"{held_out['series']} series of {held_out['sources']} sources"
    groups = {title: [[name, *_scores(one)] for name, one in held_out["by"][key].items()]
              for key, title in (("family", "family"), ("gpus", "GPUs"))}  # fmt: skip
    one = [[title, *_scores(held_out["one_gpu"][key])] for key, title in ONE_GPU.items()]
    return "\n".join([
        f"{found['date']}; {series}, {found['cpu_seconds']} s of CPU.\n",
        table(f" | {head}", rows),
        table("hard points of jobs with several frameworks on one machine | points: | median: | p90: | "
              "within 15 %:", machine),
        table("baseline | median, all: | p90: | median, hard: | p90:", simpler),
        *(table(f"{title} | {head}", group) for title, group in groups.items()),
        table("one GPU, its type left out | " + head.replace(" | bias:", ""), one),
    ])  # fmt: skip


def parameters() -> str:
    """Return the table of shipped parameters."""
    rows = [
        [f"`{name}`", f"{one.value:.3g} {one.unit}".strip(), f"{one.prior:g}", f"{one.meaning}"]
        for name, one in read_definitions(FILE).items()
    ]
    return table("parameter | value: | prior: | meaning:", rows)


def terms(found: dict[str, Any]) -> str:
    """Return the errors without each term."""
    heads = {
        "step": ("a step, without", ("all", "hard"), ("median, all", "p90", "median, hard", "p90")),
        "one_gpu": ("one GPU, without", ("data_sheet", "same_job"),
                    ("median, data sheet", "p90", "median, same job", "p90")),
    }  # fmt: skip
    made_by = "`python -m benchmarks.studies.scaling_terms`"
    lines = [f"From {made_by}. Held-out systems are in the second table only.\n"]
    for key, (first, columns, titles) in heads.items():
        rows = [
            ["all terms" if name == "all terms" else name]
            + [_percent(one[what][score]) for what in columns for score in ("median", "p90")]
            for name, one in found[key].items()
        ]
        lines.append(table(" | ".join([first, *(f"{title}:" for title in titles)]), rows))
    return "\n".join(lines)


def _scores(score: dict[str, Any]) -> list[str]:
    bias = [] if score.get("bias") is None else [f"{100 * score['bias']:+.1f} %"]
    held = [_percent(score[f"coverage{share}"], 0) for share in (50, 80, 90)]
    medians = [_percent(score[key]) for key in ("median", "p90")]
    return [str(score["n"]), *medians, _percent(score["within15"], 0), *bias, *held]


def _percent(share: float | None, digits: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{digits}f} %"


PARTS: Parts = {
    "docs/reports/scaling.md": {
        "errors": lambda: errors(read_results("scaling")),
        "parameters": parameters,
        "terms": lambda: terms(read_results("scaling_terms")),
    }
}
