"""The plan: of all choices of rented machines the cheapest, how sure that is, and what to measure first, in words.

What to measure are the short runs that take most of the uncertainty that stands between choices. A run measures a rate,
a sum of causes in logarithms, up to a spread. Given the outcomes of one run or two, the logarithm of every cost is
normal with mean and variance by their covariance, so what they save is an integral over one normal number or two, done
by the trapezoidal rule.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor, inf, log10, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from simcomm.mesh.compute import MEASURED_SPREAD
from simcomm.mesh.intervals import Uncertain, chance_less
from simcomm.renting.quotes import (
    BreakEven,
    Choice,
    Interruptions,
    Quote,
    Rate,
    interruptions,
    price_of_other,
    second_node,
)

STEPS = {1: 801, 2: 81}  # of the rule from -8 to 8, by the number of runs
MINUTES = 10.0
Floats = npt.NDArray[np.float64]


class Measurement(NamedTuple):
    """One short run or two: in words, what they cost, and by which causes each rate may differ from the prediction."""

    what: str
    price: float  # dollars
    runs: tuple[Mapping[str, float], ...]


class Worth(NamedTuple):
    """What a measurement brings."""

    measurement: Measurement
    saves: float  # dollars that are expected to be saved by choosing after it, its own price not counted
    before: float  # spread of the ratio of the costs of the first and its rival
    after: float

    @property
    def gain(self) -> float:
        """Dollars that it is expected to bring in all."""
        return self.saves - self.measurement.price


def spread_after(number: Uncertain, runs: Sequence[Mapping[str, float]]) -> float:
    """Return the spread of a number's logarithm once sums of causes are measured.

    >>> round(spread_after(Uncertain(1.0, {"a": 0.3, "b": 0.4}), [{"a": 0.3}]), 3)
    0.401
    """
    moved = _moved([number], runs)[0]
    return sqrt(max(0.0, number.spread**2 - float(moved @ moved)))


def worth(quotes: Sequence[Quote], measurement: Measurement, first: Quote, rival: Quote) -> Worth:
    """Return what a measurement brings to one who otherwise takes the quote with the least expected cost.

    Its spreads are those of the ratio of the costs of two of the quotes.
    """
    before = min(quote.cost.mean for quote in quotes)
    saves = max(0.0, before - _least_after([quote.cost for quote in quotes], measurement.runs))
    ratio = first.cost.over(rival.cost)
    return Worth(measurement, saves, ratio.spread, spread_after(ratio, measurement.runs))


def half_width(spread: float) -> float:
    """Return the plus or minus of an interval of 80 % as a share, from the spread of a logarithm.

    >>> round(half_width(0.1), 3)
    0.137
    """
    return Uncertain(1.0, {"": spread}).interval(0.8)[1] - 1


def _moved(numbers: Sequence[Uncertain], runs: Sequence[Mapping[str, float]]) -> Floats:
    """Return by how much each logarithm moves with independent normal numbers that say the same as the runs."""
    names = sorted({name for run in runs for name in run} | {name for one in numbers for name in one.causes})
    seen = np.array([[run.get(name, 0.0) for name in names] for run in runs])
    each = np.array([[one.causes.get(name, 0.0) for name in names] for one in numbers])
    root = np.linalg.cholesky(seen @ seen.T + MEASURED_SPREAD**2 * np.eye(len(runs)))
    found: Floats = np.linalg.solve(root, seen @ each.T).T
    return found


def _least_after(costs: Sequence[Uncertain], runs: Sequence[Mapping[str, float]]) -> float:
    """Return the expected cost of what is the cheapest by the outcomes."""
    moved = _moved(costs, runs)
    left = np.array([one.spread**2 for one in costs]) - (moved**2).sum(axis=1)
    line = np.linspace(-8.0, 8.0, STEPS[len(runs)])
    outcomes = np.array([*product(line, repeat=len(runs))])
    weights = np.exp(-(outcomes**2).sum(axis=1) / 2)
    means = np.log([one.median for one in costs]) + left / 2
    after = np.exp(means[:, None] + moved @ outcomes.T).min(axis=0)
    return float(after @ weights / weights.sum())


CONTENDERS = 40  # the cheapest choices: those that a measurement can still put first

Predict = Callable[[Choice], Rate]


@dataclass(frozen=True)
class PlanLimits:
    """What a training may take: hours and dollars."""

    deadline: float = inf
    budget: float = inf

    def fit(self, quote: Quote) -> bool:
        """Return whether the predicted hours and dollars are within both."""
        return quote.hours.median <= self.deadline and quote.cost.median <= self.budget


@dataclass(frozen=True)
class RentalPlan:
    """What to rent. ``quotes`` are within the limits, the cheapest first; the front is of these, the soonest first."""

    quotes: tuple[Quote, ...]
    front: tuple[Quote, ...]
    chance_first: float  # that the first really is cheaper than the second
    rival: Quote | None  # of the others the one that is most likely cheaper than the first
    chance_rival: float  # that the first really is cheaper than the rival
    break_evens: tuple[BreakEven, ...]
    measure: Worth | None  # what brings most before choosing; None where nothing brings more than it costs
    beyond: int  # quotes outside the limits

    @property
    def first(self) -> Quote:
        """The cheapest."""
        return self.quotes[0]


def make_plan(quotes: Sequence[Quote], limits: PlanLimits, predict: Predict, spot: Interruptions) -> RentalPlan:
    """Return the plan for these quotes. Raise InputError, with the nearest, where none is within the limits."""
    ranked = sorted(quotes, key=lambda quote: (quote.cost.median, quote.hours.median, quote.choice.rental.key))
    within = [quote for quote in ranked if limits.fit(quote)]
    if not within:
        raise InputError(_nearest(ranked, limits))
    front = [within[place] for place in pareto_front([quote.point for quote in within])]
    chance = chance_less(within[0].cost, within[1].cost) if len(within) > 1 else 1.0
    rival = max(within[1:CONTENDERS], key=lambda quote: chance_less(quote.cost, within[0].cost), default=None)
    return RentalPlan(
        quotes=tuple(within),
        front=tuple(front),
        chance_first=chance,
        rival=rival,
        chance_rival=chance_less(within[0].cost, rival.cost) if rival else 1.0,
        break_evens=tuple(_break_evens(within, ranked, predict, spot)),
        measure=best_measurement(within, ranked, rival),
        beyond=len(ranked) - len(within),
    )


def _nearest(ranked: Sequence[Quote], limits: PlanLimits) -> str:
    """Return the message that nothing is within the limits, with what comes nearest to each."""
    asked = []
    said = []
    if limits.deadline < inf:
        asked.append(f"within {_duration(limits.deadline)}")
        soon = [quote for quote in ranked if quote.hours.median <= limits.deadline]
        if soon:
            said.append(f"in that time the cheapest is {_brief(soon[0])}")
        else:
            said.append(f"the soonest is {_brief(min(ranked, key=lambda quote: quote.hours.median))}")
    if limits.budget < inf:
        asked.append(f"for ${limits.budget:g}")
        paid = [quote for quote in ranked if quote.cost.median <= limits.budget]
        if paid:
            said.append(f"for that the soonest is {_brief(min(paid, key=lambda quote: quote.hours.median))}")
        else:
            said.append(f"the cheapest is {_brief(ranked[0])}")
    return f"nothing is done {' and '.join(asked)}: {'; '.join(said)}"


def _brief(quote: Quote) -> str:
    return f"{quote.choice.instances} at ${quote.cost.median:.2f} in {_duration(quote.hours.median)}"


def _duration(hours: float) -> str:
    return f"{hours:.3g} h" if hours >= 1 else f"{hours * 60:.3g} min"


def _break_evens(
    within: Sequence[Quote], ranked: Iterable[Quote], predict: Predict, spot: Interruptions
) -> Iterable[BreakEven]:
    first = within[0]
    yield from second_node(first, predict)
    other = next((quote for quote in within if quote.choice.rental.gpu != first.choice.rental.gpu), None)
    if other is not None:
        yield price_of_other(first, other)
    twin = next((quote for quote in ranked if _is_twin(quote.choice, first.choice)), None)
    if twin is not None:
        pair = (twin, first) if first.choice.market == "spot" else (first, twin)
        found = interruptions(*pair, spot)
        if found is not None:
            yield found


def _is_twin(one: Choice, other: Choice) -> bool:
    """Return whether two choices are the same machines, one on demand and one spot."""
    return (one.rental, one.nodes) == (other.rental, other.nodes) and one.market != other.market


def best_measurement(within: Sequence[Quote], everything: Iterable[Quote], rival: Quote | None) -> Worth | None:
    """Return the short run, or two, expected to bring most to one who chooses among quotes, if more than they cost.

    Each is of a choice's machines, or of the cheapest machine with one of its GPUs; two are of the first and another.
    """
    if rival is None:
        return None
    contenders = within[:CONTENDERS]
    runs = {run.what: run for quote in contenders for run in _runs(quote, everything)}
    own = [*_runs(contenders[0], everything)]
    # so many of them are measured together with the first
    others = [run for quote in (rival, *contenders[1:6]) for run in _runs(quote, everything)]
    pairs = {run.what: run for run in (_both(one, other) for one in own for other in others if one.runs != other.runs)}
    found = [worth(contenders, run, contenders[0], rival) for run in (*runs.values(), *pairs.values())]
    best = max(found, key=lambda each: each.gain)
    return best if best.gain > 0 else None


def _both(one: Measurement, other: Measurement) -> Measurement:
    return Measurement(f"{one.what} and {other.what}", one.price + other.price, one.runs + other.runs)


def _runs(quote: Quote, everything: Iterable[Quote]) -> Iterable[Measurement]:
    """Yield what can be measured of a quote: its machines, and one GPU of its type where that is for sale."""
    share = MINUTES / 60
    choice, gpu = quote.choice, quote.choice.rental.gpu
    yield Measurement(choice.instances, choice.price * share, (quote.rate.rate.causes,))
    alone = [each for each in everything if each.choice.gpus == 1 and each.choice.rental.gpu == gpu]
    if alone and choice.gpus > 1:
        least = min(alone, key=lambda each: each.choice.price)
        what = f"one {gpu} ({least.choice.instances})"
        yield Measurement(what, least.choice.price * share, (least.rate.rate.causes,))


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the positions of the points with nothing at most as large in both and less in one, by the first number.

    Of equal points the first stays.

    >>> pareto_front([(1.0, 9.0), (2.0, 9.0), (3.0, 4.0), (2.5, 5.0), (4.0, 4.0)])
    [0, 3, 2]
    """
    front, least = list[int](), float("inf")
    for place in sorted(range(len(points)), key=lambda place: (*points[place], place)):
        if points[place][1] < least:
            front.append(place)
            least = points[place][1]
    return front


