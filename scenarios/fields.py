"""Define the base class and the value types of the tables in a scenario file."""

from functools import partial
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from collectives import units
from collectives.checks import MOST_RANKS, check_printable
from collectives.errors import InputError
from collectives.quoting import quote


class Section(BaseModel):
    """Base class for a table of a scenario file. Unknown keys and values of the wrong type are rejected."""

    # defer_build: most files need few sections, and building all is slow
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Reference(NamedTuple):
    """A name with optional parameters, such as ``"ecmp"`` or ``{name = "ecmp", seed = 1}``."""

    name: str
    parameters: dict[str, int | str]


def read_reference(value: object, accepted: str) -> Reference:
    """Return the Reference for a name, or for a table with ``name`` and parameters.

    Raise InputError with the message ``accepted`` if there is no name, or with another message if a parameter is
    neither an integer nor a string.
    """
    name, parameters = value, {}
    if isinstance(value, dict):
        parameters = {key: parameter for key, parameter in value.items() if key != "name"}
        name = value.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(accepted)
    for key, parameter in parameters.items():
        if type(parameter) not in (int, str):
            raise InputError(f"parameter {key} of {name} must be an integer or a string, not {quote(parameter)}")
    return Reference(name, parameters)


def as_list(value: object) -> object:
    """Return ``value`` if it is a list, otherwise a list that contains it."""
    return value if isinstance(value, list) else [value]


Bandwidth = Annotated[
    units.Bandwidth,
    PlainValidator(lambda text: units.Bandwidth(units.parse_bandwidth(text))),
    Field(description='for example "10 Gbit/s"'),
]
Latency = Annotated[
    units.Latency,
    PlainValidator(lambda text: units.Latency(units.parse_latency(text))),
    Field(description='for example "5 us"'),
]
Seconds = Annotated[float, BeforeValidator(units.parse_latency), Field(description='for example "12 ms"')]
# up to 1 TiB, so that products of bytes and chunks stay exact
Size = Annotated[int, BeforeValidator(units.parse_size), Field(ge=0, le=2**40)]
Title = Annotated[str, AfterValidator(partial(check_printable, "title"))]
Count = Annotated[int, Field(ge=1, le=MOST_RANKS)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ALGORITHM = 'an algorithm is "ring", {name = "ring", parameter = 4} or "my.py:name"'
Algorithm = Annotated[Reference, PlainValidator(partial(read_reference, accepted=ALGORITHM))]
Algorithms = Annotated[list[Algorithm], BeforeValidator(as_list)]
