"""Very many predictions in one call: algorithms on clusters at sizes, what they have in common worked out once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.calibration.calibration import Calibration
from collectives.catalogue import as_algorithm
from collectives.checks import check_cluster, check_whole_number
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.request import Request, make_request
from simcomm import compiled
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.model.trouble import NO_TROUBLE, Trouble, check_trouble
from simcomm.parallel import in_any_order
from simcomm.schedules import compact_schedule
from simcomm.sweep_file import SweepFile, describe_questions
from simcomm.time_models.network_model import simulator_of

MOST_CLUSTERS = 16  # of a block: what one process is given at a time

Told = Callable[[int, int], object]  # called with how many predictions are done, and of how many
Several = str | Algorithm | Iterable[str | Algorithm]


class SweepRow(NamedTuple):
    """One prediction of a sweep."""

    cluster: str  # its title
    world_size: int
    algorithm: str
    nbytes: int  # of each rank's buffer, as far as the algorithm can work on it
    seconds: float  # nan where an interrupt came first


@dataclass(frozen=True, repr=False)
class Sweep:
    """Predicted times: ``seconds[c, a, s]`` for cluster c, algorithm a and size s; nan of what was not done."""

    clusters: tuple[Cluster, ...]
    algorithms: tuple[Algorithm, ...]
    sizes: tuple[int, ...]  # bytes
    seconds: npt.NDArray[np.float64]
    nbytes: npt.NDArray[np.int64] = field(repr=False)  # of the buffers, in whole elements and chunks; same shape
    interrupted: bool = False

    def __repr__(self) -> str:
        counts = f"{len(self.clusters)} clusters, {len(self.algorithms)} algorithms, {len(self.sizes)} sizes"
        return f"<Sweep of {counts}{': interrupted' if self.interrupted else ''}>"

    def rows(self) -> Iterator[SweepRow]:
        """Yield every prediction, cluster by cluster, and of each algorithm by algorithm.

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
    """What is predicted in one go: an algorithm for one number of ranks, on clusters, at sizes."""

    clusters: tuple[Cluster, ...]  # with their transports
    requests: tuple[tuple[Request, ...], ...]  # of each cluster: those that are not known yet
    trouble: Trouble


def sweep(
    algorithms: Several,
    clusters: Cluster | Iterable[Cluster],
    sizes: Sequence[int] | npt.NDArray[np.integer],
    *,
    dtype: str = "float32",
    op: str = "sum",
    root: int = 0,
    calibration: Calibration | None = None,
    trouble: Trouble = NO_TROUBLE,
    executor: Executor | None = None,
    kept: Path | str | None = None,
    progress: bool | Told | None = None,
) -> Sweep:
    """Predict each algorithm on each cluster at each of ``sizes`` (bytes a rank).

    The answers are those of ``simcomm.run(..., engine="compiled", record=False)``, to the last bit; programs are traced
    and proved, and routes found, once for all clusters that differ in speeds only. Where much is left after a second,
    all cores work on it; or ``executor`` does, any of ``concurrent.futures``. What is in the file ``kept``, a line of
    JSON a prediction, is not predicted again, and what is predicted is added to it at once. ``progress(done, total)``
    is called with numbers of predictions; True draws a bar on standard error. An interrupt ends the sweep, and what is
    done by then is the answer.
    Raises InputError, ProgramError and TooLarge as ``run`` does, and KeyboardInterrupt where nothing is done yet.

    >>> import simcomm
    >>> stars = [simcomm.star(hosts, "10 Gbit/s", "5 us") for hosts in (4, 8)]
    >>> found = sweep(["all_reduce/ring", "all_reduce/naive"], stars, [1 << 10, 1 << 20])
    >>> found, found.seconds[1, :, 1].round(6).tolist()
    (<Sweep of 2 clusters, 2 algorithms, 2 sizes>, [0.001608, 0.011884])
    """
    asked = _Asked.make(algorithms, clusters, sizes, calibration, trouble)
    requests = asked.requests(dtype, op, root)
    shape = len(asked.clusters), len(asked.algorithms), len(asked.sizes)
    seconds = np.full(shape, np.nan)
    file = None
    if kept is not None:
        file = SweepFile(kept, describe_questions(asked.clusters, requests, shape[1] * shape[2], trouble))
        seconds.reshape(-1)[:] = file.known
    nbytes = np.array([request.nbytes for request in requests], np.int64).reshape(shape)
    blocks = list(asked.blocks(requests, np.isnan(seconds)))
    interrupted = False
    try:
        with _told(progress, int(np.count_nonzero(~np.isnan(seconds))), seconds.size) as tell:
            for number, found in in_any_order(predict_block, [block for block, _ in blocks], executor):
                places = blocks[number][1]
                seconds.reshape(-1)[places] = found
                if file is not None:
                    file.add(places, found)
                tell(int(np.count_nonzero(~np.isnan(seconds))), seconds.size)
    except KeyboardInterrupt:
        if np.isnan(seconds).all():
            raise
        interrupted = True
    return Sweep(asked.clusters, asked.algorithms, asked.sizes, seconds, nbytes, interrupted)


