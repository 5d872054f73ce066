"""A step in a form of parallelism, predicted from its pieces as this machine takes them; nothing is fitted to a step.

All ranks time the model's layers, the optimizer, each collective that the form is predicted to call, by itself, and a
step of the form in which nothing travels; ``simcomm.mesh`` puts them together.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from collectives.records.environment import cores
from collectives.records.model_profile import ModelProfile
from simcomm.mesh.calls import Group
from simcomm.mesh.compute import Compute, as_measured
from simcomm.mesh.interconnect import Served
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.step import StepModel, StepParts, StepPrediction

if TYPE_CHECKING:
    from realcomm.forms.pieces import Question, RankTimes


class AskedCollectives:
    """Ranks whose collectives take no time: it notes which ones it is asked for."""

    kind, nic, links = "", 1e12, None

    def __init__(self, ranks: int) -> None:
        self.node, self.questions = ranks, dict["Question", None]()

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Note the question."""
        if group.size > 1 and nbytes > 0:
            self.questions[_question(collective, nbytes, group)] = None
        return 0.0

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Refuse it: none of the forms that run here has servers."""
        raise AssertionError(f"{nbytes} bytes ({largest} of a layer) are to be served to {group}")


class TimedCollectives(AskedCollectives):
    """Ranks whose collectives take what they took by themselves."""

    def __init__(self, ranks: int, known: "dict[Question, float]") -> None:
        super().__init__(ranks)
        self.known = known

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return the seconds that were measured."""
        return self.known[_question(collective, nbytes, group)] if group.size > 1 and nbytes > 0 else 0.0


def _question(collective: str, nbytes: float, group: Group) -> "Question":
    from realcomm.forms.pieces import Question  # imports torch

    size = 2 if collective == "send_recv" else group.size
    return Question(collective, round(nbytes), size, group.stride)


class KnownPieces(NamedTuple):
    """What collectives take, of which the slowest rank counts, and computing, of all ranks at once."""

    collectives: TimedCollectives
    computing: Compute
    loading: float  # seconds that a batch takes
    silent: float  # of a step in which nothing travels, on the slowest rank


def ask_collectives(jobs: Sequence[TrainingJob], ranks: int) -> "list[Question]":
    """Return the collectives, each once, that ranks are predicted to call in a step of each job."""
    asked = AskedCollectives(ranks)
    for job in jobs:
        ones = (1.0,) * len(job.model.layers)
        StepModel(job, Compute(job.model, ones, ones, 1.0, "", 0.0), lambda _: asked).predict(ranks)
    return [*asked.questions]


def known_pieces(
    ranks: int, profile: ModelProfile, questions: "Sequence[Question]", pieces: "Sequence[RankTimes]"
) -> KnownPieces:
    """Return the pieces of a step as all ranks have timed them."""
    seconds = {one: max(rank.collectives_s[place] for rank in pieces) for place, one in enumerate(questions)}
    middle = sorted(pieces, key=lambda rank: rank.computing.step)[len(pieces) // 2].computing
    optimizer = median(rank.optimizer_s for rank in pieces)
    computing = replace(as_measured(replace(profile, measured=(middle,))), optimizer=optimizer)
    loading = median(rank.loading_s for rank in pieces)
    silent = max(rank.silent_s for rank in pieces)
    return KnownPieces(TimedCollectives(ranks, seconds), computing, loading, silent)


def predict_step(
    job: TrainingJob, ranks: int, pieces: KnownPieces, *, gloo: bool = True, ahead: bool = False
) -> StepPrediction:
    """Return a step that is put together from its pieces; ``ahead`` says whether batches are loaded beside it.

    What a rank computes is that of a step in which nothing travels, torch's own copies and dispatch with it. With gloo
    nothing hides what FSDP exchanges, as torch calls it and waits, nor what others do where all cores compute.
    """
    form = job.parallelism
    found = StepModel(job, pieces.computing, lambda _: pieces.collectives).predict(ranks)
    parts = found.parts
    if form.pipeline > 1:
        parts = _pipelined(ranks, pieces, parts)
    else:
        parts = replace(parts, compute=max(0.0, pieces.silent - parts.optimizer))
        if gloo and (form.has_dtensors or ranks >= cores()):
            called = sum(each.times * pieces.collectives.seconds(*each[:3]) for each in found.calls[0])
            parts = replace(parts, sync=max(0.0, called - parts.tensor), steal=0.0)
    loading = max(0.0, pieces.loading - parts.total) if ahead else pieces.loading
    return replace(found, parts=replace(parts, input=loading))


def _pipelined(ranks: int, pieces: KnownPieces, parts: StepParts) -> StepParts:
    """Return the parts of a pipeline's step, as long as its busiest rank takes to compute its stages by themselves.

    Ranks that wait leave their cores to others, so where there are more ranks than cores a rank computes quicker than
    all at once; but no step is predicted shorter than what all of them compute.
    """
    longer = pieces.silent * min(1.0, cores() / ranks) / (parts.compute + parts.optimizer)
    parts = replace(parts, **{name: longer * getattr(parts, name) for name in ("compute", "optimizer", "pipeline")})
    return replace(parts, pipeline=parts.pipeline + max(0.0, pieces.silent - parts.total))
