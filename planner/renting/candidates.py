"""List candidates (numbers of nodes of an instance type), and predict the step and the cost of a training on each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any, Literal, NamedTuple

from collectives.errors import InputError
from collectives.training.parallelism import Parallelism
from collectives.units import format_size
from planner.beliefs import believe
from planner.gpus import is_published
from planner.hosts import Host, host_of_preset, published_nodes
from planner.jobs import Job
from planner.memory import FILL
from planner.prediction import StepPrediction, TooLittleMemory, Training, predict_steps
from planner.rates import GpuRates, at_rate, has_published_series, series_gpu
from planner.renting.prices import InstanceType
from planner.runs import OwnRuns
from planner.search import search
from simcomm.cluster.hardware import find_link, find_part

Market = Literal["on demand", "spot"]
Interval = tuple[float, float]  # bounds of the 80 % interval
HOUR_S = 3600.0


class Candidate(NamedTuple):
    """A number of nodes of an instance type on which a job could train, on demand or as spot instances."""

    instance: InstanceType
    nodes: int
    market: Market

    @property
    def gpus(self) -> int:
        """The number of GPUs of all nodes."""
        return self.nodes * self.instance.gpus

    @property
    def price(self) -> float:
        """The price of all nodes in dollars an hour."""
        each = self.instance.spot_price if self.market == "spot" else self.instance.price
        assert each is not None
        return each * self.nodes

    @property
    def label(self) -> str:
        """The GPUs, nodes and provider, such as "16 x V100 SXM2 16GB on 2 nodes, AWS"."""
        several = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        spot = " spot" if self.market == "spot" else ""
        return f"{self.gpus} x {self.instance.gpu}{several}, {self.instance.provider}{spot}"

    @property
    def order(self) -> str:
        """The number of instances to order and their type, such as "2 x p3.16xlarge"."""
        return f"{self.nodes} x {self.instance.instance}"


def list_candidates(instances: Iterable[InstanceType], most_nodes: int, spot: bool) -> Iterator[Candidate]:
    """Yield candidates of each instance type with 1, 2, 4, ... nodes, up to ``most_nodes``.

    An instance type with an unknown network is only offered as one node. If ``spot`` is True, spot instances are
    included. Candidates without a price are omitted.
    """
    for instance in instances:
        most = most_nodes if instance.nic_bandwidth is not None else 1
        for nodes in (2**power for power in range(most.bit_length())):
            if instance.price is not None:
                yield Candidate(instance, nodes, "on demand")
            if spot and instance.spot_price is not None:
                yield Candidate(instance, nodes, "spot")


class CostEstimate(NamedTuple):
    """The predicted hours and dollars of a training run on a candidate, with their 80 % intervals."""

    candidate: Candidate
    step: StepPrediction
    hours: float
    hours_80: Interval
    dollars: float
    dollars_80: Interval


def estimate_cost(candidate: Candidate, step: StepPrediction, samples: float) -> CostEstimate:
    """Return the time and cost of training on ``samples`` samples. Raise InputError if the cost is not finite."""
    low, high = step.interval()
    hours, fewest, most = (samples / rate / HOUR_S for rate in (step.rate, high, low))
    price = candidate.price
    if not isfinite(most * price):
        raise InputError(f"plan.target_samples is too large ({samples:g}): the cost is not a finite number; reduce it")
    return CostEstimate(candidate, step, hours, (fewest, most), hours * price, (fewest * price, most * price))


class Limits(NamedTuple):
    """The limits of a plan: the deadline in hours and the budget in dollars."""

    deadline: float = inf
    budget: float = inf

    def allow(self, hours: float, dollars: float) -> bool:
        """Return whether a run of this time and cost is on time and on budget."""
        return hours <= self.deadline and dollars <= self.budget


ALIKE = {
    ("NVSwitch", "volta"): "dgx-2", ("NVSwitch", "ampere"): "dgx-a100", ("NVSwitch", "hopper"): "h100-sxm",
    ("NVLink mesh", "pascal"): "dgx-1-p100", ("NVLink mesh", "volta"): "dgx-1-v100",
}  # fmt: skip
OVER_PCIE = {"3.0": "k80", "4.0": "ada-pcie", "5.0": "h100-pcie5"}
OVER_MEMORY = "workstation"
USUAL_CORES = 8  # assumed number per GPU
HOPPER_LINKS = "NVLink 4 x18"
UNKNOWN_NIC = 1.25e9  # bytes/s; a single node does not use it


def find_host(instance: InstanceType) -> Host:
    """Return an instance type's host: a catalog machine, or a host with the links of a similar published node.

    If no published run used NVSwitch with this GPU generation, the links are the H100's, scaled to the GPU's NVLink
    bandwidth. Raise InputError if no similar node with an NVLink mesh is known.
    """
    if instance.machine is not None:
        return host_of_preset(instance.machine, instance.gpu)
    gpu, links, ratio = find_part("GPU", instance.gpu), instance.interconnect, 1.0
    if links in ("NVSwitch", "NVLink mesh"):
        name = ALIKE.get((links, gpu["generation"].value), ALIKE["NVSwitch", "hopper"] if links == "NVSwitch" else "")
        if not name:
            raise InputError(f"{instance.gpu} with {links} cannot be predicted: no published run used such GPUs")
        if name == ALIKE["NVSwitch", "hopper"]:
            ratio = find_link(gpu["nvlink"].value).bandwidth / find_link(HOPPER_LINKS).bandwidth
    else:
        lanes = gpu["pcie"].value.removeprefix("PCIe ").partition(" ")[0] if "pcie" in gpu else ""
        name = OVER_PCIE.get(lanes, OVER_PCIE["4.0"]) if instance.peer_to_peer else OVER_MEMORY
    alike = published_nodes()[name]
    return replace(
        alike,
        is_published=False, name=instance.name, gpu=instance.gpu, gpus=instance.gpus,
        busbw=tuple((count, ratio * rate) for count, rate in alike.busbw),
        cores=round(instance.cores) if instance.cores is not None else USUAL_CORES * instance.gpus,
        nic=UNKNOWN_NIC if instance.nic_bandwidth is None else instance.nic_bandwidth,
    )  # fmt: skip


@dataclass(frozen=True)
class CandidateSteps:
    """Predicts the training step of a job on candidates.

    If ``rates`` is set, the compute time follows from the rate of one GPU. Otherwise, the model must be a language
    model. Its compute time follows from its dimensions, adapted to the user's ``own`` runs on the same GPU. If
    ``is_searched`` is True, each candidate uses its fastest mesh.
    """

    job: Job
    rates: GpuRates | None = None
    own: Mapping[str, OwnRuns] = field(default_factory=dict)
    is_searched: bool = False

    @property
    def notes(self) -> list[str]:
        """Sentences that name the user's runs to which the predictions are adapted."""
        return [f"rates of {gpu} are adapted to {record.title}" for gpu, record in self.own.items()]

    def is_published(self, gpu: str) -> bool:
        """Return whether a rate or a run on this GPU is known, from publications or from the user."""
        if self.rates is not None:
            return series_gpu(gpu) in self.rates.known or has_published_series(gpu)
        return gpu in self.own or is_published(gpu)

    def predict(
        self, places: Sequence[tuple[InstanceType, int]], on_done: Callable[[int], object] = lambda number: None
    ) -> list[StepPrediction | InputError]:
        """Return the predicted step, or the error, for each instance type and number of nodes in ``places``.

        The error is TooLittleMemory if the memory is too small, and InputError if the GPU or the mesh is not supported.
        ``on_done`` is called for each place, with the number of places processed so far.
        """
        meshes, answers = dict[Any, Training](), list[Any]()
        for number, (instance, nodes) in enumerate(places, start=1):
            try:
                host, gpus = find_host(instance), nodes * instance.gpus
                if (host, gpus) not in meshes:  # several providers sell the same machine
                    meshes[host, gpus] = self._training(host, instance.gpu, gpus)
                answers.append((host, gpus))
            except InputError as error:
                answers.append(error)
            on_done(number)
        steps = dict(zip(meshes, predict_steps([*meshes.values()]), strict=True))
        return [answer if isinstance(answer, InputError) else steps[answer] for answer in answers]

    def _training(self, host: Host, gpu: str, gpus: int) -> Training:
        if self.rates is not None:
            alone = self.rates.rate(gpu)
            training = Training(self.job, host, at_rate(self.job.model, alone.rate, spread=alone.spread))
        else:
            training = Training(self.job, host, belief=self.own[gpu].belief if gpu in self.own else believe())
        if not self.is_searched:
            return training.on(gpus)
        training = replace(training, job=replace(self.job, parallelism=Parallelism(data=gpus)))
        meshes = search(training)
        if len(meshes.order):
            return replace(meshes.training, mesh=meshes.searched[int(meshes.order[0])])
        needed, available = float(meshes.memory["total"].min()) / FILL, float(meshes.columns.memory_bytes[0])
        raise TooLittleMemory(
            f"no mesh of {gpus} x {training.host.device.name} fits into memory: each GPU needs {format_size(needed)} "
            f"and has {format_size(available)}; increase plan.most_nodes, or run `ringlab search` to see remedies",
            needed,
            available,
        )


class Screening(NamedTuple):
    """The cost estimates of candidates that can train a model, and the reasons why other candidates cannot."""

    estimates: list[CostEstimate]
    too_small: dict[tuple[str, int], TooLittleMemory]  # by GPU and number of GPUs
    unsupported: dict[str, list[Candidate]]  # by reason


def screen(
    candidates: Iterable[Candidate], steps: CandidateSteps, samples: float, on_done: Callable[[int], object]
) -> Screening:
    """Return the time and cost of training on ``samples`` samples for each candidate.

    The result also lists candidates that have too little memory or cannot be predicted, and says why. ``on_done`` is
    called for each candidate, with the number of candidates processed so far.
    """
    listed, screening = [*candidates], Screening([], {}, {})
    answers = steps.predict([(candidate.instance, candidate.nodes) for candidate in listed], on_done)
    for candidate, step in zip(listed, answers, strict=True):
        try:
            if isinstance(step, InputError):
                raise step
            screening.estimates.append(estimate_cost(candidate, step, samples))
        except TooLittleMemory as error:
            screening.too_small[candidate.instance.gpu, candidate.gpus] = error
        except InputError as error:
            screening.unsupported.setdefault(str(error), []).append(candidate)
    return screening
