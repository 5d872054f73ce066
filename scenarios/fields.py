"""What every table of a scenario file shares: strictness, and values with units."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from collectives.units import parse_latency

Seconds = Annotated[float, BeforeValidator(parse_latency), Field(description='for example "12 ms"')]


class Section(BaseModel):
    """A table of the file; unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
