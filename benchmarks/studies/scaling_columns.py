"""Steps of data-parallel trainings as columns: every point of published series at once, which fits need.

It is the step of ``planner/mesh/step.py`` for a mesh of data alone, by the same terms (``planner/mesh/terms.py``), with
its timeline in closed form: a GPU alone takes t1 a step, and several take

    t1 + stragglers + copies + processes + communication that backward does not hide
        + what the rest takes from backward

The buckets of DistributedDataParallel travel one after the other, each when it is full, as in ``simcomm.timeline``.
While K seconds of them travelled, backward lost slowdown x K; so bucket b, full at the share ready[b] of a backward of
T seconds, ends no earlier than ready[b] T + slowdown K[b] + c[b], and behind it all that follow:

    end = max over b (ready[b] T + slowdown K[b] + sum of c from b on),  K[b] = sum of c before b

which is ``overlap(...).finished`` for every slowdown up to 1. Tests hold that both say the same of all that is
published. What shares links with copied batches is left to the mesh: of published machines it changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.training import SYNCS, Mask, Points, Rows, floats, measured, sync_of
from collectives.records.model_profile import ModelProfile
from collectives.training.gradients import BUCKET_BYTES, FIRST_BYTES, Bucket, fill_buckets
from collectives.training.parallelism import Parallelism
from planner.gpus import Gpu
from planner.mesh.interconnect import ScalingNode
from planner.mesh.intervals import Shares
from planner.mesh.job import TrainingJob
from planner.mesh.terms import (
    LINK_KINDS,
    Floats,
    ParameterServers,
    copy_seconds,
    expected_maximum,
    loading_added,
    loading_felt,
    network_slowdown,
    process_seconds,
    straggler_seconds,
)
from planner.scaling.descriptions import Series

DDP, AFTER, PS, NONE = range(len(SYNCS))
NETWORK = LINK_KINDS.index("network")
BACKWARD_SHARE = 2 / 3  # of a step's computing: twice the FLOPs of forward


class SeriesCase(NamedTuple):
    """A job on so many GPUs of so many nodes."""

    job: TrainingJob
    gpu: Gpu
    node: ScalingNode
    gpus: int
    nodes: int
    paths: int = 1  # x16 paths to the host, over which parameter servers send
    more_steps: float = 1.0  # steps that the source divides by, per step that ran


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
    kind: Rows  # of link that communication occupies, in LINK_KINDS
    staged: Mask  # GPUs reach each other through host memory only
    sync: Rows  # in SYNCS
    loader: NDArray[np.str_]  # the parameter that says how many samples a core makes, "" where loaders are no limit
    variable: Mask
    paths: Floats
    slowest: Floats  # mean of the greatest of so many draws of a standard normal distribution as there are GPUs
    slowest_node: Floats  # likewise of as many draws as nodes
    largest: Floats  # bytes of the layer with most gradients
    more_steps: Floats

    def take(self, rows: Rows | Mask) -> "Cases":
        """Return some of the rows."""
        return Cases(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})


def make_cases(cases: Sequence[SeriesCase]) -> Cases:
    """Return the columns of cases."""
    bucketed = [_buckets(case.job.model, case.job.parallelism) for case in cases]
    width = max(map(len, bucketed))
    sizes, ready = np.zeros((len(cases), width)), np.ones((len(cases), width))
    for row, buckets in enumerate(bucketed):
        sizes[row, : len(buckets)] = [bucket.nbytes for bucket in buckets]
        ready[row, : len(buckets)] = [bucket.ready for bucket in buckets]
    kinds = ["network" if case.nodes > 1 else case.node.kind for case in cases]
    decoding = [f"{case.job.loader}_per_core" if case.job.loader in ("dali", "decode") else "" for case in cases]
    return Cases(
        gpus=floats(case.gpus for case in cases),
        nodes=floats(case.nodes for case in cases),
        batch=floats(case.job.batch for case in cases),
        gradient_bytes=sizes.sum(axis=1),
        buckets=sizes,
        before=np.cumsum(sizes, axis=1) - sizes,
        count=(sizes > 0).sum(axis=1).astype(np.float64),
        ready=ready,
        busbw=floats(case.node.bandwidth(-(-case.gpus // case.nodes)) * 1e9 for case in cases),
        nic=floats(case.node.nic_GBps * 1e9 for case in cases),
        memory=floats(case.gpu.memory_rate for case in cases),
        cores=floats(case.node.cores for case in cases),
        kind=np.array([LINK_KINDS.index(kind) for kind in kinds]),
        staged=np.array([case.node.kind == "host" for case in cases]),
        sync=np.array([SYNCS.index(sync_of(case.job.parallelism)) for case in cases]),
        loader=np.array(decoding),
        variable=np.array([case.job.variable_batches for case in cases]),
        paths=floats(case.paths for case in cases),
        slowest=floats(expected_maximum(case.gpus) for case in cases),
        slowest_node=floats(expected_maximum(case.nodes) for case in cases),
        largest=floats(_largest(case.job.model, case.job.parallelism.gradient_bytes) for case in cases),
        more_steps=floats(case.more_steps for case in cases),
    )


@lru_cache(maxsize=4096)
def _buckets(model: ModelProfile, parallelism: Parallelism) -> list[Bucket]:
    """Return what travels at once: DistributedDataParallel's buckets, or everything after backward."""
    gradients, size = model.gradients(parallelism.gradient_bytes or 4), round(parallelism.bucket_mb * 2**20)
    if sync_of(parallelism) != "ddp":
        return [Bucket(sum(gradient.nbytes for gradient in gradients), 1.0)]
    return fill_buckets(gradients, size, FIRST_BYTES if size == BUCKET_BYTES else size)


