"""Quotes: how long a training takes on a choice of rented machines and what it costs, with how sure both are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from simcomm.mesh.uncertain import Uncertain
from simcomm.renting.rentals import Rental

Market = Literal["on demand", "spot"]
HOUR_S = 3600.0


class Choice(NamedTuple):
    """So many of a machine, on demand or spot."""

    rental: Rental
    nodes: int
    market: Market

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.rental.gpus

    @property
    def price(self) -> float:
        """Dollars an hour for all nodes."""
        each = self.rental.spot_price if self.market == "spot" else self.rental.price
        assert each is not None
        return each * self.nodes

    @property
    def label(self) -> str:
        """The machines in a few words: GPUs in all, nodes where there are several, who rents them out.

        >>> from simcomm.renting.rentals import read_rentals
        >>> Choice(read_rentals()[2], 2, "on demand").label
        '16 x V100 SXM2 16GB on 2 nodes, AWS'
        """
        several = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.gpus} x {self.rental.gpu}{several}, {self.rental.provider}{self.spot}"

    @property
    def instances(self) -> str:
        """The machines by the name by which they are rented."""
        times = f"{self.nodes} x " if self.nodes > 1 else ""
        return f"{times}{self.rental.name}{self.spot}"

    @property
    def spot(self) -> str:
        """``" spot"``, or nothing."""
        return " spot" if self.market == "spot" else ""


class Rate(NamedTuple):
    """A predicted throughput of all GPUs in samples a second, and what holds it back."""

    rate: Uncertain
    bottleneck: str
    efficiency: float  # of so many GPUs without exchange
    mesh: str = ""  # that is the fastest there, where it was searched


class Interruptions(NamedTuple):
    """What spot machines lose: how often each is taken away, and what every time costs until work goes on."""

    per_day: float = 0.0  # of each node
    lost_hours: float = 0.25  # since the last checkpoint, and to begin again

    def share_left(self, nodes: int) -> float:
        """Return the share of the time in which work goes on; none below a hundredth.

        >>> Interruptions(per_day=4.8, lost_hours=0.5).share_left(2)
        0.8
        """
        return max(0.01, 1.0 - self.per_day / 24 * nodes * self.lost_hours)


@dataclass(frozen=True)
class Quote:
    """A choice with its predicted rate, hours and dollars until all samples are trained on."""

    choice: Choice
    rate: Rate
    hours: Uncertain
    cost: Uncertain

    @property
    def point(self) -> tuple[float, float]:
        """Hours and dollars, for the Pareto front."""
        return self.hours.median, self.cost.median

    def chance_within(self, deadline: float, budget: float) -> float:
        """Return the probability to be done within hours and dollars: a run in time costs its time and no more."""
        return self.hours.chance_below(min(deadline, budget / self.choice.price))


def make_quote(choice: Choice, rate: Rate, samples: float, interruptions: Interruptions) -> Quote:
    """Return the quote for a choice whose rate is predicted."""
    share = interruptions.share_left(choice.nodes) if choice.market == "spot" else 1.0
    hours = rate.rate.inverse().times(samples / HOUR_S / share)
    return Quote(choice, rate, hours, hours.times(choice.price))


def list_choices(rentals: Iterable[Rental], most_nodes: int, spot: bool) -> Iterator[Choice]:
    """Yield what can be rented: each machine alone and, where its network is known, in powers of two.

    >>> from simcomm.renting.rentals import read_rentals
    >>> [choice.instances for choice in list_choices(read_rentals()[2:3], most_nodes=4, spot=True)]
    ['AWS p3.16xlarge', '2 x AWS p3.16xlarge', '4 x AWS p3.16xlarge']
    """
    for rental in rentals:
        nodes = 1
        while nodes <= (most_nodes if rental.nic_bandwidth is not None else 1):
            if rental.price is not None:
                yield Choice(rental, nodes, "on demand")
            if spot and rental.spot_price is not None:
                yield Choice(rental, nodes, "spot")
            nodes *= 2
