"""Rates of choices, by the model of a training step: of very many on all cores, kept, and not predicted again.

Choices that cannot keep a training in memory are left out before.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from collectives.checks import is_finite_number
from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json
from collectives.output_files import append_text, key_of, read_kept_lines
from collectives.quoting import quote
from collectives.records.environment import installed_version
from simcomm.cluster.hardware import find_link, find_part, memory_bytes, parts
from simcomm.mesh.compute import at_rate
from simcomm.mesh.interconnect import NodeInterconnect, ScalingNode
from simcomm.mesh.intervals import NORMAL, Uncertain, log_halfwidth
from simcomm.mesh.job import MeshDevice, TrainingJob
from simcomm.mesh.memory import check_fit, memory_of
from simcomm.mesh.step import StepModel
from simcomm.parallel import in_any_order
from simcomm.renting.quotes import Choice, Rate
from simcomm.renting.rentals import Rental
from simcomm.scaling.descriptions import ScalingGpu, find_node, find_scaling_gpu
from simcomm.scaling.gpu_rates import series_gpu

ALIKE = {
    ("NVSwitch", "volta"): "dgx-2",
    ("NVSwitch", "ampere"): "dgx-a100",
    ("NVSwitch", "hopper"): "h100-sxm",
    ("NVLink mesh", "pascal"): "dgx-1-p100",
    ("NVLink mesh", "volta"): "dgx-1-v100",
}
OVER_PCIE = {"3.0": "k80", "4.0": "ada-pcie", "5.0": "h100-pcie5"}
OVER_MEMORY = "workstation"
USUAL_CORES = 8  # of a GPU, where the number of cores is not known
HOPPER_LINKS = "NVLink 4 x18"
UNKNOWN_NIC = 1.25  # GB/s: of a machine that is not joined to others


def find_gpu(rental: Rental) -> ScalingGpu:
    """Return the GPU of a rental by its data sheet. Raise InputError for one of which too little is known."""
    return find_scaling_gpu(series_gpu(rental.gpu))


def node_alike(rental: Rental) -> str:
    """Return the node of the published series whose GPUs are joined in the same way. Raise InputError.

    >>> from simcomm.renting.rentals import read_rentals
    >>> sorted({node_alike(one) for one in read_rentals() if one.gpu == "RTX 4090" and one.gpus > 1})
    ['workstation']
    """
    gpu = find_part("GPU", rental.gpu)
    if rental.interconnect.startswith("NV") and rental.interconnect != "NVLink pairs":
        generation = gpu["generation"].value
        if rental.interconnect == "NVSwitch" and (rental.interconnect, generation) not in ALIKE:
            generation = "hopper"
        if (rental.interconnect, generation) not in ALIKE:
            raise InputError(f"{rental.name}: nothing is known of a {rental.interconnect} of {rental.gpu}")
        return ALIKE[rental.interconnect, generation]
    lanes = gpu["pcie"].value.removeprefix("PCIe ").partition(" ")[0] if "pcie" in gpu else ""
    return OVER_PCIE.get(lanes, OVER_PCIE["4.0"]) if rental.peer_to_peer else OVER_MEMORY


def scaling_node(rental: Rental) -> ScalingNode:
    """Return the node of the step model that a rental is.

    An NVSwitch of a generation without a published series is as that of the H100, in the ratio of their NVLinks.
    """
    alike = find_node(node_alike(rental))
    ratio = 1.0
    if rental.interconnect == "NVSwitch" and alike.name == ALIKE["NVSwitch", "hopper"]:
        ratio = find_link(find_part("GPU", rental.gpu)["nvlink"].value).bandwidth / find_link(HOPPER_LINKS).bandwidth
    nic = UNKNOWN_NIC if rental.nic_bandwidth is None else rental.nic_bandwidth / 1e9
    cores = round(rental.cores) if rental.cores is not None else USUAL_CORES * rental.gpus
    rates = {count: ratio * rate for count, rate in alike.busbw.items()}
    return ScalingNode(rental.name, rental.gpus, alike.link, rates, cores, nic, rental.machine)


BLOCK = 64  # choices that a process is given at a time
Z_80 = NORMAL.inv_cdf(0.9)


class RateQuestion(NamedTuple):
    """What the rate of a choice depends on."""

    job: TrainingJob
    gpu: ScalingGpu
    node: ScalingNode
    gpus: int
    nodes: int
    alone: Uncertain  # samples a second of one GPU

    def answer(self) -> Rate:
        """Return the predicted rate, wrong by what one GPU's rate is and by what scaling over its links is.

        How well it scales is wrong alike for all machines whose GPUs are joined alike: in logarithms by the spread of
        which an interval of 80 % is made.
        """
        job, gpus, nodes, gpu, node = self.job, self.gpus, self.nodes, self.gpu, self.node
        joined = NodeInterconnect(node, gpus // nodes, nodes)
        device = MeshDevice(gpu.name, memory_bandwidth=gpu.memory_GBps * 1e9, cores=node.cores)
        found = StepModel(job, at_rate(job.model, self.alone.median), lambda _: joined, device).predict(gpus)
        causes = dict(self.alone.causes)
        if gpus > 1:
            links = node.link if nodes == 1 else f"{node.link} and the network"
            causes[f"scaling over {links}"] = float(log_halfwidth(found.rests_on, 0.8)) / Z_80
        name, share = found.bottleneck
        held = name if name == "compute" else f"{name} {share:.0%}"
        if name == "contention" and found.shared_between:
            held = f"{found.shared_between[0].name} {share:.0%}"
        return Rate(Uncertain(found.rate, causes), held, found.efficiency)

    @property
    def key(self) -> str:
        """What tells this question, and the version of this package, from all others."""
        model = self.job.model
        job = {**vars(self.job), "model": [model.model, model.layers], "contention": sorted(self.job.contention)}
        alone = [self.alone.median, dict(self.alone.causes)]
        content = [installed_version("ringlab"), job, self.gpu, self.node, self.gpus, self.nodes, alone]
        return key_of(content)


@dataclass(frozen=True)
class Predicting:
    """A training, and what one GPU of each type does of it; ``predict`` asks the model of a step."""

    job: TrainingJob
    alone: Callable[[str], Uncertain]  # samples a second of one GPU of the hardware catalogue
    notes: Sequence[str] = ()  # what is to be said of the rates

    def question(self, choice: Choice) -> RateQuestion:
        """Return what is asked of a choice. Raise InputError for machines of which too little is known."""
        rental = choice.rental
        return RateQuestion(
            self.job, find_gpu(rental), scaling_node(rental), choice.gpus, choice.nodes, self.alone(rental.gpu)
        )

    def predict(self, choice: Choice) -> Rate:
        """Return the rate of one choice."""
        return self.question(choice).answer()

    def memory(self, choice: Choice) -> float:
        """Return the bytes that the fullest GPU keeps. Raise InputError for a mesh of another number of GPUs."""
        return max(one.total for one in memory_of(self.job.on(choice.gpus, choice.rental.gpus)))

    def refuse(self, choice: Choice, memory: float) -> NoReturn:
        """Raise InputError that says what a choice, the largest there is, lacks, and what would fit."""
        gpu = choice.rental.gpu
        check_fit(self.job.on(choice.gpus, choice.rental.gpus), memory, f"{gpu}, the largest GPU that is for sale")
        raise AssertionError(gpu)


class AnyQuestion(Protocol):
    """What is asked of a choice, and answers."""

    @property
    def key(self) -> str:
        """What tells it from all others."""

    def answer(self) -> Rate:
        """Return the predicted rate."""


class AnyPredicting(Protocol):
    """What predicts the rates of choices."""

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of the rates."""
        ...

    def question(self, choice: Choice) -> AnyQuestion:
        """Return what is asked of a choice."""

    def predict(self, choice: Choice) -> Rate:
        """Return the rate of one choice."""

    def memory(self, choice: Choice) -> float:
        """Return the bytes that the fullest GPU keeps."""

    def refuse(self, choice: Choice, memory: float) -> NoReturn:
        """Raise InputError that says what a choice lacks."""


