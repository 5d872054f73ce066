"""The training step on a candidate: an instance type as a node of GPUs, and the models that predict the step."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import exp
from typing import NamedTuple, Protocol

from collectives.errors import InputError
from collectives.training.parallelism import Parallelism
from collectives.units import format_size
from planner.beliefs import Z_80, believe
from planner.gpus import find_gpu, is_published
from planner.hosts import Host, host_of_preset
from planner.memory import FILL
from planner.mesh.compute import Compute, at_rate
from planner.mesh.interconnect import NodeInterconnect, ScalingNode
from planner.mesh.job import MeshDevice, TrainingJob
from planner.mesh.language import LanguageModel, is_expressible
from planner.mesh.memory import TooLittleMemory
from planner.mesh.prediction import StepParts
from planner.mesh.step import StepModel
from planner.renting.candidates import Candidate, CandidateStep, CostEstimate, estimate_cost
from planner.renting.prices import InstanceType
from planner.runs import OwnRuns
from planner.scaling.descriptions import find_node, find_scaling_gpu
from planner.scaling.gpu_rates import GpuRates, has_published_series, series_gpu
from planner.search import FoundMeshes, search
from planner.series import host_of_node
from simcomm.cluster.hardware import find_link, find_part, memory_bytes

ALIKE = {
    ("NVSwitch", "volta"): "dgx-2",
    ("NVSwitch", "ampere"): "dgx-a100",
    ("NVSwitch", "hopper"): "h100-sxm",
    ("NVLink mesh", "pascal"): "dgx-1-p100",
    ("NVLink mesh", "volta"): "dgx-1-v100",
}
OVER_PCIE = {"3.0": "k80", "4.0": "ada-pcie", "5.0": "h100-pcie5"}
OVER_MEMORY = "workstation"
USUAL_CORES = 8  # for each GPU, if the number of cores is not known
HOPPER_LINKS = "NVLink 4 x18"
UNKNOWN_NIC = 1.25  # GB/s; a single node does not use it


def node_alike(instance: InstanceType) -> str:
    """Return the node of the published series with the same kind of interconnect. Raise InputError.

    >>> from planner.renting.prices import read_prices
    >>> sorted({node_alike(one) for one in read_prices() if one.gpu == "RTX 4090" and one.gpus > 1})
    ['workstation']
    """
    gpu = find_part("GPU", instance.gpu)
    if instance.interconnect.startswith("NV") and instance.interconnect != "NVLink pairs":
        generation = gpu["generation"].value
        if instance.interconnect == "NVSwitch" and (instance.interconnect, generation) not in ALIKE:
            generation = "hopper"
        if (instance.interconnect, generation) not in ALIKE:
            raise InputError(f"no published series has a {instance.interconnect} of {instance.gpu}")
        return ALIKE[instance.interconnect, generation]
    lanes = gpu["pcie"].value.removeprefix("PCIe ").partition(" ")[0] if "pcie" in gpu else ""
    return OVER_PCIE.get(lanes, OVER_PCIE["4.0"]) if instance.peer_to_peer else OVER_MEMORY


def scaling_node(instance: InstanceType) -> ScalingNode:
    """Return an instance type as a node of the step model.

    An NVSwitch generation without a published series is the H100's, scaled by the bandwidth of its NVLinks.
    """
    alike = find_node(node_alike(instance))
    ratio = 1.0
    if instance.interconnect == "NVSwitch" and alike.name == ALIKE["NVSwitch", "hopper"]:
        ratio = find_link(find_part("GPU", instance.gpu)["nvlink"].value).bandwidth / find_link(HOPPER_LINKS).bandwidth
    nic = UNKNOWN_NIC if instance.nic_bandwidth is None else instance.nic_bandwidth / 1e9
    cores = round(instance.cores) if instance.cores is not None else USUAL_CORES * instance.gpus
    rates = {count: ratio * rate for count, rate in alike.busbw.items()}
    return ScalingNode(instance.name, instance.gpus, alike.link, rates, cores, nic, instance.machine)


def find_host(instance: InstanceType) -> Host:
    """Return an instance type as a host: a machine of the hardware catalogue, or as published series have its kind.

    Raises InputError if its GPU's rates are not known.

    >>> from planner.renting.prices import read_prices
    >>> {find_host(one).system is None for one in read_prices() if one.machine == "p4d.24xlarge"}
    {False}
    """
    gpu = find_gpu(instance.gpu)
    if instance.machine is not None:
        return host_of_preset(instance.machine, instance.gpu)
    return host_of_node(scaling_node(instance), gpu)


class StepSource(Protocol):
    """A training job whose step can be predicted on a number of nodes of an instance type."""

    @property
    def notes(self) -> list[str]:
        """Sentences about the source of the rates."""
        ...

    def is_published(self, gpu: str) -> bool:
        """Return whether the rates of a GPU are by runs on it, published or the user's."""
        ...

    def predict(self, instance: InstanceType, nodes: int) -> CandidateStep:
        """Return the step. Raise TooLittleMemory, or InputError if the GPU or the mesh is not supported."""


@dataclass(frozen=True)
class ProfileSteps:
    """A job with a compute time that is known from its rate on one GPU."""

    job: TrainingJob
    rates: GpuRates
    notes: list[str] = field(default_factory=list)

    def is_published(self, gpu: str) -> bool:
        """Return whether the rate of a GPU is published or the user's."""
        return series_gpu(gpu) in self.rates.known or has_published_series(gpu)

    def predict(self, instance: InstanceType, nodes: int) -> CandidateStep:
        """Return the step. Raise TooLittleMemory, or InputError if the GPU or the mesh is not supported."""
        alone = self.rates.rate(instance.gpu)
        compute = replace(at_rate(self.job.model, alone.rate), spread=alone.spread)
        return _predict(self.job, compute, instance, nodes, memory_bytes(instance.gpu))


