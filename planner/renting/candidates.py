"""List candidates, which are numbers of nodes of instance types, and estimate the time and cost of training on them."""

from collections.abc import Iterable, Iterator
from math import inf, isfinite
from typing import Literal, NamedTuple

from collectives.errors import InputError
from planner.prediction import StepPrediction
from planner.renting.prices import InstanceType

Market = Literal["on demand", "spot"]
Interval = tuple[float, float]  # bounds of the 80 % interval
HOUR_S = 3600.0


class Candidate(NamedTuple):
    """A number of nodes of an instance type, on demand or spot."""

    instance: InstanceType
    nodes: int
    market: Market

    @property
    def gpus(self) -> int:
        """The number of GPUs of all nodes."""
        return self.nodes * self.instance.gpus

    @property
    def price(self) -> float:
        """The price of all nodes in dollars an hour."""
        each = self.instance.spot_price if self.market == "spot" else self.instance.price
        assert each is not None
        return each * self.nodes

    @property
    def label(self) -> str:
        """The number of GPUs, the nodes if there are several, and the provider, as text.

        >>> from planner.renting.prices import read_prices
        >>> Candidate(read_prices()[2], 2, "on demand").label
        '16 x V100 SXM2 16GB on 2 nodes, AWS'
        """
        several = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        spot = " spot" if self.market == "spot" else ""
        return f"{self.gpus} x {self.instance.gpu}{several}, {self.instance.provider}{spot}"

    @property
    def order(self) -> str:
        """The number of instances to order and their type, as text.

        >>> from planner.renting.prices import read_prices
        >>> Candidate(read_prices()[2], 2, "on demand").order
        '2 x p3.16xlarge'
        """
        return f"{self.nodes} x {self.instance.instance}"


def list_candidates(instances: Iterable[InstanceType], most_nodes: int, spot: bool) -> Iterator[Candidate]:
    """Yield one node of each instance type and, if its network is known, powers of two up to ``most_nodes``.

    Candidates without a price are omitted.

    >>> from planner.renting.prices import read_prices
    >>> [candidate.order for candidate in list_candidates(read_prices()[2:3], most_nodes=4, spot=True)]
    ['1 x p3.16xlarge', '2 x p3.16xlarge', '4 x p3.16xlarge']
    """
    for instance in instances:
        nodes = 1
        while nodes <= (most_nodes if instance.nic_bandwidth is not None else 1):
            if instance.price is not None:
                yield Candidate(instance, nodes, "on demand")
            if spot and instance.spot_price is not None:
                yield Candidate(instance, nodes, "spot")
            nodes *= 2


class CostEstimate(NamedTuple):
    """The cost estimate of a training run on a candidate: hours and dollars with their 80 % intervals."""

    candidate: Candidate
    step: StepPrediction
    hours: float
    hours_80: Interval
    dollars: float
    dollars_80: Interval


def estimate_cost(candidate: Candidate, step: StepPrediction, samples: float) -> CostEstimate:
    """Return the time and cost of training on ``samples`` samples. Raise InputError if the cost is not finite."""
    low, high = step.interval()
    hours, fewest, most = (samples / rate / HOUR_S for rate in (step.rate, high, low))
    price = candidate.price
    if not isfinite(most * price):
        raise InputError(f"plan.target_samples is too large ({samples:g}): the cost is not a finite number; reduce it")
    return CostEstimate(candidate, step, hours, (fewest, most), hours * price, (fewest * price, most * price))


class Limits(NamedTuple):
    """The limits of a plan: the deadline in hours and the budget in dollars."""

    deadline: float = inf
    budget: float = inf

    def allow(self, hours: float, dollars: float) -> bool:
        """Return whether a run of this time and cost is on time and on budget."""
        return hours <= self.deadline and dollars <= self.budget
