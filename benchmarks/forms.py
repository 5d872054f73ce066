"""How long torch's own forms of parallelism take on gloo ranks, beside what is predicted from the pieces of a step.

    python benchmarks/forms.py [--ranks 2,4] [--rounds 3] [-o FILE]

A transformer is trained in each form (``torch_forms``). Before, all ranks time the pieces at once: the model's
layers, AdamW, and each collective that a form is predicted to call, by itself; of a naive pipeline, in which one rank
works at a time, the layers are timed on one rank alone. ``simcomm.mesh`` puts them together, and nothing is
fitted to a step. What torch does of its own in a form, which is in no piece, is timed on meshes of one rank each, on
which nothing travels, and added (of pipelines it is not).
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import realcomm
from benchmarks.torch_forms.running import CountedForm, run_forms
from collectives.output_files import write_text
from collectives.records.environment import describe_environment
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from collectives.training.recipe import Recipe
from realcomm.calibration.load import watch_load
from realcomm.forms.pieces import Question, RankTimes, time_own_work, time_pieces
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from ringlab.commands.measuring.form_job import plan_form
from ringlab.commands.measuring.form_pieces import ask_collectives, known_pieces, predict_step
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.step import StepParts

RESULTS = Path(__file__).parent / "results" / "forms.json"
MODEL = "llama:layers=6,width=256,heads=4,context=64,vocabulary=512,hidden=512"
SAMPLES, STEPS = 8, 5
OF_DATA = ("ddp", "zero_redundancy", "zero2", "fsdp")


def forms_of(ranks: int) -> dict[str, Parallelism]:
    """Return the forms that so many ranks are trained in."""
    found = {form: Parallelism(form=form, data=ranks, bucket_mb=4.0) for form in OF_DATA}
    found["tensor"] = Parallelism(data=1, tensor=ranks)
    found["sequence"] = Parallelism(data=1, tensor=ranks, sequence=True)
    if ranks == 2:  # stages that wait leave their core to others, which a timeline of devices does not know
        found["naive"] = Parallelism(data=1, pipeline=2, schedule="naive")
        found["gpipe"] = Parallelism(data=1, pipeline=2, schedule="gpipe", microbatches=4)
        found["1f1b"] = Parallelism(data=1, pipeline=2, microbatches=4)
    else:
        found["fsdp x tensor"] = Parallelism(form="fsdp", data=ranks // 2, tensor=2)
    return found


def measure(ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each form: seconds of a step, predicted and measured; the medians over the rounds."""
    profile, forms = profile_on_meta(find_model(MODEL)), forms_of(ranks)
    asked = ask_collectives([_job(profile, form) for form in forms.values()], ranks)
    found = [measure_round(ranks, profile, forms, asked) for _ in range(rounds)]
    rows = []
    for place, (name, form) in enumerate(forms.items()):
        pairs = [one[place] for one in found]
        parts = {key: median(one.parts.as_dict()[key] for one in pairs) for key in pairs[0].parts.as_dict()}
        rows.append({"form": name, "label": form.label, "ranks": ranks,
                     "predicted_s": median(one.parts.total for one in pairs), **_with_own(pairs),
                     "measured_s": median(one.step_s for one in pairs),
                     "optimizer_s": median(one.optimizer_s for one in pairs),
                     "error": median(one.parts.total / one.step_s for one in pairs) - 1,
                     "parts": {key: value for key, value in parts.items() if value}})  # fmt: skip
    return rows


def _with_own(rounds: Sequence["Round"]) -> dict[str, float | None]:
    """Return what torch does of its own, and the error with it; None for a form of which that is not timed."""
    timed = [(one, one.own_s) for one in rounds if one.own_s is not None]
    if not timed:
        return {"own_s": None, "error_with_own": None}
    errors = [(one.parts.total + own_s) / one.step_s for one, own_s in timed]
    return {"own_s": median(own_s for _, own_s in timed), "error_with_own": median(errors) - 1}


class Round(NamedTuple):
    """Of a form the parts that are predicted, what torch does of its own, and what the slowest rank took."""

    parts: StepParts
    own_s: float | None  # None of a pipeline, which is not timed on one rank
    step_s: float
    optimizer_s: float


def measure_round(
    ranks: int, profile: ModelProfile, forms: dict[str, Parallelism], questions: Sequence[Question]
) -> list[Round]:
    """Return what one round of pieces and steps says of each form."""
    recipe = Recipe(optimizer="adamw")
    plans = [plan_form(MODEL, profile, form, SAMPLES, recipe)._replace(steps=STEPS) for form in forms.values()]
    timed: list[RankTimes] = realcomm.launch(time_pieces, ranks, plans[0], questions, threads=1, timeout=300)
    own: list[list[float]] = realcomm.launch(time_own_work, ranks, plans, threads=1, timeout=300)
    pieces = known_pieces(ranks, profile, questions, timed)
    results: list[list[CountedForm]] = realcomm.launch(run_forms, ranks, plans, threads=1, timeout=600)
    rows = []
    for place, form in enumerate(forms.values()):
        seconds = max(median(rank[place].step_s) for rank in results)
        behind = max(median(rank[place].optimizer_s) for rank in results)
        parts = predict_step(_job(profile, form), ranks, pieces).parts
        own_s = None if form.pipeline > 1 else median(rank[place] for rank in own)
        rows.append(Round(parts, own_s, seconds, behind))
    return rows


def _job(profile: ModelProfile, form: Parallelism) -> TrainingJob:
    return TrainingJob(profile, SAMPLES // form.data, form, optimizer="adamw")


def main() -> None:
    """Read the options, measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    asked = parser.parse_args()
    with watch_load() as watch:
        rows = [row for ranks in asked.ranks.split(",") for row in measure(int(ranks), asked.rounds)]
    for row in rows:
        own = "" if row["own_s"] is None else f"{1e3 * row['own_s']:9.1f} ms{row['error_with_own']:8.1%}"
        print(f"{row['form']:16}{row['ranks']:3}{1e3 * row['predicted_s']:9.1f} ms{1e3 * row['measured_s']:9.1f} ms"
              f"{row['error']:8.1%}{own}")  # fmt: skip
    load = watch.share_of_others()
    answer = {"kind": "benchmark", "schema_version": 1, "environment": describe_environment(), "model": MODEL,
              "samples": SAMPLES, "steps": STEPS, "rounds": asked.rounds,
              "others": load.others if load else None, "rows": rows}  # fmt: skip
    write_text(asked.output, json.dumps(answer, indent=1, allow_nan=False) + "\n")
    print(asked.output)


if __name__ == "__main__":
    main()
