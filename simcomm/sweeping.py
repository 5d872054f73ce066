"""Predict many algorithms, clusters and sizes in one call that shares computations between them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.call import CollectiveCall, make_call
from collectives.catalogue import find_algorithm
from collectives.checks import check_cluster, check_sequence
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration
from collectives.units import as_bytes
from simcomm import compiled
from simcomm.cluster.calibrated import check_used, resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS, Faults, check_faults
from simcomm.parallel import in_any_order
from simcomm.performance_models.network_model import simulator_of
from simcomm.schedules import compact_schedule

BLOCK_CLUSTERS = 16  # clusters per task

Report = Callable[[int, int], object]  # called with the number of finished predictions and the total number
Several = str | Algorithm | Iterable[str | Algorithm]


class SweepRow(NamedTuple):
    """One prediction of a sweep."""

    cluster: str  # its title
    world_size: int
    algorithm: str
    nbytes: int  # of each rank's buffer, rounded to the algorithm's chunks
    seconds: float  # NaN if the sweep was interrupted before


@dataclass(frozen=True, repr=False)
class Sweep:
    """Predicted times: ``seconds[c, a, s]`` for cluster c, algorithm a and size s. NaN means not computed."""

    clusters: tuple[Cluster, ...]
    algorithms: tuple[Algorithm, ...]
    sizes: tuple[int, ...]  # bytes
    seconds: npt.NDArray[np.float64]
    nbytes: npt.NDArray[np.int64] = field(repr=False)  # of each buffer, in whole elements and chunks; same shape
    interrupted: bool = False

    def __repr__(self) -> str:
        counts = f"{len(self.clusters)} clusters, {len(self.algorithms)} algorithms, {len(self.sizes)} sizes"
        return f"<Sweep of {counts}{': interrupted' if self.interrupted else ''}>"

    def rows(self) -> Iterator[SweepRow]:
        """Yield every prediction, sorted by cluster, then algorithm.

        >>> import simcomm
        >>> next(sweep("broadcast/binomial", simcomm.star(4, "8 Gbit/s", "1 us"), [1000]).rows()).nbytes
        1000
        """
        for c, cluster in enumerate(self.clusters):
            for a, algorithm in enumerate(self.algorithms):
                for s in range(len(self.sizes)):
                    nbytes, seconds = int(self.nbytes[c, a, s]), float(self.seconds[c, a, s])
                    yield SweepRow(cluster.title, cluster.world_size, algorithm.full_name, nbytes, seconds)


class SweepBlock(NamedTuple):
    """A task of a sweep: one algorithm with one number of ranks, on several clusters and at several sizes."""

    clusters: tuple[Cluster, ...]  # with their transports
    calls: tuple[tuple[CollectiveCall, ...], ...]  # of each cluster
    faults: Faults


def sweep(
    algorithms: Several,
    clusters: Cluster | Iterable[Cluster],
    sizes: Sequence[int | str] | npt.NDArray[np.integer],
    *,
    dtype: str = "float32",
    op: str | None = None,
    root: int | None = None,
    calibration: Calibration | None = None,
    faults: Faults = NO_FAULTS,
    progress: bool | Report | None = None,
) -> Sweep:
    """Predict each algorithm on each cluster at each of ``sizes``: bytes per rank, or text such as "1 MiB".

    The times are bit-identical to those of ``simcomm.run(..., engine="compiled", record=False)``. If clusters differ
    only in speeds, programs are verified and routes are found only once. If much work is left after a second, it
    continues on all cores or on the backend of ``joblib.parallel_config``. ``progress(done, total)`` is called with
    numbers of predictions; True shows a bar on standard error. An interrupt returns the finished part.

    Raise InputError, ProgramError and TooLarge as ``run`` does, and KeyboardInterrupt if nothing is finished.

    >>> import simcomm
    >>> stars = [simcomm.star(hosts, "10 Gbit/s", "5 us") for hosts in (4, 8)]
    >>> result = sweep(["all_reduce/ring", "all_reduce/naive"], stars, [1 << 10, 1 << 20])
    >>> result, result.seconds[1, :, 1].round(6).tolist()
    (<Sweep of 2 clusters, 2 algorithms, 2 sizes>, [0.001608, 0.011884])
    """
    named, described, nbytes_of = _check_arguments(algorithms, clusters, sizes, calibration, faults)
    call = cache(partial(make_call, dtype=dtype, op=op, root=root))
    calls = [
        call(algorithm, cluster.world_size, size) for cluster, algorithm, size in product(described, named, nbytes_of)
    ]
    seconds = np.full((len(described), len(named), len(nbytes_of)), np.nan)
    nbytes = np.array([call.nbytes for call in calls], np.int64).reshape(seconds.shape)
    blocks = list(_blocks(described, calls, seconds.shape, faults))
    interrupted = False
    try:
        with _reporting(progress, seconds.size) as report:
            for number, results in in_any_order(predict_block, [block for block, _ in blocks]):
                seconds.reshape(-1)[blocks[number][1]] = results
                report(int(np.count_nonzero(~np.isnan(seconds))), seconds.size)
    except KeyboardInterrupt:
        if np.isnan(seconds).all():
            raise
        interrupted = True
    return Sweep(described, named, nbytes_of, seconds, nbytes, interrupted)


def _check_arguments(
    algorithms: Several,
    clusters: Cluster | Iterable[Cluster],
    sizes: Any,
    calibration: Calibration | None,
    faults: Faults,
) -> tuple[tuple[Algorithm, ...], tuple[Cluster, ...], tuple[int, ...]]:
    if isinstance(algorithms, str | Algorithm):
        algorithms = [algorithms]
    named = check_sequence("algorithms", algorithms, of="algorithms")
    cluster_list = [clusters] if isinstance(clusters, Cluster) else check_sequence("clusters", clusters, of="clusters")
    for cluster in cluster_list:
        check_cluster(cluster, Cluster)
    check_used(calibration, cluster_list)
    calibrated = tuple(resolve_transport(cluster, calibration)[0] for cluster in cluster_list)
    for cluster in calibrated:
        check_faults(faults, cluster.graph, cluster.world_size)
    if isinstance(sizes, str) or not hasattr(sizes, "__len__"):
        raise InputError(f"sizes must be a list of byte counts or of texts such as '1 MiB', not {sizes!r}")
    nbytes = tuple(as_bytes(size, "a size") for size in sizes)
    if not (named and calibrated and nbytes):
        raise InputError("a sweep needs at least one algorithm, one cluster and one size")
    return tuple(find_algorithm(name) for name in named), calibrated, nbytes


def _blocks(
    clusters: Sequence[Cluster], calls: Sequence[CollectiveCall], shape: tuple[int, ...], faults: Faults
) -> Iterator[tuple[SweepBlock, list[int]]]:
    """Yield the predictions [clusters, algorithms, sizes] in blocks, each with the indices of its results."""
    numbers = np.arange(len(calls)).reshape(shape)
    by_ranks = sorted(range(len(clusters)), key=lambda c: clusters[c].world_size)
    for _, same in groupby(by_ranks, key=lambda c: clusters[c].world_size):
        chosen = list(same)
        for a, begin in product(range(shape[1]), range(0, len(chosen), BLOCK_CLUSTERS)):
            part = chosen[begin : begin + BLOCK_CLUSTERS]
            places = numbers[part, a]
            of_clusters = tuple(tuple(calls[place] for place in each) for each in places.tolist())
            yield SweepBlock(tuple(clusters[c] for c in part), of_clusters, faults), places.reshape(-1).tolist()


def predict_block(block: SweepBlock) -> list[float]:
    """Return the times of a block's calls in seconds, cluster by cluster."""
    first = block.calls[0][0]
    schedule = compact_schedule(first.algorithm, block.clusters[0].world_size, first.root)
    shared, seconds = compiled.SharedInputs(schedule), list[float]()
    for cluster, calls in zip(block.clusters, block.calls, strict=True):
        simulator = simulator_of(*resolve_transport(cluster))
        seconds += [simulator.sweep_seconds(call, block.faults, shared) for call in calls]
    return seconds


@contextmanager
def _reporting(progress: bool | Report | None, total: int) -> Iterator[Report]:
    """Yield the progress callback: a bar, the given callback, or one that does nothing.

    If standard error is not a terminal, the bar is one line at the end. Raise InputError unless ``progress`` is True,
    False, None or callable.
    """
    if callable(progress):
        yield progress
    elif progress is None or progress is False:
        yield lambda done, total: None
    elif progress is True:
        from rich.console import Console  # slow to import
        from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("predictions", total=total)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        raise InputError(f"progress must be True for a bar, or a function of two integers, not {quote(progress)}")