def answer_all(questions: Sequence[AnyQuestion]) -> list[Rate]:
    """Return the rates of several."""
    return [question.answer() for question in questions]


def predict_all(
    questions: Sequence[tuple[str, AnyQuestion]],
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


class RateFile:
    """The file that keeps predicted rates: a line of JSON each, found again by the key of its question."""

    def __init__(self, path: Path | str) -> None:
        """Read the file if it is there. Raise InputError that names file and line for one that is not of rates."""
        self.path = Path(path)
        self.known = dict(read_kept_lines(self.path, self._line, FileBytes.KEPT_RATES))

    def add(self, key: str, label: str, rate: Rate) -> None:
        """Add a rate to the end of the file."""
        found = {"rate": rate.rate.median, "causes": dict(rate.rate.causes), "bottleneck": rate.bottleneck}
        line = {"key": key, "choice": label, **found, "efficiency": rate.efficiency, "mesh": rate.mesh}
        append_text(self.path, f"{json.dumps(line)}\n")
        self.known[key] = rate

    def _line(self, line: str, number: int) -> tuple[str, Rate]:
        try:
            read: Any = parse_json(line)
            causes: Mapping[str, Any] = read["causes"]
            # of the logarithm of a rate: that is 22,000 times as much
            if not all(is_finite_number(by) and abs(by) <= 10.0 for by in causes.values()):
                raise ValueError("causes")
            rate = Uncertain(read["rate"], {str(name): float(by) for name, by in causes.items()})
            if not (is_finite_number(read["efficiency"]) and isinstance(read["bottleneck"], str)):
                raise ValueError("efficiency")
            kept = Rate(rate, read["bottleneck"], float(read["efficiency"]), str(read.get("mesh", "")))
            return str(read["key"]), kept
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, InputError) as error:
            raise InputError(f"{self.path}, line {number}: {quote(line)} is no rate of a plan; name another") from error