@dataclass(frozen=True)
class LanguageSteps:
    """A language model, whose steps the closed forms predict, adapted to the user's own runs by GPU.

    With ``is_searched``, each candidate has its own fastest mesh; otherwise the mesh is that of the job.
    """

    job: TrainingJob
    is_searched: bool
    own: Mapping[str, OwnRuns] = field(default_factory=dict)
    solved: dict[tuple[Host, int], CandidateStep] = field(default_factory=dict, compare=False)

    @property
    def notes(self) -> list[str]:
        """Sentences about the runs that the steps are adapted to."""
        return [f"rates of {gpu} are adapted to {one.title}" for gpu, one in self.own.items()]

    def is_published(self, gpu: str) -> bool:
        """Return whether a run on a GPU is published or the user's."""
        return gpu in self.own or is_published(gpu)

    def predict(self, instance: InstanceType, nodes: int) -> CandidateStep:
        """Return the step. Raise TooLittleMemory, or InputError if the GPU or the mesh is not supported."""
        host, gpus = find_host(instance), nodes * instance.gpus
        own = self.own.get(instance.gpu)
        model = LanguageModel(self.job, host, believe() if own is None else own.belief)
        if not is_expressible(self.job):
            found = model.stated(gpus, self.job.on(gpus, host.gpus).parallelism)
            return _with_memory(_predict(self.job, model.compute, instance, nodes), found)
        if (host, gpus) not in self.solved:  # several providers sell the same machine
            self.solved[host, gpus] = self._solve(model, gpus)
        return self.solved[host, gpus]

    def _solve(self, model: LanguageModel, gpus: int) -> CandidateStep:
        found = self._find(model, gpus)
        number = int(found.order[0])
        step = model.of_mesh(found, number)
        parts = StepParts(**step.parts)
        rate, width = found.job.batch / parts.total, exp(Z_80 * step.deviations.rate)
        efficiency = rate / (gpus * step.alone)
        mesh = found.searched[number].name if self.is_searched else ""
        predicted = CandidateStep(rate, (rate / width, rate * width), _name(parts.bottleneck), efficiency, mesh)
        return _with_memory(predicted, found)

    def _find(self, model: LanguageModel, gpus: int) -> FoundMeshes:
        """Return the meshes of a number of GPUs, at least one of which fits. Raise TooLittleMemory."""
        if not self.is_searched:
            return model.stated(gpus, self.job.on(gpus, model.host.gpus).parallelism)
        found = search(model.mesh_job(gpus, Parallelism(data=gpus)), model.belief)
        if not len(found.order):
            needed, available = float(found.memory["total"].min()) / FILL, float(found.columns.memory_bytes[0])
            raise TooLittleMemory(
                f"no mesh of {gpus} x {model.host.device.name} fits into memory: each GPU needs {format_size(needed)} "
                f"and has {format_size(available)}; raise plan.most_nodes, or see `ringlab search` for what would fit",
                needed,
                available,
            )
        return found


def _with_memory(step: CandidateStep, found: FoundMeshes) -> CandidateStep:
    """Return a step with the memory of the fastest mesh and its chance to run."""
    number = int(found.order[0])
    return step._replace(memory_bytes=float(found.memory["total"][number]), chance_to_run=float(found.chance[number]))


def _predict(
    job: TrainingJob, compute: Compute, instance: InstanceType, nodes: int, memory: float | None = None
) -> CandidateStep:
    """Return the step by the timeline of a device. Raise TooLittleMemory if it needs more than ``memory`` bytes."""
    gpu, node = find_scaling_gpu(series_gpu(instance.gpu)), scaling_node(instance)
    joined = NodeInterconnect(node, instance.gpus, nodes)
    device = MeshDevice(instance.gpu, memory, gpu.memory_rate, node.cores)
    found = StepModel(job, compute, lambda _: joined, device).predict(nodes * instance.gpus)
    return CandidateStep(found.rate, found.interval(), _name(found.bottleneck), found.efficiency)


def _name(bottleneck: tuple[str, float]) -> str:
    name, share = bottleneck
    return name if name == "compute" else f"{name} {share:.0%}"


class Screening(NamedTuple):
    """The cost estimates of the candidates that can train a model, and why the others cannot."""

    estimates: list[CostEstimate]
    too_small: dict[tuple[str, int], TooLittleMemory]  # by GPU and number of GPUs
    unsupported: dict[str, list[Candidate]]  # by reason


def screen(
    candidates: Iterable[Candidate], steps: StepSource, samples: float, on_done: Callable[[int], object]
) -> Screening:
    """Return the time and cost of training on ``samples`` samples; ``on_done`` gets the number of screened candidates.

    Candidates with too little memory, and those that the step model does not support, are kept with the reason.
    """
    found = Screening([], {}, {})
    for number, candidate in enumerate(candidates, start=1):
        try:
            step = steps.predict(candidate.instance, candidate.nodes)
            found.estimates.append(estimate_cost(candidate, step, samples))
        except TooLittleMemory as error:
            found.too_small[candidate.instance.gpu, candidate.gpus] = error
        except InputError as error:
            found.unsupported.setdefault(str(error), []).append(candidate)
        on_done(number)
    return found
