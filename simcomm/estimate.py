"""How long an algorithm takes on a cluster: by closed form where that is exact, else by simulation.

On a symmetric star the closed forms say what a simulation would, to the last digit and at once, where they are exact
and the buffer falls into equal chunks. Elsewhere the algorithm is simulated, by the compiled engine where there are
more than a few ranks.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from collectives.costs.brackets import Bracket, bracket, least_on_faster
from collectives.costs.closed_forms import UPPER_BOUNDS, CostModel, closed_form
from collectives.declaration import Algorithm
from collectives.lengths import round_down
from collectives.parts import reduced_counts
from collectives.records.calibration import Calibration
from collectives.request import Request
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.engine_choice import FEW_RANKS
from simcomm.schedules import unverified_schedule, verified_schedule
from simcomm.simulate import run

if TYPE_CHECKING:
    from simcomm.compiled.planning.engine_input import EngineInput


@dataclass(frozen=True)
class Estimator:
    """Estimates of how long algorithms take for one request on one cluster."""

    cluster: Cluster  # with its transport
    request: Request  # whose own algorithm plays no part
    star: CostModel | None  # the cluster's costs, where it is a symmetric star
    equal_chunks: bool  # closed forms are taken as though the buffer fell into equal chunks
    last: "list[EngineInput]" = field(default_factory=list, repr=False)  # what the compiled engine was last asked

    def for_request(self, request: Request) -> "Estimator":
        """Return an estimator for another request on the same cluster, with what it knows of that."""
        other = replace(self, request=request, last=[])
        if "faster_star" in vars(self):
            vars(other)["faster_star"] = self.faster_star  # of the cluster alone: each question brings its own bytes
        return other

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
        first, last = self.division
        if self.star is None or not even or n == 0 or first != last or is_bound:
            return None
        seconds = closed_form(algorithm, self.star._replace(nbytes=self.request.nbytes))
        return None if seconds is None else seconds + first

    def bracket(self, algorithm: Algorithm) -> Bracket:
        """Return seconds that no run of the algorithm goes below, and that none goes beyond, in next to no time.

        They are 0 and infinity where nothing is known. Raises Undefined.
        """
        n, most = self.request.elements, inf
        if self.star is not None:
            least, most = bracket(algorithm, self.star._replace(nbytes=self.request.nbytes), n)
        elif self.faster_star is not None:
            least = least_on_faster(algorithm, self.faster_star._replace(nbytes=self.request.nbytes), n)
        else:
            least = 0.0
        return Bracket(least + self.division[0], most + self.division[1])

    def least_by_loads(self, algorithm: Algorithm) -> float:
        """Return seconds that no run goes below: what the links need for the bytes that the algorithm has cross them.

        Raises Undefined, and TooLarge and ProgramError as ``simulate`` does.
        """
        if self.world_size <= FEW_RANKS or self.faster_star is None:
            return 0.0
        from simcomm.compiled.planning.link_seconds import busiest_link_seconds

        return busiest_link_seconds(self._input(algorithm)) + self.division[0]

    @cached_property
    def division(self) -> tuple[float, float]:
        """Seconds that the mean's division at the end takes at least, and at most."""
        if self.request.op != "mean":
            return 0.0, 0.0
        assert self.cluster.transport is not None
        spec, root, n = self.request.spec, self.request.root, self.request.elements
        seconds = reduced_counts(spec, self.world_size, root, n) * self.request.itemsize * self.cluster.transport.gamma
        return float(seconds.min()), float(seconds.max())

    @cached_property
    def faster_star(self) -> CostModel | None:
        """Costs of a symmetric star on which no message is slower than on the cluster; None over TCP."""
        return _faster_star(self.cluster, self.request.nbytes)

    def simulate(self, algorithm: Algorithm) -> float:
        """Return the seconds by simulation. Raise Undefined, and ProgramError for an algorithm that cannot work."""
        if self.world_size <= FEW_RANKS:
            return run(self.request.with_algorithm(algorithm, self.world_size), self.cluster).elapsed
        from simcomm.compiled.engine import simulate

        return simulate(self._input(algorithm)).elapsed

    def _input(self, algorithm: Algorithm) -> "EngineInput":
        """Return what the compiled engine is asked; the same for the same algorithm as just before."""
        if self.last and self.last[0].schedule.algorithm == algorithm:
            return self.last[0]
        from simcomm.compiled.planning.engine_input import EngineInput

        request = self.request.with_algorithm(algorithm, self.world_size)
        assert self.cluster.transport is not None
        if algorithm.source is not None:
            verified_schedule(algorithm, self.world_size, request.root)  # the library's own are proved by its tests
        schedule = unverified_schedule(algorithm, self.world_size, request.root)
        self.last[:] = [EngineInput(request, schedule, self.cluster, self.cluster.transport)]
        return self.last[0]


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
    busy = {*star.hosts}
    kept = [node for node in star.graph if node in busy or star.graph.in_degree(node) > 1]
    return star if len(kept) == len(star.graph) else replace(star, graph=star.graph.subgraph(kept).copy())


def star_model(cluster: Cluster, nbytes: int) -> CostModel | None:
    """Return the costs of a cluster where every rank has a link of its own, all alike, into one switch, else None.

    With the terms of TCP there are no closed forms.

    >>> import simcomm
    >>> star_model(simcomm.star(4, "8 Gbit/s", "1 us"), nbytes=64)
    CostModel(p=4, nbytes=64, alpha=2e-06, beta=1e-09, gamma=0.0)
    """
    graph, hosts, transport = cluster.graph, cluster.hosts, cluster.transport
    if cluster.sharing != "fair":  # messages that share a link would wait for each other
        return None
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


def _faster_star(cluster: Cluster, nbytes: int) -> CostModel | None:
    """Return the costs of a symmetric star on which no message is slower than on the cluster; None over TCP.

    Each message leaves its sender's host by one of its links and comes to the receiver's by one of those, which may
    be the same where hosts are joined directly.
    """
    transport, hosts, links = cluster.transport, set(cluster.hosts), cluster.graph.edges(data=True)
    assert transport is not None
    if transport.tcp is not None:
        return None
    ends = [[data for *nodes, data in links if nodes[end] in hosts] for end in (0, 1)]
    if len(hosts) < len(cluster.hosts) or not all(ends):
        return CostModel(cluster.world_size, nbytes, transport.overhead, 0.0, transport.gamma)
    is_direct = any(a in hosts and b in hosts for a, b, _ in links)
    latency = [min(data["latency"] for data in of_end) for of_end in ends]
    rates = [max(max(data["bandwidth"], data.get("shared_bandwidth", 0.0)) for data in of_end) for of_end in ends]
    alpha = transport.overhead + (max(latency) if is_direct else sum(latency))
    return CostModel(cluster.world_size, nbytes, alpha, 1 / (min(rates) * transport.goodput), transport.gamma)
