"""Quotes: how long a training takes on a choice of rented machines and what it costs, with how sure both are.

Break-even points say where the advice would be another one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import exp, log
from typing import Literal, NamedTuple

from collectives.errors import InputError
from collectives.units import format_bandwidth
from simcomm.mesh.intervals import Uncertain
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


SLOWEST, FASTEST = 1e9 / 80, 3.2e12 / 8  # bytes/s: networks between which one is sought, 0.1 Gbit/s to 3.2 Tbit/s
PAYS_OFF = 0.9  # of twice the rate: what a second node has to reach to cost at most a ninth more
STEPS = 40  # halvings: to a millionth
Predict = Callable[[Choice], Rate]


class BreakEven(NamedTuple):
    """A number at which something turns: in its unit, as it is now where that is known, and what it means."""

    what: str  # "second node", "price", "interruptions"
    value: float
    unit: str
    now: float | None
    text: str


def second_node(quote: Quote, predict: Predict) -> list[BreakEven]:
    """Return the network bandwidth above which a second node is sooner done, and above which it pays off.

    It pays off where two nodes do 0.9 of twice the work, so that a sample costs at most a ninth more. There is none of
    a mesh that cannot be made of one node and of two.
    """
    single = quote.choice._replace(nodes=1)
    try:
        alone, _ = predict(single).rate.median, predict(single._replace(nodes=2))
    except InputError:
        return []
    now = single.rental.nic_bandwidth
    found = []
    for share, text in (
        (0.5, "two nodes are slower than one below {} between them"),
        (PAYS_OFF, f"a second node pays off above {{}} between the two: they do {PAYS_OFF:.0%} of twice the work"),
    ):

        def gain(bandwidth: float, share: float = share) -> float:
            rental = replace(single.rental, nic_bandwidth=bandwidth)
            return predict(Choice(rental, 2, single.market)).rate.median / (2 * alone) - share

        value = _bisect(gain)
        if value is not None:
            theirs = "" if now is None else f" (theirs: {format_bandwidth(now)})"
            found.append(BreakEven("second node", value, "B/s", now, text.format(_about(value)) + theirs))
    return found


def _about(bandwidth: float) -> str:
    """Return a bandwidth with two digits: more is not known.

    >>> _about(4.215e9 / 8)
    '4.2 Gbit/s'
    """
    return format_bandwidth(float(f"{8 * bandwidth:.1e}") / 8)


def price_of_other(first: Quote, other: Quote) -> BreakEven:
    """Return the price an hour below which another quote is as cheap as the first."""
    price = other.choice.price
    value = price * first.cost.median / other.cost.median
    words = f"{other.choice.label} would be the cheapest below ${value:.2f} an hour, and costs ${price:.2f}"
    return BreakEven("price", value, "$/h", price, words)


def interruptions(on_demand: Quote, spot: Quote, given: Interruptions) -> BreakEven | None:
    """Return how often a day a spot node may be taken away until it costs as much; None if it is no cheaper."""
    share = spot.choice.price / on_demand.choice.price
    if share >= 1 or not given.lost_hours:
        return None
    value = 24 * (1 - share) / (given.lost_hours * spot.choice.nodes)
    words = (
        f"{spot.choice.label} stays cheaper than on demand up to {value:.0f} interruptions a day of "
        f"{60 * given.lost_hours:.0f} minutes each"
    )
    return BreakEven("interruptions", value, "1/day", given.per_day, words)


def _bisect(gain: Callable[[float], float]) -> float | None:
    """Return where a growing function of bandwidth becomes positive; None if it does nowhere or is everywhere."""
    low, high = log(SLOWEST), log(FASTEST)
    if gain(exp(low)) >= 0 or gain(exp(high)) < 0:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(exp(middle)) >= 0 else (middle, high)
    return exp(high)
