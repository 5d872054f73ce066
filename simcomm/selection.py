"""Which algorithm is fastest for a size, a number of ranks and a cluster, by the model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from collectives.catalogue import library
from collectives.checks import check_cluster
from collectives.declaration import Algorithm, auto
from collectives.errors import InputError, Undefined
from collectives.records.calibration import Calibration
from collectives.request import Request, make_request
from collectives.spec import find_spec
from simcomm.cluster.cluster import Cluster
from simcomm.estimate import Asked, asked_of

SLICES = (2, 8, 32)  # of the pipelined algorithms
SAME = 1e-9  # times that differ by less than this share are equal; then fewer messages win


class Timed(NamedTuple):
    """A candidate and the seconds that it is predicted to take."""

    algorithm: Algorithm
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The fastest algorithm, and candidates from the fastest to the slowest."""

    algorithm: Algorithm
    seconds: float
    table: tuple[Timed, ...]  # of what was timed: all that could be first or next best

    @property
    def next_best(self) -> Timed | None:
        """The fastest of the others; another number of slices is not another algorithm."""
        return next((one for one in self.table if one.algorithm.name != self.algorithm.name), None)

    @property
    def gain(self) -> float:
        """How many times as long the next best takes; infinite without one, or where nothing takes any time."""
        return self.next_best.seconds / self.seconds if self.next_best and self.seconds > 0 else inf


@dataclass(frozen=True)
class WinnerMap:
    """Where each algorithm wins: ``choices[i][j]`` for ``world_sizes[i]`` ranks and ``sizes[j]`` bytes."""

    collective: str
    cluster: str
    sizes: tuple[int, ...]
    world_sizes: tuple[int, ...]
    choices: tuple[tuple[Choice, ...], ...]

    @property
    def winners(self) -> list[list[str]]:
        """Names of the fastest algorithms, parameters included; a row for each world size."""
        return [[choice.algorithm.label for choice in row] for row in self.choices]

    @property
    def seconds(self) -> list[list[float]]:
        """What the fastest take; a row for each world size."""
        return [[choice.seconds for choice in row] for row in self.choices]


def candidates(collective: str) -> Iterator[Algorithm]:
    """The library's algorithms for a collective, those that are pipelined with several numbers of slices.

    Raises InputError for an unknown collective.
    """
    find_spec(collective)
    for found in library().values():
        if found.spec.name == collective:
            if "slices" in found.parameter_names:
                yield from (found.with_parameters(slices=slices) for slices in SLICES)
            else:
                yield found


def choose(
    collective: str,
    cluster: Cluster,
    nbytes: int,
    *,
    dtype: str = "float32",
    op: str = "sum",
    root: int = 0,
    calibration: Calibration | None = None,
    among: Iterable[Algorithm] | None = None,
    evenly: bool = False,
) -> Choice:
    """The algorithm that is predicted to be fastest, of the library's unless ``among`` names others.

    Algorithms that do not exist for so many ranks are left out; of equally fast ones the one of which rank 0 says
    least is chosen. ``evenly`` takes closed forms as though the buffer fell into equal chunks. Raises InputError where
    there is nothing to choose from.
    """
    check_cluster(cluster, Cluster)
    request = make_request(auto(collective), cluster.world_size, nbytes, dtype=dtype, op=op, root=root)
    return _choose(request, cluster, calibration, among, evenly)


def _choose(
    request: Request,
    cluster: Cluster,
    calibration: Calibration | None,
    among: Iterable[Algorithm] | None = None,
    evenly: bool = False,
) -> Choice:
    asked, collective = asked_of(request, cluster, calibration, evenly), request.spec.name
    timed = sorted(_timed(candidates(collective) if among is None else among, asked), key=lambda one: one.seconds)
    if not timed:
        raise InputError(f"{collective}: no algorithm to choose from exists for {cluster.world_size} ranks")
    equal = [one for one in timed if one.seconds <= timed[0].seconds * (1 + SAME)]
    best = min(equal, key=lambda one: _effort(one.algorithm, asked)) if equal[1:] else equal[0]
    return Choice(best.algorithm, best.seconds, (best, *(one for one in timed if one is not best)))


def _timed(options: Iterable[Algorithm], asked: Asked) -> list[Timed]:
    """The candidates; simulated are only those that could be first or next best."""
    timed, others = list[Timed](), list[tuple[float, Algorithm]]()
    for found in options:
        try:
            seconds = asked.exactly(found)
            if seconds is None:
                others.append((asked.at_least(found), found))
            else:
                timed.append(Timed(found, seconds))
        except Undefined:
            continue
    for least, found in sorted(others, key=lambda other: other[0]):
        best = {one.algorithm.name: one.seconds for one in sorted(timed, key=lambda one: -one.seconds)}
        if len(best) < 2 or least <= sorted(best.values())[1]:
            timed.append(Timed(found, asked.simulated(found)))
    return timed


def _effort(found: Algorithm, asked: Asked) -> tuple[int, int, str]:
    """Operations of rank 0, then parameters: a torus of one row is a ring, and should be called that."""
    said = sum(len(step) for program in found.channels(0, asked.world_size, asked.request.root) for step in program)
    return said, len(found.parameter_names), found.label


def resolve_auto(request: Request, cluster: Cluster, calibration: Calibration | None = None) -> Request:
    """Return the request with ``auto`` replaced by the algorithm that the model chooses, labelled ``auto (ring)``.

    A request for any other algorithm is returned as it is. Raises InputError.
    """
    if not request.algorithm.is_auto:
        return request
    chosen = _choose(request, cluster, calibration).algorithm
    return request.with_algorithm(replace(chosen, by_model=True), cluster.world_size)


def winner_map(
    collective: str,
    cluster: Cluster,
    sizes: Sequence[int],
    world_sizes: Sequence[int],
    *,
    dtype: str = "float32",
    among: Sequence[Algorithm] | None = None,
    calibration: Calibration | None = None,
) -> WinnerMap:
    """The choice for each of ``sizes`` (bytes) on the cluster's first hosts, as many as each of ``world_sizes``.

    Where closed forms answer, it is as though every buffer fell into equal chunks.
    """
    rows = []
    for world_size in world_sizes:
        first = cluster.on_first(world_size)
        rows.append(
            tuple(
                choose(collective, first, nbytes, dtype=dtype, calibration=calibration, among=among, evenly=True)
                for nbytes in sizes
            )
        )
    return WinnerMap(collective, cluster.title, tuple(sizes), tuple(world_sizes), tuple(rows))
