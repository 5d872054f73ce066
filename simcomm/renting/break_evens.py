"""Break-even points: where the advice of a plan would be another one."""

from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from typing import NamedTuple

from collectives.errors import InputError
from collectives.units import format_bandwidth
from simcomm.renting.quotes import Choice, Interruptions, Quote, Rate

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
