"""``Cases``: many jobs on many GPUs as columns, one row each, so that one pass of numpy predicts them all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.buckets import FIRST_BYTES, Bucket, fill_buckets
from collectives.records.model_profile import ModelProfile
from simcomm.scaling.descriptions import Job, ScalingGpu, ScalingNode, Series
from simcomm.scaling.host_copies import NO_COPIES, Copies, copied_bytes, find_copies

Floats = NDArray[np.float64]
LINK_KINDS = ("nvlink", "pcie", "host", "network")
SYNCS = ("ddp", "after", "ps", "none")
LOADERS = ("synthetic", "dali", "decode", "text")
SQUAD_SAMPLES, SQUAD_EPOCHS = 88_641, 2  # of fine-tuning runs that end before their ``max_steps``: SQuAD 1.1, windows


class Case(NamedTuple):
    """A job on so many GPUs of so many nodes."""

    job: Job
    gpu: ScalingGpu
    node: ScalingNode
    gpus: int
    nodes: int


@dataclass(frozen=True)
class Cases:
    """Columns of one row a case. Bandwidths are bytes/s; ``buckets`` and ``ready`` have a column a bucket."""

    gpus: Floats
    nodes: Floats
    batch: Floats  # samples of a GPU between two exchanges
    gradient_bytes: Floats
    buckets: Floats  # bytes, 0 behind the last
    before: Floats  # bytes of the buckets before each
    count: Floats  # how many buckets there are
    ready: Floats  # share of backward
    busbw: Floats  # inside a node
    nic: Floats  # of a node
    memory: Floats  # of a GPU
    cores: Floats  # of a node
    kind: NDArray[np.intp]  # of link that communication occupies, in LINK_KINDS
    staged: NDArray[np.bool_]  # GPUs reach each other through host memory only
    sync: NDArray[np.intp]
    loader: NDArray[np.intp]
    variable: NDArray[np.bool_]
    ps_paths: Floats
    slowest: Floats  # mean of the greatest of so many draws of a standard normal distribution as there are GPUs
    slowest_node: Floats  # likewise of as many draws as nodes
    largest: Floats  # bytes of the layer with most gradients
    more_steps: Floats  # steps that the source divides by, per step that ran
    copied: Floats  # bytes of a sample that are copied to its GPU
    copy_rate: Floats  # at which all GPUs of a node are copied to at once, each
    exchange_pace: Floats  # share of its rate that the exchange keeps beside copies
    copy_pace: Floats  # likewise of copies

    def take(self, rows: "NDArray[np.intp] | NDArray[np.bool_]") -> "Cases":
        """Return some of the rows."""
        return Cases(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})


def make_cases(cases: Sequence[Case]) -> Cases:
    """Return the columns of cases."""
    bucketed = [_buckets(case.job.model, case.job.grad_bytes, case.job.sync, case.job.bucket_mb) for case in cases]
    width = max(map(len, bucketed))
    sizes, ready = np.zeros((len(cases), width)), np.ones((len(cases), width))
    for row, buckets in enumerate(bucketed):
        sizes[row, : len(buckets)] = [bucket.nbytes for bucket in buckets]
        ready[row, : len(buckets)] = [bucket.ready for bucket in buckets]
    kinds = ["network" if case.nodes > 1 else case.node.kind for case in cases]
    jobs = [case.job for case in cases]
    pairs = zip(jobs, cases, strict=True)
    copied = [copied_bytes(job.model, job.loader) for job in jobs]
    copies = [_copies(case) if nbytes else NO_COPIES for case, nbytes in zip(cases, copied, strict=True)]
    return Cases(
        gpus=_floats(case.gpus for case in cases),
        nodes=_floats(case.nodes for case in cases),
        batch=_floats(job.global_batch / case.gpus if job.global_batch else job.batch for job, case in pairs),
        gradient_bytes=sizes.sum(axis=1),
        buckets=sizes,
        before=np.cumsum(sizes, axis=1) - sizes,
        count=(sizes > 0).sum(axis=1).astype(np.float64),
        ready=ready,
        busbw=_floats(case.node.bandwidth(-(-case.gpus // case.nodes)) * 1e9 for case in cases),
        nic=_floats(case.node.nic_GBps * 1e9 for case in cases),
        memory=_floats(case.gpu.memory_GBps * 1e9 for case in cases),
        cores=_floats(case.node.cores for case in cases),
        kind=np.array([LINK_KINDS.index(kind) for kind in kinds]),
        staged=np.array([case.node.kind == "host" for case in cases]),
        sync=np.array([SYNCS.index(job.sync) for job in jobs]),
        loader=np.array([LOADERS.index(job.loader) for job in jobs]),
        variable=np.array([job.variable for job in jobs]),
        ps_paths=_floats(job.ps_paths for job in jobs),
        slowest=_floats(expected_maximum(case.gpus) for case in cases),
        slowest_node=_floats(expected_maximum(case.nodes) for case in cases),
        largest=_floats(_largest(job.model, job.grad_bytes) for job in jobs),
        more_steps=_floats(_more_steps(case) for case in cases),
        copied=_floats(copied),
        copy_rate=_floats(one.rate * 1e9 for one in copies),
        exchange_pace=_floats(one.exchange_pace for one in copies),
        copy_pace=_floats(one.pace for one in copies),
    )


def _copies(case: Case) -> Copies:
    """Return what copies of batches get on a case's nodes."""
    return find_copies(case.node, -(-case.gpus // case.nodes), several=case.nodes > 1)


def cases_of_series(series: Iterable[Series]) -> list[Case]:
    """Return a case for each point of each series, in their order."""
    return [Case(one.job, one.gpu, one.node, point.gpus, point.nodes) for one in series for point in one.points]


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)


@lru_cache(maxsize=4096)
def _buckets(model: ModelProfile, element_bytes: int, sync: str, bucket_mb: float) -> list[Bucket]:
    """Return what travels at once: DistributedDataParallel's buckets, or everything after backward."""
    gradients = model.gradients(element_bytes)
    if sync != "ddp":
        return [Bucket(sum(gradient.nbytes for gradient in gradients), 1.0)]
    return fill_buckets(gradients, int(bucket_mb * 2**20), FIRST_BYTES)


@lru_cache(maxsize=4096)
def _largest(model: ModelProfile, element_bytes: int) -> float:
    return max(layer.parameters for layer in model.layers) * element_bytes


def _more_steps(case: Case) -> float:
    """Return how many times too many steps a rate was divided by, where the epochs of SQuAD end before them."""
    if case.job.max_steps is None:
        return 1.0
    steps = SQUAD_EPOCHS * -(-SQUAD_SAMPLES // max(1.0, case.gpus * case.job.batch))
    return max(1.0, case.job.max_steps / steps)


@cache
def expected_maximum(count: int) -> float:
    """Return the mean of the greatest of so many draws of a standard normal distribution.

    >>> round(expected_maximum(2), 4), round(expected_maximum(8), 3)
    (0.5642, 1.424)
    """
    if count < 2:
        return 0.0
    draws, step = np.linspace(-9.0, 9.0, 3601, retstep=True)
    density = np.exp(-(draws**2) / 2) / np.sqrt(2 * np.pi)
    below = np.cumsum(density) * step - density * step / 2
    return float(np.sum(draws * count * density * np.clip(below, 0, 1) ** (count - 1)) * step)
