"""Which algorithm is fastest for a size, a number of ranks and a cluster, by the model.

Every candidate is simulated. On a symmetric star the closed forms say the same to the last digit and at once, so there
they are asked instead, where they are exact and the buffer falls into equal chunks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from collectives.calibration import Calibration
from collectives.catalogue import Algorithm, library
from collectives.closed_forms import BOUNDS, Model, closed_form
from collectives.errors import InputError, Undefined
from collectives.lengths import rounded_down
from collectives.schedule import trace
from collectives.spec import find_spec
from collectives.workload import item_bytes
from simcomm.run import ready, run
from simcomm.topology import Cluster

SLICES = (2, 8, 32)  # of the pipelined algorithms
SAME = 1e-9  # times that differ by less than this share are equal; then fewer messages win


class Timed(NamedTuple):
    """A candidate and the seconds that it is predicted to take."""

    algorithm: Algorithm
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The fastest algorithm, and every candidate from the fastest to the slowest."""

    algorithm: Algorithm
    seconds: float
    table: tuple[Timed, ...]


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
) -> Choice:
    """The algorithm that is predicted to be fastest, of the library's unless ``among`` names others.

    Algorithms that do not exist for so many ranks are left out; of equally fast ones the one with fewest messages is
    chosen. Raises InputError where none is left.
    """
    options = candidates(collective) if among is None else among
    cluster, _ = ready(cluster, calibration)
    timed = []
    for found in options:
        try:
            timed.append(Timed(found, predicted_seconds(found, cluster, nbytes, dtype, op, root)))
        except Undefined:
            continue
    if not timed:
        raise InputError(f"{collective}: no algorithm to choose from exists for {cluster.world_size} ranks")
    timed.sort(key=lambda one: one.seconds)
    equal = [one for one in timed if one.seconds <= timed[0].seconds * (1 + SAME)]
    best = (
        min(equal, key=lambda one: trace(one.algorithm, cluster.world_size, root).messages) if equal[1:] else equal[0]
    )
    return Choice(best.algorithm, best.seconds, (best, *(one for one in timed if one is not best)))


def settled(
    algorithm: Algorithm,
    cluster: Cluster,
    nbytes: int,
    *,
    dtype: str = "float32",
    op: str = "sum",
    root: int = 0,
    calibration: Calibration | None = None,
) -> Algorithm:
    """The algorithm itself or, for ``auto``, the chosen one, labelled ``auto (ring)``. Raises InputError."""
    if not algorithm.is_auto:
        return algorithm
    asked: dict[str, Any] = {"dtype": dtype, "op": op, "root": root, "calibration": calibration}
    return replace(choose(algorithm.spec.name, cluster, nbytes, **asked).algorithm, by_model=True)


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
    """The choice for each of ``sizes`` (bytes) on the cluster's first hosts, as many as each of ``world_sizes``."""
    rows = []
    for world_size in world_sizes:
        first = cluster.on_first(world_size)
        rows.append(
            tuple(
                choose(collective, first, nbytes, dtype=dtype, calibration=calibration, among=among) for nbytes in sizes
            )
        )
    return WinnerMap(collective, cluster.title, tuple(sizes), tuple(world_sizes), tuple(rows))


def predicted_seconds(found: Algorithm, cluster: Cluster, nbytes: int, dtype: str, op: str, root: int) -> float:
    """What ``run`` would say; by closed form where that is exact. The cluster has its transport."""
    itemsize = item_bytes(dtype)
    chunks = found.chunks(cluster.world_size)
    n = rounded_down(found, nbytes // itemsize, cluster.world_size)
    model = star_model(cluster, n * itemsize)
    is_exact = found.spec.name + "/" + found.name not in BOUNDS and n % chunks == 0 and n > 0 and op != "mean"
    seconds = closed_form(found, model) if model is not None and is_exact else None
    return run(found, cluster, nbytes, dtype=dtype, op=op, root=root).elapsed if seconds is None else seconds


def star_model(cluster: Cluster, nbytes: int) -> Model | None:
    """alpha, beta and gamma where every rank has a link of its own, all alike, into one switch; None elsewhere."""
    graph, hosts, transport = cluster.graph, cluster.hosts, cluster.transport
    edges = [data for _, _, data in graph.edges(data=True)]
    switches = [node for node in graph if graph.in_degree(node) > 1 or graph.out_degree(node) > 1]
    is_star = len(switches) <= 1 and len(set(hosts)) == len(hosts) and not set(hosts) & set(switches)
    if transport is None or not is_star or not edges or any(data != edges[0] for data in edges[1:]):
        return None
    if edges[0].keys() - {"bandwidth", "latency"} or graph.number_of_edges() != 2 * (len(graph) - 1):
        return None
    alpha = transport.overhead + 2 * edges[0]["latency"]
    beta = 1 / (edges[0]["bandwidth"] * transport.goodput)
    return Model(len(hosts), nbytes, alpha, beta, transport.gamma)
