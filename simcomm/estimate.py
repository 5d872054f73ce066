"""How long one algorithm takes on a cluster, by the quickest of the ways that say the same.

On a symmetric star the closed forms say what a simulation would, to the last digit and at once, where they are exact
and the buffer falls into equal chunks. Elsewhere the algorithm is simulated, by the compiled engine where there are
more than a few ranks.
"""

from dataclasses import dataclass, replace

from collectives.costs.closed_forms import BOUNDS, Model, closed_form, least_seconds
from collectives.declaration import Algorithm
from collectives.lengths import rounded_down
from collectives.records.calibration import Calibration
from collectives.request import Request
from simcomm.cluster.cluster import Cluster
from simcomm.schedules import checked, unproved
from simcomm.simulate import ready, run

REFERENCE_UP_TO = 8  # ranks; there the reference engine has answered before the compiled one is loaded


@dataclass(frozen=True)
class Asked:
    """What is asked of every algorithm: the rest of a request, on a cluster that has its transport."""

    cluster: Cluster
    request: Request  # its algorithm is not looked at
    star: Model | None  # the cluster's costs, where it is a symmetric star
    evenly: bool  # as though the buffer fell into equal chunks, where there is a closed form

    @property
    def world_size(self) -> int:
        return self.cluster.world_size

    def exactly(self, found: Algorithm) -> float | None:
        """Seconds by closed form, where that is exact; None elsewhere. Raises Undefined."""
        chunks, n = found.chunks(self.world_size), self.request.elements
        even = self.evenly or (n == rounded_down(found, n, self.world_size) and n % chunks == 0)
        if self.star is None or not even or n == 0 or self.request.op == "mean" or _name(found) in BOUNDS:
            return None
        return closed_form(found, self.star._replace(nbytes=self.request.nbytes))

    def at_least(self, found: Algorithm) -> float:
        """Seconds that no run of the algorithm goes below; 0 where nothing is known."""
        n = self.request.elements
        if self.star is None or n < found.chunks(self.world_size):
            return 0.0
        whole = n - n % found.chunks(self.world_size)
        return least_seconds(found, self.star._replace(nbytes=whole * self.request.itemsize))

    def simulated(self, found: Algorithm) -> float:
        """Seconds by simulation. Raises Undefined, and ProgramError for an algorithm that cannot work."""
        request = self.request.with_algorithm(found, self.world_size)
        if self.world_size <= REFERENCE_UP_TO:
            return run(request, self.cluster).elapsed
        from simcomm.compiled import engine

        assert self.cluster.transport is not None
        if found.source is not None:
            checked(found, self.world_size, request.root)  # the library's own have been proved
        program, transport = unproved(found, self.world_size, request.root), self.cluster.transport
        return engine.run(program, self.cluster, transport, request.elements, request.itemsize, request.op).elapsed


def asked_of(request: Request, cluster: Cluster, calibration: Calibration | None = None, evenly: bool = False) -> Asked:
    """The question, with what is the same for every algorithm found out once. Raises InputError."""
    cluster, _ = ready(cluster, calibration)
    star = star_model(cluster, request.nbytes)
    return Asked(cluster if star is None else _in_use(cluster), request, star, evenly)


def _in_use(star: Cluster) -> Cluster:
    """A star without the hosts that hold no rank."""
    keep = [node for node in star.graph if node in star.hosts or star.graph.in_degree(node) > 1]
    return replace(star, graph=star.graph.subgraph(keep).copy())


def predicted_seconds(request: Request, cluster: Cluster) -> float:
    """What ``run`` would say."""
    asked = asked_of(request, cluster)
    seconds = asked.exactly(request.algorithm)
    return asked.simulated(request.algorithm) if seconds is None else seconds


def _name(found: Algorithm) -> str:
    return f"{found.spec.name}/{found.name}"


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
