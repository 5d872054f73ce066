"""Rates of choices, by the model of a training step: of very many on all cores, kept, and not predicted again."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import NamedTuple

from simcomm.parallel import in_any_order
from simcomm.renting.kept_rates import RateFile, question_key
from simcomm.renting.nodes import find_gpu, scaling_node
from simcomm.renting.quotes import Choice, Rate
from simcomm.renting.uncertain import NORMAL, Uncertain
from simcomm.scaling.descriptions import Job, ScalingGpu, ScalingNode
from simcomm.scaling.rates import predict_rate

BLOCK = 64  # choices that a process is given at a time
Z_80 = NORMAL.inv_cdf(0.9)


class Question(NamedTuple):
    """What the rate of a choice depends on."""

    job: Job
    gpu: ScalingGpu
    node: ScalingNode
    gpus: int
    nodes: int
    alone: Uncertain  # samples a second of one GPU

    @property
    def key(self) -> str:
        """What tells this question from all others."""
        job = {**vars(self.job), "model": [self.job.model.model, self.job.model.layers]}
        return question_key(
            [job, self.gpu, self.node, self.gpus, self.nodes, self.alone.median, dict(self.alone.causes)]
        )


@dataclass(frozen=True)
class Predicting:
    """A job, and what one GPU of each type does of it; ``predict`` asks the model of a step."""

    job: Job
    alone: Callable[[str], Uncertain]  # samples a second of one GPU of the hardware catalogue

    def question(self, choice: Choice) -> Question:
        """Return what is asked of a choice. Raise InputError for machines of which too little is known."""
        rental = choice.rental
        return Question(
            self.job, find_gpu(rental), scaling_node(rental), choice.gpus, choice.nodes, self.alone(rental.gpu)
        )

    def predict(self, choice: Choice) -> Rate:
        """Return the rate of one choice."""
        return answer(self.question(choice))


def answer(question: Question) -> Rate:
    """Return the predicted rate, wrong by what one GPU's rate is and by what scaling over its links is.

    How well it scales is wrong alike for all machines whose GPUs are joined alike: in logarithms by the spread of which
    an interval of 80 % is made.
    """
    found = predict_rate(
        question.job, question.node, question.gpus, question.nodes, question.alone.median, gpu=question.gpu
    )
    causes = dict(question.alone.causes)
    if question.gpus > 1:
        links = question.node.link if question.nodes == 1 else f"{question.node.link} and the network"
        causes[f"scaling over {links}"] = log(found.interval(0.8)[1] / found.rate) / Z_80
    name, share = found.parts.bottleneck
    held = f"{name} {share:.0%}" if share >= 0.005 else "compute"
    if name == "contention" and found.shared:
        held = f"{found.shared[0].name} {share:.0%}"
    return Rate(Uncertain(found.rate, causes), held, found.efficiency)


def answer_all(questions: Sequence[Question]) -> list[Rate]:
    """Return the rates of several."""
    return [answer(question) for question in questions]


def predict_all(
    questions: Sequence[tuple[str, Question]],
    *,
    executor: Executor | None = None,
    kept: Path | str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[tuple[int, Rate]]:
    """Yield the number of each question, which stands behind its label, and its rate, as they get done.

    What the file ``kept`` holds is not predicted again; what is predicted is added to it at once.
    """
    file = RateFile(kept) if kept is not None else None
    missing = dict[str, list[int]]()  # by the key of what is asked: the same machines may be for sale twice
    for number, (_, question) in enumerate(questions):
        key = question.key if file is not None else str(number)  # a key takes longer than its answer
        if file is not None and key in file.known:
            yield number, file.known[key]
        else:
            missing.setdefault(key, []).append(number)
    keys = [*missing]
    blocks = [keys[begin : begin + BLOCK] for begin in range(0, len(keys), BLOCK)]
    done = len(questions) - sum(map(len, missing.values()))
    tasks = [[questions[missing[key][0]][1] for key in block] for block in blocks]
    for place, rates in in_any_order(answer_all, tasks, executor):
        for key, rate in zip(blocks[place], rates, strict=True):
            if file is not None:
                file.add(key, questions[missing[key][0]][0], rate)
            for number in missing[key]:
                yield number, rate
            done += len(missing[key])
        if progress is not None:
            progress(done, len(questions))