SHARE = 0.8  # of the intervals
UNSURE = 0.9  # of the first being cheaper than its rival: below it the advice is to measure first


def advise(found: RentalPlan) -> str:
    """Return a sentence that says what to rent, for what and how sure that is, and where it pays what to measure."""
    first = found.first
    low, high = first.cost.interval(SHARE)
    said = (
        f"Rent {named(first.choice)}: {format_dollars(first.cost.median)} ({format_dollars(low)} to "
        f"{format_dollars(high)}) and {first.hours.median:.3g} hours"
    )
    if found.rival is not None:
        said += f", cheaper than {named(found.rival.choice)} with a probability of {_chance(found.chance_rival)}"
    if found.measure is not None and found.chance_rival < UNSURE:
        return f"{said}. {_measure(found.measure)}"
    return f"{said}."


def named(choice: Choice) -> str:
    """Return machines by what they have and by the name under which they are rented.

    >>> from simcomm.renting.rentals import read_rentals
    >>> named(Choice(read_rentals()[2], 2, "on demand"))
    '16 x V100 SXM2 16GB on 2 nodes from AWS (2 x p3.16xlarge)'
    """
    times = f"{choice.nodes} x " if choice.nodes > 1 else ""
    what = choice.label.partition(", ")[0]
    return f"{what} from {choice.rental.provider} ({times}{choice.rental.instance}{choice.spot})"


