"""A step in a form of parallelism, predicted from its pieces as this machine takes them; nothing is fitted to a step.

All ranks time the model's layers, the optimizer, and each collective that the form is predicted to call, by itself;
``simcomm.mesh`` puts them together.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from collectives.records.environment import cores
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from simcomm.mesh.calls import Group
from simcomm.mesh.compute import Compute, as_measured
from simcomm.mesh.interconnect import Served
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.step import StepModel, StepPrediction

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
    """What collectives take, of which the slowest rank counts, and computing: of all ranks at once, and of one alone.

    Cores that share a memory, or are two threads of one, compute slower when both do.
    """

    collectives: TimedCollectives
    at_once: Compute
    alone: Compute
    loading: float  # seconds that a batch takes

    def computing(self, form: Parallelism, ranks: int) -> Compute:
        """Return what a rank computes in a form: alone where others wait, as with the naive schedule.

        So it is also where more stages take turns than there are cores, over which ``predict_step`` spreads them.
        """
        takes_turns = form.pipeline > 1 and (form.schedule == "naive" or ranks > cores())
        return self.alone if takes_turns else self.at_once


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
    at_once, alone = (
        replace(as_measured(replace(profile, measured=(one,))), optimizer=optimizer)
        for one in (middle, pieces[0].alone or middle)
    )
    loading = median(rank.loading_s for rank in pieces)
    return KnownPieces(TimedCollectives(ranks, seconds), at_once, alone, loading)


def predict_step(job: TrainingJob, ranks: int, pieces: KnownPieces, ahead: bool = False) -> StepPrediction:
    """Return a step that is put together from its pieces; ``ahead`` says whether batches are loaded beside it.

    Of a pipeline no step is predicted shorter than all that its ranks compute, spread over the cores.
    """
    form = job.parallelism
    found = StepModel(job, pieces.computing(form, ranks), lambda _: pieces.collectives).predict(ranks)
    parts = found.parts
    if form.pipeline > 1:
        computed = job.batch * form.data * (sum(pieces.alone.forward) + sum(pieces.alone.backward))
        waited = max(0.0, computed / min(ranks, cores()) + parts.optimizer - parts.total)
        parts = replace(parts, pipeline=parts.pipeline + waited)
    loading = max(0.0, pieces.loading - parts.total) if ahead else pieces.loading
    return replace(found, parts=replace(parts, input=loading))
