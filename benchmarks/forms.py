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
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import realcomm
from benchmarks.torch_forms.running import FormPlan, FormResult, run_forms
from benchmarks.torch_forms.timing import Question, RankTimes, time_own_work, time_pieces
from collectives.output_files import write_text
from collectives.records.environment import describe_environment
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from realcomm.calibration.load import watch_load
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from simcomm.mesh.calls import Group
from simcomm.mesh.compute import Compute, as_measured
from simcomm.mesh.interconnect import Served
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.layers import cut_stages
from simcomm.mesh.step import StepModel, StepParts

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


class Asked:
    """A fabric that notes what it is asked for; everything takes no time."""

    kind, nic, links = "", 1e12, None

    def __init__(self, ranks: int) -> None:
        self.node, self.questions = ranks, dict[Question, None]()

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Note the question."""
        if group.size > 1 and nbytes > 0:
            self.questions[_question(collective, nbytes, group)] = None
        return 0.0

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Refuse it: none of the forms here has servers."""
        raise AssertionError(f"{nbytes} bytes ({largest} of a layer) are to be served to {group}")


class Timed(Asked):
    """A fabric on which collectives take what they took by themselves."""

    def __init__(self, ranks: int, known: dict[Question, float]) -> None:
        super().__init__(ranks)
        self.known = known

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return the seconds that were measured."""
        return self.known[_question(collective, nbytes, group)] if group.size > 1 and nbytes > 0 else 0.0


def _question(collective: str, nbytes: float, group: Group) -> Question:
    size = 2 if collective == "send_recv" else group.size
    return Question(collective, round(nbytes), size, group.stride)


def measure(ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each form: seconds of a step, predicted and measured; the medians over the rounds."""
    profile, forms = profile_on_meta(find_model(MODEL)), forms_of(ranks)
    asked, ones = Asked(ranks), (1.0,) * len(profile.layers)
    guess = Compute(profile, ones, ones, 1.0, "", 0.0)
    for form in forms.values():
        StepModel(_job(profile, form), guess, lambda _: asked).predict(ranks)
    found = [measure_round(ranks, profile, forms, [*asked.questions]) for _ in range(rounds)]
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
    each = SAMPLES // ranks
    pieces: list[RankTimes] = realcomm.launch(time_pieces, ranks, MODEL, each, questions, threads=1, timeout=300)
    spread = [form for form in forms.values() if form.pipeline == 1]
    own: list[list[float]] = realcomm.launch(time_own_work, ranks, MODEL, each, spread, threads=1, timeout=300)
    taken = {form: median(rank[place] for rank in own) for place, form in enumerate(spread)}
    fabric, at_once, alone = known_pieces(ranks, profile, questions, pieces)
    plans = [FormPlan(MODEL, form, SAMPLES, stages_of(profile, form), STEPS) for form in forms.values()]
    results: list[list[FormResult]] = realcomm.launch(run_forms, ranks, plans, threads=1, timeout=600)
    rows = []
    for place, form in enumerate(forms.values()):
        compute = alone if form.schedule == "naive" and form.pipeline > 1 else at_once
        seconds = max(median(rank[place].step_s) for rank in results)
        behind = max(median(rank[place].optimizer_s) for rank in results)
        parts = StepModel(_job(profile, form), compute, lambda _: fabric).predict(ranks).parts
        rows.append(Round(parts, taken.get(form), seconds, behind))
    return rows


def _job(profile: ModelProfile, form: Parallelism) -> TrainingJob:
    return TrainingJob(profile, SAMPLES // form.data, form, optimizer="adamw")


def known_pieces(
    ranks: int, profile: ModelProfile, questions: Sequence[Question], pieces: Sequence[RankTimes]
) -> tuple[Timed, Compute, Compute]:
    """Return what collectives take, of which the slowest rank counts, and computing: of all at once, and of one alone.

    Cores that share a memory, or are two threads of one, compute slower when both do.
    """
    seconds = {one: max(rank.collectives_s[place] for rank in pieces) for place, one in enumerate(questions)}
    middle = sorted(pieces, key=lambda rank: rank.computing.step)[len(pieces) // 2].computing
    optimizer = median(rank.optimizer_s for rank in pieces)
    at_once, alone = (
        replace(as_measured(replace(profile, measured=(one,))), optimizer=optimizer)
        for one in (middle, pieces[0].alone or middle)
    )
    return Timed(ranks, seconds), at_once, alone


def stages_of(profile: ModelProfile, form: Parallelism) -> tuple[tuple[str, ...], ...]:
    """Return the names of the blocks of each stage of a pipeline."""
    cut = cut_stages(profile, form.pipeline * form.virtual) if form.pipeline > 1 else []
    return tuple(tuple(block.name for block in stage if block.parameters) for stage in cut)


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
