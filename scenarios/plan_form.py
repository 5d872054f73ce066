"""``[plan]``: what is to be reached on rented machines, what may be rented, and what more is known of the training."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from collectives.errors import InputError
from collectives.quoting import cut
from scenarios.fields import Section

UNITS = {
    ("min", "minute", "minutes"): 1 / 60, ("h", "hour", "hours"): 1.0, ("d", "day", "days"): 24.0,
    ("week", "weeks"): 168.0,
}  # fmt: skip
DURATIONS = {name: hours for names, hours in UNITS.items() for name in names}


def parse_hours(value: object) -> float:
    """Return a duration in hours; a number without a unit is of hours. Raise InputError.

    >>> parse_hours("2 days"), parse_hours("90 min"), parse_hours(3)
    (48.0, 1.5, 3.0)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    try:
        number = float(found[1]) if found else -1.0
    except ValueError:
        number = -1.0
    factor = DURATIONS.get((found[2] or "h") if found else "")
    if factor is None or not 0 < number < 1e9 or isinstance(value, bool):
        raise InputError(f"{cut(str(value))!r} is no duration; write '12 h', '3 days' or '90 min'")
    return number * factor


Hours = Annotated[float, BeforeValidator(parse_hours)]
Dollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PlanForm(Section):
    """``[plan]``: what is to be reached, what may be rented, and what more is known of the training."""

    target_samples: Dollars | None = None  # the command line can say these instead
    budget: Dollars | None = None
    deadline: Hours | None = None
    spot: bool = False
    most_nodes: int = Field(4, ge=1, le=4096)
    providers: list[str] = Field([])
    interruptions_per_day: float = Field(0.0, ge=0, allow_inf_nan=False)  # of a spot node
    lost_per_interruption: Hours = 0.25
    known_rates: dict[str, Dollars] = Field({})  # samples/s of one GPU, by its type: measured
    profiles: list[str] = Field([])  # files of `ringlab profile` whose times say the same, beside the scenario
