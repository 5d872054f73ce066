"""How fast one GPU of each type trains a job, with the spread of that rate.

Rates are measured by the user, or estimated from published rates and data sheets by ``planner.scaling.one_gpu``.

``predict_rate`` goes from one GPU's rate to that of many, on machines of known bus bandwidth.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import exp, log
from statistics import fmean
from typing import NamedTuple

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.training.workload import ComputePhases
from planner.gpus import Gpu, describe_unpublished
from planner.mesh.compute import MEASURED_SPREAD, Compute, as_measured, at_rate, in_phases, measured_rate
from planner.mesh.interconnect import NodeInterconnect, ScalingNode
from planner.mesh.job import MeshDevice, TrainingJob
from planner.mesh.prediction import StepPrediction
from planner.mesh.step import StepModel
from planner.mesh.terms import CORES
from planner.scaling.descriptions import check_gpus, find_node, find_scaling_gpu, read_own
from planner.scaling.models import even_model
from planner.scaling.one_gpu import NARROWER, YOURS, Alone, OneGpuRate, guess_rates, network_of, published
from simcomm.cluster.hardware import machine_entries, parts
from simcomm.nccl.catalogue import find_gpu
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.predict import predict_seconds

SOME_FLOPS = 1e9  # where a search for those of a sample begins
SERIES_GPUS = {"V100 ": "V100", "P100 ": "P100", "A100 80GB": "A100-80", "A100 ": "A100"}  # their names, by a beginning


def series_gpu(name: str) -> str:
    """Return how the published series call a GPU of the hardware catalogue.

    >>> series_gpu("A100 80GB SXM"), series_gpu("V100 SXM2 16GB"), series_gpu("RTX 4090")
    ('A100-80', 'V100', 'RTX 4090')
    """
    return next((ours for start, ours in SERIES_GPUS.items() if name.startswith(start)), name)


def has_published_series(gpu: str) -> bool:
    """Return whether a published rate is of a type of the hardware catalogue.

    >>> has_published_series("V100 SXM2 16GB"), has_published_series("RTX 3060")
    (True, False)
    """
    return series_gpu(gpu) in {one.gpu.name for one in published()}


class GpuRates:
    """The rates of one GPU of each type in samples a second, with their spread."""

    def __init__(
        self, job: TrainingJob, known: Mapping[str, float], gpus: Iterable[str], where: str = "plan.known_rates"
    ) -> None:
        """Take a user's rates and the types that are asked about, by names of the hardware catalogue.

        Raise InputError for a known rate of a GPU that there is not; ``where`` is the key that has the rates.
        """
        names = {*parts("GPU"), *SERIES_GPUS.values()}
        for name in known:
            if name not in names:
                raise InputError(f"{where}: {quote(name)} is no GPU of the catalogue; {suggest(name, names)}")
        self.job = job
        self.known = {series_gpu(name): rate for name, rate in known.items()}
        self.unknown = dict[str, str]()  # by type: why nothing can be said
        self.guessed = self._guess(sorted({series_gpu(name) for name in gpus} - self.known.keys()))

    def rate(self, gpu: str) -> OneGpuRate:
        """Return the rate of a type that was asked about. Raise InputError for one of which too little is known."""
        name = series_gpu(gpu)
        if name in self.known:
            return OneGpuRate(self.known[name], MEASURED_SPREAD)
        if name in self.unknown:
            raise InputError(self.unknown[name])
        return self.guessed[name]

    def _guess(self, names: Iterable[str]) -> dict[str, OneGpuRate]:
        boards = {}
        for name in names:
            try:
                boards[name] = find_scaling_gpu(name)
            except InputError as error:
                self.unknown[name] = str(error)
        if not self.known and not self.job.model.written_bytes:
            said = (
                f"model {self.job.model.model} is described by its number of parameters only, so its rate cannot be "
                "estimated; measure one GPU and set plan.known_rates"
            )
            self.unknown.update(dict.fromkeys(boards, said))
            return {}
        if not boards:
            return {}
        job = self.job if self.job.model.written_bytes else self._sized()
        yours = [Alone(job, find_scaling_gpu(name), YOURS, rate) for name, rate in self.known.items()]
        asked = [Alone(job, board, YOURS) for board in boards.values()]
        rates = guess_rates([*published(), *yours], asked)
        return {name: _widen(name, rate) for name, rate in zip(boards, rates, strict=True)}

    def _sized(self) -> TrainingJob:
        """Return the job of a model of unknown layers with as much work as its known rates say."""
        name = self.job.model.model
        asked = [(find_scaling_gpu(gpu), log(rate)) for gpu, rate in self.known.items()]
        job = replace(self.job, model=even_model(name, 0, SOME_FLOPS, SOME_FLOPS / 1e3))
        guessed = guess_rates(published(), [Alone(job, board, YOURS) for board, _ in asked])
        times = exp(fmean(log(rate.rate) - known for rate, (_, known) in zip(guessed, asked, strict=True)))
        return replace(self.job, model=even_model(name, 0, SOME_FLOPS * times, SOME_FLOPS / 1e3 * times))


def _widen(gpu: str, rate: OneGpuRate) -> OneGpuRate:
    """Return the rate of a GPU with the whole spread of the process if no published run is on its maker's GPUs."""
    is_amd = gpu in parts("GPU") and find_gpu(gpu).generation == "cdna"
    return replace(rate, spread=rate.spread / NARROWER) if is_amd else rate


