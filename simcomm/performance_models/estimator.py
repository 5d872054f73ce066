"""Estimate an algorithm's time on a cluster: by closed form on symmetric stars, by simulation on other clusters.

A closed form equals the simulation if the buffer splits into equal chunks; otherwise it is an approximation. With more
than ``FEW_RANKS`` ranks, the compiled engine simulates.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from collectives.call import CollectiveCall, reduced_counts
from collectives.costs.brackets import Bracket, bracket, least_on_faster
from collectives.costs.closed_forms import UPPER_BOUNDS, CostModel, closed_form
from collectives.declaration import Algorithm
from simcomm import compiled
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.performance_models.message_simulator import MessageSimulator, without_idle_hosts
from simcomm.performance_models.options import TIMES_ONLY
from simcomm.schedules import unverified_schedule, verified_schedule

FEW_RANKS = 8  # ranks up to which ``simcomm.run`` simulates, and chooses the engine by the number of messages


@dataclass(frozen=True)
class Estimator:
    """An estimator of the time of any algorithm, for one collective call on one cluster.

    All methods raise Undefined if an algorithm is not defined for this number of ranks.
    """

    simulator: MessageSimulator
    call: CollectiveCall  # its algorithm is ignored
    star: CostModel | None  # cost model of the cluster, if it is a symmetric star
    faster_star: CostModel | None  # cost model of a symmetric star on which no message is slower
    last: list[EngineInput] = field(default_factory=list, repr=False)  # most recent input of the compiled engine

    @classmethod
    def of(cls, simulator: MessageSimulator, call: CollectiveCall) -> "Estimator":
        """Return an estimator for a call. Results that do not depend on the algorithm are computed once."""
        star, faster = simulator.star_costs(call.nbytes)
        if star is not None:
            simulator = replace(simulator, cluster=without_idle_hosts(simulator.cluster))
        return cls(simulator, call, star, faster)

    @property
    def cluster(self) -> Cluster:
        """The cluster on which times are estimated. Hosts without ranks are removed from a star."""
        return self.simulator.cluster

    @property
    def world_size(self) -> int:
        return self.cluster.world_size

    def seconds(self, algorithm: Algorithm) -> float:
        """Return an algorithm's time in seconds. Raise ProgramError if its program is invalid."""
        seconds = self.closed_form(algorithm)
        return self.simulate(algorithm) if seconds is None else seconds

    def closed_form(self, algorithm: Algorithm) -> float | None:
        """Return the time in seconds by closed form, or None if no exact closed form applies."""
        algorithm.chunks(self.world_size)  # raises Undefined
        is_bound = f"{algorithm.spec.name}/{algorithm.name}" in UPPER_BOUNDS
        first, last = self.division
        if self.star is None or self.call.elements == 0 or first != last or is_bound:
            return None
        seconds = closed_form(algorithm, self.star._replace(nbytes=self.call.nbytes))
        return None if seconds is None else seconds + first

    def bracket(self, algorithm: Algorithm) -> Bracket:
        """Return quick lower and upper bounds on an algorithm's time in seconds. Unknown bounds are 0 and infinity."""
        n, upper = self.call.elements, inf
        if self.star is not None:
            lower, upper = bracket(algorithm, self.star._replace(nbytes=self.call.nbytes), n)
        elif self.faster_star is not None:
            lower = least_on_faster(algorithm, self.faster_star._replace(nbytes=self.call.nbytes), n)
        else:
            lower = 0.0
        return Bracket(lower + self.division[0], upper + self.division[1])

    def link_load_bound(self, algorithm: Algorithm) -> float:
        """Return the seconds that the busiest link needs for its bytes, a lower bound on an algorithm's time.

        Return 0 if the bound is unknown. Raise TooLarge if the program is too large to simulate, and ProgramError if it
        is invalid.
        """
        if self.world_size <= FEW_RANKS or self.faster_star is None:
            return 0.0
        return compiled.busiest_link_seconds(self._input(algorithm)) + self.division[0]

    @cached_property
    def division(self) -> tuple[float, float]:
        """The shortest and longest time in seconds in which a rank divides for a mean; zeros for other operators."""
        if self.call.op != "mean":
            return 0.0, 0.0
        spec, root, n = self.call.spec, self.call.root, self.call.elements
        counts = reduced_counts(spec, self.world_size, root, n)
        seconds = counts * self.call.itemsize * self.simulator.transport.gamma
        return float(seconds.min()), float(seconds.max())

    def simulate(self, algorithm: Algorithm) -> float:
        """Return the simulated time in seconds. Raise ProgramError if the program is invalid."""
        if self.world_size <= FEW_RANKS:
            call = self.call.with_algorithm(algorithm, self.world_size)
            return self.simulator.collective(call, TIMES_ONLY).elapsed
        return self.simulator.timing(self._input(algorithm)).elapsed

    def _input(self, algorithm: Algorithm) -> EngineInput:
        if self.last and self.last[0].schedule.algorithm == algorithm:
            return self.last[0]
        call = self.call.with_algorithm(algorithm, self.world_size)
        if not algorithm.is_builtin:
            verified_schedule(algorithm, self.world_size, call.root)  # tests verify the library's own algorithms
        schedule = unverified_schedule(algorithm, self.world_size, call.root)
        self.last[:] = [EngineInput(call, schedule, self.cluster, self.simulator.transport)]
        return self.last[0]
