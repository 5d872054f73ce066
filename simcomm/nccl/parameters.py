"""The model's parameters: values with priors, meanings and sources, from ``parameters.toml``."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collectives.errors import InputError

FILE = Path(__file__).parent / "parameters.toml"


@dataclass(frozen=True)
class Parameter:
    """A positive number, its prior, and the prior's spread: the standard deviation of its logarithm."""

    name: str
    value: float
    prior: float
    spread: float
    unit: str
    meaning: str
    source: str


class Parameters(Mapping[str, float]):
    """Values by name.

    >>> read_parameters().changed({"launch": 5.0})["launch"]
    5.0
    """

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> float:
        """Return the value of a parameter."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._values)

    def changed(self, values: Mapping[str, float]) -> "Parameters":
        """Return these with other values for some. Raise InputError for a name that is not there."""
        unknown = values.keys() - self._values.keys()
        if unknown:
            raise InputError(f"no parameter is called {min(unknown)!r}")
        return Parameters({**self._values, **values})


class RecordingParameters(Parameters):
    """Values that note which were read: what a system's time depends on."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> float:
        """Return the value of a parameter, and note that it was read."""
        self.read.add(name)
        return super().__getitem__(name)


def read_definitions(path: Path = FILE) -> dict[str, Parameter]:
    """Return the parameters as the file has them, by name. Raise InputError."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: Parameter(name, **table) for name, table in tables.items()}
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise InputError(f"{path}: {error}") from error


@cache
def read_parameters() -> Parameters:
    """Return the values that the project was fitted with."""
    return Parameters({name: found.value for name, found in read_definitions().items()})
