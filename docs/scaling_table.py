"""Writes the tables of docs/scaling.md: ``python docs/scaling_table.py --measure`` predicts all series again first."""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

from page_marks import write_between

from benchmarks.studies.one_gpu_left_out import judge_one_gpu
from benchmarks.studies.renting_regret import study
from benchmarks.studies.scaling_left_out import judge_held_out
from benchmarks.studies.scaling_limits import held_if_exact, score_others
from collectives.output_files import write_text
from ringlab.commands.accuracy.training import accuracy_training
from simcomm.accuracy.judging import Judged, score
from simcomm.accuracy.trainings import HARD, score_baselines, score_by, score_points
from simcomm.mesh.terms import FILE
from simcomm.nccl.parameters import read_definitions
from simcomm.scaling.columns import make_points
from simcomm.scaling.descriptions import read_series

PAGE = Path(__file__).with_name("scaling.md")
RESULTS = PAGE.parent.parent / "benchmarks" / "results" / "scaling.json"
TERMS = RESULTS.with_name("scaling_terms.json")
SAME_MACHINE = {"others": "as the other frameworks there scale, in the middle", "model": "**model**"}
ONE_GPU = {"data_sheet": "from its data sheet", "same_job": "from the same job on other types"}


def measure() -> dict[str, Any]:
    """Return the scores of the project's own series, each source left out, and of the systems that are put aside."""
    begin, series = process_time(), read_series()
    judged, one_gpu = judge_held_out(series, lambda *_: None), judge_one_gpu(series, refit=True)
    seconds = process_time() - begin
    held_out = {
        "points": {name: asdict(one) for name, one in score_points(judged).items()},
        "baselines": score_baselines(judged),
        "by": {key: {name: asdict(one) for name, one in score_by(judged, key).items()} for key in ("family", "gpus")},
        "one_gpu": {name: asdict(one) for name, one in one_gpu.items()},
        "regret": {
            among: {way: one._asdict() for way, one in ways.items()}
            for among, ways in study(series, judged.predicted).items()
        },
        "series": len(series),
        "sources": len({one.source for one in series}),
        "expected_hard": asdict(score(judged.take(judged.predicted < HARD * judged.keys["linear"]))),
        **limits(judged),
    }
    aside = accuracy_training(only_put_aside=True).to_dict()
    date = datetime.now(UTC).date().isoformat()
    return {"date": date, "cpu_seconds": round(seconds, 1), "held_out": held_out, "put_aside": aside}


def limits(judged: Judged) -> dict[str, Any]:
    """Return how well hard points can be predicted at best."""
    others = score_others(judged, make_points(read_series()))
    return {
        "same_machine": {name: asdict(one) for name, one in others.items()},
        "hard_if_exact": {f"coverage{share}": held_if_exact(judged, share / 100) for share in (50, 80, 90)},
    }


def errors(found: dict[str, Any]) -> str:
    """Return the tables of errors."""
    held_out, aside = found["held_out"], found["put_aside"]
    rows = [[f"**model**, {what} points", *_scores(held_out["points"][what])] for what in ("all", "hard")]
    rows += [["**model**, points predicted to be hard", *_scores(held_out["expected_hard"])]]
    rows += [[f"put aside, shipped parameters, {what}", *_scores(aside["points"][what])] for what in ("all", "hard")]
    exact = [_percent(held_out["hard_if_exact"][f"coverage{share}"], 0) for share in (50, 80, 90)]
    rows += [["were intervals exact, hard points", *[""] * 5, *exact]]
    machine = [[SAME_MACHINE[key], *_scores(one)[:4]] for key, one in held_out["same_machine"].items()]
    simpler = [
        [name, *(_percent(scores[what][key]) for what in ("all", "hard") for key in ("median", "p90"))]
        for name, scores in held_out["baselines"].items()
    ]
    head = "points | median | nine in ten | within 15 % | bias | in 50 % | in 80 % | in 90 %"
    series = f"{held_out['series']} series of {held_out['sources']} sources"
    groups = {title: [[name, *_scores(one)] for name, one in held_out["by"][key].items()]
              for key, title in (("family", "family"), ("gpus", "GPUs"))}  # fmt: skip
    one = [[title, *_scores(held_out["one_gpu"][key])] for key, title in ONE_GPU.items()]
    return "\n".join([
        f"{found['date']}; {series}, {found['cpu_seconds']} s of CPU.\n",
        *_table(f" | {head}", rows),
        *_table("hard points of jobs that several frameworks ran on one machine | points | median | nine in ten | "
                "within 15 %", machine),
        *_table("simpler | median, all | nine in ten | median, hard | nine in ten", simpler),
        *(line for title, group in groups.items() for line in _table(f"{title} | {head}", group)),
        *_table("one GPU, its type left out | " + head.replace(" | bias", ""), one),
    ])  # fmt: skip


def parameters() -> str:
    """Return the table of parameters as they are shipped."""
    rows = [
        [f"`{name}`", f"{one.value:.3g} {one.unit}".strip(), f"{one.prior:g}", f"{one.meaning}"]
        for name, one in read_definitions(FILE).items()
    ]
    return "\n".join(_table("parameter | value | prior | meaning", rows))


def terms(found: dict[str, Any]) -> str:
    """Return the tables of what terms are worth."""
    heads = {
        "step": ("a step, without", ("all", "hard"), ("median, all", "nine in ten", "median, hard", "nine in ten")),
        "one_gpu": ("one GPU, without", ("data_sheet", "same_job"),
                    ("median, data sheet", "nine in ten", "median, same job", "nine in ten")),
    }  # fmt: skip
    lines = ["Made by `python docs/scaling_terms.py`; systems that are put aside are in the second table only.\n"]
    for key, (first, columns, titles) in heads.items():
        rows = [
            ["nothing left out" if name == "all terms" else name]
            + [_percent(one[what][score]) for what in columns for score in ("median", "p90")]
            for name, one in found[key].items()
        ]
        lines += _table(" | ".join((first, *titles)), rows)
    return "\n".join(lines)


def _table(head: str, rows: list[list[str]]) -> list[str]:
    columns = head.count("|") + 1
    return [f"| {head} |", f"| --- |{' ---: |' * (columns - 1)}", *(f"| {' | '.join(row)} |" for row in rows), ""]


def _scores(score: dict[str, Any]) -> list[str]:
    bias = [] if "bias" not in score else [f"{100 * score['bias']:+.1f} %"]
    held = [_percent(score[f"coverage{share}"], 0) for share in (50, 80, 90)]
    medians = [_percent(score[key]) for key in ("median", "p90")]
    return [str(score["n"]), *medians, _percent(score["within15"], 0), *bias, *held]


def _percent(share: float | None, digits: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{digits}f} %"


def updated(page: str) -> str:
    """Return the page with its tables as they were measured last."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    worth = terms(json.loads(TERMS.read_text(encoding="utf-8")))
    for name, text in (("errors", errors(found)), ("parameters", parameters()), ("terms", worth)):
        page = write_between(page, name, text)
    return page


if __name__ == "__main__":
    if "--measure" in sys.argv:
        write_text(RESULTS, json.dumps(measure(), indent=1) + "\n")
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