@lru_cache(maxsize=4096)
def _largest(model: ModelProfile, element_bytes: int) -> float:
    return max(layer.parameters for layer in model.layers) * (element_bytes or 4)


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step by what they go to; arrays of one length. ``input``: what loaders add."""

    compute: Floats
    stragglers: Floats
    copies: Floats
    processes: Floats
    exposed: Floats
    slowdown: Floats
    input: Floats

    @property
    def total(self) -> Floats:
        """Seconds of a step."""
        found: Floats = np.sum([getattr(self, part.name) for part in fields(self)], axis=0)
        return found

    def shares(self, cases: Cases, values: Mapping[str, float]) -> Shares:
        """Return what the steps of cases rest on."""
        total = self.total
        waiting = self.stragglers / total
        return Shares(
            (self.exposed + self.slowdown + self.copies) / total,
            np.where(cases.variable, 0.0, waiting),
            loading_felt(values, self.input / total),
            np.where(cases.variable, waiting, 0.0),
            np.where(cases.nodes > 1, 1.0, 0.0),
        )


def step_times(cases: Cases, values: Mapping[str, float], alone: Floats) -> StepTimes:
    """Return the seconds of a step, by those that it takes one GPU alone."""
    several = (cases.gpus > 1) & (cases.sync != NONE)
    exposed, slowdown = (np.where(several, part, 0.0) for part in _communication(cases, values, alone))
    copies = np.where(several, copy_seconds(values, cases.gradient_bytes, cases.memory), 0.0)
    processes = np.where(several, process_seconds(values, cases.gpus / cases.nodes, cases.cores), 0.0)
    stragglers = np.asarray(straggler_seconds(values, alone, cases.slowest, cases.slowest_node, cases.variable))
    per_core = np.array([values[name] if name else np.inf for name in cases.loader])
    loading = cases.batch * cases.gpus / cases.nodes / (cases.cores * per_core)
    on_gpus = alone + stragglers + copies + processes + exposed + slowdown
    return StepTimes(
        compute=alone,
        stragglers=stragglers,
        copies=copies,
        processes=processes,
        exposed=exposed,
        slowdown=slowdown,
        input=np.asarray(loading_added(values, on_gpus, loading)),
    )


def _communication(cases: Cases, values: Mapping[str, float], alone: Floats) -> tuple[Floats, Floats]:
    """Return the seconds that communication adds after backward, and those that it takes from backward."""
    backward, slowdown = BACKWARD_SHARE * alone, slowdown_of(cases, values)
    each_byte, each_bucket = _message_seconds(cases, values)
    whole = cases.gradient_bytes * each_byte + cases.count * each_bucket
    before = cases.before * each_byte[:, None] + np.arange(cases.buckets.shape[1]) * each_bucket[:, None]
    ends = cases.ready * backward[:, None] - (1 - slowdown)[:, None] * before
    end = np.where(cases.buckets > 0, ends, -np.inf).max(axis=1) + whole
    exposed = np.clip((end - backward - slowdown * whole) / (1 - slowdown), 0.0, whole)
    servers = ParameterServers(cases.gpus, cases.nodes, cases.staged, cases.busbw, cases.paths, cases.nic)
    served = servers.seconds(values, cases.gradient_bytes, cases.largest)
    overlapped, after = cases.sync == DDP, np.where(cases.sync == PS, served, whole)
    return np.where(overlapped, exposed, after), np.where(overlapped, slowdown * (whole - exposed), 0.0)


def slowdown_of(cases: Cases, values: Mapping[str, float]) -> Floats:
    """Return what a second of communication takes from a backward beside it."""
    of_kind = np.array([values[f"overlap_slowdown_{kind}"] for kind in LINK_KINDS])[cases.kind]
    return np.asarray(network_slowdown(of_kind, cases.kind == NETWORK, cases.nic))


def _message_seconds(cases: Cases, values: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Return the seconds of an all-reduce for each byte, by a ring's bytes at the bus bandwidth, and for each call."""
    slowest = np.where(cases.nodes > 1, np.minimum(cases.busbw, cases.nic), cases.busbw)
    slowest = np.where((cases.gpus == cases.nodes) & (cases.nodes > 1), cases.nic, slowest)
    slowest = slowest * np.array([values[f"eff_{kind}"] for kind in LINK_KINDS])[cases.kind]
    return 2 * (cases.gpus - 1) / cases.gpus / slowest, values["latency_us"] / 1e6 * np.log2(cases.gpus)