def format_dollars(value: float) -> str:
    """Return an amount with cents below a hundred dollars, and without above; of less than a cent two digits.

    >>> format_dollars(46.304), format_dollars(1234.5), format_dollars(0.00135), format_dollars(0.00001)
    ('$46.30', '$1,234', '$0.0014', '$0.000010')
    >>> format_dollars(1e-9)
    'under $0.000001'
    """
    if 0 < value < 1e-6:
        return "under $0.000001"
    if 0 < value < 0.01:
        return f"${value:.{1 - floor(log10(value))}f}"
    return f"${value:,.2f}" if value < 100 else f"${value:,.0f}"


def _chance(share: float) -> str:
    return "over 99%" if share > 0.99 else f"{share:.0%}"


def _measure(run: Worth) -> str:
    """Return what to measure first, and what that is worth."""
    each = " each" if len(run.measurement.runs) > 1 else ""
    before, after = half_width(run.before), half_width(run.after)
    by = "it halves" if 1.8 <= before / after <= 2.2 else "it takes"
    ends = "" if by == "it halves" else f" from ±{before:.0%} to ±{after:.0%}"
    return (
        f"But first run {run.measurement.what} for {MINUTES:.0f} minutes{each} "
        f"({format_dollars(run.measurement.price)}): {by} the uncertainty between the two{ends}, and is expected to "
        f"save {format_dollars(run.saves)}."
    )
