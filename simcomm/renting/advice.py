"""The advice of a plan in words: what to rent, how sure that is, and what to measure first."""

from math import floor, log10

from simcomm.renting.measuring import MINUTES, Worth, half_width
from simcomm.renting.plan import RentalPlan
from simcomm.renting.quotes import Choice

SHARE = 0.8  # of the intervals
LEAST_DOLLARS = 1e-6
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
    if 0 < value < LEAST_DOLLARS:
        return f"under ${LEAST_DOLLARS:f}"
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