def bucket_seconds(cases: Cases, values: Mapping[str, float]) -> Floats:
    """Return the seconds of an all-reduce of each bucket, were it alone."""
    each_byte, each_bucket = _message_seconds(cases, values)
    return np.where(cases.buckets > 0, cases.buckets * each_byte[:, None] + each_bucket[:, None], 0.0)


def solve_alone(cases: Cases, values: Mapping[str, float], measured: Floats, *, tries: int = 40) -> Floats:
    """Return the seconds of a step on one GPU with which so many GPUs take ``measured`` seconds."""
    alone = measured.copy()
    for _ in range(tries):
        total = step_times(cases, values, alone).total
        if np.allclose(total, measured, rtol=1e-9):
            break
        alone = np.maximum(alone + (measured - total), alone * np.minimum(1.0, measured / total) * 0.5)
    return alone


def cases_of(one: Series) -> list[SeriesCase]:
    """Return a case for each point of a series."""
    return [
        SeriesCase(
            job=one.job_on(point.gpus),
            gpu=one.gpu,
            node=one.node,
            gpus=point.gpus,
            nodes=point.nodes,
            paths=one.ps_paths,
            more_steps=one.more_steps(point.gpus),
        )
        for point in one.points
    ]


class FittedPoints(Points):
    """Points with their cases."""

    @cached_property
    def cases(self) -> Cases:
        """A row for each point."""
        return make_cases([case for one in self.series for case in cases_of(one)])

    def take(self, chosen: Iterable[bool]) -> "FittedPoints":
        """Return the points of some of the series."""
        return make_points([one for one, wanted in zip(self.series, chosen, strict=True) if wanted])


def make_points(series: Sequence[Series]) -> FittedPoints:
    """Return the points of series as columns."""
    return FittedPoints(tuple(series), measured(series))


def predict_steps(points: FittedPoints, values: Mapping[str, float]) -> tuple[Floats, StepTimes]:
    """Return the rates that the model gives all rows, from the first point of each series, and the steps."""
    cases = points.cases
    starts = np.flatnonzero(~points.predicted)
    known = cases.take(starts)
    seconds = known.gpus * known.batch / points.rate[starts] * known.more_steps
    alone = seconds.copy()
    rows = np.flatnonzero((known.gpus > 1) | (known.loader != ""))
    if len(rows):
        alone[rows] = solve_alone(known.take(rows), values, seconds[rows])
    times = step_times(cases, values, (alone / known.batch)[points.of] * cases.batch)
    found: Floats = cases.gpus * cases.batch / times.total * cases.more_steps
    return found, times