@dataclass(frozen=True)
class _Asked:
    """What a sweep is about, checked."""

    algorithms: tuple[Algorithm, ...]
    clusters: tuple[Cluster, ...]
    sizes: tuple[int, ...]
    trouble: Trouble

    @classmethod
    def make(
        cls,
        algorithms: Several,
        clusters: Cluster | Iterable[Cluster],
        sizes: Any,
        calibration: Calibration | None,
        trouble: Trouble,
    ) -> "_Asked":
        """Raise InputError for what cannot be swept over."""
        named = [algorithms] if isinstance(algorithms, str | Algorithm) else list(algorithms)
        given = [clusters] if isinstance(clusters, Cluster) else list(clusters)
        for cluster in given:
            check_cluster(cluster, Cluster)
        found = tuple(resolve_transport(cluster, calibration)[0] for cluster in given)
        for cluster in found:
            check_trouble(trouble, cluster.graph, cluster.world_size)
        if isinstance(sizes, str) or not hasattr(sizes, "__len__"):
            raise InputError(f"sizes is {sizes!r}; give a list of whole numbers of bytes")
        whole = tuple(check_whole_number("a size", int(size), at_least=0) for size in sizes)
        if not (named and found and whole):
            raise InputError("a sweep needs at least one algorithm, one cluster and one size")
        return cls(tuple(as_algorithm(one) for one in named), found, whole, trouble)

    def requests(self, dtype: str, op: str, root: int) -> list[Request]:
        """Return the request of every place, in the order of the answer. Raise InputError."""
        known: dict[tuple[int, Algorithm, int], Request] = {}
        for cluster in self.clusters:
            for algorithm in self.algorithms:
                for size in self.sizes:
                    key = cluster.world_size, algorithm, size
                    if key not in known:
                        known[key] = make_request(algorithm, cluster.world_size, size, dtype=dtype, op=op, root=root)
        return [
            known[cluster.world_size, algorithm, size]
            for cluster in self.clusters
            for algorithm in self.algorithms
            for size in self.sizes
        ]

    def blocks(
        self, requests: Sequence[Request], wanted: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[SweepBlock, list[int]]]:
        """Yield what is wanted block by block, with the places of its predictions in the answer."""
        numbers = np.arange(wanted.size).reshape(wanted.shape)
        by_ranks = sorted(range(len(self.clusters)), key=lambda c: self.clusters[c].world_size)
        for _, same in groupby(by_ranks, key=lambda c: self.clusters[c].world_size):
            chosen = list(same)
            for a in range(len(self.algorithms)):
                for begin in range(0, len(chosen), MOST_CLUSTERS):
                    part = chosen[begin : begin + MOST_CLUSTERS]
                    places = [numbers[c, a][wanted[c, a]].tolist() for c in part]
                    if any(places):
                        asked = tuple(tuple(requests[place] for place in each) for each in places)
                        block = SweepBlock(tuple(self.clusters[c] for c in part), asked, self.trouble)
                        yield block, [place for each in places for place in each]


def predict_block(block: SweepBlock) -> list[float]:
    """Return the seconds of a block's requests, cluster by cluster."""
    first = next(request for requests in block.requests for request in requests)
    schedule = compact_schedule(first.algorithm, block.clusters[0].world_size, first.root)
    shared, found = compiled.SharedInputs(schedule), list[float]()
    for cluster, requests in zip(block.clusters, block.requests, strict=True):
        simulator = simulator_of(*resolve_transport(cluster))
        found += [simulator.sweep_seconds(request, block.trouble, shared) for request in requests]
    return found


@contextmanager
def _told(progress: bool | Told | None, done: int, total: int) -> Iterator[Told]:
    """Within the context, what is to be called as predictions get done: a bar's, the one given, or one without effect.

    The bar, for ``progress=True``, begins at ``done``; where standard error is no terminal it is one line at the end.
    Raises InputError for what is neither True, False, None nor callable.

    >>> with _told(lambda *now: print(now), 0, 8) as tell:
    ...     tell(2, 8)
    (2, 8)
    """
    if callable(progress):
        yield progress
    elif progress is True:
        with _bar(done, total) as tell:
            yield tell
    elif progress is None or progress is False:
        yield lambda done, total: None
    else:
        raise InputError(f"progress is {quote(progress)}; give True for a bar, or a function of two whole numbers")


@contextmanager
def _bar(done: int, total: int) -> Iterator[Told]:
    from rich.console import Console  # slow to import, and only for this
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task("predictions", total=total, completed=done)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield tell
