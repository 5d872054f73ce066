"""Rates of choices, by the model of a training step: of very many on all cores, kept, and not predicted again."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from collectives.parallelism import Parallelism
from collectives.records.model_profile import ModelProfile
from simcomm.parallel import in_any_order
from simcomm.parallelism.compute import at_rate
from simcomm.parallelism.memory import memory_of
from simcomm.parallelism.node_interconnect import NodeInterconnect
from simcomm.parallelism.step import StepModel
from simcomm.renting.kept_rates import RateFile, question_key
from simcomm.renting.nodes import find_gpu, scaling_node
from simcomm.renting.quotes import Choice, Rate
from simcomm.renting.uncertain import NORMAL, Uncertain
from simcomm.scaling.descriptions import Job, ScalingGpu, ScalingNode
from simcomm.scaling.host_copies import copied_bytes
from simcomm.scaling.intervals import log_halfwidth
from simcomm.scaling.parameters import read_parameters

BLOCK = 64  # choices that a process is given at a time
Z_80 = NORMAL.inv_cdf(0.9)


@dataclass(frozen=True)
class RentedTraining:
    """What is trained, whatever it is trained on; a batch is of each device of the data axis."""

    profile: ModelProfile
    batch_size: int
    parallelism: Parallelism
    precision: str = "float32"
    optimizer: str = "sgd"
    loader: str = "synthetic"
    variable_batches: bool = False  # of unequal work
    input_bytes: int | None = None  # of a sample as it is copied to a device; None: what the loader copies

    @property
    def job(self) -> Job:
        """What one GPU does of it, as published rates are told apart."""
        return Job(self.profile, float(self.batch_size), self.precision)

    def step_model(self, alone: float, gpu: ScalingGpu, node: ScalingNode, joined: NodeInterconnect) -> StepModel:
        """Return what predicts its steps on machines of which one GPU does ``alone`` samples a second."""
        rates = {"dali": "dali_per_core", "decode": "decode_per_core"}
        per_core = read_parameters()[rates[self.loader]] if self.loader in rates else 0.0
        return StepModel(
            at_rate(self.profile, alone),
            lambda _: joined,
            optimizer=self.optimizer,
            precision=self.precision,
            loader_rate=per_core * node.cores,
            variable_batches=self.variable_batches,
            memory_bandwidth=gpu.memory_GBps * 1e9,
            cores=node.cores,
            input_bytes=copied_bytes(self.profile, self.loader) if self.input_bytes is None else self.input_bytes,
        )

    def memory(self, gpus: int, on_node: int) -> float:
        """Return the bytes that the device keeps that keeps most. Raise InputError for a mesh of another number."""
        form = self.parallelism.for_devices(gpus, on_node)
        found = memory_of(self.profile, form, self.batch_size, optimizer=self.optimizer, precision=self.precision)
        return max(one.total for one in found)


class Question(NamedTuple):
    """What the rate of a choice depends on."""

    training: RentedTraining
    gpu: ScalingGpu
    node: ScalingNode
    gpus: int
    nodes: int
    alone: Uncertain  # samples a second of one GPU

    @property
    def key(self) -> str:
        """What tells this question from all others."""
        profile = self.training.profile
        training = {**vars(self.training), "profile": [profile.model, profile.layers]}
        return question_key(
            [training, self.gpu, self.node, self.gpus, self.nodes, self.alone.median, dict(self.alone.causes)]
        )


@dataclass(frozen=True)
class Predicting:
    """A training, and what one GPU of each type does of it; ``predict`` asks the model of a step."""

    training: RentedTraining
    alone: Callable[[str], Uncertain]  # samples a second of one GPU of the hardware catalogue

    def question(self, choice: Choice) -> Question:
        """Return what is asked of a choice. Raise InputError for machines of which too little is known."""
        rental = choice.rental
        return Question(
            self.training, find_gpu(rental), scaling_node(rental), choice.gpus, choice.nodes, self.alone(rental.gpu)
        )

    def predict(self, choice: Choice) -> Rate:
        """Return the rate of one choice."""
        return answer(self.question(choice))


def answer(question: Question) -> Rate:
    """Return the predicted rate, wrong by what one GPU's rate is and by what scaling over its links is.

    How well it scales is wrong alike for all machines whose GPUs are joined alike: in logarithms by the spread of which
    an interval of 80 % is made.
    """
    training, gpus, nodes = question.training, question.gpus, question.nodes
    joined = NodeInterconnect(question.node, gpus // nodes, nodes)
    model = training.step_model(question.alone.median, question.gpu, question.node, joined)
    found = model.predict(training.parallelism, gpus, training.batch_size)
    causes = dict(question.alone.causes)
    if gpus > 1:
        links = question.node.link if nodes == 1 else f"{question.node.link} and the network"
        causes[f"scaling over {links}"] = float(log_halfwidth(found.rests_on, 0.8)) / Z_80
    name, share = found.bottleneck
    held = name if name == "compute" else f"{name} {share:.0%}"
    if name == "contention" and found.shared_between:
        held = f"{found.shared_between[0].name} {share:.0%}"
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