class ComputeSource(NamedTuple):
    """What is said of how fast one device computes; where nothing is, published rates tell of its GPU."""

    rate: float | None = None  # samples a second of one device
    gpu: str | None = None  # on which that was measured, or by whose published rates devices compute
    phases: ComputePhases | None = None
    phases_batch: float = 1  # samples, of which the phases are
    is_profiled: bool = False  # the profile's own times, where it has some

    def known_rates(self, job: TrainingJob, where: str) -> dict[str, float]:
        """Return the samples a second of one GPU by its type. Raise InputError that names ``where`` a profile is."""
        found = {} if self.rate is None or self.gpu is None else {self.gpu: self.rate}
        if self.is_profiled and job.model.measured:
            found.update([measured_rate(job.model, where)])
        return found


def find_compute(job: TrainingJob, source: ComputeSource, gpu: str | None) -> Compute:
    """Return how long a device computes, by what is known best: stated or measured on it, on another GPU, published.

    ``gpu`` is the devices' type, None where they are none of the hardware catalogue. Raises InputError.
    """
    if source.rate is not None and (source.gpu is None or gpu is None or source.gpu == gpu):
        return at_rate(job.model, source.rate)
    if source.phases is not None:
        return in_phases(job.model, source.phases, source.phases_batch)
    known = source.known_rates(job, "profile") if gpu is not None else {}
    if source.is_profiled and job.model.measured and (gpu is None or find_gpu(gpu).name in known):
        return as_measured(job.model)
    named = gpu if known or source.gpu is None else source.gpu
    if named is None:
        raise InputError(
            'nothing says how fast a device computes; give compute = {profile = "FILE.json"} with times (ringlab '
            'profile), {rate = 500.0} or {gpu = "RTX 4090"}'
        )
    found = GpuRates(job, known, [named], "gpu").rate(named)
    if known:
        ((other, rate),) = known.items()
        said = f"{rate:.4g} samples/s on one {other}, and how {named} compares in published rates"
    else:
        network = network_of(job.model)
        is_published = network in {network_of(one.job.model) for one in published()}
        said = f"published rates of {network if is_published else 'other models'} on one GPU"
    if not has_published_series(named):
        said += f"; {describe_unpublished([named])}"
    return replace(at_rate(job.model, found.rate, said), spread=found.spread)


MESSAGE = 200e6  # bytes of an all-reduce, at which a catalogue machine's bus bandwidth is taken
SLOW_NIC = 1.25  # GB/s, of a machine whose NICs the catalogue does not know


def predict_rate(
    job: TrainingJob,
    node: str | ScalingNode,
    gpus: int,
    nodes: int,
    one_gpu_rate: float,
    *,
    gpu: str | Gpu | None = None,
    paths: int = 1,
) -> StepPrediction:
    """Return a step of ``gpus`` GPUs in all on ``nodes`` nodes, from the samples a second of one GPU of the same job.

    ``node`` is a ``ScalingNode``, the name of one of the project's own, or a machine of the hardware catalogue, whose
    bus bandwidths NCCL's model says. ``gpu`` is needed for what is no machine of the catalogue. Parameter servers send
    over ``paths`` x16 paths to the host. Intervals are for this rate; memory is not checked. Raises InputError.

    >>> from planner.scaling import find_model
    >>> found = predict_rate(TrainingJob(find_model("ResNet-50"), 256), "dgx-a100", 8, 1, 2470.0)
    >>> found.efficiency < 1, found.bottleneck[1] < 0.98
    (True, True)
    """
    place = find_any_node(node) if isinstance(node, str) else node
    board = _gpu(node, gpu)
    check_gpus(gpus, nodes, place)
    joined = NodeInterconnect(place, -(-gpus // nodes), nodes, paths)
    device = MeshDevice(board.name, memory_bandwidth=board.memory_rate, cores=place.cores)
    compute = replace(at_rate(job.model, one_gpu_rate), spread=0.0)
    return StepModel(job, compute, lambda _: joined, device).predict(gpus)


def _gpu(node: str | ScalingNode, gpu: str | Gpu | None) -> Gpu:
    if isinstance(gpu, Gpu):
        return gpu
    if gpu is None:
        if not isinstance(node, str) or node not in machine_entries():
            raise InputError("gpu is missing: give its name beside a node that is no machine of the catalogue")
        return find_scaling_gpu(str(machine_entries()[node]["gpu"]))
    return find_scaling_gpu(gpu)


def find_any_node(name: str) -> ScalingNode:
    """Return a node of the project's own series, or a machine of the hardware catalogue. Raise InputError.

    >>> find_any_node("p4d.24xlarge").nic_GBps
    50.0
    """
    if name in read_own("nodes") or name not in machine_entries():
        return find_node(name)
    return node_of_machine(name)


@lru_cache(maxsize=256)
def node_of_machine(machine: str) -> ScalingNode:
    """Return a machine of the catalogue as a node, with the bus bandwidths that NCCL's model predicts.

    >>> node_of_machine("dgx-h100").busbw[8] > 150
    True
    """
    entry = machine_entries()[machine]
    gpus = entry["gpus"]
    counts = [count for count in (2, 4, 8, 16, 72) if count <= gpus] or [1]
    if gpus not in counts:
        counts.append(gpus)
    system = describe_preset(machine, 1, gpus)
    busbw = {count: _bus_bandwidth(machine, count) for count in counts if count > 1}
    staged = system.link == "pcie" and not system.p2p
    link = "host" if staged else "pcie" if system.link == "pcie" else "nvswitch"
    return ScalingNode(machine, gpus, link, busbw or {1: 1.0}, CORES * gpus, system.nic or SLOW_NIC, machine)


def _bus_bandwidth(machine: str, gpus: int) -> float:
    """Return the GB/s of NCCL's all-reduce among some GPUs of a machine."""
    seconds = float(predict_seconds(describe_preset(machine, 1, gpus), "all_reduce", [MESSAGE])[0])
    return 2 * (gpus - 1) / gpus * MESSAGE / seconds / 1e9