def fitting_choices(choices: Sequence[Choice], predicting: AnyPredicting) -> tuple[list[Choice], list[str]]:
    """Return the choices of which the mesh can be made and on which a batch fits, and the others in words.

    GPUs whose memory is not known are not refused. Raise InputError, with what would fit, where none is left.
    """
    known = {one.rental.gpu for one in choices} & parts("GPU").keys()
    memories = {gpu: memory_bytes(gpu) or inf for gpu in known}
    meshes, fitting, small, reason = dict[tuple[int, int], float](), list[Choice](), list[Choice](), InputError("")
    for one in choices:
        mesh = (one.gpus, one.rental.gpus)
        try:
            if mesh not in meshes:
                meshes[mesh] = predicting.memory(one)
        except InputError as error:
            meshes[mesh], reason = inf, error if mesh >= max(meshes, default=mesh) else reason
        enough = meshes[mesh] <= memories.get(one.rental.gpu, inf)
        if meshes[mesh] < inf:
            (fitting if enough else small).append(one)
    if fitting or not choices:
        return fitting, _too_small(small, {one.rental.gpu for one in fitting})
    if not small:
        raise reason  # of the most GPUs
    largest = max(small, key=lambda one: (memories[one.rental.gpu], -meshes[one.gpus, one.rental.gpus]))
    predicting.refuse(largest, memories[largest.rental.gpu])


def _too_small(choices: Iterable[Choice], others: Collection[str]) -> list[str]:
    """Return the GPUs of choices, with how many of them do not suffice where more or fewer do.

    >>> from simcomm.renting.rentals import read_rentals
    >>> small = [Choice(read_rentals()[place], 1, "on demand") for place in (0, 1)]
    >>> _too_small(small, set()), _too_small(small, {small[0].rental.gpu})
    (['V100 SXM2 16GB'], ['1 or 4 x V100 SXM2 16GB'])
    """
    counts: dict[str, set[int]] = {}
    for one in choices:
        counts.setdefault(one.rental.gpu, set()).add(one.gpus)
    return [f"{' or '.join(map(str, sorted(counts[gpu])))} x {gpu}" if gpu in others else gpu for gpu in sorted(counts)]
