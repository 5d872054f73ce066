"""How long an algorithm takes on a cluster: by closed form where that is exact, else by simulation.

On a symmetric star the closed forms say at once what a simulation would, to the last digit where the buffer falls into
equal chunks; they are taken as though every buffer did. Elsewhere the algorithm is simulated, by the compiled engine
where there are more than a few ranks.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from collectives.costs.brackets import Bracket, bracket, least_on_faster
from collectives.costs.closed_forms import UPPER_BOUNDS, CostModel, closed_form
from collectives.declaration import Algorithm
from collectives.request import Request, reduced_counts
from simcomm import compiled
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.schedules import unverified_schedule, verified_schedule
from simcomm.time_models.message_simulator import MessageSimulator, without_idle_hosts
from simcomm.time_models.options import TIMES_ONLY


@dataclass(frozen=True)
class Estimator:
    """Estimates of how long algorithms take for one request on one cluster."""

    simulator: MessageSimulator
    request: Request  # whose own algorithm plays no part
    star: CostModel | None  # the cluster's costs, where it is a symmetric star
    faster_star: CostModel | None  # of a symmetric star on which no message is slower than on the cluster
    few_ranks: int = 8  # up to so many, each algorithm is simulated as by ``simcomm.run``, which counts its messages
    shared: dict[Algorithm, compiled.SharedInputs] | None = field(default=None, repr=False)  # of many requests
    last: list[EngineInput] = field(default_factory=list, repr=False)  # what the compiled engine was last asked

    @classmethod
    def of(cls, simulator: MessageSimulator, request: Request) -> "Estimator":
        """Return an estimator, with what is the same for every algorithm worked out once.

        >>> import simcomm
        >>> from collectives import find_algorithm
        >>> request = Request(find_algorithm("all_reduce/ring"), elements=1 << 20)
        >>> star = simcomm.star(8, "10 Gbit/s", "5 us")
        >>> estimator = Estimator.of(MessageSimulator(star, star.transport), request)
        >>> round(estimator.seconds(request.algorithm) * 1e3, 6)  # in ms
        6.012026
        """
        star, faster = simulator.star_costs(request.nbytes)
        if star is not None:
            simulator = replace(simulator, cluster=without_idle_hosts(simulator.cluster))
        return cls(simulator, request, star, faster)

    def for_request(self, request: Request) -> "Estimator":
        """Return an estimator for another request on the same cluster, with what it knows of that."""
        return replace(self, request=request, last=[])

    def for_many(self) -> "Estimator":
        """Return an estimator for so many requests that machine code pays, however few ranks there are.

        What the compiled engine works out of an algorithm is kept for the next request.
        """
        return replace(self, few_ranks=0, shared={}, last=[])

    @property
    def cluster(self) -> Cluster:
        """The cluster, with its transport."""
        return self.simulator.cluster

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
        algorithm.chunks(self.world_size)  # raises Undefined
        is_bound = f"{algorithm.spec.name}/{algorithm.name}" in UPPER_BOUNDS
        first, last = self.division
        if self.star is None or self.request.elements == 0 or first != last or is_bound:
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
        if self.world_size <= self.few_ranks or self.faster_star is None:
            return 0.0
        return compiled.busiest_link_seconds(self._input(algorithm)) + self.division[0]

    @cached_property
    def division(self) -> tuple[float, float]:
        """Seconds that the mean's division at the end takes at least, and at most."""
        if self.request.op != "mean":
            return 0.0, 0.0
        spec, root, n = self.request.spec, self.request.root, self.request.elements
        counts = reduced_counts(spec, self.world_size, root, n)
        seconds = counts * self.request.itemsize * self.simulator.transport.gamma
        return float(seconds.min()), float(seconds.max())

    def simulate(self, algorithm: Algorithm) -> float:
        """Return the seconds by simulation. Raise Undefined, and ProgramError for an algorithm that cannot work."""
        if self.world_size <= self.few_ranks:
            request = self.request.with_algorithm(algorithm, self.world_size)
            return self.simulator.collective(request, TIMES_ONLY).elapsed
        return self.simulator.timing(self._input(algorithm)).elapsed

    def _input(self, algorithm: Algorithm) -> EngineInput:
        """Return what the compiled engine is asked; the same for the same algorithm as just before."""
        if self.last and self.last[0].schedule.algorithm == algorithm:
            return self.last[0]
        request = self.request.with_algorithm(algorithm, self.world_size)
        if algorithm.source is not None:
            verified_schedule(algorithm, self.world_size, request.root)  # the library's own are proved by its tests
        schedule = unverified_schedule(algorithm, self.world_size, request.root)
        shared = {} if self.shared is None else self.shared
        inputs = shared.get(algorithm) or compiled.SharedInputs(schedule, keeps_plans=False)
        shared[algorithm] = inputs
        self.last[:] = [inputs.next(request, self.cluster, self.simulator.transport)]
        return self.last[0]
