"""How long an algorithm takes on a cluster: by closed form where that is exact, else by simulation.

On a symmetric star the closed forms say what a simulation would, to the last digit and at once, where they are exact
and the buffer falls into equal chunks. Elsewhere the algorithm is simulated, by the compiled engine where there are
more than a few ranks.
"""

from dataclasses import dataclass, replace

from collectives.costs.closed_forms import UPPER_BOUNDS, CostModel, closed_form, least_seconds
from collectives.declaration import Algorithm
from collectives.lengths import round_down
from collectives.records.calibration import Calibration
from collectives.request import Request
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.engine_choice import FEW_RANKS
from simcomm.schedules import unverified_schedule, verified_schedule
from simcomm.simulate import run


@dataclass(frozen=True)
class Estimator:
    """Estimates of how long algorithms take for one request on one cluster."""

    cluster: Cluster  # with its transport
    request: Request  # whose own algorithm plays no part
    star: CostModel | None  # the cluster's costs, where it is a symmetric star
    equal_chunks: bool  # closed forms are taken as though the buffer fell into equal chunks

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.cluster.world_size

    def seconds(self, algorithm: Algorithm) -> float:
        """Return the seconds of an algorithm, by closed form where that is exact, else by simulation.

        Raises Undefined for an algorithm that does not exist for so many ranks, and ProgramError for one that cannot
        work.
        """
        seconds = self.closed_form(algorithm)
        return self.simulate(algorithm) if seconds is None else seconds

    def closed_form(self, algorithm: Algorithm) -> float | None:
        """Return the seconds by closed form, where that is exact, and None elsewhere. Raise Undefined."""
        chunks, n = algorithm.chunks(self.world_size), self.request.elements
        even = self.equal_chunks or (n == round_down(algorithm, n, self.world_size) and n % chunks == 0)
        is_bound = f"{algorithm.spec.name}/{algorithm.name}" in UPPER_BOUNDS
        if self.star is None or not even or n == 0 or self.request.op == "mean" or is_bound:
            return None
        return closed_form(algorithm, self.star._replace(nbytes=self.request.nbytes))

    def lower_bound(self, algorithm: Algorithm) -> float:
        """Return seconds that no run of the algorithm goes below; 0 where nothing is known. Raise Undefined."""
        n = self.request.elements
        if self.star is None or n < algorithm.chunks(self.world_size):
            return 0.0
        whole = n - n % algorithm.chunks(self.world_size)
        return least_seconds(algorithm, self.star._replace(nbytes=whole * self.request.itemsize))

    def simulate(self, algorithm: Algorithm) -> float:
        """Return the seconds by simulation. Raise Undefined, and ProgramError for an algorithm that cannot work."""
        request = self.request.with_algorithm(algorithm, self.world_size)
        if self.world_size <= FEW_RANKS:
            return run(request, self.cluster).elapsed
        from simcomm.compiled.engine import simulate
        from simcomm.compiled.planning.engine_input import EngineInput

        assert self.cluster.transport is not None
        if algorithm.source is not None:
            verified_schedule(algorithm, self.world_size, request.root)  # the library's own are proved by its tests
        schedule = unverified_schedule(algorithm, self.world_size, request.root)
        return simulate(EngineInput(request, schedule, self.cluster, self.cluster.transport)).elapsed


def make_estimator(
    request: Request, cluster: Cluster, calibration: Calibration | None = None, equal_chunks: bool = False
) -> Estimator:
    """Return an estimator, with what is the same for every algorithm worked out once. Raise InputError.

    >>> import simcomm
    >>> from collectives import find_algorithm
    >>> request = Request(find_algorithm("all_reduce/ring"), elements=1 << 20)
    >>> estimator = make_estimator(request, simcomm.star(8, "10 Gbit/s", "5 us"))
    >>> round(estimator.seconds(request.algorithm) * 1e3, 6)  # in ms
    6.012026
    """
    cluster, _ = resolve_transport(cluster, calibration)
    star = star_model(cluster, request.nbytes)
    return Estimator(cluster if star is None else _without_idle_hosts(cluster), request, star, equal_chunks)


def _without_idle_hosts(star: Cluster) -> Cluster:
    """Return a star without the hosts that hold no rank."""
    kept = [node for node in star.graph if node in star.hosts or star.graph.in_degree(node) > 1]
    return replace(star, graph=star.graph.subgraph(kept).copy())


def star_model(cluster: Cluster, nbytes: int) -> CostModel | None:
    """Return the costs of a cluster where every rank has a link of its own, all alike, into one switch, else None.

    With the terms of TCP there are no closed forms.

    >>> import simcomm
    >>> star_model(simcomm.star(4, "8 Gbit/s", "1 us"), nbytes=64)
    CostModel(p=4, nbytes=64, alpha=2e-06, beta=1e-09, gamma=0.0)
    """
    graph, hosts, transport = cluster.graph, cluster.hosts, cluster.transport
    edges = [data for _, _, data in graph.edges(data=True)]
    switches = [node for node in graph if graph.in_degree(node) > 1 or graph.out_degree(node) > 1]
    is_star = len(switches) <= 1 and len(set(hosts)) == len(hosts) and not set(hosts) & set(switches)
    if (
        transport is None
        or transport.tcp is not None
        or not is_star
        or not edges
        or any(data != edges[0] for data in edges[1:])
    ):
        return None
    if edges[0].keys() - {"bandwidth", "latency"} or graph.number_of_edges() != 2 * (len(graph) - 1):
        return None
    alpha = transport.overhead + 2 * edges[0]["latency"]
    beta = 1 / (edges[0]["bandwidth"] * transport.goodput)
    return CostModel(len(hosts), nbytes, alpha, beta, transport.gamma)
