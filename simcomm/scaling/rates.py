"""``predict_rate``: the throughput of a job on many GPUs, from that on one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp

import numpy as np

from collectives.errors import InputError
from collectives.records.model_profile import ModelProfile
from simcomm.cluster.presets import machine_entries
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.host_links import SharedLink
from simcomm.nccl.predict import predict_seconds
from simcomm.scaling.cases import Case, make_cases
from simcomm.scaling.descriptions import (
    CORES,
    Job,
    ScalingGpu,
    ScalingNode,
    check_gpus,
    find_node,
    find_scaling_gpu,
    read_own,
)
from simcomm.scaling.host_copies import find_copies
from simcomm.scaling.intervals import Shares, log_halfwidth
from simcomm.scaling.models import find_model
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.step import PARTS, step_times

MESSAGE = 200e6  # bytes of an all-reduce, at which a catalogue machine's bus bandwidth is taken
SLOW_NIC = 1.25  # GB/s, of a machine whose NICs the catalogue does not know


@dataclass(frozen=True)
class Parts:
    """Seconds of a step by what they go to, as in ``StepTimes``: ``input`` is what loaders add."""

    compute: float
    jitter: float
    copies: float
    processes: float
    exposed: float
    steal: float
    contention: float
    input: float

    @property
    def total(self) -> float:
        """Seconds of a step."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, float]:
        """Return the seconds by name."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def bottleneck(self) -> tuple[str, float]:
        """What takes most beside computing, and its share of the step. ``communication``: exposed and steal."""
        shares = {"communication": self.exposed + self.steal, "copies": self.copies, "stragglers": self.jitter,
                  "contention": self.contention, "processes": self.processes, "input": self.input}  # fmt: skip
        name = max(shares, key=lambda key: shares[key])
        return name, shares[name] / self.total


@dataclass(frozen=True)
class ScaledRate:
    """Samples (or tokens) per second of all GPUs, and where a step's seconds go."""

    rate: float
    efficiency: float  # of linear scaling
    parts: Parts
    rests_on: Shares  # by which its interval is wider
    shared: tuple[SharedLink, ...] = ()  # links on which batches that are copied hold the exchange back

    def interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return bounds of the rate, given the rate of one GPU. Raise InputError for a coverage that is no share."""
        width = exp(float(log_halfwidth(self.rests_on, coverage)))
        return self.rate / width, self.rate * width


def predict_rate(
    job: str | ModelProfile | Job,
    node: str | ScalingNode,
    gpus: int,
    nodes: int,
    one_gpu_rate: float,
    *,
    gpu: str | ScalingGpu | None = None,
    batch: float | None = None,
    values: Mapping[str, float] | None = None,
) -> ScaledRate:
    """Return the throughput of ``gpus`` GPUs in all on ``nodes`` nodes, from that of one GPU of the same job.

    ``job`` is a ``Job``, or a model by name or profile with ``batch`` samples a GPU. ``node`` is a ``ScalingNode``, the
    name of one of the project's own, or a machine of the hardware catalogue, whose bus bandwidths NCCL's model says.
    ``gpu`` is needed for what is no machine of the catalogue. Raises InputError.

    >>> found = predict_rate("ResNet-50", "dgx-a100", 8, 1, 2470.0, batch=256)
    >>> found.efficiency < 1, found.parts.bottleneck[1] < 0.1
    (True, True)
    """
    whole = _job(job, batch)
    place = find_any_node(node) if isinstance(node, str) else node
    board = _gpu(node, gpu)
    check_gpus(gpus, nodes, place)
    if not 0 < one_gpu_rate < float("inf"):
        raise InputError(f"one_gpu_rate = {one_gpu_rate!r}; give samples or tokens per second above 0")
    columns = make_cases([Case(whole, board, place, gpus, nodes)])
    alone = columns.batch / one_gpu_rate
    given = values or read_parameters()
    times = step_times(columns, given, alone)
    rate = gpus * float(columns.batch[0]) / float(times.total[0]) * float(columns.more_steps[0])
    parts = Parts(**{name: float(getattr(times, name)[0]) for name in PARTS})
    rests_on = Shares(*(float(np.asarray(column)[0]) for column in times.shares(columns, given)))
    shared = find_copies(place, -(-gpus // nodes), several=nodes > 1).links if parts.contention else ()
    return ScaledRate(rate, rate / (gpus * one_gpu_rate), parts, rests_on, shared)


def _job(job: str | ModelProfile | Job, batch: float | None) -> Job:
    if isinstance(job, Job):
        return job if batch is None else replace(job, batch=batch)
    if batch is None or not 0 < batch < float("inf"):
        raise InputError(f"batch = {batch!r}; give the samples of a GPU between two exchanges of gradients")
    model = find_model(job) if isinstance(job, str) else job
    return Job(model, batch)


def _gpu(node: str | ScalingNode, gpu: str | ScalingGpu | None) -> ScalingGpu:
    if isinstance(gpu, ScalingGpu):
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
