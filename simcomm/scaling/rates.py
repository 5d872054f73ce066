"""``predict_rate``: the throughput of a job on many GPUs of machines of known bus bandwidth, from that on one."""

from dataclasses import replace
from functools import lru_cache
from math import isclose

from collectives.errors import InputError
from simcomm.cluster.presets import machine_entries
from simcomm.mesh.compute import at_rate
from simcomm.mesh.interconnect import NodeInterconnect, ScalingNode
from simcomm.mesh.job import MeshDevice, TrainingJob
from simcomm.mesh.prediction import StepPrediction
from simcomm.mesh.step import StepModel
from simcomm.mesh.terms import CORES
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.predict import predict_seconds
from simcomm.scaling.descriptions import Point, ScalingGpu, Series, check_gpus, find_node, find_scaling_gpu, read_own

MESSAGE = 200e6  # bytes of an all-reduce, at which a catalogue machine's bus bandwidth is taken
TRIES, SAME = 40, 1e-9  # to find one GPU's step from that of several
SLOW_NIC = 1.25  # GB/s, of a machine whose NICs the catalogue does not know


def predict_rate(
    job: TrainingJob,
    node: str | ScalingNode,
    gpus: int,
    nodes: int,
    one_gpu_rate: float,
    *,
    gpu: str | ScalingGpu | None = None,
    paths: int = 1,
) -> StepPrediction:
    """Return a step of ``gpus`` GPUs in all on ``nodes`` nodes, from the samples a second of one GPU of the same job.

    ``node`` is a ``ScalingNode``, the name of one of the project's own, or a machine of the hardware catalogue, whose
    bus bandwidths NCCL's model says. ``gpu`` is needed for what is no machine of the catalogue. Parameter servers send
    over ``paths`` x16 paths to the host. Intervals are for this rate; memory is not checked. Raises InputError.

    >>> from simcomm.scaling import find_model
    >>> found = predict_rate(TrainingJob(find_model("ResNet-50"), 256), "dgx-a100", 8, 1, 2470.0)
    >>> found.efficiency < 1, found.bottleneck[1] < 0.98
    (True, True)
    """
    place = find_any_node(node) if isinstance(node, str) else node
    board = _gpu(node, gpu)
    check_gpus(gpus, nodes, place)
    joined = NodeInterconnect(place, -(-gpus // nodes), nodes, paths)
    device = MeshDevice(board.name, memory_bandwidth=board.memory_GBps * 1e9, cores=place.cores)
    compute = replace(at_rate(job.model, one_gpu_rate), spread=0.0)
    return StepModel(job, compute, lambda _: joined, device).predict(gpus)


def predict_series(one: Series) -> list[StepPrediction]:
    """Return the steps of all points of a series but the first, from whose rate they are predicted."""

    def predict(point: Point, rate: float) -> StepPrediction:
        job = one.job_on(point.gpus)
        return predict_rate(job, one.node, point.gpus, point.nodes, rate, gpu=one.gpu, paths=one.ps_paths)

    first = one.points[0]
    batch = one.job_on(first.gpus).batch
    measured = first.gpus * batch / first.rate * one.more_steps(first.gpus)
    alone = measured  # seconds of one GPU
    for _ in range(TRIES if first.gpus > 1 or one.job.loader is not None else 0):
        total = predict(first, batch / alone).parts.total
        if isclose(total, measured, rel_tol=SAME):
            break
        alone = max(alone + measured - total, alone * min(1.0, measured / total) / 2, SAME * measured)
    return [predict(point, batch / alone) for point in one.points[1:]]


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
